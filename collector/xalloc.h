/* Memory for the collector, a command that may end when there is none: these return memory or
 * print one line and exit with status 1. */
#ifndef NEARTIE_COLLECTOR_XALLOC_H
#define NEARTIE_COLLECTOR_XALLOC_H

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Return n zeroed elements of size bytes; at least one byte, so that NULL means nothing here. */
static inline void *xcalloc(size_t n, size_t size)
{
    void *memory = calloc(n ? n : 1, size ? size : 1);
    if (!memory) {
        fprintf(stderr, "neartie: memory: %zu elements of %zu bytes: out of memory\n", n, size);
        exit(1);
    }
    return memory;
}

/* Resize an array to n elements of size bytes; new elements are not initialised. */
static inline void *xrealloc(void *memory, size_t n, size_t size)
{
    size_t bytes;
    if (__builtin_mul_overflow(n, size, &bytes) || !(memory = realloc(memory, bytes ? bytes : 1))) {
        fprintf(stderr, "neartie: memory: %zu elements of %zu bytes: out of memory\n", n, size);
        exit(1);
    }
    return memory;
}

static inline char *xstrdup(const char *text)
{
    size_t size = strlen(text) + 1;
    return memcpy(xcalloc(size, 1), text, size);
}

#endif
