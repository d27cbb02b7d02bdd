-- What prune chooses from, by temp.prune_by: every row with its time, about what it takes of the file,
-- and whether it stays for a flip.
DROP TABLE IF EXISTS temp.flip_rows;
DROP TABLE IF EXISTS temp.places;
DROP TABLE IF EXISTS temp.weighed;
-- Rows about a flip: both of its sides, and the 7 positions before them, which is what a report prints.
CREATE TEMP TABLE flip_rows(row_id INTEGER PRIMARY KEY);
INSERT OR IGNORE INTO temp.flip_rows
SELECT m.row_a FROM temp.prune_by AS p CROSS JOIN matches AS m WHERE p.keep_flips AND m.flip;
INSERT OR IGNORE INTO temp.flip_rows
SELECT m.row_b FROM temp.prune_by AS p CROSS JOIN matches AS m WHERE p.keep_flips AND m.flip;
CREATE TEMP TABLE places AS SELECT seq_id, arm_id, pos, row_id FROM main.logits
WHERE seq_id IN (SELECT seq_id FROM main.logits WHERE row_id IN (SELECT row_id FROM temp.flip_rows));
CREATE INDEX temp.places_order ON places(seq_id, arm_id, pos);
INSERT OR IGNORE INTO temp.flip_rows SELECT p.row_id
FROM temp.flip_rows AS f
JOIN main.logits AS l ON l.row_id = f.row_id
JOIN temp.places AS p ON p.seq_id = l.seq_id AND p.arm_id = l.arm_id AND p.pos BETWEEN l.pos - 7 AND l.pos;
CREATE TEMP TABLE weighed AS
SELECT l.row_id AS row_id, l.forward_id AS forward_id, f.run_id AS run_id, f.started_ns AS started_ns,
       100 + length(l.topk) + coalesce((SELECT 20 + length(d.list) FROM main.delta_lists AS d
                                        WHERE d.row_id = l.row_id), 0) AS weight,
       l.row_id IN (SELECT row_id FROM temp.flip_rows) AS kept
FROM main.logits AS l JOIN main.forwards AS f ON f.forward_id = l.forward_id;
