-- What is known of arm :arm_id that tells how it may differ from another: its class, engine, model,
-- type of its logits, and the engine's settings that matter to it.
SELECT a.class AS class, a.phase AS phase, r.uuid AS run, r.engine AS engine, r.model_hash AS model_hash,
       r.model_path AS model,
       (SELECT l.dtype FROM logits AS l WHERE l.arm_id = a.arm_id LIMIT 1) AS dtype,
       (SELECT s.value FROM settings AS s WHERE s.run_id = a.run_id AND s.name = 'NEARTIE_KV') AS kv,
       (SELECT CAST(s.value AS INTEGER) FROM settings AS s
        WHERE s.run_id = a.run_id AND s.name = 'NEARTIE_PRIME_CHUNK') AS chunk
FROM arms AS a
JOIN runs AS r ON r.run_id = a.run_id
WHERE a.arm_id = :arm_id;
