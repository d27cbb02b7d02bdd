/* The context hash against XXH3 used in the plain way, and its laws. */
#include "config.h"

#include <stdint.h>
#include <xxhash.h>

#include "sql/context_hash.h"
#include "tests/tap.h"

static uint64_t reference(const int32_t *tokens, size_t n)
{
    uint64_t hash = 0;
    for (size_t i = 0; i < n; i++) {
        uint32_t id = (uint32_t)tokens[i];
        unsigned char bytes[4];
        for (int b = 0; b < 4; b++)
            bytes[b] = (unsigned char)(id >> 8 * b);
        hash = XXH3_64bits_withSeed(bytes, 4, hash);
        if (hash == 0)
            hash = 1;
    }
    return hash;
}

int main(void)
{
    static const int32_t tokens[] = {0, 1, 151935, 248319, -1, INT32_MAX, INT32_MIN, 7, 7, 7};
    enum { N = sizeof tokens / sizeof *tokens };
    int equal = 1, chained = 1, distinct = 1, never_zero = 1;
    for (size_t n = 1; n <= N; n++) {
        equal &= context_hash(0, tokens, n) == reference(tokens, n);
        for (size_t cut = 0; cut <= n; cut++)
            chained &= context_hash(context_hash(0, tokens, cut), tokens + cut, n - cut) ==
                       context_hash(0, tokens, n);
        for (size_t m = 1; m < n; m++)
            distinct &= context_hash(0, tokens, m) != context_hash(0, tokens, n);
    }
    for (int32_t id = 0; id < 1 << 20; id++)
        never_zero &= context_hash((uint64_t)id, &id, 1) != 0;
    ok(equal, "it is XXH3 over the id's little-endian bytes, seeded by the hash so far");
    ok(chained, "a context can be continued at any place");
    ok(distinct, "contexts of different lengths differ, also where ids repeat");
    ok(never_zero, "it is never 0");
    ok(context_hash(42, tokens, 0) == 42, "no id: the hash so far");
    ok(context_hash(0, (int32_t[]){1, 2}, 2) != context_hash(0, (int32_t[]){2, 1}, 2),
       "order matters");
    /* Databases of different builds are joined by it, so its values are fixed: from libxxhash 0.8.
     */
    ok(context_hash(0, (int32_t[]){1, 2, 3}, 3) == UINT64_C(0x2a539e45f600a866),
       "the ids 1, 2, 3 give 2a539e45f600a866");
    return tap_done();
}
