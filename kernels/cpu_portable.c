/* The fast forms without any instruction set named: gcc's vector types, and the meaning of the
 * functions that cpu_avx2.c and cpu_avx512.c write with instructions. */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

#define LANES      4 /* floats of a vector in the prefill tiles */
#define PANEL_BIAS 0 /* what is added to a panel's 8-bit integers */

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef float vf8 __attribute__((vector_size(32)));

#include "kernels/cpu_vector.inc"

static inline vf vf_fma(vf a, vf b, vf c)
{
    return a * b + c;
}

/* Lane i: c + the products of four bytes of w, minus the bias, and four bytes of x. */
static inline vi vi_dot4(vi c, vi w, const int8_t x[4])
{
    int8_t bytes[4 * LANES];
    memcpy(bytes, &w, sizeof bytes);
    for (int i = 0; i < LANES; i++)
        for (int j = 0; j < 4; j++)
            c[i] += bytes[4 * i + j] * x[j];
    return c;
}

static inline vf8 vf8_mul_add(vf8 a, vf8 b, vf8 c)
{
    return a * b + c;
}

/* Lane i: the products 4 i ... 4 i + 3, summed exactly. */
static inline vf8 vf8_dot32(const int8_t *w, const int8_t *x)
{
    vf8 out;
    for (int i = 0; i < 8; i++) {
        int32_t sum = 0;
        for (int j = 0; j < 4; j++)
            sum += w[4 * i + j] * x[4 * i + j];
        out[i] = (float)sum;
    }
    return out;
}

static inline float f16_to_f32(uint16_t h)
{
    return quant_f16_to_f32(h);
}

static inline void f16_to_floats(const uint16_t *h, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = quant_f16_to_f32(h[i]);
}

#define FORM(name) cpu_##name##_portable
#include "kernels/cpu_fast.inc"
