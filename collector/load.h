/* Rows of two arms, paired by their contexts, as the calibrated rule reads them; of one file or of
 * two. A row of arm B is paired with the first of arm A's rows of its context, as the views do.
 * Where a context comes back in arm B, the row counts once if it came out the same; what came out
 * otherwise stays with the sequence that had the context first. */
#ifndef NEARTIE_COLLECTOR_LOAD_H
#define NEARTIE_COLLECTOR_LOAD_H

#include "collector/db.h"
#include "collector/pairs.h"
#include "collector/select.h"

/* One side: an arm of an open file; both borrowed. */
struct load_side {
    struct db *db;
    const struct arm *arm;
};

/* The recorded rows behind a pair whose arms chose different tokens. */
struct load_flip {
    int64_t seq, pos;
    int64_t row_a, row_b;
};

/* What was paired, beside the rows themselves. */
struct load {
    struct pairs *pairs;
    int64_t n_a, n_b; /* rows of each arm that carry a context */
    int64_t n_again;  /* rows of arm B left out: equal to an earlier one of their context */
    int64_t n_alone;  /* rows of arm B whose context arm A has not seen */
    struct load_flip *flips;
    size_t n_flips, flips_size;
};

/* Pair all rows. Sequences are numbered by arm B's seq_id. */
int load_pairs(const struct load_side *a, const struct load_side *b, struct load *out,
               struct err *err);
void load_free(struct load *load);

#endif
