-- The sequences in which arms :arm_a and :arm_b can be compared, with their flips.
SELECT m.seq_id AS seq_id, q.seq AS seq, q.label AS label, count(*) AS n, sum(m.flip) AS n_flips,
       min(m.pos) AS first_pos, max(m.pos) AS last_pos
FROM matches AS m
JOIN sequences AS q ON q.seq_id = m.seq_id
WHERE m.arm_id_a = :arm_a AND m.arm_id_b = :arm_b
GROUP BY m.seq_id
ORDER BY m.seq_id;
