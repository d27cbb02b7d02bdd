# The inference engine.
noinst_LIBRARIES += %D%/libengine.a
%C%_libengine_a_SOURCES = \
	%D%/gguf.c \
	%D%/gguf.h \
	%D%/gguf_int.h \
	%D%/gguf_parse.c

noinst_HEADERS += %D%/backend.h %D%/forward.h %D%/knobs.h %D%/model.h
