/* The context hash: the join key of everything. Each token id continues it by XXH3 (64 bits, of the
 * xxHash project) over the id's four little-endian bytes, with the hash so far as the seed; a
 * result of 0 becomes 1, since 0 stands for "unknown". */
#ifndef NEARTIE_SQL_CONTEXT_HASH_H
#define NEARTIE_SQL_CONTEXT_HASH_H

#include <stddef.h>
#include <stdint.h>

/* Continue prev (0 at the start) over n ids. */
uint64_t context_hash(uint64_t prev, const int32_t *tokens, size_t n);

#endif
