# The inference engine.
noinst_HEADERS += %D%/backend.h %D%/forward.h %D%/gguf.h %D%/knobs.h %D%/model.h
