/* Memory for the engine's own small tables: the process ends with one line when there is none. For
 * sizes that a user chooses (contexts, weights) allocate plainly and report through struct err. */
#ifndef NEARTIE_ENGINE_MEM_H
#define NEARTIE_ENGINE_MEM_H

#include <stdio.h>
#include <stdlib.h>

/* Resize an array of n items to hold at least one; p may be NULL. */
static inline void *xreallocarray(void *p, size_t n, size_t size)
{
    void *out = reallocarray(p, n ? n : 1, size);
    if (!out) {
        fprintf(stderr, "neartie-engine: out of memory for %zu items of %zu bytes\n", n, size);
        exit(1);
    }
    return out;
}

static inline void *xcalloc(size_t n, size_t size)
{
    void *out = calloc(n ? n : 1, size);
    if (!out) {
        fprintf(stderr, "neartie-engine: out of memory for %zu items of %zu bytes\n", n, size);
        exit(1);
    }
    return out;
}

#endif
