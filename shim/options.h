/* The PROBE_* environment variables: one table gives parsing, PROBE_HELP and the rows in
 * `settings`. */
#ifndef NEARTIE_SHIM_OPTIONS_H
#define NEARTIE_SHIM_OPTIONS_H

#include <stdbool.h>

enum { OPTIONS_MAX = 32 };
enum { ON_FULL_DROP, ON_FULL_BLOCK };
enum { TOKENS_IDS, TOKENS_HASH };
enum { CUPTI_AUTO, CUPTI_FIRST, CUPTI_INTERPOSE, CUPTI_OFF };

struct options {
    char db[4096];          /* PROBE_DB: the database */
    int topk;               /* PROBE_TOPK: entries of a row's list, 1 ... RECORD_TOP_MAX */
    double sample;          /* PROBE_SAMPLE: n: every n-th forward; below 1: that share of them */
    int retain_rows;        /* PROBE_RETAIN_ROWS: rows kept as baselines; 0 = no deltas */
    char baseline[4096];    /* PROBE_BASELINE: a database to compare with; "" = none */
    int tokens;             /* PROBE_TOKENS: TOKENS_IDS or TOKENS_HASH */
    char tokens_key[4096];  /* PROBE_TOKENS_KEY: see tokens.h */
    int cupti;              /* PROBE_CUPTI: CUPTI_...; the injection reads it itself */
    char save_cubins[4096]; /* PROBE_SAVE_CUBINS: folder for code images; "" = none */
    int on_full;            /* PROBE_ON_FULL: ON_FULL_DROP or ON_FULL_BLOCK */
    int max_mb;             /* PROBE_MAX_MB: MiB on disk, the spool apart; 0 = no limit */
    int spool_mb;           /* PROBE_SPOOL_MB: MiB of the ring */
    char log[4096];         /* PROBE_LOG: see log.h */
    bool from_env[OPTIONS_MAX]; /* by row of the table: it was set, and to something sensible */
};

/* Fill from the environment; a bad value keeps the default and is told to bad(). */
void options_load(struct options *o, void (*bad)(const char *message));

/* Give every option in effect; source is "env" or "default". The value of a secret is not given. */
void options_each(const struct options *o,
                  void (*fn)(const char *name, const char *value, const char *source));

/* Print the table to stderr. */
void options_help(void);

#endif
