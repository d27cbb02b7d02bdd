/* A recorded database, opened for reading. The views are this program's own, laid over the file's
 * as temporary ones: what a file says about itself is data, never a query. Queries are sql/q_*.sql
 * by name; parameters are bound and columns read by name. */
#ifndef NEARTIE_COLLECTOR_DB_H
#define NEARTIE_COLLECTOR_DB_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

struct db;
struct query;

/* Open the database at path; fold in what a dead process left beside it, and make the indexes,
 * where the file can be written. Refuses, in one line, what is no neartie database or has a newer
 * schema. */
int db_open(struct db **out, const char *path, struct err *err);
void db_close(struct db *db);

/* A further connection to an open database, for the scans of a thread of its own. */
int db_again(struct db **out, const struct db *db, struct err *err);

/* The same file, which db_open has opened before, over a connection that makes temporary tables and
 * with writable writes as well; the file's own triggers never run. */
int db_open_own(struct db **out, const char *path, bool writable, struct err *err);

/* Run statements, in order. */
int db_exec(struct db *db, const char *sql, struct err *err);

/* The path as SQLite's URI, with options like "mode=ro"; to be freed with sqlite3_free. */
char *db_uri(const char *path, const char *options);

const char *db_path(const struct db *db);

/* Prepare sql/q_NAME.sql; or any one statement that only reads: *tail is what follows it, and *out
 * is NULL where there was only space or comment. */
int db_query(struct db *db, struct query **out, const char *name, struct err *err);
int db_statement(struct db *db, struct query **out, const char *sql, const char **tail,
                 struct err *err);

/* A value for a parameter. */
struct db_value {
    const char *name; /* ":label" */
    enum { DB_INT, DB_REAL, DB_TEXT } type;
    int64_t integer;
    double real;
    const char *text; /* borrowed */
};

/* Run sql/NAME.sql, a statement that writes, over a connection of its own. */
int db_put(struct db *db, const char *name, const struct db_value *values, int n, struct err *err);

/* Hand every row of sql/NAME.sql, which gives its columns to the aggregate each_row, to fn. */
struct cells; /* collector/cells.h */
typedef void (*db_row_fn)(void *data, struct cells cells);
int db_each(struct db *db, const char *name, const struct db_value *values, int n, db_row_fn fn,
            void *data, struct err *err);

/* Bind a parameter, for instance ":arm_a"; one that is not bound is NULL. The text is copied. */
bool query_has_parameter(const struct query *query, const char *name);
void query_bind_int(struct query *query, const char *name, int64_t value);
void query_bind_text(struct query *query, const char *name, const char *value);

/* Go back to before the first row, keeping what is bound. */
void query_reset(struct query *query);

/* Take the next row: 1, 0 after the last, -1 failed. */
int query_step(struct query *query, struct err *err);
void query_free(struct query *query);

/* The columns of the row, by number; the text is borrowed until the next step. */
enum query_type { QUERY_NULL, QUERY_INT, QUERY_REAL, QUERY_TEXT };
int query_n_columns(const struct query *query);
const char *query_column_name(const struct query *query, int i);
enum query_type query_column_type(const struct query *query, int i);
int64_t query_column_int(const struct query *query, int i);
double query_column_real(const struct query *query, int i);
const char *query_column_text(const struct query *query, int i, int *n_bytes);
const void *query_column_bytes(const struct query *query, int i, int *n_bytes); /* no NUL behind */

/* The same by name, which must be one of the query's. NULL reads as 0, NAN and NULL. */
bool query_is_null(const struct query *query, const char *name);
int64_t query_int(const struct query *query, const char *name);
double query_real(const struct query *query, const char *name);
const char *query_text(const struct query *query, const char *name);

#endif
