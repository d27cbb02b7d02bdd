/* Products of packed weight rows with activation rows: the inner loops of the fast matrix
 * products. Activations are rounded to 8 bits in blocks of 32 (float types: left alone), products
 * within a block are exact integers, and each block's sum is scaled in float.
 *
 * Every instruction set computes the same bits: integers are exact, float operations are the same
 * ones in the same order, never fused. One result depends on its weight row and its activation row
 * only, not on which others share the call. Private to kernels/. */
#ifndef NEARTIE_KERNELS_CPU_DOT_H
#define NEARTIE_KERNELS_CPU_DOT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum cpu_isa { CPU_PORTABLE, CPU_AVX2, CPU_AVX512_VNNI, N_CPU_ISAS };

/* One call: every weight row with every activation row, out[t][r] = w_r . x_t. */
struct cpu_dot_call {
    const void *w;     /* (n_rows, n_cols) packed */
    int64_t row_bytes; /* from one weight row to the next */
    int32_t n_rows;
    int32_t n_cols; /* a multiple of the type's block */
    int32_t n_tokens;
    const void *const *x; /* (n_tokens) rows: from pack where there is one, else float */
    float *const *out;    /* (n_tokens) rows of n_rows results */
    bool two_groups;      /* mv of q8_0: even and odd blocks in sums of their own, as the others */
};

struct cpu_dot {
    /* Round an activation row of n elements for mv and mm; NULL: they take the float row. */
    void (*pack)(const float *x, int32_t n, void *out);
    void (*mv)(const struct cpu_dot_call *call); /* few tokens: partial sums in eight lanes */
    void (*mm)(const struct cpu_dot_call *call); /* many: one sum per result, weights unpacked
                                                    once per 256 tokens */
};

/* Bytes of a packed activation row of n elements, aligned to 64. */
size_t cpu_dot_pack_bytes(int32_t n);

/* The best that this machine has, and its name: "avx512-vnni", "avx2" or "portable". */
enum cpu_isa cpu_isa_best(void);
bool cpu_isa_works(enum cpu_isa isa);
const char *cpu_isa_name(enum cpu_isa isa);

/* The loops of a weight type for an instruction set that works here; NULL = none, which is so
 * exactly for the types without to_float. */
const struct cpu_dot *cpu_dot_find(enum cpu_isa isa, int32_t type);

/* A packed activation row: n 8-bit values, then per 32 of them the scale, then per 16 the sum. A
 * block that holds anything not finite has the scale NaN and zero values. */
struct cpu_dot_x {
    const int8_t *q;    /* (n) */
    const float *d;     /* (n / 32) */
    const int16_t *sum; /* (n / 16) */
};
static inline struct cpu_dot_x cpu_dot_x_at(const void *packed, int32_t n)
{
    const int8_t *q = (const int8_t *)packed;
    const float *d = (const float *)(q + n);
    return (struct cpu_dot_x){q, d, (const int16_t *)(d + n / 32)};
}

/* Per instruction set, indexed by type; rows without mv are empty. */
extern const struct cpu_dot cpu_dots_portable[];
extern const struct cpu_dot cpu_dots_avx2[];
extern const struct cpu_dot cpu_dots_avx512[];

#endif
