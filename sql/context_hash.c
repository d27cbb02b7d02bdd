#include "config.h"

#include "sql/context_hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

uint64_t context_hash(uint64_t prev, const int32_t *tokens, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)tokens[i];
        const unsigned char bytes[4] = {id & 255, id >> 8 & 255, id >> 16 & 255, id >> 24};
        prev = XXH3_64bits_withSeed(bytes, sizeof bytes, prev);
        prev += prev == 0;
    }
    return prev;
}
