/* The pictures of a report: distributions of a judgement's pairs, as plots on a page, as bars on a
 * terminal and in Markdown, and as tables on a page where gnuplot is missing. */
#ifndef NEARTIE_COLLECTOR_REPORT_PLOTS_H
#define NEARTIE_COLLECTOR_REPORT_PLOTS_H

#include "collector/doc.h"
#include "collector/report.h"

/* Margins of arm A, with the decision position's. */
int report_plot_margins(struct doc *doc, const struct report *report, struct err *err);

/* Margin against the largest contrast of each position, with the line above which a token flips. */
int report_plot_contrasts(struct doc *doc, const struct report *report, struct err *err);

/* Contrasts along the positions. */
int report_plot_drift(struct doc *doc, const struct report *report, struct err *err);

/* How many positions have a contrast above x: the tested pair, and the floor. */
int report_plot_floor(struct doc *doc, const struct report *report, struct err *err);

/* Which kernel list each forward launched. */
int report_plot_kernels(struct doc *doc, const struct report *report, struct err *err);

#endif
