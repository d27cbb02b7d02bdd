/* Token ids on disk: as they are, or, with PROBE_TOKENS=hash, under a key that is never stored. The
 * keyed form of an id is another id of the same 31 bits, one to one, so that ids still compare; a
 * context hash is keyed as well, since an unkeyed chain of hashes gives the text away to whoever
 * tries every token in turn. The same key gives the same ids in every run. What remains visible is
 * what a substitution cipher shows: which ids are equal, and how often they come. */
#ifndef NEARTIE_SHIM_TOKENS_H
#define NEARTIE_SHIM_TOKENS_H

#include <stdbool.h>
#include <stdint.h>

struct tokens {
    bool hidden;
    uint64_t key[2];
};

/* Hide ids under the key made of secret; an empty one: a random key, of this run alone. */
void tokens_init(struct tokens *t, bool hidden, const char *secret);

/* What goes to disk for an id; negative ones (unknown) stay. And back. */
int32_t tokens_hide(const struct tokens *t, int32_t id);
int32_t tokens_show(const struct tokens *t, int32_t id);

/* The same for a context hash, one way; 0 (unknown) stays, nothing else becomes 0. */
uint64_t tokens_hide_context(const struct tokens *t, uint64_t context_hash);

#endif
