-- The models that a file's runs computed, by their weights, with how many runs each.
SELECT coalesce(model_hash, model_path, '') AS model, count(*) AS n_runs
FROM runs
GROUP BY 1
ORDER BY min(run_id);
