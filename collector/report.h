/* What a person wants to know of a comparison, in order: what was compared, every position, the
 * figures, the verdict, and what is missing from the record. */
#ifndef NEARTIE_COLLECTOR_REPORT_H
#define NEARTIE_COLLECTOR_REPORT_H

#include "collector/judge.h"
#include "collector/render.h"
#include "collector/window.h"

/* What a report is made from; all borrowed. */
struct report {
    struct db *db;
    const struct selection *sel;
    const struct window *window;       /* by the seed's rule */
    const struct judgement *judgement; /* of the same arms, all positions; NULL = without */
};

/* Print it; CSV is the positions of the window. */
int report_print(FILE *out, enum render_format format, const struct report *report,
                 struct err *err);

/* Print the verdict by the seed's rule alone: as a table, the figures that lead to it. */
void report_print_verdict(FILE *out, enum render_format format, const struct selection *sel,
                          const struct window *window);

#endif
