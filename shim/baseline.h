/* The baselines: the newest row of each context, so that a later row of the same context from
 * another arm gets its deltas when it is recorded. A bounded table, the least recently used row
 * leaves first; keyed by context hash and position. Any thread may call; calls are short and hold
 * one of many locks. */
#ifndef NEARTIE_SHIM_BASELINE_H
#define NEARTIE_SHIM_BASELINE_H

#include <stdbool.h>
#include <stdint.h>

#include "sql/record.h"

struct baseline; /* the table */

struct baseline_row {
    uint64_t context_hash; /* not 0 */
    int64_t pos;
    uint64_t row_id;
    int32_t arm;
    int32_t n_vocab;
    int32_t n_top; /* entries of top; fewer than asked for where the row has no more */
    const struct record_top *top;
};

/* Make a table for n_rows rows of at most k entries; NULL without memory. */
struct baseline *baseline_new(int32_t n_rows, int32_t k);
void baseline_free(struct baseline *b);

/* Find the row of the context, if another arm recorded it, and copy its list to top, which has room
 * for RECORD_TOP_MAX entries and becomes out->top. Returns whether there is one. */
bool baseline_find(struct baseline *b, uint64_t context_hash, int64_t pos, int32_t arm,
                   struct baseline_row *out, struct record_top *top);

/* Keep a row. One that is there of another arm stays: it is what the others are compared with. */
void baseline_put(struct baseline *b, const struct baseline_row *row);

#endif
