-- How many rows of arm :arm_id can be compared.
SELECT count(*) AS n FROM logits WHERE arm_id = :arm_id AND context_hash IS NOT NULL;
