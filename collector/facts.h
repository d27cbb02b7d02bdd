/* Facts of two arms as a list of names with a value on either side: what differs between two runs,
 * their settings or their kernels, in one file or in two. */
#ifndef NEARTIE_COLLECTOR_FACTS_H
#define NEARTIE_COLLECTOR_FACTS_H

#include "collector/load.h"
#include "collector/render.h"

struct fact {
    char *name;
    char *value[2]; /* of A and B; NULL where a side has none */
};

struct facts {
    struct fact *list; /* (n) */
    size_t n, size;
};

/* Add what one side (0 A, 1 B) has: the columns of its run; its run's settings; the kernel
 * configurations of its arm, named by kernel, grid, block, shared memory, registers and code. */
int facts_add_run(struct facts *facts, int side, const struct load_side *from, struct err *err);
int facts_add_settings(struct facts *facts, int side, const struct load_side *from,
                       struct err *err);
int facts_add_kernels(struct facts *facts, int side, const struct load_side *from, struct err *err);
void facts_free(struct facts *facts);

/* Keep what differs, in order of name. */
void facts_keep_different(struct facts *facts);

/* Print as rows of kind, name, a and b. */
void facts_render(struct render *r, const char *kind, const struct facts *facts);

#endif
