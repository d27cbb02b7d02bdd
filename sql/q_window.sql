-- The last :n comparable positions of sequence :seq_id between arms :arm_a and :arm_b, in order of
-- position: the rows of the seed's rule. bad: NaN or +inf on either side. :n below 0 gives all. The
-- positions are found first, in the index of contexts, so that only their rows are read.
WITH found AS MATERIALIZED (
    SELECT b.row_id AS row_b, (SELECT min(a.row_id) FROM logits AS a
                               WHERE a.context_hash = b.context_hash AND a.pos = b.pos
                                 AND a.arm_id = :arm_a) AS row_a
    FROM logits AS b
    WHERE b.arm_id = :arm_b AND b.seq_id = :seq_id AND row_a IS NOT NULL
    ORDER BY b.pos DESC, b.row_id DESC LIMIT coalesce(:n, -1))
SELECT p.pos AS pos, p.top1_a AS top1_a, p.top2_a AS top2_a, p.margin_a AS margin_a,
       p.top1_b AS top1_b, p.top2_b AS top2_b, p.margin_b AS margin_b, p.delta AS delta,
       p.flip AS flip, p.bounded AS bounded,
       a.n_nan + a.n_posinf + b.n_nan + b.n_posinf > 0 AS bad, p.row_a AS row_a, p.row_b AS row_b
FROM found AS f
CROSS JOIN pairs AS p ON p.row_a = f.row_a AND p.row_b = f.row_b
JOIN logits AS a ON a.row_id = f.row_a
JOIN logits AS b ON b.row_id = f.row_b
ORDER BY p.pos, p.row_b;
