# The command that people type.
# The seed's rule is a library of its own: the engine's gate prints the same table.
noinst_LIBRARIES += %D%/libseed.a
%C%_libseed_a_SOURCES = %D%/seed.c %D%/seed.h
