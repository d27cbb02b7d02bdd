# The inference engine.
noinst_LIBRARIES += %D%/libengine.a
%C%_libengine_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(PCRE2_CFLAGS)
%C%_libengine_a_SOURCES = \
	%D%/backend.c \
	%D%/backend.h \
	%D%/backend_cpu.c \
	%D%/backend_int.h \
	%D%/context.c \
	%D%/forward.c \
	%D%/forward.h \
	%D%/forward_int.h \
	%D%/gguf.c \
	%D%/gguf.h \
	%D%/gguf_int.h \
	%D%/gguf_parse.c \
	%D%/knobs.c \
	%D%/knobs.h \
	%D%/kvcache.c \
	%D%/kvcache.h \
	%D%/mem.h \
	%D%/model.c \
	%D%/model.h \
	%D%/record.c \
	%D%/record.h \
	%D%/sampler.c \
	%D%/sampler.h \
	%D%/tokenizer.c \
	%D%/tokenizer.h \
	%D%/tokenizer_bpe.c \
	%D%/tokenizer_int.h \
	%D%/tokenizer_merge.c \
	%D%/tokenizer_spm.c

# The CUDA device, where the toolkit is there.
if CUDA
%C%_libengine_a_SOURCES += %D%/backend_cuda.c
else
EXTRA_DIST += %D%/backend_cuda.c
endif

# Hooks: a define, so that without them no object knows the probe.
if HOOKS
engine_hooks = -DPROBE_HOOKS=1
endif
%C%_libengine_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS) $(engine_hooks)

dist_man_MANS += %D%/neartie-engine.1

bin_PROGRAMS += %D%/neartie-engine
%C%_neartie_engine_CPPFLAGS = $(AM_CPPFLAGS) $(engine_hooks)
%C%_neartie_engine_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
%C%_neartie_engine_LDADD = $(engine_libs) collector/libseed.a
%C%_neartie_engine_SOURCES = \
	%D%/cmd.h \
	%D%/cmd_arm.c \
	%D%/cmd_arm.h \
	%D%/cmd_batch.c \
	%D%/cmd_batch.h \
	%D%/cmd_bench.c \
	%D%/cmd_gate.c \
	%D%/cmd_generate.c \
	%D%/cmd_info.c \
	%D%/cmd_output.c \
	%D%/cmd_prompt.c \
	%D%/cmd_score.c \
	%D%/cmd_session.c \
	%D%/cmd_tokenize.c \
	%D%/main.c

# What a program that computes links.
engine_libs = %D%/libengine.a kernels/libkernels.a $(CUDA_LIBS) $(OPENMP_CFLAGS) $(PCRE2_LIBS) -lm
