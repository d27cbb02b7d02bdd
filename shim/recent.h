/* The rows of late: which row was the last at a position of a sequence, so that the token that the
 * sampler emits after it finds it. A table of 65,536; where it is full the oldest row of eight is
 * forgotten. Any thread. */
#ifndef NEARTIE_SHIM_RECENT_H
#define NEARTIE_SHIM_RECENT_H

#include <stdint.h>

struct recent;

struct recent *recent_new(void); /* NULL without memory */
void recent_free(struct recent *r);

/* Note the row of the position; 0: forget the one that was there. */
void recent_put(struct recent *r, int64_t seq, int64_t pos, uint64_t row_id);

/* Return the row's id, or 0 where it is not known. */
uint64_t recent_find(struct recent *r, int64_t seq, int64_t pos);

#endif
