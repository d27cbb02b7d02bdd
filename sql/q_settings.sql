-- The numeric knobs in effect in run :run_id, or in all runs where that is NULL.
SELECT run_id AS run, name AS name, value AS value, source AS source
FROM settings
WHERE :run_id IS NULL OR run_id = :run_id
ORDER BY run_id, name;
