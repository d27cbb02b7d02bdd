/* Shared by capture.c and the forms of the capture; nobody else's. */
#ifndef NEARTIE_SHIM_CAPTURE_INT_H
#define NEARTIE_SHIM_CAPTURE_INT_H

#include "shim/capture.h"

typedef void capture_row_fn(struct capture *out, const void *row, enum probe_dtype dtype, int32_t n,
                            int32_t k);

capture_row_fn capture_row_avx512, capture_row_avx2, capture_row_portable;

#endif
