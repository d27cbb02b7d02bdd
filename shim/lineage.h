/* What the positions of one sequence in an engine's cache hold, as far as it is known: the context
 * hash behind every position, up to the first one that is not known. Not for several threads. */
#ifndef NEARTIE_SHIM_LINEAGE_H
#define NEARTIE_SHIM_LINEAGE_H

#include <stdint.h>

struct lineage {
    uint64_t *hash; /* (known) of the tokens up to and including a position */
    int32_t known, room;
    int32_t n;      /* positions in the cache, known or not */
    int64_t number; /* of the sequence as recorded; 0: not recorded yet */
    int64_t parent; /* the number of the one that it was copied from; 0: none */
};

/* Put a token behind position pos - 1 and return the context hash, 0 where it is not known. start
 * is the hash before the first position; a negative token is one whose id is not known. */
uint64_t lineage_push(struct lineage *l, uint64_t start, int32_t pos, int32_t token);

/* Positions p0 ... p1 - 1 were removed; negative: from the first, to the last. */
void lineage_remove(struct lineage *l, int32_t p0, int32_t p1);

/* Positions p0 ... p1 - 1 of from were given to the sequence `to` as well. */
void lineage_copy(const struct lineage *from, struct lineage *to, int32_t p0, int32_t p1);

/* Another sequence took its place: n positions whose hashes are known; n 0: none is, or no memory.
 */
void lineage_replace(struct lineage *l, const uint64_t *hash, int32_t n);

/* What stands from position p0 on is not known any more. */
void lineage_spoil(struct lineage *l, int32_t p0);

/* The cache itself says how many positions it holds: where that differs, somebody else changed it.
 */
void lineage_agree(struct lineage *l, int32_t n);

/* Free its memory; it is empty then. */
void lineage_clear(struct lineage *l);

#endif
