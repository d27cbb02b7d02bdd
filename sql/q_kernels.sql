-- The kernel configurations that arm :arm_id launched, most launches first; NULL for all arms.
SELECT run_id AS run, arm AS arm, kernel AS kernel, grid_x || 'x' || grid_y || 'x' || grid_z AS grid,
       block_x || 'x' || block_y || 'x' || block_z AS block, registers AS registers,
       static_smem_bytes AS static_smem_bytes, dynamic_smem_bytes AS dynamic_smem_bytes,
       n_forwards AS n_forwards, n_launches AS n_launches
FROM kernel_usage
WHERE :arm_id IS NULL OR arm_id = :arm_id
ORDER BY run_id, arm_id, n_launches DESC, kernel, config_id;
