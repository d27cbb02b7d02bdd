/* The dot products on AVX-512 with VNNI, whose instruction multiplies unsigned by signed bytes:
 * signed weights go in with 128 added, and 128 times the activations comes off again. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")
#include "config.h"

#include <immintrin.h>

#include "kernels/cpu_dot_vec.h"

enum { LANES = 16, SIGNED_ZERO = 128 };
typedef float f32xl __attribute__((vector_size(64)));
typedef int32_t i32xl __attribute__((vector_size(64)));
typedef uint8_t u8xl __attribute__((vector_size(64)));

INLINE f32x8 half8(uint16_t h)
{
    return (f32x8)_mm256_cvtph_ps(_mm_set1_epi16((short)h));
}
INLINE f32x8 load_half8(const uint8_t *p)
{
    return (f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE f32x8 pairs8(const float *p)
{
    return (f32x8)_mm256_set_m128(_mm_broadcast_ss(p + 1), _mm_broadcast_ss(p));
}
INLINE u8x32 nibbles(const uint8_t *p)
{
    __m128i low = _mm_loadu_si128((const __m128i *)p), high = _mm_srli_epi16(low, 4);
    return (u8x32)_mm256_and_si256(_mm256_set_m128i(high, low), _mm256_set1_epi8(15));
}
INLINE u8x32 bits(uint32_t from, uint8_t value)
{
    return (u8x32)_mm256_maskz_set1_epi8(from, (char)value);
}
INLINE u8x32 lookup(const int8_t table[16], u8x32 index)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (u8x32)_mm256_shuffle_epi8(t, (__m256i)index);
}

INLINE i32x8 dot_unsigned(u8x32 u, i8x32 x)
{
    return (i32x8)_mm256_dpbusd_epi32(_mm256_setzero_si256(), (__m256i)u, (__m256i)x);
}
INLINE i32x8 signed_bias(i8x32 x)
{
    return dot_unsigned((u8x32){0} + 128, x);
}
INLINE i32x8 dot_signed(i8x32 w, i8x32 x, i32x8 bias)
{
    return dot_unsigned((u8x32)w ^ 128, x) - bias;
}

INLINE i32xl dp4_unsigned(i32xl acc, u8xl w, const int8_t *four)
{
    __m512i x = _mm512_set1_epi32((int)load_u32(four));
    return (i32xl)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, x);
}
INLINE i32xl dp4_signed(i32xl acc, u8xl w, const int8_t *four)
{
    return dp4_unsigned(acc, w, four);
}

#define DOTS cpu_dots_avx512
#include "kernels/cpu_dot.inc"
#else
typedef int cpu_dot_avx512_is_for_x86;
#endif
