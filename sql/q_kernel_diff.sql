-- Kernel configurations that only one of arms :arm_a and :arm_b launched, or with other counts per
-- forward; per_forward is NULL where the arm never launched it.
WITH usage AS (
    SELECT arm_id, config_id, kernel, grid_x || 'x' || grid_y || 'x' || grid_z AS grid,
           block_x || 'x' || block_y || 'x' || block_z AS block, code_hash,
           1.0 * n_launches / n_forwards AS per_forward
    FROM kernel_usage
    WHERE arm_id IN (:arm_a, :arm_b)
)
SELECT kernel AS kernel, grid AS grid, block AS block, code_hash AS code_hash,
       max(CASE WHEN arm_id = :arm_a THEN per_forward END) AS per_forward_a,
       max(CASE WHEN arm_id = :arm_b THEN per_forward END) AS per_forward_b
FROM usage
GROUP BY config_id
HAVING per_forward_a IS NOT per_forward_b
ORDER BY kernel, grid, block, code_hash;
