-- The run of a database that PROBE_BASELINE compares with: the one of the newest row.
SELECT r.run_id AS run_id, r.uuid AS uuid, r.n_vocab AS n_vocab,
       (SELECT value FROM settings AS s WHERE s.run_id = r.run_id AND s.name = 'PROBE_TOPK') AS topk,
       (SELECT count(*) FROM logits) AS n_rows
FROM runs AS r
JOIN forwards AS f ON f.run_id = r.run_id
WHERE f.forward_id = (SELECT forward_id FROM logits ORDER BY row_id DESC LIMIT 1);
