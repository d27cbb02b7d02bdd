-- The kernel configurations of arm :arm_id with what identifies them in any file, and how often a
-- forward launches each.
SELECT u.kernel AS kernel, u.grid_x || 'x' || u.grid_y || 'x' || u.grid_z AS grid,
       u.block_x || 'x' || u.block_y || 'x' || u.block_z AS block,
       u.dynamic_smem_bytes AS dynamic_smem_bytes, u.registers AS registers,
       u.static_smem_bytes AS static_smem_bytes, u.code_hash AS code_hash,
       nullif(k.const_hash, '') AS const_hash,
       c.cluster_x || 'x' || c.cluster_y || 'x' || c.cluster_z AS cluster,
       nullif(c.attributes, '') AS attributes, 1.0 * u.n_launches / u.n_forwards AS per_forward
FROM kernel_usage AS u
JOIN launch_configs AS c ON c.config_id = u.config_id
JOIN kernels AS k ON k.kernel_id = c.kernel_id
WHERE u.arm_id = :arm_id
ORDER BY kernel, grid, block;
