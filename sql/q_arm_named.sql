-- The arms that :name can mean: a number is an arm_id, otherwise it is a label, the latest run first;
-- :run_id, where it is not NULL, restricts labels to that run.
SELECT a.arm_id AS arm_id, a.run_id AS run, a.label AS arm, a.phase AS phase, a.class AS class
FROM arms AS a
WHERE CAST(a.arm_id AS TEXT) = :name AND :run_id IS NULL
   OR a.label = :name AND a.run_id = coalesce(:run_id, a.run_id)
ORDER BY CAST(a.arm_id AS TEXT) = :name DESC, a.run_id DESC, a.arm_id DESC;
