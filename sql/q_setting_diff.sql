-- Knobs that differ between runs :run_a and :run_b; NULL where a run has none of that name.
WITH names(name) AS (SELECT name FROM settings WHERE run_id IN (:run_a, :run_b) GROUP BY name)
SELECT n.name AS name, a.value AS value_a, a.source AS source_a, b.value AS value_b,
       b.source AS source_b
FROM names AS n
LEFT JOIN settings AS a ON a.run_id = :run_a AND a.name = n.name
LEFT JOIN settings AS b ON b.run_id = :run_b AND b.name = n.name
WHERE a.value IS NOT b.value
ORDER BY n.name;
