-- The arms of a file, without counting anything.
SELECT arm_id AS arm_id, run_id AS run, label AS arm, phase AS phase, class AS class
FROM arms ORDER BY arm_id;
