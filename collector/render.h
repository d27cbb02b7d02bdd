/* Rows for people and programs: one list of columns, five forms. Cells are given row by row, from
 * left to right; CSV and JSON are written as they come, a table when it is closed, since its widths
 * and sides depend on every row. Text may come from an untrusted file: what a terminal would act on
 * is shown as an escape, and JSON is always valid. */
#ifndef NEARTIE_COLLECTOR_RENDER_H
#define NEARTIE_COLLECTOR_RENDER_H

#include "collector/db.h"

#include <argp.h>
#include <stdint.h>
#include <stdio.h>

/* The last two are parts of a document (collector/doc.h); --format does not offer them. */
enum render_format { RENDER_TABLE, RENDER_CSV, RENDER_JSON, RENDER_MARKDOWN, RENDER_HTML };

/* Digits of real numbers in a table: decimals; below 0, that many significant ones. CSV and JSON
 * always have all. */
enum { RENDER_ALL_DIGITS = -100 };

struct render;

/* The option --format, to be made a child of a command's argp with a pointer to the format. */
extern const struct argp render_argp;

/* Names are copied. */
struct render *render_open(FILE *out, enum render_format format, int digits, int n_columns,
                           const char *const names[]);
void render_int(struct render *r, int64_t value);
void render_real(struct render *r, double value); /* NAN is printed as nothing, or null */
void render_text(struct render *r, const char *text, int n_bytes); /* n_bytes < 0: to its NUL */
void render_null(struct render *r);
void render_close(struct render *r);

/* What stands in place of a table that has no row, "no rows" by default; copied. CSV and JSON have
 * their columns and nothing else. */
void render_when_empty(struct render *r, const char *note);

/* Open, print every row of the query under its own column names, and close; empty: as above, or
 * NULL. */
int render_query(FILE *out, enum render_format format, int digits, struct query *query,
                 struct err *err);
int render_query_or(FILE *out, enum render_format format, int digits, struct query *query,
                    const char *empty, struct err *err);

/* Write text so that no terminal acts on it: control characters and bytes that are not UTF-8 become
 * \n, \x1b, \u{202e}. Returns the columns it takes, counting a character as one. */
int render_safe(FILE *out, const char *text, int n_bytes);

/* The same inside HTML, between tags or in a quoted attribute; and inside a line of Markdown. */
void render_html(FILE *out, const char *text, int n_bytes);
void render_markdown(FILE *out, const char *text, int n_bytes);

/* Write text as a JSON string with its quotes; bytes that are not UTF-8 become U+FFFD. */
void render_json_string(FILE *out, const char *text, int n_bytes);

/* Write a number as JSON: NAN and infinities as null. */
void render_json_real(FILE *out, double value);

#endif
