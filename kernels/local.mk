# Operators: one table, C forms here, CUDA forms beside them. The reference forms are written so
# that the compiler may use vectors without changing the order of a sum.
noinst_LIBRARIES += %D%/libkernels.a
%C%_libkernels_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) -ffp-contract=off -ftree-vectorize \
	-fvect-cost-model=dynamic
%C%_libkernels_a_SOURCES = \
	%D%/cpu.h \
	%D%/cpu_ref.c \
	%D%/cpu_ref_matmul.inc \
	%D%/cpu_ref_mixer.inc \
	%D%/cpu_ref_rows.inc \
	%D%/kernels.h \
	%D%/ops.c \
	%D%/ops.def \
	%D%/quant.c \
	%D%/quant.h
