-- What run :run_id could not record, and why; all runs where that is NULL.
SELECT run_id AS run, kind AS kind, count AS count, detail AS detail, forward_id AS forward_id
FROM gaps
WHERE :run_id IS NULL OR run_id = :run_id
ORDER BY gap_id;
