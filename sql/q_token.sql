-- The text of token :token as the model of arm :arm_id has it.
SELECT CAST(v.text AS TEXT) AS text
FROM arms AS a
JOIN runs AS r ON r.run_id = a.run_id
JOIN vocab AS v ON v.model_hash = coalesce(r.model_hash, '') AND v.token = :token
WHERE a.arm_id = :arm_id;
