-- How many rows of run :run_id are not in the file: never recorded, and removed since.
SELECT coalesce(sum(CASE WHEN kind IN ('rows_dropped', 'device_rows_dropped') THEN count END), 0) AS n_lost,
       coalesce(sum(CASE WHEN kind = 'rows_pruned' THEN count END), 0) AS n_pruned
FROM gaps
WHERE run_id = :run_id;
