-- What one line says of its request and response, :line being valid JSON. The response is the line
-- itself, or its member response (of a batch: response.body); the request is its member request.
WITH line(j) AS (SELECT :line),
parts(j, request, body, status) AS MATERIALIZED (
    SELECT j, CASE json_type(j, '$.request') WHEN 'object' THEN j -> '$.request' ELSE '{}' END,
           CASE WHEN json_type(j, '$.response.body') IS NOT NULL THEN j -> '$.response.body'
                WHEN json_type(j, '$.response') IS NOT NULL THEN j -> '$.response' ELSE j END,
           coalesce(j ->> '$.response.status_code', 200)
    FROM line WHERE json_type(j) = 'object'
),
-- Token ids of the prompt, wherever an engine states them; of several choices only if all agree.
prompts(place, ids) AS (
    SELECT 1, body -> '$.prompt_token_ids' FROM parts
    UNION ALL
    SELECT 2, min(ids)
    FROM (SELECT c.value -> '$.prompt_token_ids' AS ids FROM parts, json_each(body, '$.choices') AS c
          WHERE c.type = 'object' LIMIT -1 OFFSET 0)
    HAVING count(DISTINCT ids) = 1 AND count(*) = count(ids)
    UNION ALL
    SELECT 3, body -> '$.meta_info.prompt_token_ids' FROM parts
    UNION ALL
    SELECT 4, json_group_array(CASE p.type WHEN 'array' THEN p.value ->> 1 END)
    FROM parts, json_each(body, '$.meta_info.input_token_logprobs') AS p
    HAVING count(*) = max(body ->> '$.meta_info.prompt_tokens')
    UNION ALL
    SELECT 5, request -> '$.input_ids' FROM parts
    UNION ALL
    SELECT 6, request -> '$.prompt' FROM parts
)
SELECT j IS NOT NULL AS is_object,
       coalesce(json_type(body), '') = 'object' AND status = 200
           AND coalesce(json_type(body, '$.error'), 'null') = 'null' AS is_response,
       body,
       j ->> '$.custom_id' AS custom_id,
       body ->> '$.id' AS id,
       body ->> '$.model' AS model,
       (SELECT ids FROM prompts
        WHERE json_type(ids) = 'array' AND json_array_length(ids) > 0
          AND NOT EXISTS (SELECT 1 FROM json_each(ids) AS i WHERE i.type <> 'integer')
        ORDER BY place LIMIT 1) AS prompt_ids,
       CASE WHEN json_type(request, '$.prompt') = 'text' THEN request ->> '$.prompt'
            WHEN json_type(request, '$.text') = 'text' THEN request ->> '$.text'
            WHEN coalesce(request -> '$.messages', request -> '$.prompt', request -> '$.text',
                          request -> '$.input_ids') IS NOT NULL
                THEN json_array(request -> '$.messages', request -> '$.prompt', request -> '$.text',
                                request -> '$.input_ids', request -> '$.tools',
                                request -> '$.chat_template', request -> '$.chat_template_kwargs',
                                request -> '$.documents')
            WHEN json_type(body, '$.prompt') = 'text' THEN body ->> '$.prompt' END AS prompt,
       -- several prompts of one request, or choices that are none
       coalesce(json_type(request, '$.prompt[1]') IN ('text', 'array')
                OR json_type(request, '$.text[1]') = 'text'
                OR json_type(request, '$.input_ids[1]') = 'array', 0) AS is_several,
       (SELECT json_quote(c.value) FROM json_each(body, '$.choices') AS c
        WHERE c.type <> 'object' AND coalesce(json_type(body, '$.choices'), 'null') <> 'null'
        LIMIT 1) AS odd_choice,
       coalesce(body ->> '$.object' GLOB '*.chunk', 0) AS is_chunk,
       coalesce(body ->> '$.usage.prompt_tokens', body ->> '$.meta_info.prompt_tokens') AS n_prompt_tokens
FROM (SELECT 1) LEFT JOIN parts;
