/* The fast forms with AVX2, FMA and F16C. */
#include "config.h"
#include "kernels/cpu.h"

#include <math.h>

#ifdef __x86_64__
#include <immintrin.h>
#pragma GCC target("avx2,fma,f16c")

#define LANES      8
#define PANEL_BIAS 0

typedef float vf __attribute__((vector_size(4 * LANES)));
typedef int32_t vi __attribute__((vector_size(4 * LANES)));
typedef float vf8 __attribute__((vector_size(32)));

#include "kernels/cpu_vector.inc"

static inline vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}

/* Products of signed bytes in fours: |w| times x with w's sign; |w| <= 128 and |x| <= 127, so two
 * products fit 16 bits. */
static inline __m256i dot4(__m256i w, __m256i x)
{
    __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(x, w));
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}

static inline vi vi_dot4(vi c, vi w, const int8_t x[4])
{
    int32_t four;
    memcpy(&four, x, sizeof four);
    return c + (vi)dot4((__m256i)w, _mm256_set1_epi32(four));
}

static inline vf8 vf8_mul_add(vf8 a, vf8 b, vf8 c)
{
    return _mm256_fmadd_ps(a, b, c);
}

static inline vf8 vf8_dot32(const int8_t *w, const int8_t *x)
{
    return _mm256_cvtepi32_ps(
        dot4(_mm256_loadu_si256((const __m256i *)w), _mm256_loadu_si256((const __m256i *)x)));
}

static inline float f16_to_f32(uint16_t h)
{
    return _cvtsh_ss(h);
}

static inline void f16_to_floats(const uint16_t *h, float *out, int64_t n)
{
    int64_t i = 0;
    for (; i + 8 <= n; i += 8)
        _mm256_storeu_ps(out + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(h + i))));
    for (; i < n; i++)
        out[i] = _cvtsh_ss(h[i]);
}

#define FORM(name) cpu_##name##_avx2
#include "kernels/cpu_fast.inc"
#endif
