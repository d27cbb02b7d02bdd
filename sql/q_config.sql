-- One launch configuration, :config_id, in words.
SELECT k.name AS kernel, c.grid_x || 'x' || c.grid_y || 'x' || c.grid_z AS grid,
       c.block_x || 'x' || c.block_y || 'x' || c.block_z AS block
FROM launch_configs AS c
JOIN kernels AS k ON k.kernel_id = c.kernel_id
WHERE c.config_id = :config_id;
