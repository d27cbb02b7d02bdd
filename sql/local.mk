# The SQL, installed as files and embedded in the binaries; and the storage code that the recorder
# and the readers share.
sql_files = \
	%D%/schema.sql \
	%D%/views.sql \
	%D%/indexes.sql \
	%D%/baseline_rows.sql \
	%D%/baseline_run.sql \
	%D%/import_line.sql \
	%D%/import_texts.sql \
	%D%/import_tokens.sql \
	%D%/merge.sql \
	%D%/merge_end.sql \
	%D%/prune.sql \
	%D%/prune_choose.sql \
	%D%/prune_counts.sql \
	%D%/prune_weigh.sql \
	%D%/rotate.sql \
	%D%/scan_rows.sql \
	%D%/put_calibration.sql \
	%D%/q_agreement.sql \
	%D%/q_arm_facts.sql \
	%D%/q_arm_kernels.sql \
	%D%/q_arm_list.sql \
	%D%/q_arm_lists.sql \
	%D%/q_arm_margins.sql \
	%D%/q_arm_named.sql \
	%D%/q_arm_pairs.sql \
	%D%/q_arms.sql \
	%D%/q_calibrations.sql \
	%D%/q_comparable.sql \
	%D%/q_config.sql \
	%D%/q_context.sql \
	%D%/q_drift.sql \
	%D%/q_exact.sql \
	%D%/q_flips.sql \
	%D%/q_gaps.sql \
	%D%/q_kernel_diff.sql \
	%D%/q_kernel_timeline.sql %D%/q_kernels.sql \
	%D%/q_list_configs.sql \
	%D%/q_merged.sql \
	%D%/q_missing.sql \
	%D%/q_models.sql \
	%D%/q_pair_ids.sql \
	%D%/q_replay_tokens.sql \
	%D%/q_replayed.sql \
	%D%/q_row.sql %D%/q_row_span.sql \
	%D%/q_run.sql \
	%D%/q_run_sequences.sql \
	%D%/q_run_states.sql \
	%D%/q_runs.sql \
	%D%/q_sequence.sql \
	%D%/q_sequences.sql \
	%D%/q_setting_diff.sql \
	%D%/q_settings.sql \
	%D%/q_side.sql \
	%D%/q_token.sql \
	%D%/q_window.sql

sqldir = $(pkgdatadir)/sql
dist_sql_DATA = $(sql_files) %D%/cookbook.md
EXTRA_DIST += %D%/embed.awk %D%/page.awk

# The schema and the views as a manual page.
man5_MANS = %D%/neartie-sql.5
CLEANFILES += %D%/neartie-sql.5
%D%/neartie-sql.5: %D%/page.awk %D%/schema.sql %D%/views.sql
	$(AM_V_GEN)$(MKDIR_P) $(@D) && $(AWK) -f $(srcdir)/%D%/page.awk $(srcdir)/%D%/schema.sql \
	  $(srcdir)/%D%/views.sql >$@.tmp && mv $@.tmp $@

BUILT_SOURCES += %D%/sql_text.c
CLEANFILES += %D%/sql_text.c
%D%/sql_text.c: $(sql_files) %D%/embed.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && set -- && for f in $(sql_files); do \
	  if test -f "$$f"; then set -- "$$@" "$$f"; else set -- "$$@" "$(srcdir)/$$f"; fi; done && \
	  $(AWK) -f $(srcdir)/%D%/embed.awk "$$@" > $@.tmp && mv $@.tmp $@

# Position independent and hidden: libprobe.so is linked from it too. Link it with SQLite.
noinst_LIBRARIES += %D%/libsql.a
%C%_libsql_a_CFLAGS = $(AM_CFLAGS) -fPIC -fvisibility=hidden
%C%_libsql_a_SOURCES = \
	%D%/context_hash.c %D%/context_hash.h \
	%D%/cubin.c %D%/cubin.h \
	%D%/fatbin.c %D%/fatbin.h \
	%D%/print.c %D%/print.h \
	%D%/record.h \
	%D%/recover.c %D%/recover.h \
	%D%/reference.c %D%/reference.h \
	%D%/rotate.c %D%/rotate.h \
	%D%/sha256.c %D%/sha256.h \
	%D%/spool.c %D%/spool.h \
	%D%/sql_text.h \
	%D%/store.c %D%/store.h %D%/store_internal.h \
	%D%/store_kernels.c %D%/store_kernels.h \
	%D%/store_put.c
nodist_%C%_libsql_a_SOURCES = %D%/sql_text.c
