# The preload library and its public header.
include_HEADERS += %D%/probe.h

# Everything of the library but its entry points: what the unit tests link. Products and sums are
# kept apart, so that every instruction set rounds alike; no vector crosses a call, so that its
# calling convention is of no interest.
noinst_LIBRARIES += %D%/libshim.a
%C%_libshim_a_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden -ffp-contract=off -Wno-psabi
%C%_libshim_a_SOURCES = \
	%D%/capture.c %D%/capture.h
