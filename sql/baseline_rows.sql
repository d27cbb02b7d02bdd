-- Rows of one run that others may be compared with, the newest first.
SELECT l.row_id AS row_id, l.context_hash AS context_hash, l.pos AS pos, a.phase AS phase,
       l.topk AS topk, l.n_nan AS n_nan
FROM logits AS l
JOIN forwards AS f ON f.forward_id = l.forward_id
LEFT JOIN arms AS a ON a.arm_id = f.arm_id
WHERE f.run_id = :run_id AND l.context_hash IS NOT NULL
ORDER BY l.row_id DESC;
