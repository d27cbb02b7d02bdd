# The SQL, installed as files and embedded in the binaries.
sql_files = \
	%D%/schema.sql \
	%D%/views.sql

sqldir = $(pkgdatadir)/sql
dist_sql_DATA = $(sql_files)
EXTRA_DIST += %D%/embed.awk
noinst_HEADERS += %D%/sql_text.h

BUILT_SOURCES += %D%/sql_text.c
CLEANFILES += %D%/sql_text.c
%D%/sql_text.c: $(sql_files) %D%/embed.awk
	$(AM_V_GEN)$(MKDIR_P) $(@D) && set -- && for f in $(sql_files); do \
	  if test -f "$$f"; then set -- "$$@" "$$f"; else set -- "$$@" "$(srcdir)/$$f"; fi; done && \
	  $(AWK) -f $(srcdir)/%D%/embed.awk "$$@" > $@.tmp && mv $@.tmp $@

noinst_LIBRARIES += %D%/libsql.a
nodist_%C%_libsql_a_SOURCES = %D%/sql_text.c
