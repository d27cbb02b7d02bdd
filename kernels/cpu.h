/* What the C forms of the operators share: their prototypes, reading of typed rows, and when a
 * loop is worth more than one thread. Private to kernels/. */
#ifndef NEARTIE_KERNELS_CPU_H
#define NEARTIE_KERNELS_CPU_H

#include <string.h>

#include "kernels/cpu_dot.h"
#include "kernels/kernels.h"
#include "kernels/quant.h"

#define OP(id, name, ...)                                                                          \
    void cpu_##name##_f32(const struct op_args *a);                                                \
    void cpu_##name##_f64(const struct op_args *a);                                                \
    void cpu_##name##_fast(const struct op_args *a);                                               \
    void cpu_##name##_portable(const struct op_args *a);                                           \
    void cpu_##name##_avx2(const struct op_args *a);                                               \
    void cpu_##name##_avx512(const struct op_args *a);
#include "kernels/ops.def"
#undef OP

/* Starting threads costs microseconds: below this many elementary operations one does it all.
 * The choice never changes a result: every output element is computed by one thread. */
extern int64_t cpu_worth_threads;
#define PARALLEL_FOR(work)                                                                         \
    PRAGMA(omp parallel for schedule(static) if ((work) > cpu_worth_threads))
#define PRAGMA(text) _Pragma(#text)

/* The bytes of a row from element col on, a multiple of the type's block. */
static inline void *row_at(const struct quant_info *q, const void *row, int32_t col)
{
    return (char *)row + (size_t)(col / q->block_elems) * (size_t)q->block_bytes;
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

static inline const int32_t *ints(const struct tensor *t)
{
    return t->data;
}

/* out = x matrix^T with the loops of cpu_dot.h, for one token or a few (mv) or many (mm); the
 * scratch holds the rounded rows of x. */
void cpu_matmul(const struct op_args *a, enum cpu_isa isa, bool many);
size_t cpu_matmul_scratch_bytes(const struct tensor *x, const struct tensor *matrix);

/* The same for chosen experts; the scratch also holds which rows chose each. */
void cpu_experts(const struct op_args *a, enum cpu_isa isa, bool many);
size_t cpu_experts_slot_bytes(const struct op_args *a);

#endif
