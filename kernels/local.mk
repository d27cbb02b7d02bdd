# Operators: one table, C forms here, CUDA forms beside them. The reference forms are written so
# that the compiler may use vectors without changing the order of a sum.
noinst_LIBRARIES += %D%/libkernels.a
%C%_libkernels_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(KERNELS_CFLAGS) -ffp-contract=off \
	-ftree-vectorize -fvect-cost-model=dynamic -Wno-psabi
%C%_libkernels_a_SOURCES = \
	%D%/cpu.h \
	%D%/cpu_avx2.c \
	%D%/cpu_avx512.c \
	%D%/cpu_fast.c \
	%D%/cpu_fast.inc \
	%D%/cpu_matmul.c \
	%D%/cpu_matmul_ref.inc \
	%D%/cpu_mixer.inc \
	%D%/cpu_portable.c \
	%D%/cpu_dot.c \
	%D%/cpu_dot.h \
	%D%/cpu_dot.inc \
	%D%/cpu_dot_avx2.c \
	%D%/cpu_dot_avx512.c \
	%D%/cpu_dot_portable.c \
	%D%/cpu_dot_vec.h \
	%D%/cpu_ref.c \
	%D%/cpu_rows.inc \
	%D%/kernels.h \
	%D%/ops.c \
	%D%/ops.def \
	%D%/quant.c \
	%D%/quant.h
