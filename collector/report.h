/* What a person wants to know of a comparison, in order: the verdict in words and its reason; what
 * was compared; how often the arms agree; how narrow the margins are; every flip with its text;
 * what to expect of more tokens; where the differences lie; what is missing from the record; how
 * to look further. */
#ifndef NEARTIE_COLLECTOR_REPORT_H
#define NEARTIE_COLLECTOR_REPORT_H

#include "collector/doc.h"
#include "collector/judge.h"
#include "collector/window.h"

/* What a report is made from; all borrowed. */
struct report {
    struct db *db;
    const struct selection *sel;
    const struct window *window;       /* by the seed's rule */
    const struct judgement *judgement; /* of the same arms, all positions */
};

/* Write it into a document that was begun. */
int report_write(struct doc *doc, const struct report *report, struct err *err);

/* Where there is nothing to compare: why, and what the file holds instead. */
int report_write_contents(struct doc *doc, struct db *db, const char *why, struct err *err);

/* As JSON: the positions of the window, both verdicts. */
int report_print_json(FILE *out, const struct report *report, struct err *err);

/* The positions of the window; the seed's rule's verdict as one row. */
void report_print_rows(FILE *out, enum render_format format, const struct window *window);
void report_print_record(FILE *out, enum render_format format, const struct selection *sel,
                         const struct window *window);

/* Print the verdict by the seed's rule alone: as a table, the figures that lead to it. */
void report_print_verdict(FILE *out, enum render_format format, const struct selection *sel,
                          const struct window *window);

#endif
