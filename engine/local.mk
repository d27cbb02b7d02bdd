# The inference engine.
noinst_HEADERS += %D%/gguf.h
