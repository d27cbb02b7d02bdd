-- Sequence :seq_id: the engine's number of it, its label, and how many positions of it arms :arm_a and
-- :arm_b have in common.
SELECT q.seq_id AS seq_id, q.seq AS seq, q.label AS label,
       (SELECT count(*) FROM logits AS b
        WHERE b.arm_id = :arm_b AND b.seq_id = q.seq_id
          AND EXISTS (SELECT 1 FROM logits AS a
                      WHERE a.context_hash = b.context_hash AND a.pos = b.pos
                        AND a.arm_id = :arm_a)) AS n
FROM sequences AS q
WHERE q.seq_id = :seq_id;
