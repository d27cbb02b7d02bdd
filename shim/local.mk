# The preload library and its public header.
include_HEADERS += %D%/probe.h
dist_man_MANS += %D%/libprobe.7 %D%/probe.h.3
# probe.h for Python, by ctypes.
pythondir = $(pkgdatadir)/python
dist_python_DATA = %D%/python/neartie_probe.py

# Everything of the library but its entry points: what the unit tests link. Products and sums are
# kept apart, so that every instruction set rounds alike; no vector crosses a call, so that its
# calling convention is of no interest.
noinst_LIBRARIES += %D%/libshim.a
%C%_libshim_a_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden -ffp-contract=off -Wno-psabi
%C%_libshim_a_SOURCES = \
	%D%/baseline.c %D%/baseline.h \
	%D%/calls.c %D%/calls.h \
	%D%/capture.c %D%/capture.h %D%/capture_cuda.h %D%/capture_int.h %D%/capture_pass.inc \
	%D%/capture_avx2.c %D%/capture_avx512.c %D%/capture_portable.c \
	%D%/compare.c %D%/compare.h \
	%D%/cupti.c %D%/cupti.h %D%/cupti_abi.h \
	%D%/cupti_find.c %D%/cupti_find.h \
	%D%/device.h \
	%D%/core.c %D%/core.h \
	%D%/facts.c %D%/facts.h \
	%D%/files.c %D%/files.h \
	%D%/gguf_hash.c %D%/gguf_hash.h \
	%D%/gpu.c %D%/gpu.h \
	%D%/identity.c %D%/identity.h \
	%D%/lineage.c %D%/lineage.h %D%/llama_cache.c %D%/llama_cache.h %D%/llama_abi.h \
	%D%/log.c %D%/log.h \
	%D%/map.c %D%/map.h \
	%D%/options.c %D%/options.h \
	%D%/recent.c %D%/recent.h \
	%D%/ring.c %D%/ring.h \
	%D%/rows.c %D%/rows.h \
	%D%/tags.c %D%/tags.h %D%/tags_int.h \
	%D%/tags_code.c %D%/tags_graph.c %D%/tags_write.c \
	%D%/tokens.c %D%/tokens.h \
	%D%/writer.c %D%/writer.h

# SQLite is inside, and none of it shows; the host's loader needs libc and libm, no more.
probeexecdir = $(libdir)
probeexec_PROGRAMS = %D%/libprobe.so
EXTRA_DIST += %D%/libprobe.map
%C%_libprobe_so_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
%C%_libprobe_so_SOURCES = %D%/hooks.c %D%/inject.c %D%/interpose.c %D%/interpose.h \
	%D%/interpose_ask.c %D%/interpose_int.h %D%/llama.c \
	%D%/llama_facts.c %D%/llama_facts.h %D%/llama_lib.c %D%/llama_lib.h \
	%D%/llama_sample.c %D%/llama_sample.h %D%/llama_state.c %D%/llama_weights.c
%C%_libprobe_so_LDADD = %D%/libshim.a sql/libsql.a $(SQLITE_STATIC) -lm
%C%_libprobe_so_DEPENDENCIES = %D%/libshim.a sql/libsql.a %D%/libprobe.map
%C%_libprobe_so_LDFLAGS = $(AM_LDFLAGS) -shared -pthread -Wl,-soname,libprobe.so -Wl,-z,defs \
	-Wl,-z,nodelete -Wl,-Bsymbolic -Wl,--exclude-libs,ALL \
	-Wl,--version-script=$(srcdir)/%D%/libprobe.map

# The device capture: kernels in a fat binary inside the library, for the host's driver to load.
EXTRA_DIST += %D%/capture_cuda.cu
if CUDA
%C%_libshim_a_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
%C%_libshim_a_SOURCES += %D%/device_cuda.c %D%/device_cuda_int.h %D%/device_graph.c
EXTRA_DIST += %D%/device_none.c
CLEANFILES += %D%/capture_cuda.fatbin
%D%/capture_cuda.fatbin: %D%/capture_cuda.cu %D%/capture_cuda.h
	$(AM_V_GEN)$(MKDIR_P) %D% && $(NVCC) -fatbin -O3 -I$(top_srcdir) $(NVCC_ARCH) $(NVCCFLAGS) -o $@ \
	  $(srcdir)/%D%/capture_cuda.cu
%D%/libshim_a-device_cuda.$(OBJEXT): %D%/capture_cuda.fatbin
else
%C%_libshim_a_SOURCES += %D%/device_none.c
EXTRA_DIST += %D%/device_cuda.c %D%/device_cuda_int.h %D%/device_graph.c
endif

pkgconfigdir = $(libdir)/pkgconfig
pkgconfig_DATA = %D%/neartie.pc
