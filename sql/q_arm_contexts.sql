-- The rows of arm :arm_id that can be compared, without their logits; in order of sequence where
-- :sorted is 1. Answered by the index of contexts alone.
SELECT row_id, context_hash, pos, seq_id
FROM logits
WHERE arm_id = :arm_id AND context_hash IS NOT NULL
ORDER BY CASE WHEN :sorted THEN seq_id END, CASE WHEN :sorted THEN pos END, row_id;
