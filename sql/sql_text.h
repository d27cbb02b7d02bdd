/* The SQL files of this folder, embedded at build time: sql/q_top.sql is the row of sql_texts named
 * "q_top". The files are the one source of the schema and of every named query; they are installed
 * as well. */
#ifndef NEARTIE_SQL_TEXT_H
#define NEARTIE_SQL_TEXT_H

#define SQL_SCHEMA_VERSION 1 /* the version that sql/schema.sql describes */

struct sql_text {
    const char *name; /* file name without folder and ending; NULL ends the list */
    const char *text; /* the whole file */
};

extern const struct sql_text sql_texts[];

extern const char sql_schema[];
extern const char sql_views[];
extern const char sql_baseline_run[];
extern const char sql_baseline_rows[];
extern const char sql_rotate[];
extern const char sql_merge[];         /* for each file, attached as src */
extern const char sql_merge_end[];     /* after all of them */
extern const char sql_prune_weigh[];   /* prune: temp.weighed, by temp.prune_by */
extern const char sql_prune_choose[];  /* temp.doomed */
extern const char sql_prune_counts[];  /* a query: what goes */
extern const char sql_prune[];         /* it goes */
extern const char sql_import_line[];   /* what a line of responses says */
extern const char sql_import_tokens[]; /* the tokens in it */
extern const char sql_import_texts[];  /* tables in memory */
extern const char sql_indexes[];       /* made at close, or by the first reader */

#endif
