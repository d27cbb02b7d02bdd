-- The kernel configurations of arm :arm_id with what identifies them in any file, and how often a
-- forward launches each.
SELECT kernel AS kernel, grid_x || 'x' || grid_y || 'x' || grid_z AS grid,
       block_x || 'x' || block_y || 'x' || block_z AS block,
       dynamic_smem_bytes AS dynamic_smem_bytes, registers AS registers,
       static_smem_bytes AS static_smem_bytes, code_hash AS code_hash,
       1.0 * n_launches / n_forwards AS per_forward
FROM kernel_usage
WHERE arm_id = :arm_id
ORDER BY kernel, grid, block;
