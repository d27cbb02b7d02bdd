/* The way of a logits row from the hook into the ring: reserve a slot, find the row's baseline,
 * reduce the logits into the slot, publish it. The steps that device.h takes as well stand here. */
#ifndef NEARTIE_SHIM_ROWS_H
#define NEARTIE_SHIM_ROWS_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/core.h"
#include "shim/probe.h"

/* What a row is compared with; its entries are the watch list. */
struct base {
    struct baseline_row row;
    struct record_top top[RECORD_TOP_MAX];
};

/* Record every row of a call that has been checked. */
void rows_record(struct probe *p, uint64_t forward_id, int32_t arm, const struct probe_logits *l);

/* Reserve a slot for row i and fill in what is known without its logits; its number goes to out_n.
 * NULL, and counted, where the ring is full; the writer thread may not wait for itself. */
struct record *rows_reserve(struct probe *p, uint64_t forward_id, const struct probe_logits *l,
                            int32_t i, bool may_wait, uint64_t *out_n);

/* Find the row of the same context that another arm recorded; row becomes comparable with it: all
 * of its base_ members are set but the list, whose ids go through tokens_hide. Returns whether
 * there is one. */
bool rows_find_base(struct probe *p, int32_t arm, struct record_row *row, struct base *base);

/* Publish record n, a row that is complete but for the ids of its top list, which are still as the
 * engine knows them; before, keep it for the rows of the same context that come after it. */
void rows_publish(struct probe *p, int32_t arm, struct record *r, uint64_t n);

/* A forward is not recorded: the tokens that follow its rows belong to no row. */
void rows_forget(struct probe *p, const struct probe_logits *l);

/* Count n rows in device memory as not recorded, and note the reason once. */
void rows_lose_device(struct probe *p, int32_t n, const char *reason);

#endif
