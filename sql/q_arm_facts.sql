-- What is known of arm :arm_id that tells how it may differ from another: its class, engine, model,
-- type of its logits, and the engine's settings that matter to it (llama.cpp's have other names).
SELECT a.class AS class, a.phase AS phase, r.uuid AS run, r.engine AS engine, r.model_hash AS model_hash,
       r.model_path AS model,
       (SELECT l.dtype FROM logits AS l WHERE l.arm_id = a.arm_id LIMIT 1) AS dtype,
       (SELECT s.value FROM settings AS s
        WHERE s.run_id = a.run_id AND s.name IN ('NEARTIE_KV', 'cache_type_k')) AS kv,
       (SELECT CAST(s.value AS INTEGER) FROM settings AS s
        WHERE s.run_id = a.run_id AND s.name IN ('NEARTIE_PRIME_CHUNK', 'n_ubatch')) AS chunk
FROM arms AS a
JOIN runs AS r ON r.run_id = a.run_id
WHERE a.arm_id = :arm_id;
