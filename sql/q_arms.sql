-- The arms of a file, each a numeric configuration, with what it recorded. :run_id, or NULL for all.
SELECT a.arm_id AS arm_id, a.run_id AS run, a.label AS arm, a.phase AS phase, a.class AS class,
       count(l.row_id) AS n_rows, count(DISTINCT l.seq_id) AS n_seqs, min(l.pos) AS first_pos,
       max(l.pos) AS last_pos, min(l.margin) AS min_margin
FROM arms AS a
LEFT JOIN logits AS l ON l.arm_id = a.arm_id
WHERE :run_id IS NULL OR a.run_id = :run_id
GROUP BY a.arm_id
ORDER BY a.arm_id;
