-- Run by run, what goes; n_kept: rows as old that stay for a flip.
SELECT r.run_id AS run, r.uuid AS uuid, datetime(r.started_ns / 1000000000, 'unixepoch') AS started_utc,
       count(w.row_id) AS n_rows, count(d.row_id) AS n_pruned,
       coalesce(sum(w.kept AND w.started_ns <= max(p.before_ns - 1, coalesce(p.until_ns, 0))), 0) AS n_kept,
       datetime(max(CASE WHEN d.row_id THEN w.started_ns END) / 1000000000, 'unixepoch') AS until_utc
FROM temp.prune_by AS p
CROSS JOIN main.runs AS r
LEFT JOIN temp.weighed AS w ON w.run_id = r.run_id
LEFT JOIN temp.doomed AS d ON d.row_id = w.row_id
GROUP BY r.run_id
ORDER BY r.run_id;
