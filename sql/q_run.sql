-- What run :run_id was: program, engine, model, machine and state.
SELECT run_id AS run, uuid AS uuid, state AS state, host AS host, pid AS pid, exe AS exe,
       engine AS engine, model_path AS model, model_hash AS model_hash, n_vocab AS n_vocab,
       gpu_name AS gpu, probe_version AS probe_version,
       datetime(started_ns / 1000000000, 'unixepoch') AS started_utc,
       (ended_ns - started_ns) / 1e9 AS seconds
FROM runs
WHERE run_id = :run_id;
