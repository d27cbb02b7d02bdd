-- The sequences of the run of arm :arm_id, the latest first, without looking at their rows.
SELECT q.seq_id AS seq_id
FROM sequences AS q
WHERE q.run_id = (SELECT run_id FROM arms WHERE arm_id = :arm_id)
ORDER BY q.seq_id DESC;
