-- The arms of the latest run, and how many of their rows have a context that arm :arm_id has too;
-- same_model: whether the weights are those of that arm's run.
SELECT a.run_id AS run, a.arm_id AS arm_id, a.label AS arm, count(l.row_id) AS n_rows,
       count(b.row_id) AS n_comparable,
       (SELECT r.model_hash IS o.model_hash
        FROM runs AS r, arms AS base JOIN runs AS o ON o.run_id = base.run_id
        WHERE r.run_id = a.run_id AND base.arm_id = :arm_id) AS same_model
FROM arms AS a
JOIN logits AS l ON l.arm_id = a.arm_id
LEFT JOIN logits AS b ON b.context_hash = l.context_hash AND b.pos = l.pos AND b.arm_id = :arm_id
WHERE a.run_id = (SELECT max(run_id) FROM runs)
GROUP BY a.arm_id
ORDER BY a.arm_id;
