-- The launch configurations of every kernel list that arms :arm_a and :arm_b used.
SELECT DISTINCT i.kernel_list_id AS kernel_list_id, i.config_id AS config_id
FROM kernel_list_items AS i
WHERE i.kernel_list_id IN (SELECT kernel_list_id FROM forwards WHERE arm_id IN (:arm_a, :arm_b))
ORDER BY i.kernel_list_id, i.config_id;
