# The preload library and its public header.
include_HEADERS += %D%/probe.h
