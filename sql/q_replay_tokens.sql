-- The tokens that led arm :arm_id along its sequences: its own input tokens, and before its first row
-- of a sequence those of the other arms of its run.
SELECT l.seq_id AS seq_id, l.pos AS pos, l.input_token AS token, max(l.arm_id = :arm_id) AS own
FROM logits AS l
JOIN (SELECT seq_id, min(pos) AS first_pos, max(pos) AS last_pos
      FROM logits WHERE arm_id = :arm_id GROUP BY seq_id) AS s ON s.seq_id = l.seq_id
WHERE l.pos <= s.last_pos AND (l.arm_id = :arm_id OR l.pos < s.first_pos)
GROUP BY l.seq_id, l.pos
ORDER BY l.seq_id, l.pos;
