-- The runs of a file: what recorded, for how long, how much, how many rows
-- could not be recorded, and how many were removed since.
SELECT r.run_id AS run, r.uuid AS uuid, r.state AS state,
       datetime(r.started_ns / 1000000000, 'unixepoch') AS started_utc,
       (r.ended_ns - r.started_ns) / 1e9 AS seconds, r.engine AS engine, r.model_path AS model,
       (SELECT count(*) FROM arms AS a WHERE a.run_id = r.run_id) AS n_arms,
       (SELECT count(*) FROM forwards AS f WHERE f.run_id = r.run_id) AS n_forwards,
       (SELECT count(*) FROM logits AS l JOIN arms AS a ON a.arm_id = l.arm_id
        WHERE a.run_id = r.run_id) AS n_rows,
       (SELECT coalesce(sum(g.count), 0) FROM gaps AS g
        WHERE g.run_id = r.run_id AND g.kind IN ('rows_dropped', 'device_rows_dropped'))
           AS n_lost,
       (SELECT coalesce(sum(g.count), 0) FROM gaps AS g
        WHERE g.run_id = r.run_id AND g.kind = 'rows_pruned') AS n_pruned
FROM runs AS r
ORDER BY r.run_id;
