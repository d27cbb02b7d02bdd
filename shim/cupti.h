/* The CUPTI back end of the tagger: callbacks of the driver functions that launch kernels, load
 * code and build graphs. Nothing of CUPTI is linked, and no activity is measured: no device memory,
 * no timestamps, no change to any kernel. */
#ifndef NEARTIE_SHIM_CUPTI_H
#define NEARTIE_SHIM_CUPTI_H

#include <stdbool.h>
#include <stddef.h>

/* Subscribe, once, from within cuInit. Returns whether callbacks come; false: why says what was
 * tried and what it answered. */
bool cupti_attach(char *why, size_t size);

#endif
