-- The views that people query.

-- Every recorded top-k entry, best first.
CREATE VIEW IF NOT EXISTS topk AS
SELECT l.row_id AS row_id, j.key + 1 AS rank, j.value ->> 0 AS token, j.value ->> 1 AS logit
FROM logits AS l, json_each(l.topk) AS j;
