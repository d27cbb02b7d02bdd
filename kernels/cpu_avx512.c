/* The fast forms with AVX-512 (F, BW, VL) and its 8-bit dot products (VNNI). */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

#ifdef __x86_64__
#include <immintrin.h>
#pragma GCC target("avx2,fma,f16c,avx512f,avx512bw,avx512vl,avx512vnni")

#define LANES      16
#define PANEL_BIAS 128 /* the instruction multiplies unsigned by signed bytes */

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef float vf8 __attribute__((vector_size(32)));

#include "kernels/cpu_vector.inc"

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

static inline vi vi_dot4(vi c, vi w, const int8_t x[4])
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return (vi)_mm512_dpbusd_epi32((__m512i)c, (__m512i)w, _mm512_set1_epi32(four));
}

static inline vf8 vf8_mul_add(vf8 a, vf8 b, vf8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf8 vf8_dot32(const int8_t *w, const int8_t *x)
{
    __m256i vw = _mm256_loadu_si256((const __m256i *)w);
    __m256i vx = _mm256_loadu_si256((const __m256i *)x);
    return _mm256_cvtepi32_ps(
        _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_abs_epi8(vw), _mm256_sign_epi8(vx, vw)));
}

static inline float f16_to_f32(uint16_t h)
{
    return _cvtsh_ss(h);
}

static inline void f16_to_floats(const uint16_t *h, float *out, int64_t n)
{
    int64_t i = 0;
    for (; i + 16 <= n; i += 16)
        _mm512_storeu_ps(out + i, _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(h + i))));
    for (; i < n; i++)
        out[i] = _cvtsh_ss(h[i]);
}

#define FORM(name) cpu_##name##_avx512
#include "kernels/cpu_fast.inc"
#endif
