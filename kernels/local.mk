# Operators: one table, C forms here, CUDA forms beside them.
noinst_HEADERS += %D%/kernels.h
EXTRA_DIST += %D%/ops.def
