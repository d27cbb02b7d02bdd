-- How much is in a file.
SELECT (SELECT count(*) FROM runs) AS n_runs, (SELECT count(*) FROM arms) AS n_arms,
       (SELECT count(*) FROM logits) AS n_rows;
