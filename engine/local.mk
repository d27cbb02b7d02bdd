# The inference engine.
noinst_LIBRARIES += %D%/libengine.a
%C%_libengine_a_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) $(PCRE2_CFLAGS)
%C%_libengine_a_SOURCES = \
	%D%/backend.c \
	%D%/backend.h \
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
	%D%/tokenizer.c \
	%D%/tokenizer.h \
	%D%/tokenizer_bpe.c \
	%D%/tokenizer_int.h \
	%D%/tokenizer_merge.c \
	%D%/tokenizer_spm.c

# What a program that computes links.
engine_libs = %D%/libengine.a kernels/libkernels.a $(OPENMP_CFLAGS) $(PCRE2_LIBS) -lm
