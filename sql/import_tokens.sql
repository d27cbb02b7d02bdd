-- The tokens of one response, :body, and the list of each, one row for each entry (or one, with
-- NULLs, where there is no list), in the order in which they were chosen. Ids and values are JSON
-- text, so that what is no number shows. Forms: OpenAI's chat completions (vLLM, SGLang,
-- llama-server) and llama-server's own; OpenAI's older completions; SGLang's own. Each level is
-- MATERIALIZED: a value of json_each is rendered anew wherever it is used.
WITH choices(choice, c, logprobs) AS MATERIALIZED (
    SELECT coalesce(value ->> '$.index', key), key, value -> '$.logprobs'
    FROM json_each(:body, '$.choices')
),
items(choice, k, type, v) AS MATERIALIZED (
    SELECT c.choice, t.key, t.type, t.value FROM choices AS c, json_each(c.logprobs, '$.content') AS t
    UNION ALL
    SELECT 0, t.key, t.type, t.value FROM json_each(:body, '$.completion_probabilities') AS t
    UNION ALL
    SELECT 0, t.key, t.type, t.value FROM json_each(:body, '$.probs') AS t
),
named(choice, k, type, id, text, bytes, value, is_prob, list) AS MATERIALIZED (
    SELECT choice, k, type, v -> '$.id', coalesce(v ->> '$.token', v ->> '$.content'), v -> '$.bytes',
           coalesce(v -> '$.logprob', v -> '$.prob'),
           coalesce(json_type(v, '$.top_probs'), json_type(v, '$.probs'), json_type(v, '$.prob')) IS NOT NULL,
           coalesce(v -> '$.top_logprobs', v -> '$.top_probs', v -> '$.probs')
    FROM (SELECT choice, k, type, CASE type WHEN 'object' THEN v END AS v FROM items)
),
entries(choice, k, type, id, text, bytes, value, is_prob, rank, entry_type, e) AS MATERIALIZED (
    SELECT i.choice, i.k, i.type, i.id, i.text, i.bytes, i.value, i.is_prob, a.key, coalesce(a.type, ''),
           CASE a.type WHEN 'object' THEN a.value END
    FROM named AS i LEFT JOIN json_each(i.list) AS a
),
older(choice, c, k, type, text) AS MATERIALIZED (
    SELECT c.choice, c.c, t.key, t.type, t.value FROM choices AS c, json_each(c.logprobs, '$.tokens') AS t
),
older_values(c, k, value) AS MATERIALIZED (
    SELECT c.c, t.key, CASE WHEN t.type IN ('integer', 'real') THEN json_quote(t.value) ELSE t.type END
    FROM choices AS c, json_each(c.logprobs, '$.token_logprobs') AS t
),
older_lists(c, k, list) AS MATERIALIZED (
    SELECT c.c, t.key,
           CASE t.type WHEN 'object' THEN t.value WHEN 'null' THEN NULL ELSE json_array(t.value) END
    FROM choices AS c, json_each(c.logprobs, '$.top_logprobs') AS t
),
native(k, type, v) AS MATERIALIZED (
    SELECT key, type, CASE type WHEN 'array' THEN value END
    FROM json_each(:body, '$.meta_info.output_token_logprobs')
),
native_lists(k, list) AS MATERIALIZED (
    SELECT key, CASE WHEN type IN ('object', 'array') THEN value WHEN type <> 'null' THEN json_array(value) END
    FROM json_each(:body, '$.meta_info.output_top_logprobs')
),
native_entries(k, type, v, rank, entry_type, e) AS MATERIALIZED (
    SELECT t.k, t.type, t.v, a.key, a.type, CASE a.type WHEN 'array' THEN a.value END
    FROM native AS t LEFT JOIN native_lists AS l ON l.k = t.k LEFT JOIN json_each(l.list) AS a
)
SELECT choice, k, type, id, text, bytes, value, rank, entry_type,
       e -> '$.id' AS entry_id, coalesce(e ->> '$.token', e ->> '$.tok_str') AS entry_text,
       e -> '$.bytes' AS entry_bytes, coalesce(e -> '$.logprob', e -> '$.prob') AS entry_value, is_prob
FROM entries
UNION ALL
SELECT o.choice, o.k, iif(o.type = 'text', 'object', o.type), NULL, o.text, NULL, v.value, a.key,
       iif(a.key IS NULL, '', 'object'), NULL, a.key, NULL,
       CASE WHEN a.type IN ('integer', 'real') THEN json_quote(a.value) ELSE a.type END, 0
FROM older AS o
LEFT JOIN older_values AS v ON v.c = o.c AND v.k = o.k
LEFT JOIN older_lists AS l ON l.c = o.c AND l.k = o.k
LEFT JOIN json_each(l.list) AS a
UNION ALL
SELECT 0, k, iif(type = 'array', 'object', type), v -> 1, v ->> 2, NULL, v -> 0, rank,
       iif(entry_type = 'array', 'object', coalesce(entry_type, '')), e -> 1, e ->> 2, NULL, e -> 0, 0
FROM native_entries
ORDER BY 1, 2, 8;
