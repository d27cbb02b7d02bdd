-- The first and the last row_id of logits: a scan is split between them.
SELECT (SELECT min(row_id) FROM logits) AS first, (SELECT max(row_id) FROM logits) AS last;
