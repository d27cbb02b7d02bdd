# The command that people type.
# The seed's rule is a library of its own: the engine's gate prints the same table.
noinst_LIBRARIES += %D%/libseed.a
%C%_libseed_a_SOURCES = %D%/seed.c %D%/seed.h

# The calibrated rule: pure functions over arrays, no SQLite.
noinst_LIBRARIES += %D%/librule.a
%C%_librule_a_SOURCES = \
	%D%/calibrated.c %D%/calibrated.h \
	%D%/floor.c %D%/floor.h \
	%D%/intern.c %D%/intern.h \
	%D%/pairs.c %D%/pairs.h %D%/pairs_ids.c %D%/pairs_int.h \
	%D%/simulate.c %D%/simulate.h \
	%D%/stat_dist.c %D%/stat_dist.h \
	%D%/stat_flips.c \
	%D%/stat_group.c %D%/stat_group.h \
	%D%/stat_perm.c %D%/stat_perm.h \
	%D%/stat_rule.c %D%/stat_rule.h \
	%D%/stat_shift.c \
	%D%/stat_size.c \
	%D%/stat_tag.c \
	%D%/xalloc.h

bin_PROGRAMS += %D%/neartie
%C%_neartie_SOURCES = \
	%D%/args.c %D%/args.h \
	%D%/arm_rows.c %D%/arm_rows.h \
	%D%/cells.h \
	%D%/cmd.h \
	%D%/cmd_blame.c \
	%D%/cmd_calibrate.c \
	%D%/cmd_compare.c \
	%D%/cmd_flips.c \
	%D%/cmd_gate.c \
	%D%/cmd_import.c \
	%D%/cmd_inspect.c \
	%D%/images.c %D%/images.h \
	%D%/cmd_kernels.c \
	%D%/cmd_merge.c \
	%D%/cmd_percentiles.c \
	%D%/cmd_prune.c \
	%D%/cmd_queries.c \
	%D%/cmd_record.c %D%/obstacle.c %D%/obstacle.h \
	%D%/cmd_replay.c \
	%D%/cmd_report.c \
	%D%/cmd_runs.c \
	%D%/cmd_simulate.c \
	%D%/cmd_sql.c \
	%D%/cmd_verdict.c \
	%D%/control.c %D%/control.h \
	%D%/db.c %D%/db.h \
	%D%/doc.c %D%/doc.h \
	%D%/facts.c %D%/facts.h \
	%D%/import.c %D%/import.h \
	%D%/import_kld.c \
	%D%/import_logprobs.c \
	%D%/import_npy.c \
	%D%/import_seed.c \
	%D%/infer.c %D%/infer.h \
	%D%/judge.c %D%/judge.h \
	%D%/judge_args.c %D%/judge_args.h \
	%D%/judge_print.c \
	%D%/judge_words.c \
	%D%/kld.c %D%/kld.h \
	%D%/launch.c %D%/launch.h \
	%D%/list_numbers.c %D%/list_numbers.h \
	%D%/load.c %D%/load.h \
	%D%/logprobs.c %D%/logprobs.h \
	%D%/main.c \
	%D%/merge.c %D%/merge.h \
	%D%/notes.c %D%/notes.h \
	%D%/npy.c %D%/npy.h \
	%D%/pdf.c %D%/pdf.h \
	%D%/prune.c %D%/prune.h \
	%D%/render.c %D%/render.h \
	%D%/plot.c %D%/plot.h \
	%D%/report.c %D%/report.h \
	%D%/report_plots.c %D%/report_plots.h \
	%D%/report_window.c \
	%D%/run_writer.c %D%/run_writer.h \
	%D%/scan.c %D%/scan.h \
	%D%/select.c %D%/select.h \
	%D%/texts.c %D%/texts.h \
	%D%/window.c %D%/window.h \
	%D%/xalloc.h
%C%_neartie_CPPFLAGS = $(AM_CPPFLAGS) $(SQLITE_CFLAGS) $(ELF_CFLAGS) \
	-DLIBDIR='"$(libdir)"' -DBINDIR='"$(bindir)"' \
	-DLIB_FROM_BIN="\"`realpath -m --relative-to='$(bindir)' '$(libdir)'`\""
%C%_neartie_LDFLAGS = $(AM_LDFLAGS) -pthread
%C%_neartie_LDADD = %D%/libseed.a %D%/librule.a sql/libsql.a $(SQLITE_LIBS) $(ELF_LIBS) $(GSL_LIBS) -lm
dist_man_MANS += %D%/neartie.1
# What each command says of itself.
if HELP2MAN
man1_MANS = \
	%D%/neartie-blame.1 \
	%D%/neartie-calibrate.1 \
	%D%/neartie-compare.1 \
	%D%/neartie-flips.1 \
	%D%/neartie-gate.1 \
	%D%/neartie-import.1 \
	%D%/neartie-inspect.1 \
	%D%/neartie-kernels.1 \
	%D%/neartie-merge.1 \
	%D%/neartie-percentiles.1 \
	%D%/neartie-prune.1 \
	%D%/neartie-queries.1 \
	%D%/neartie-record.1 \
	%D%/neartie-replay.1 \
	%D%/neartie-report.1 \
	%D%/neartie-runs.1 \
	%D%/neartie-simulate.1 \
	%D%/neartie-sql.1 \
	%D%/neartie-verdict.1
CLEANFILES += $(man1_MANS)
$(man1_MANS): %D%/main.c %D%/neartie.h2m | %D%/neartie$(EXEEXT)
	$(AM_V_GEN)command=`echo $@ | sed 's|.*/neartie-||; s|\.1||'` && \
	  summary=`%D%/neartie --help | sed -n "s/^  $$command  *//p"` && \
	  ASAN_OPTIONS=detect_leaks=0 $(HELP2MAN) --no-info --include=$(srcdir)/%D%/neartie.h2m --name="$$summary" \
	    "%D%/neartie $$command" | sed "1,5s/^\.TH NEARTIE/&-`echo $$command | tr a-z A-Z`/; \
	      s/^neartie \\\\-/neartie-$$command \\\\-/" >$@.tmp && mv $@.tmp $@
endif
EXTRA_DIST += %D%/neartie.h2m
%D%/neartie-blame.1: %D%/cmd_blame.c
%D%/neartie-calibrate.1: %D%/cmd_calibrate.c
%D%/neartie-compare.1: %D%/cmd_compare.c
%D%/neartie-flips.1: %D%/cmd_flips.c
%D%/neartie-gate.1: %D%/cmd_gate.c
%D%/neartie-import.1: %D%/cmd_import.c
%D%/neartie-inspect.1: %D%/cmd_inspect.c
%D%/neartie-kernels.1: %D%/cmd_kernels.c
%D%/neartie-merge.1: %D%/cmd_merge.c
%D%/neartie-percentiles.1: %D%/cmd_percentiles.c
%D%/neartie-prune.1: %D%/cmd_prune.c
%D%/neartie-queries.1: %D%/cmd_queries.c
%D%/neartie-record.1: %D%/cmd_record.c
%D%/neartie-replay.1: %D%/cmd_replay.c
%D%/neartie-report.1: %D%/cmd_report.c
%D%/neartie-runs.1: %D%/cmd_runs.c
%D%/neartie-simulate.1: %D%/cmd_simulate.c
%D%/neartie-sql.1: %D%/cmd_sql.c
%D%/neartie-verdict.1: %D%/cmd_verdict.c
%C%_librule_a_CFLAGS = $(AM_CFLAGS) $(GSL_CFLAGS)

bashcompletiondir = $(datadir)/bash-completion/completions
dist_bashcompletion_DATA = %D%/neartie.bash
zshcompletiondir = $(datadir)/zsh/site-functions
dist_zshcompletion_DATA = %D%/_neartie
