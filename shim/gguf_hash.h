/* The identity of a GGUF file's weights, as neartie-engine gives it, so that records of both
 * compare: a hash over the names, types and shapes of all tensors and the ends of their data. */
#ifndef NEARTIE_SHIM_GGUF_HASH_H
#define NEARTIE_SHIM_GGUF_HASH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Of a tensor type: values in a block and its bytes; 0 where the type is not known. */
struct gguf_types {
    int64_t (*values)(int32_t type);
    size_t (*bytes)(int32_t type);
    int32_t n; /* types from 0 on that may be asked for */
};

/* Returns false where the file cannot be read, is no GGUF file of version 2 or 3, or has no
 * tensors. */
bool gguf_hash(const char *path, const struct gguf_types *types, uint64_t *out);

#endif
