# Operators: one table, C forms here, CUDA forms beside them. The reference forms are written so
# that the compiler may use vectors without changing the order of a sum.
noinst_LIBRARIES += %D%/libkernels.a
%C%_libkernels_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) -ffp-contract=off \
	-ftree-vectorize -fvect-cost-model=dynamic -Wno-psabi $(KERNELS_CFLAGS)
%C%_libkernels_a_SOURCES = \
	%D%/cpu.h \
	%D%/cpu_avx2.c \
	%D%/cpu_avx512.c \
	%D%/cpu_fast.c \
	%D%/cpu_fast.inc \
	%D%/cpu_fused.inc \
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

# Device code: one object of each file; the compiler writes down what it depends on.
cuda_sources = \
	%D%/cuda_attention.cu \
	%D%/cuda_batch.cu \
	%D%/cuda_delta.cu \
	%D%/cuda_experts.cu \
	%D%/cuda_flash.cu \
	%D%/cuda_heads.cu \
	%D%/cuda_matmul.cu \
	%D%/cuda_mv.cu \
	%D%/cuda_pairs.cu \
	%D%/cuda_rows.cu
cuda_objects = \
	%D%/cuda_attention.$(OBJEXT) \
	%D%/cuda_batch.$(OBJEXT) \
	%D%/cuda_delta.$(OBJEXT) \
	%D%/cuda_experts.$(OBJEXT) \
	%D%/cuda_flash.$(OBJEXT) \
	%D%/cuda_heads.$(OBJEXT) \
	%D%/cuda_matmul.$(OBJEXT) \
	%D%/cuda_mv.$(OBJEXT) \
	%D%/cuda_pairs.$(OBJEXT) \
	%D%/cuda_rows.$(OBJEXT)
noinst_HEADERS += %D%/cuda.h %D%/cuda_blas.h %D%/cuda_common.cuh %D%/cuda_flash.cuh \
	%D%/cuda_formats.cuh %D%/cuda_mv.cuh %D%/cuda_round.cuh %D%/cuda_store.cuh
EXTRA_DIST += $(cuda_sources)
SUFFIXES = .cu
if CUDA
%C%_libkernels_a_SOURCES += %D%/cuda_blas.c %D%/cuda_ops.c
%C%_libkernels_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
%C%_libkernels_a_LIBADD = $(cuda_objects)
CLEANFILES += $(cuda_objects)
DISTCLEANFILES += %D%/*.cu.d
.cu.$(OBJEXT):
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(NVCC) -c -O3 -I$(top_srcdir) $(NVCC_ARCH) $(NVCCFLAGS) -MMD -MP \
	  -MF $(@:.$(OBJEXT)=.cu.d) -o $@ $<
-include kernels/cuda_attention.cu.d kernels/cuda_batch.cu.d kernels/cuda_delta.cu.d \
	kernels/cuda_experts.cu.d kernels/cuda_flash.cu.d kernels/cuda_heads.cu.d \
	kernels/cuda_matmul.cu.d \
	kernels/cuda_mv.cu.d kernels/cuda_pairs.cu.d kernels/cuda_rows.cu.d
else
EXTRA_DIST += %D%/cuda_blas.c %D%/cuda_ops.c
endif
