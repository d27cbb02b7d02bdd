# Operators: one table, C forms here, CUDA forms beside them.
noinst_LIBRARIES += %D%/libkernels.a
%C%_libkernels_a_SOURCES = \
	%D%/quant.c \
	%D%/quant.h

noinst_HEADERS += %D%/kernels.h
EXTRA_DIST += %D%/ops.def
