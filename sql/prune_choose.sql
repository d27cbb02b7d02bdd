-- What goes: the rows of forwards that began before prune_by.before_ns; and the oldest ones, until all
-- that stays weighs at most prune_by.budget. Rows that are kept for a flip are weighed first.
DROP TABLE IF EXISTS temp.doomed;
CREATE TEMP TABLE doomed(row_id INTEGER PRIMARY KEY);
INSERT INTO temp.doomed
SELECT row_id FROM temp.prune_by, (
    SELECT row_id, started_ns, kept, sum(weight) OVER (
        ORDER BY kept DESC, started_ns DESC, row_id DESC ROWS UNBOUNDED PRECEDING) AS upto
    FROM temp.weighed)
WHERE NOT kept AND (started_ns < before_ns OR upto > budget);
UPDATE temp.prune_by SET until_ns = (SELECT max(w.started_ns) FROM temp.weighed AS w
                                     WHERE w.row_id IN (SELECT row_id FROM temp.doomed));
