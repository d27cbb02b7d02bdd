/* The way of a logits row from the hook into the ring: reserve a slot, find the row's baseline,
 * reduce the logits into the slot, publish it. */
#ifndef NEARTIE_SHIM_ROWS_H
#define NEARTIE_SHIM_ROWS_H

#include <stdint.h>

#include "shim/core.h"
#include "shim/probe.h"

/* Record every row of a call that has been checked. */
void rows_record(struct probe *p, uint64_t forward_id, int32_t arm, const struct probe_logits *l);

#endif
