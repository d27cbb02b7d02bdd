-- The doomed rows go, with what only they refer to; `gaps` says how many. Runs, settings, arms, kernels
-- and texts stay. The readers' index is made anew afterwards: that is faster than to clear it.
DROP INDEX IF EXISTS main.logits_context;

-- Rows that stay for a flip where the others went are a choice and no sample: they get arms of a class
-- of their own, so that no figure of the arm counts them.
DROP TABLE IF EXISTS temp.moved;
CREATE TEMP TABLE moved AS SELECT w.row_id AS row_id, w.forward_id AS forward_id, l.arm_id AS arm_id
FROM temp.weighed AS w
JOIN main.logits AS l ON l.row_id = w.row_id
JOIN main.arms AS a ON a.arm_id = l.arm_id
WHERE w.kept AND a.class IS NOT 'flips' AND w.started_ns <= (SELECT until_ns FROM temp.prune_by);
INSERT OR IGNORE INTO main.arms(run_id, label, phase, class)
SELECT run_id, label || ' (flips)', phase, 'flips' FROM main.arms
WHERE arm_id IN (SELECT arm_id FROM temp.moved) ORDER BY arm_id;
DROP TABLE IF EXISTS temp.flip_arms;
CREATE TEMP TABLE flip_arms AS SELECT a.arm_id AS old, f.arm_id AS new
FROM main.arms AS a
JOIN main.arms AS f ON f.run_id = a.run_id AND f.phase = a.phase AND f.label = a.label || ' (flips)'
WHERE a.arm_id IN (SELECT arm_id FROM temp.moved);
UPDATE main.logits SET arm_id = (SELECT new FROM temp.flip_arms WHERE old = arm_id)
WHERE row_id IN (SELECT row_id FROM temp.moved);
UPDATE main.forwards SET arm_id = (SELECT new FROM temp.flip_arms WHERE old = arm_id)
WHERE forward_id IN (SELECT forward_id FROM temp.moved);

DROP TABLE IF EXISTS temp.lost;
CREATE TEMP TABLE lost AS
SELECT w.run_id AS run_id, 'rows_pruned' AS kind, count(*) AS n, 'until '
    || datetime(max(w.started_ns) / 1000000000, 'unixepoch') || ' UTC' || CASE
        WHEN EXISTS (SELECT 1 FROM temp.moved) THEN ', rows about flips are kept' ELSE '' END AS detail
FROM temp.weighed AS w WHERE w.row_id IN (SELECT row_id FROM temp.doomed) GROUP BY w.run_id
UNION ALL
SELECT w.run_id, 'deltas_pruned', count(*), 'lists whose base row is pruned'
FROM main.delta_lists AS d
JOIN temp.weighed AS w ON w.row_id = d.row_id
JOIN main.forwards AS f ON f.forward_id = w.forward_id
WHERE f.base_run_uuid IS NULL AND d.base_row_id IN (SELECT row_id FROM temp.doomed)
  AND d.row_id NOT IN (SELECT row_id FROM temp.doomed)
GROUP BY w.run_id;
UPDATE main.gaps SET count = gaps.count + l.n, detail = l.detail
FROM temp.lost AS l WHERE l.run_id = gaps.run_id AND l.kind = gaps.kind;
INSERT INTO main.gaps(run_id, kind, count, detail) SELECT run_id, kind, n, detail FROM temp.lost AS l
WHERE NOT EXISTS (SELECT 1 FROM main.gaps AS g WHERE g.run_id = l.run_id AND g.kind = l.kind);

DELETE FROM main.delta_lists WHERE row_id IN (SELECT row_id FROM temp.doomed)
   OR base_row_id IN (SELECT row_id FROM temp.doomed) AND row_id IN (
        SELECT w.row_id FROM temp.weighed AS w JOIN main.forwards AS f ON f.forward_id = w.forward_id
        WHERE f.base_run_uuid IS NULL);
DELETE FROM main.logits WHERE row_id IN (SELECT row_id FROM temp.doomed);
DELETE FROM main.forwards
WHERE started_ns <= (SELECT until_ns FROM temp.prune_by)
  AND forward_id NOT IN (SELECT forward_id FROM temp.weighed
                         WHERE row_id NOT IN (SELECT row_id FROM temp.doomed))
  AND forward_id NOT IN (SELECT forward_id FROM main.gaps WHERE forward_id IS NOT NULL);
DELETE FROM main.kernel_lists WHERE kernel_list_id NOT IN (
    SELECT kernel_list_id FROM main.forwards WHERE kernel_list_id IS NOT NULL
    UNION SELECT kernel_list_id FROM main.graph_execs WHERE kernel_list_id IS NOT NULL
    UNION SELECT kernel_list_id FROM main.list_numbers);
DELETE FROM main.kernel_list_items
WHERE kernel_list_id NOT IN (SELECT kernel_list_id FROM main.kernel_lists);
-- With the sequences that those that stay come from.
DROP TABLE IF EXISTS temp.sequences_kept;
CREATE TEMP TABLE sequences_kept AS WITH RECURSIVE used(seq_id) AS (
    SELECT seq_id FROM main.logits
    UNION
    SELECT s.parent_seq_id FROM used JOIN main.sequences AS s USING (seq_id)
    WHERE s.parent_seq_id IS NOT NULL)
SELECT seq_id FROM used;
DELETE FROM main.sequences WHERE seq_id NOT IN (SELECT seq_id FROM temp.sequences_kept);
