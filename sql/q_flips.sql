-- The flips between arms :arm_a and :arm_b, or between any two arms where both are NULL.
SELECT f.run_a AS run_a, f.arm_a AS arm_a, f.run_b AS run_b, f.arm_b AS arm_b, f.seq_id AS seq_id,
       f.pos AS pos, f.top1_a AS top1_a, f.text_a AS text_a, f.margin_a AS margin_a,
       f.top1_b AS top1_b, f.text_b AS text_b, f.margin_b AS margin_b, f.contrast AS contrast,
       f.delta AS delta, f.bounded AS bounded, f.row_a AS row_a, f.row_b AS row_b
FROM flips AS f
WHERE (:arm_a IS NULL OR f.arm_id_a = :arm_a) AND (:arm_b IS NULL OR f.arm_id_b = :arm_b)
ORDER BY f.arm_id_a, f.arm_id_b, f.seq_id, f.pos, f.row_b;
