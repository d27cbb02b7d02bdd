-- The last :n comparable positions of sequence :seq_id between arms :arm_a and :arm_b, in order of
-- position: the rows of the seed's rule. bad: NaN or +inf on either side. :n below 0 gives all.
SELECT * FROM (
    SELECT p.pos AS pos, p.top1_a AS top1_a, p.top2_a AS top2_a, p.margin_a AS margin_a,
           p.top1_b AS top1_b, p.top2_b AS top2_b, p.margin_b AS margin_b, p.delta AS delta,
           p.flip AS flip, p.bounded AS bounded,
           a.n_nan + a.n_posinf + b.n_nan + b.n_posinf > 0 AS bad, p.row_a AS row_a,
           p.row_b AS row_b
    FROM pairs AS p
    JOIN logits AS a ON a.row_id = p.row_a
    JOIN logits AS b ON b.row_id = p.row_b
    WHERE p.arm_id_a = :arm_a AND p.arm_id_b = :arm_b AND p.seq_id = :seq_id
    ORDER BY p.pos DESC, p.row_b DESC LIMIT :n)
ORDER BY pos, row_b;
