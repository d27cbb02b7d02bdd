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
 * NULL, and counted, where the ring is full. */
struct record *rows_reserve(struct probe *p, uint64_t forward_id, const struct probe_logits *l,
                            int32_t i, uint64_t *out_n);

/* Find the row of the same context that another arm recorded; row becomes comparable with it: all
 * of its base_ members are set but the list. Returns whether there is one. */
bool rows_find_base(struct probe *p, int32_t arm, struct record_row *row, struct base *base);

/* Keep a complete row for those of the same context that come after it. */
void rows_keep(struct probe *p, int32_t arm, const struct record_row *row);

/* Count n rows in device memory as not recorded, and note the reason once. */
void rows_lose_device(struct probe *p, int32_t n, const char *reason);

#endif
