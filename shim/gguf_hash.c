#include "config.h"

#include "shim/gguf_hash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    ENDS = 4096, /* bytes hashed at either end of a tensor's data */
    NAME_MAX_BYTES = 1024,
    STRING = 8, /* types of values */
    ARRAY = 9,
    UINT32 = 4
};

struct tensor {
    char name[NAME_MAX_BYTES];
    size_t n_name;
    uint32_t type;
    uint64_t dim[4];
    uint64_t offset; /* from where data begins */
    uint64_t bytes;
};

/* What is read wrong stays wrong, so that it is asked about once. */
struct reader {
    FILE *file;
    bool failed;
};

static void get(struct reader *r, void *to, size_t n)
{
    if (!r->failed && fread(to, 1, n, r->file) != n)
        r->failed = true;
    if (r->failed)
        memset(to, 0, n);
}

static uint32_t get_u32(struct reader *r)
{
    uint32_t x;
    get(r, &x, sizeof x);
    return x;
}

static uint64_t get_u64(struct reader *r)
{
    uint64_t x;
    get(r, &x, sizeof x);
    return x;
}

static void seek(struct reader *r, off_t to)
{
    r->failed = r->failed || fseeko(r->file, to, SEEK_SET) != 0;
}

static void skip(struct reader *r, uint64_t n)
{
    char text[256];
    if (n < sizeof text)
        get(r, text, (size_t)n);
    else if (n > INT64_MAX || fseeko(r->file, (off_t)n, SEEK_CUR))
        r->failed = true;
}

/* Returns its length; one that does not fit is an error. */
static size_t get_string(struct reader *r, char to[NAME_MAX_BYTES])
{
    uint64_t n = get_u64(r);
    if (n > NAME_MAX_BYTES)
        r->failed = true;
    get(r, to, r->failed ? 0 : (size_t)n);
    return r->failed ? 0 : (size_t)n;
}

static void skip_values(struct reader *r, uint32_t type, uint64_t n)
{
    static const uint8_t sizes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
    if (type == STRING)
        for (uint64_t i = 0; i < n && !r->failed; i++)
            skip(r, get_u64(r));
    else if (type < sizeof sizes && sizes[type] && n < UINT64_MAX / 8)
        skip(r, n * sizes[type]);
    else
        r->failed = true; /* arrays of arrays too */
}

/* Pass over the keys; returns the alignment of data. */
static uint64_t read_keys(struct reader *r, uint64_t n)
{
    static const char wanted[] = "general.alignment";
    char name[NAME_MAX_BYTES];
    uint64_t alignment = 32;
    for (uint64_t i = 0; i < n && !r->failed; i++) {
        size_t length = get_string(r, name);
        uint32_t type = get_u32(r);
        if (type == UINT32 && length == sizeof wanted - 1 && !memcmp(name, wanted, length))
            alignment = get_u32(r);
        else if (type == ARRAY) {
            type = get_u32(r);
            skip_values(r, type, get_u64(r));
        } else
            skip_values(r, type, 1);
    }
    r->failed = r->failed || !alignment || alignment & (alignment - 1);
    return alignment;
}

static void read_tensor(struct reader *r, const struct gguf_types *types, struct tensor *t)
{
    t->n_name = get_string(r, t->name);
    uint32_t n_dims = get_u32(r);
    uint64_t values = 1;
    r->failed = r->failed || n_dims < 1 || n_dims > 4;
    for (uint32_t i = 0; i < 4; i++) {
        t->dim[i] = i < n_dims && !r->failed ? get_u64(r) : 1;
        r->failed = r->failed || !t->dim[i] || values > ((uint64_t)1 << 50) / t->dim[i];
        values *= r->failed ? 1 : t->dim[i];
    }
    t->type = get_u32(r);
    t->offset = get_u64(r);
    r->failed = r->failed || t->type >= (uint32_t)types->n || t->offset > INT64_MAX / 2;
    int64_t block = r->failed ? 0 : types->values((int32_t)t->type);
    r->failed = r->failed || block <= 0;
    t->bytes = r->failed ? 0 : values / (uint64_t)block * types->bytes((int32_t)t->type);
}

static void hash_tensor(struct reader *r, uint64_t data, const struct tensor *t,
                        XXH64_state_t *state)
{
    char bytes[ENDS];
    size_t n = t->bytes < ENDS ? (size_t)t->bytes : ENDS;
    uint64_t at[2] = {data + t->offset, data + t->offset + t->bytes - n};
    XXH64_update(state, t->name, t->n_name);
    XXH64_update(state, &t->type, sizeof t->type);
    XXH64_update(state, t->dim, sizeof t->dim);
    for (int i = 0; i < 2; i++) {
        seek(r, (off_t)at[i]);
        get(r, bytes, n);
        XXH64_update(state, bytes, n);
    }
}

/* Behind the keys: the tensors' descriptions, then, aligned, their data. */
static uint64_t hash_tensors(struct reader *r, const struct gguf_types *types, uint64_t n,
                             uint64_t alignment)
{
    XXH64_state_t state;
    struct tensor t;
    off_t at = ftello(r->file);
    for (uint64_t i = 0; i < n && !r->failed; i++)
        read_tensor(r, types, &t);
    uint64_t data = ((uint64_t)ftello(r->file) + alignment - 1) & ~(alignment - 1);
    XXH64_reset(&state, 0);
    for (uint64_t i = 0; i < n && !r->failed; i++) {
        seek(r, at);
        read_tensor(r, types, &t);
        at = ftello(r->file);
        hash_tensor(r, data, &t, &state);
    }
    return XXH64_digest(&state);
}

static uint64_t read_all(struct reader *r, const struct gguf_types *types)
{
    char magic[4];
    get(r, magic, sizeof magic);
    uint32_t version = get_u32(r);
    uint64_t n_tensors = get_u64(r), n_keys = get_u64(r);
    if (memcmp(magic, "GGUF", 4) != 0 || version < 2 || version > 3 || !n_tensors)
        r->failed = true;
    uint64_t alignment = read_keys(r, n_keys);
    return r->failed ? 0 : hash_tensors(r, types, n_tensors, alignment);
}

bool gguf_hash(const char *path, const struct gguf_types *types, uint64_t *out)
{
    struct reader r = {.file = fopen(path, "rbe")};
    if (!r.file)
        return false;
    uint64_t hash = read_all(&r, types);
    fclose(r.file);
    if (!r.failed)
        *out = hash;
    return !r.failed;
}
