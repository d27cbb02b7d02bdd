/* The fast forms with AVX2, FMA and F16C. */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

#ifdef __x86_64__
#include <immintrin.h>
#pragma GCC target("avx2,fma,f16c")

static inline void f16_to_floats(const uint16_t *h, float *out, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
    for (; i < n; i++)
        out[i] = _cvtsh_ss(h[i]);
}

#define ISA        CPU_AVX2
#define FORM(name) cpu_##name##_avx2
#include "kernels/cpu_fast.inc"
#endif
