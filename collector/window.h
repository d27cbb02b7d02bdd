/* The rows of the seed's rule, read from a record: what the engine's gate had in memory, from what
 * was recorded of it. */
#ifndef NEARTIE_COLLECTOR_WINDOW_H
#define NEARTIE_COLLECTOR_WINDOW_H

#include "collector/seed.h"
#include "collector/select.h"

struct window {
    struct seed_row *rows; /* (n) by position; owned */
    int n;
    struct seed_summary summary;
    struct seed_gate gate;         /* at the decision position, over the ids known on both sides */
    char name_a[224], name_b[224]; /* of the arms, with the run where these differ */
};

/* Load the selected window and apply the rule. */
int window_load(struct db *db, const struct selection *sel, struct window *out, struct err *err);
void window_free(struct window *window);

/* "decode" or "2:decode"; a label is text of the file, and nothing in it may act on a terminal. */
void window_name_arm(const struct arm *arm, bool with_run, char *out, size_t size);

struct seed_names window_names(const struct window *window);

#endif
