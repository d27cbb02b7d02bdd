# Operators: one table, C forms here, CUDA forms beside them.
