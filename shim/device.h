/* Device capture: rows whose logits stand in GPU memory are reduced by a kernel of our own on the
 * engine's stream, into memory that the host reads; nothing waits for the GPU. A row goes into the
 * ring as RECORD_PENDING and is completed on the writer thread. On a stream that is being captured
 * the kernel becomes part of the graph, and each replay brings the rows again. Driver API only, and
 * the host process's own libcuda: a process without one has no such rows. Built without the CUDA
 * Toolkit, every such row is counted as not recorded. */
#ifndef NEARTIE_SHIM_DEVICE_H
#define NEARTIE_SHIM_DEVICE_H

#include <stdbool.h>
#include <stdint.h>

#include "shim/core.h"
#include "shim/probe.h"

/* Record every row of a call whose location is PROBE_CUDA. Rows that cannot be captured are
 * counted, and the reason goes to `gaps`. */
void device_record(struct probe *p, uint64_t forward_id, int32_t arm, const struct probe_logits *l);

/* Complete pending record n in place. Returns false where its results have not arrived yet. Writer
 * thread only. */
bool device_complete(struct probe *p, struct record *r, uint64_t n);

/* Put into the ring what graphs have left that were captured with a call of the hook in them.
 * Writer thread only. */
void device_poll(struct probe *p);

#endif
