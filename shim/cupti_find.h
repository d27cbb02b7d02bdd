/* Which libcupti: the one that the process has, or else the one that belongs to its CUDA runtime.
 * Two in one process would each keep half of CUPTI's state. */
#ifndef NEARTIE_SHIM_CUPTI_FIND_H
#define NEARTIE_SHIM_CUPTI_FIND_H

#include <stddef.h>

/* Open it; NULL: there is none. path is what it was opened by. */
void *cupti_find(char *path, size_t size);

#endif
