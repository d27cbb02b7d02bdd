/* Plots, drawn by gnuplot as SVG that lies inside a page: it scales with the page, its lines and
 * letters take the page's colour, and its names are its own. */
#ifndef NEARTIE_COLLECTOR_PLOT_H
#define NEARTIE_COLLECTOR_PLOT_H

#include "err.h"

#include <stdbool.h>
#include <stdio.h>

/* Two arms, the floor, what stands out: readable on light and on dark ground. */
#define PLOT_A     "#3f83d9"
#define PLOT_B     "#dd7a32"
#define PLOT_FLOOR "#8b95a5"
#define PLOT_MARK  "#d0416b"

/* Whether gnuplot can be run. */
bool plot_available(void);

/* A script under way: write commands and inline data to the stream, never text of a record. */
struct plot {
    FILE *script;
    const char *name; /* [a-z]+, distinct within a page; borrowed */
};

int plot_begin(struct plot *plot, const char *name, struct err *err);

/* Draw. *svg is one svg element, to be freed; on failure NULL, with gnuplot's words in err. */
int plot_end(struct plot *plot, char **svg, struct err *err);

#endif
