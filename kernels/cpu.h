/* What the C forms of the operators share: their prototypes, reading of typed rows, and when a
 * loop is worth more than one thread. Private to kernels/. */
#ifndef NEARTIE_KERNELS_CPU_H
#define NEARTIE_KERNELS_CPU_H

#include <string.h>

#include "kernels/kernels.h"
#include "kernels/quant.h"

#define FORM_PROTOTYPE_FAST(name) void cpu_##name##_fast(const struct op_args *a);
#define FORM_PROTOTYPE_NONE(name)
#define OP(id, name, inputs, invariance, fast, ...)                                                \
    void cpu_##name##_f32(const struct op_args *a);                                                \
    void cpu_##name##_f64(const struct op_args *a);                                                \
    FORM_PROTOTYPE_##fast(name)
#include "kernels/ops.def"
#undef OP

/* Starting threads costs microseconds: below this many elementary operations one does it all.
 * The choice never changes a result: every output element is computed by one thread. */
#define WORTH_THREADS 20000
#define PARALLEL_FOR(work) PRAGMA(omp parallel for schedule(static) if ((work) > WORTH_THREADS))
#define PRAGMA(text) _Pragma(#text)

/* Elements col ... col+n-1 of a row as float: the row itself where it is float, else buf filled.
 * col is a multiple of the type's block, as is n unless it ends the row. */
static inline const float *row_f32(int32_t type, const void *row, int32_t col, int32_t n,
                                   float *buf)
{
    if (type == QUANT_F32)
        return (const float *)row + col;
    const struct quant_info *q = quant_find((uint32_t)type);
    q->to_float((const char *)row + (size_t)col / q->block_elems * q->block_bytes, buf, n);
    return buf;
}

/* Store n floats as elements of a cache row, at element col. */
void row_store(int32_t type, void *row, int32_t col, int32_t n, const float *x);

/* Parts that decode attention reads n_keys keys in: as asked, but none empty; asked 0: one per 256
 * keys, at most 16. */
static inline int32_t attention_splits(int32_t asked, int32_t n_keys)
{
    int32_t n = asked > 0 ? asked : (n_keys + 255) / 256;
    n = asked <= 0 && n > 16 ? 16 : n;
    return n < n_keys ? n : n_keys;
}

static inline int32_t attention_split_begin(int32_t part, int32_t n_split, int32_t n_keys)
{
    return (int32_t)((int64_t)part * n_keys / n_split);
}

/* Bytes for the rows of x rounded to 8 bits, as the fast matrix products use them. */
size_t cpu_rounded_bytes(const struct tensor *x);

#endif
