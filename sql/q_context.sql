-- The last :n input tokens up to the row :row_id of logits, in order, with their texts where known.
-- Looks only a little before the row, where a sequence's own rows are: at most :reach (8192) rows away.
SELECT pos, token, text FROM (
    SELECT l.pos AS pos, l.input_token AS token, CAST(v.text AS TEXT) AS text
    FROM logits AS at
    JOIN logits AS l ON l.row_id BETWEEN at.row_id - coalesce(:reach, 8192)
                                     AND at.row_id + coalesce(:reach, 8192)
                    AND l.seq_id = at.seq_id AND l.arm_id = at.arm_id AND l.pos <= at.pos
    JOIN arms AS a ON a.arm_id = at.arm_id
    JOIN runs AS r ON r.run_id = a.run_id
    LEFT JOIN vocab AS v ON v.model_hash = coalesce(r.model_hash, '') AND v.token = l.input_token
    WHERE at.row_id = :row_id
    GROUP BY l.pos
    ORDER BY l.pos DESC LIMIT coalesce(:n, -1))
ORDER BY pos;
