-- When all are in: rows that were compared with a run of another file, which is in this one now, name
-- the row here. Only where it is that row: of that run, after the same context.
CREATE TEMP TABLE found AS SELECT d.row_id AS row_id, f.forward_id AS forward_id,
    d.base_row_id + m.row AS base_row_id
FROM main.forwards AS f
JOIN temp.merged AS m ON m.uuid = f.base_run_uuid
JOIN main.logits AS l ON l.forward_id = f.forward_id
JOIN main.delta_lists AS d ON d.row_id = l.row_id
JOIN main.logits AS e ON e.row_id = d.base_row_id + m.row
JOIN main.forwards AS ef ON ef.forward_id = e.forward_id
JOIN main.runs AS r ON r.run_id = ef.run_id
WHERE r.uuid = f.base_run_uuid AND e.context_hash = l.context_hash AND e.pos = l.pos;
-- base_run_uuid speaks for all rows of a forward.
DELETE FROM temp.found WHERE forward_id IN (
    SELECT l.forward_id FROM main.forwards AS f JOIN main.logits AS l USING (forward_id)
    JOIN main.delta_lists AS d USING (row_id)
    WHERE f.base_run_uuid IS NOT NULL AND d.row_id NOT IN (SELECT row_id FROM temp.found));
CREATE UNIQUE INDEX temp.found_row ON found(row_id);
UPDATE main.delta_lists SET base_row_id =
    (SELECT base_row_id FROM temp.found AS o WHERE o.row_id = delta_lists.row_id)
WHERE row_id IN (SELECT row_id FROM temp.found);
UPDATE main.forwards SET base_run_uuid = NULL
WHERE forward_id IN (SELECT forward_id FROM temp.found);
