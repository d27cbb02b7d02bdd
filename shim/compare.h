/* PROBE_BASELINE: the rows of a run that another database holds, in memory and fixed, so that this
 * run's rows get their deltas against them as they are recorded. */
#ifndef NEARTIE_SHIM_COMPARE_H
#define NEARTIE_SHIM_COMPARE_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "shim/baseline.h"
#include "shim/tokens.h"

enum { COMPARE_ROWS_MAX = 1 << 20 }; /* about 250 MB with lists of 20 */

struct compare {
    struct baseline *rows; /* NULL: there is no other run */
    char run_uuid[33];
    int32_t k;          /* longest list */
    int64_t n_left_out; /* rows that were too many; the oldest ones */
};

/* Load the newest run of the database at path. */
int compare_load(struct compare *c, const char *path, const struct tokens *tokens, struct err *err);

/* Find the other run's row of the context, one of the same phase (enum probe_phase) before others.
 */
bool compare_find(const struct compare *c, uint64_t context_hash, int64_t pos, int phase,
                  struct baseline_row *out, struct record_top *top);

#endif
