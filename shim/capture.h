/* Host capture: reduces one row of logits in one pass over memory to its top-k, log-sum-exp and
 * counts of what is not finite. Pure functions; no state, no allocation. The device capture has the
 * same contract. */
#ifndef NEARTIE_SHIM_CAPTURE_H
#define NEARTIE_SHIM_CAPTURE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/probe.h"
#include "sql/record.h"

struct capture {
    double lse; /* log of the sum of exp, NaN left out; +inf with a +inf, -inf if empty */
    uint32_t n_nan;
    uint32_t n_posinf;
    uint32_t n_neginf;
    int32_t first_bad;                     /* lowest id that is NaN or +inf; -1 = none */
    int32_t n_top;                         /* min(k, ids that are not NaN) */
    struct record_top top[RECORD_TOP_MAX]; /* descending; equal values by ascending id */
};

/* One instruction set's form of the capture; the last one is portable. All give the same bits. */
struct capture_path {
    const char *name;
    bool (*usable)(void);
    void (*row)(struct capture *out, const void *row, enum probe_dtype dtype, int32_t n, int32_t k);
};
extern const struct capture_path capture_paths[]; /* best first; ends with a NULL name */

/* Reduce a row of n values of dtype, n at least 1, k in 1 ... RECORD_TOP_MAX. */
void capture_row(struct capture *out, const void *row, enum probe_dtype dtype, int32_t n,
                 int32_t k);

/* The value at one id, exact in float. */
float capture_value(const void *row, enum probe_dtype dtype, int32_t id);

#endif
