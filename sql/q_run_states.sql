-- Who recorded into a file, and whether that has ended.
SELECT run_id AS run, uuid AS uuid, state AS state FROM runs ORDER BY run_id;
