/* The fast forms without any instruction set named: gcc's vector types, and the meaning of the
 * functions that cpu_avx2.c and cpu_avx512.c write with instructions. */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

static inline void f16_to_floats(const uint16_t *h, float *out, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        out[i] = quant_f16_to_f32(h[i]);
}

#define ISA        CPU_PORTABLE
#define FORM(name) cpu_##name##_portable
#include "kernels/cpu_fast.inc"
