/* The dot products on AVX2 and F16C. Products of bytes are summed in pairs at 16 bits, which holds
 * 2 * 128 * 127, so signed weights go in by magnitude and the sign moves to the activation. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c")
#include "config.h"

#include <immintrin.h>

#define PARTS 2
#include "kernels/cpu_dot_vec.h"

enum { LANES = 8, TOKENS = 4, SIGNED_ZERO = 0 };
typedef f32x8 f32xl;
typedef i32x8 i32xl;
typedef u8x32 u8xl;

INLINE f32x8 half8(uint16_t h)
{
    return (f32x8)_mm256_cvtph_ps(_mm_set1_epi16((short)h));
}
INLINE f32x8 halves2(const uint8_t *p0, const uint8_t *p1, int part)
{
    return half8(load_u16(part ? p1 : p0));
}
INLINE f32x8 load_half8(const uint8_t *p)
{
    return (f32x8)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)p));
}
INLINE f32x8 set_spread(const scale_set *set, int g, int part, bool halves)
{
    const float *s = set->scale;
    if (!halves)
        return (f32x8)_mm256_broadcast_ss(s + 2 * g + part);
    s += 4 * g + 2 * part;
    return (f32x8)_mm256_set_m128(_mm_broadcast_ss(s + 1), _mm_broadcast_ss(s));
}
INLINE u8x32 nibbles2(const uint8_t *p0, const uint8_t *p1, int part)
{
    __m128i low = _mm_loadu_si128((const __m128i *)(part ? p1 : p0));
    __m128i high = _mm_srli_epi16(low, 4);
    return (u8x32)_mm256_and_si256(_mm256_set_m128i(high, low), _mm256_set1_epi8(15));
}
INLINE u8x32 bits2(uint32_t from0, uint32_t from1, uint8_t value, int part)
{
    const __m256i spread = _mm256_set_epi64x(0x0303030303030303, 0x0202020202020202,
                                             0x0101010101010101, 0x0000000000000000);
    const __m256i bit = _mm256_set1_epi64x((long long)0x8040201008040201);
    __m256i v = _mm256_shuffle_epi8(_mm256_set1_epi32((int)(part ? from1 : from0)), spread);
    v = _mm256_cmpeq_epi8(_mm256_and_si256(v, bit), bit);
    return (u8x32)_mm256_and_si256(v, _mm256_set1_epi8((char)value));
}
INLINE u8x32 lookup(const int8_t table[16], u8x32 index)
{
    __m256i t = _mm256_broadcastsi128_si256(_mm_loadu_si128((const __m128i *)table));
    return (u8x32)_mm256_shuffle_epi8(t, (__m256i)index);
}

INLINE i32x8 dot_unsigned(i32x8 acc, u8x32 u, u8x32 x)
{
    __m256i pairs = _mm256_maddubs_epi16((__m256i)u, (__m256i)x);
    return acc + (i32x8)_mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
INLINE i32x8 signed_start(u8x32 x)
{
    (void)x;
    return (i32x8){0};
}
INLINE i32x8 dot_signed(i32x8 acc, u8x32 w, u8x32 x)
{
    return dot_unsigned(acc, (u8x32)_mm256_abs_epi8((__m256i)w),
                        (u8x32)_mm256_sign_epi8((__m256i)x, (__m256i)w));
}
#define signed_start32 signed_start
#define dot_signed32   dot_signed

INLINE u8x32 repeat4(const int8_t *four)
{
    return (u8x32)_mm256_set1_epi32((int)load_u32(four));
}
INLINE i32x8 dp4_unsigned(i32x8 acc, u8x32 w, const int8_t *four)
{
    return dot_unsigned(acc, w, repeat4(four));
}
INLINE i32x8 dp4_signed(i32x8 acc, u8x32 w, const int8_t *four)
{
    return dot_signed(acc, w, repeat4(four));
}

#define DOTS cpu_dots_avx2
#include "kernels/cpu_dot.inc"
#else
typedef int cpu_dot_avx2_is_for_x86;
#endif
