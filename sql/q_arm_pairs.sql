-- Every two arms, best to compare first: no choice of rows
-- (kept for their flips); the latest run, then arms of the same run.
SELECT a.arm_id AS arm_a, b.arm_id AS arm_b, a.run_id AS run_a, b.run_id AS run_b,
       a.class IS 'flips' OR b.class IS 'flips' AS choice
FROM arms AS a
JOIN arms AS b ON b.arm_id > a.arm_id
ORDER BY choice, b.run_id DESC, a.run_id = b.run_id DESC, a.run_id DESC, a.arm_id, b.arm_id;
