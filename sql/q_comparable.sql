-- How many positions arms :arm_a and :arm_b have in common, counted up to :n; in sequence :seq_id of
-- arm B where that is not NULL.
SELECT count(*) AS n FROM (
    SELECT 1 FROM logits AS b
    WHERE b.arm_id = :arm_b AND b.seq_id = coalesce(:seq_id, b.seq_id)
      AND EXISTS (SELECT 1 FROM logits AS a
                  WHERE a.context_hash = b.context_hash AND a.pos = b.pos AND a.arm_id = :arm_a)
    LIMIT coalesce(:n, -1));
