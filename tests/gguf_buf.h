/* A GGUF file under construction, for tests: keys and tensors appended as bytes, right or wrong. */
#ifndef NEARTIE_TESTS_GGUF_BUF_H
#define NEARTIE_TESTS_GGUF_BUF_H

#include "engine/gguf.h"

#include <stdlib.h>
#include <string.h>

struct buf {
    unsigned char *p; /* owned */
    size_t n, n_max;  /* bytes used, allocated */
};

static inline void put(struct buf *b, const void *p, size_t n)
{
    if (b->n + n > b->n_max) {
        b->n_max = 2 * (b->n + n);
        b->p = realloc(b->p, b->n_max);
    }
    if (n)
        memcpy(b->p + b->n, p, n);
    b->n += n;
}

static inline void put_u32(struct buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_u64(struct buf *b, uint64_t v)
{
    put(b, &v, sizeof v);
}

static inline void put_str(struct buf *b, const char *s)
{
    put_u64(b, strlen(s));
    put(b, s, strlen(s));
}

/* Start anew with a header. */
static inline void put_head(struct buf *b, uint32_t version, uint64_t n_tensors, uint64_t n_keys)
{
    b->n = 0;
    put(b, "GGUF", 4);
    put_u32(b, version);
    put_u64(b, n_tensors);
    put_u64(b, n_keys);
}

static inline void put_key_u32(struct buf *b, const char *name, uint32_t v)
{
    put_str(b, name);
    put_u32(b, GGUF_U32);
    put_u32(b, v);
}

static inline void put_key_str(struct buf *b, const char *name, const char *v)
{
    put_str(b, name);
    put_u32(b, GGUF_STR);
    put_str(b, v);
}

static inline void put_key_bool(struct buf *b, const char *name, bool v)
{
    put_str(b, name);
    put_u32(b, GGUF_BOOL);
    put(b, &(unsigned char){v}, 1);
}

/* The head of an array; its n elements follow. */
static inline void put_key_arr(struct buf *b, const char *name, enum gguf_type type, uint64_t n)
{
    put_str(b, name);
    put_u32(b, GGUF_ARR);
    put_u32(b, type);
    put_u64(b, n);
}

static inline void put_tensor(struct buf *b, const char *name, uint32_t type, uint64_t cols,
                              uint64_t rows, uint64_t offset)
{
    put_str(b, name);
    put_u32(b, 2);
    put_u64(b, cols);
    put_u64(b, rows);
    put_u32(b, type);
    put_u64(b, offset);
}

/* Zeros up to the data's start, and data_bytes more. */
static inline void put_padding(struct buf *b, size_t data_bytes)
{
    for (size_t end = (b->n + 31) / 32 * 32 + data_bytes; b->n < end;)
        put(b, "", 1);
}

/* Deterministic noise: xorshift64. */
static inline uint64_t noise(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

#endif
