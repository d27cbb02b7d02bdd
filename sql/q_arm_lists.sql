-- The kernel lists that arm :arm_id used, with what identifies each in any file.
SELECT kernel_list_id AS kernel_list_id, hash AS hash
FROM kernel_lists
WHERE kernel_list_id IN (SELECT kernel_list_id FROM forwards WHERE arm_id = :arm_id)
ORDER BY hash;
