/* The PROBE_* environment variables: one table gives parsing, PROBE_HELP and the rows in
 * `settings`. */
#ifndef NEARTIE_SHIM_OPTIONS_H
#define NEARTIE_SHIM_OPTIONS_H

enum { ON_FULL_DROP, ON_FULL_BLOCK };

struct options {
    char db[4096];   /* PROBE_DB: the database */
    int topk;        /* PROBE_TOPK: entries of a row's list, 1 ... RECORD_TOP_MAX */
    int retain_rows; /* PROBE_RETAIN_ROWS: rows kept as baselines; 0 = no deltas */
    int on_full;     /* PROBE_ON_FULL: ON_FULL_DROP or ON_FULL_BLOCK */
    int spool_mb;    /* PROBE_SPOOL_MB: MiB of the ring */
    char log[4096];  /* PROBE_LOG: see log.h */
};

/* Fill from the environment; a bad value keeps the default and is told to bad(). */
void options_load(struct options *o, void (*bad)(const char *message));

/* Give every option in effect; source is "env" or "default". */
void options_each(const struct options *o,
                  void (*fn)(const char *name, const char *value, const char *source));

/* Print the table to stderr. */
void options_help(void);

#endif
