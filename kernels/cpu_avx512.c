/* The fast forms with AVX-512 (F, BW, VL) and its 8-bit dot products (VNNI). */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

#ifdef __x86_64__
#include <immintrin.h>
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")

static inline void f16_to_floats(const uint16_t *h, float *out, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(h + i))));
    for (; i < n; i++)
        out[i] = _cvtsh_ss(h[i]);
}

#define ISA        CPU_AVX512_VNNI
#define FORM(name) cpu_##name##_avx512
#include "kernels/cpu_fast.inc"
#endif
