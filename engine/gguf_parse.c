#include "config.h"

#include "engine/gguf_int.h"
#include "err.h"
#include "kernels/quant.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "GGUF is read in place, little-endian");

#define MAGIC             0x46554747u /* "GGUF" */
#define ALIGNMENT_DEFAULT 32
#define ALIGNMENT_MAX     4096 /* a page: the mapping itself is aligned no better */
#define KEY_MAX_BYTES     65535

/* Shortest records that the format allows: they bound what a count may claim of a file. */
#define KEY_MIN_BYTES    (8 + 1 + 4 + 1)
#define TENSOR_MIN_BYTES (8 + 1 + 4 + 8 + 4 + 8)

/* Where the header is being read, and what for. */
struct cursor {
    const struct gguf *g;
    size_t pos;
    char what[160]; /* the record that is being read, for messages */
    struct err *err;
};

/* Step over n bytes and point out_p at them. */
static int take(struct cursor *c, uint64_t n, const uint8_t **out_p)
{
    size_t left = c->g->size - c->pos;
    if (n > left) {
        gguf_fail(c->g, c->err, "%s: truncated: needs %llu bytes at offset %zu, the file has %zu",
                  c->what, (unsigned long long)n, c->pos, c->g->size);
        return -1;
    }
    *out_p = c->g->map + c->pos;
    c->pos += n;
    return 0;
}

static int take_u32(struct cursor *c, uint32_t *out)
{
    const uint8_t *p;
    if (take(c, sizeof *out, &p))
        return -1;
    memcpy(out, p, sizeof *out);
    return 0;
}

static int take_u64(struct cursor *c, uint64_t *out)
{
    const uint8_t *p;
    if (take(c, sizeof *out, &p))
        return -1;
    memcpy(out, p, sizeof *out);
    return 0;
}

static int take_str(struct cursor *c, struct gguf_str *out)
{
    uint64_t n;
    const uint8_t *p;
    if (take_u64(c, &n) || take(c, n, &p))
        return -1;
    *out = (struct gguf_str){(const char *)p, n};
    return 0;
}

/* The name of a record: not empty, at most max bytes. */
static int take_name(struct cursor *c, size_t max, struct gguf_str *out)
{
    if (take_str(c, out))
        return -1;
    if (out->n == 0 || out->n > max)
        return gguf_fail(c->g, c->err, "%s: name of %zu bytes, must be 1 to %zu", c->what, out->n,
                         max);
    return 0;
}

/* A count of records that take at least min_bytes each: refused before anything is allocated when
 * the rest of the file cannot hold that many. */
static int take_count(struct cursor *c, size_t min_bytes, const char *what, uint64_t *out)
{
    if (take_u64(c, out))
        return -1;
    size_t left = c->g->size - c->pos;
    if (*out > left / min_bytes)
        return gguf_fail(c->g, c->err, "%s: claims %llu %s, %zu bytes are left in the file",
                         c->what, (unsigned long long)*out, what, left);
    return 0;
}
static int index_init(const struct gguf *g, struct gguf_index *ix, size_t n, struct err *err)
{
    size_t slots = 8;
    while (slots < 2 * n)
        slots *= 2;
    ix->slot = calloc(slots, sizeof *ix->slot);
    if (!ix->slot)
        return gguf_fail(g, err, "out of memory for %zu names", n);
    ix->mask = slots - 1;
    return 0;
}

static int check_bools(struct cursor *c, const uint8_t *p, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++)
        if (p[i] > 1)
            return gguf_fail(c->g, c->err, "%s: bool of value %u, must be 0 or 1", c->what, p[i]);
    return 0;
}

static int take_type(struct cursor *c, enum gguf_type *out)
{
    uint32_t type;
    if (take_u32(c, &type))
        return -1;
    if (type > GGUF_F64)
        return gguf_fail(c->g, c->err, "%s: unknown value type %u, known are 0 to %d", c->what,
                         type, GGUF_F64);
    *out = type;
    return 0;
}

static int take_str_array(struct cursor *c, struct gguf_arr *arr)
{
    uint64_t *offset = malloc((arr->n ? arr->n : 1) * sizeof *offset);
    if (!offset)
        return gguf_fail(c->g, c->err, "%s: out of memory for %llu strings", c->what,
                         (unsigned long long)arr->n);
    arr->offset = offset; /* owned by the key from here on, also on failure */
    for (uint64_t i = 0; i < arr->n; i++) {
        struct gguf_str s;
        offset[i] = c->pos;
        if (take_str(c, &s))
            return -1;
    }
    return 0;
}

static int take_array(struct cursor *c, struct gguf_arr *arr)
{
    if (take_type(c, &arr->type))
        return -1;
    if (arr->type == GGUF_ARR)
        return gguf_fail(c->g, c->err, "%s: array of arrays, not supported", c->what);
    bool is_str = arr->type == GGUF_STR;
    size_t item_bytes = is_str ? 8 : gguf_type_size(arr->type);
    if (take_count(c, item_bytes, is_str ? "strings" : "numbers", &arr->n))
        return -1;
    if (is_str)
        return take_str_array(c, arr);
    const uint8_t *p;
    if (take(c, arr->n * item_bytes, &p)) /* no overflow: bounded by the file's size */
        return -1;
    arr->data = p;
    return arr->type == GGUF_BOOL ? check_bools(c, p, arr->n) : 0;
}

static int take_value(struct cursor *c, struct gguf_key *k)
{
    struct gguf_str s;
    if (take_type(c, &k->type))
        return -1;
    if (k->type == GGUF_ARR)
        return take_array(c, &k->arr);
    k->value = c->g->map + c->pos;
    if (k->type == GGUF_STR)
        return take_str(c, &s);
    if (take(c, gguf_type_size(k->type), &k->value))
        return -1;
    return k->type == GGUF_BOOL ? check_bools(c, k->value, 1) : 0;
}

static int read_keys(struct gguf *g, struct cursor *c, uint64_t n)
{
    char buf[GGUF_NAME_MAX_BYTES + 4];
    g->keys = calloc(n ? n : 1, sizeof *g->keys);
    if (!g->keys)
        return gguf_fail(g, c->err, "out of memory for %llu keys", (unsigned long long)n);
    if (index_init(g, &g->key_index, n, c->err))
        return -1;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_key *k = &g->keys[i];
        snprintf(c->what, sizeof c->what, "key %llu of %llu", (unsigned long long)i + 1,
                 (unsigned long long)n);
        if (take_name(c, KEY_MAX_BYTES, &k->name))
            return -1;
        snprintf(c->what, sizeof c->what, "key %s", gguf_printable(k->name, buf));
        uint32_t *slot = gguf_index_find(g, &g->key_index, k->name.p, k->name.n, gguf_key_at);
        if (*slot)
            return gguf_fail(g, c->err, "%s: stands twice, as number %u and %llu", c->what, *slot,
                             (unsigned long long)i + 1);
        g->n_keys = i + 1; /* from here on gguf_close frees its offsets */
        *slot = (uint32_t)i + 1;
        if (take_value(c, k))
            return -1;
    }
    return 0;
}

static int read_alignment(struct gguf *g, struct err *err)
{
    g->alignment = ALIGNMENT_DEFAULT;
    if (!gguf_has(g, "general.alignment"))
        return 0;
    uint64_t a;
    if (gguf_get_u64(g, "general.alignment", &a, err))
        return -1;
    if (a < 8 || a > ALIGNMENT_MAX || (a & (a - 1)))
        return gguf_fail(g, err, "key general.alignment: %llu, must be a power of two from 8 to %d",
                         (unsigned long long)a, ALIGNMENT_MAX);
    g->alignment = a;
    return 0;
}
static int take_dims(struct cursor *c, struct gguf_tensor *t)
{
    if (take_u32(c, &t->n_dims))
        return -1;
    if (t->n_dims < 1 || t->n_dims > 4)
        return gguf_fail(c->g, c->err, "%s: %u dimensions, must be 1 to 4", c->what, t->n_dims);
    for (uint32_t i = 0; i < 4; i++) {
        t->dim[i] = 1;
        if (i < t->n_dims && take_u64(c, &t->dim[i]))
            return -1;
        if (t->dim[i] == 0)
            return gguf_fail(c->g, c->err, "%s: dimension %u is 0, must be at least 1", c->what, i);
    }
    return 0;
}

/* Bytes of the tensor's data, from its type and dimensions. */
static int measure(struct cursor *c, struct gguf_tensor *t)
{
    uint64_t n;
    const struct quant_info *quant = quant_find(t->type);
    if (!quant)
        return gguf_fail(c->g, c->err, "%s: unknown weight type %u", c->what, t->type);
    uint64_t cols = (uint64_t)quant->block_elems;
    if (t->dim[0] % cols)
        return gguf_fail(c->g, c->err,
                         "%s: %llu columns, not a multiple of its type's block of %llu", c->what,
                         (unsigned long long)t->dim[0], (unsigned long long)cols);
    bool overflows = __builtin_mul_overflow(t->dim[0] / cols, (uint64_t)quant->block_bytes, &n);
    for (int i = 1; i < 4; i++)
        overflows |= __builtin_mul_overflow(n, t->dim[i], &n);
    if (overflows || n > PTRDIFF_MAX)
        return gguf_fail(c->g, c->err,
                         "%s: dimensions %llu x %llu x %llu x %llu are more than the address space",
                         c->what, (unsigned long long)t->dim[0], (unsigned long long)t->dim[1],
                         (unsigned long long)t->dim[2], (unsigned long long)t->dim[3]);
    t->size_bytes = n;
    return 0;
}

/* One tensor's record; its data pointer is set later, when the data's start is known. */
static int take_tensor(struct cursor *c, struct gguf_tensor *t, uint64_t *out_offset)
{
    char buf[GGUF_NAME_MAX_BYTES + 4];
    if (take_name(c, GGUF_NAME_MAX_BYTES, &t->name))
        return -1;
    snprintf(c->what, sizeof c->what, "tensor %s", gguf_printable(t->name, buf));
    if (take_dims(c, t) || take_u32(c, &t->type) || take_u64(c, out_offset))
        return -1;
    if (measure(c, t))
        return -1;
    if (*out_offset % c->g->alignment)
        return gguf_fail(c->g, c->err, "%s: offset %llu, not a multiple of the alignment %llu",
                         c->what, (unsigned long long)*out_offset,
                         (unsigned long long)c->g->alignment);
    return 0;
}

/* Where a tensor's data lies, to find two that share bytes. */
struct span {
    uint64_t offset; /* from the data's start */
    size_t i;        /* tensor */
};

static int compare_spans(const void *a, const void *b)
{
    const struct span *x = a, *y = b;
    if (x->offset != y->offset)
        return x->offset < y->offset ? -1 : 1;
    return x->i < y->i ? -1 : x->i > y->i;
}

/* Refuse tensors that share bytes: no writer makes them, so an offset is wrong. Sorts the spans. */
static int check_overlap(const struct gguf *g, struct span *spans, struct err *err)
{
    char buf_a[GGUF_NAME_MAX_BYTES + 4], buf_b[GGUF_NAME_MAX_BYTES + 4];
    qsort(spans, g->n_tensors, sizeof *spans, compare_spans);
    for (size_t k = 1; k < g->n_tensors; k++) {
        const struct gguf_tensor *t = &g->tensors[spans[k - 1].i];
        uint64_t end = spans[k - 1].offset + t->size_bytes;
        if (end > spans[k].offset)
            return gguf_fail(g, err,
                             "tensor %s: begins at data offset %llu, inside %s, which "
                             "ends at %llu",
                             gguf_printable(g->tensors[spans[k].i].name, buf_a),
                             (unsigned long long)spans[k].offset, gguf_printable(t->name, buf_b),
                             (unsigned long long)end);
    }
    return 0;
}

/* Point every tensor at its data, which the whole file must hold. Sorts the spans. */
static int place_tensors(struct gguf *g, struct span *spans, size_t header_bytes, struct err *err)
{
    char buf[GGUF_NAME_MAX_BYTES + 4];
    size_t start = (header_bytes + g->alignment - 1) & ~(g->alignment - 1);
    size_t data_bytes = start < g->size ? g->size - start : 0;
    for (size_t i = 0; i < g->n_tensors; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        uint64_t offset = spans[i].offset;
        if (t->size_bytes > data_bytes || offset > data_bytes - t->size_bytes)
            return gguf_fail(
                g, err,
                "tensor %s: %zu bytes at data offset %llu, the file holds %zu bytes of data",
                gguf_printable(t->name, buf), t->size_bytes, (unsigned long long)offset,
                data_bytes);
        t->data = g->map + start + offset;
    }
    return check_overlap(g, spans, err);
}

static int read_tensors(struct gguf *g, struct cursor *c, uint64_t n)
{
    int rc = -1;
    struct span *spans = malloc((n ? n : 1) * sizeof *spans);
    g->tensors = calloc(n ? n : 1, sizeof *g->tensors);
    if (!spans || !g->tensors) {
        gguf_fail(g, c->err, "out of memory for %llu tensors", (unsigned long long)n);
        goto out;
    }
    if (index_init(g, &g->tensor_index, n, c->err))
        goto out;
    for (uint64_t i = 0; i < n; i++) {
        struct gguf_tensor *t = &g->tensors[i];
        snprintf(c->what, sizeof c->what, "tensor %llu of %llu", (unsigned long long)i + 1,
                 (unsigned long long)n);
        spans[i].i = i;
        if (take_tensor(c, t, &spans[i].offset))
            goto out;
        uint32_t *slot =
            gguf_index_find(g, &g->tensor_index, t->name.p, t->name.n, gguf_tensor_name_at);
        if (*slot) {
            gguf_fail(g, c->err, "%s: stands twice, as number %u and %llu", c->what, *slot,
                      (unsigned long long)i + 1);
            goto out;
        }
        *slot = (uint32_t)i + 1;
        g->n_tensors = i + 1;
    }
    rc = place_tensors(g, spans, c->pos, c->err);
out:
    free(spans);
    return rc;
}
static int read_head(struct gguf *g, struct cursor *c, uint64_t *out_tensors, uint64_t *out_keys)
{
    uint32_t magic;
    snprintf(c->what, sizeof c->what, "header");
    if (take_u32(c, &magic))
        return -1;
    if (magic != MAGIC)
        return gguf_fail(g, c->err, "not a GGUF file: magic 0x%08x, must be 0x%08x", magic, MAGIC);
    if (take_u32(c, &g->version))
        return -1;
    if (g->version != 2 && g->version != 3)
        return gguf_fail(g, c->err, "GGUF version %u%s, supported are 2 and 3", g->version,
                         g->version && !(g->version & 0xffff) ? " (a big-endian file)" : "");
    if (take_count(c, TENSOR_MIN_BYTES, "tensors", out_tensors) ||
        take_count(c, KEY_MIN_BYTES, "keys", out_keys))
        return -1;
    if (*out_tensors >= UINT32_MAX || *out_keys >= UINT32_MAX) /* what the index can number */
        return gguf_fail(g, c->err,
                         "header: %llu tensors and %llu keys, must be fewer than 2^32 - 1",
                         (unsigned long long)*out_tensors, (unsigned long long)*out_keys);
    return 0;
}

int gguf_parse(struct gguf *g, struct err *err)
{
    uint64_t n_tensors, n_keys;
    struct cursor c = {.g = g, .err = err};
    if (read_head(g, &c, &n_tensors, &n_keys) || read_keys(g, &c, n_keys) || read_alignment(g, err))
        return -1;
    return read_tensors(g, &c, n_tensors);
}
