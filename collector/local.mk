# The command that people type.
# The seed's rule is a library of its own: the engine's gate prints the same table.
noinst_LIBRARIES += %D%/libseed.a
%C%_libseed_a_SOURCES = %D%/seed.c %D%/seed.h

# The calibrated rule: pure functions over arrays, no SQLite.
noinst_LIBRARIES += %D%/librule.a
%C%_librule_a_SOURCES = \
	%D%/calibrated.h \
	%D%/floor.h \
	%D%/pairs.c %D%/pairs.h %D%/pairs_int.h \
	%D%/xalloc.h
