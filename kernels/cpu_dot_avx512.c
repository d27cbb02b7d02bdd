/* The dot products on AVX-512 with VNNI, whose instruction multiplies unsigned by signed bytes:
 * signed weights go in with 128 added, and 128 times the activations comes off again. */
#ifdef __x86_64__
#pragma GCC target("avx2,f16c,avx512f,avx512bw,avx512vl,avx512vnni")
#include "config.h"

#include <immintrin.h>

#define PARTS 1
#include "kernels/cpu_dot_vec.h"

enum { LANES = 16, TOKENS = 8, SIGNED_ZERO = 128 };
typedef float f32x16 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef uint8_t u8x64 __attribute__((vector_size(64)));
typedef f32x16 fx, f32xl, scale_set;
typedef i32x16 ix, i32xl;
typedef u8x64 ux, u8xl;

INLINE __m128i load16(const uint8_t *p)
{
    return _mm_loadu_si128((const __m128i *)p);
}
INLINE f32x8 half8(uint16_t h)
{
    return (f32x8)_mm256_cvtph_ps(_mm_set1_epi16((short)h));
}
INLINE f32x8 load_half8(const uint8_t *p)
{
    return (f32x8)_mm256_cvtph_ps(load16(p));
}
INLINE f32x16 halves2(const uint8_t *p0, const uint8_t *p1, int part)
{
    (void)part;
    __m256i h = _mm256_set1_epi16((short)load_u16(p0));
    h = _mm256_mask_set1_epi16(h, 0xff00, (short)load_u16(p1));
    return (f32x16)_mm512_cvtph_ps(h);
}
INLINE f32x16 floats2(float a, float b, int part)
{
    (void)part;
    return (f32x16)_mm512_mask_broadcastss_ps(_mm512_set1_ps(a), 0xff00, _mm_set_ss(b));
}
INLINE u8x64 join(u8x32 a, u8x32 b, int part)
{
    (void)part;
    return (u8x64)_mm512_inserti64x4(_mm512_castsi256_si512((__m256i)a), (__m256i)b, 1);
}
INLINE u8x64 shift2(u8x32 v, int s0, int s1, int part)
{
    (void)part;
    __m512i twice = _mm512_broadcast_i64x4((__m256i)v);
    return (u8x64)_mm512_srlv_epi16(
        twice, _mm512_inserti64x4(_mm512_set1_epi16((short)s0), _mm256_set1_epi16((short)s1), 1));
}
INLINE u8x64 nibbles2(const uint8_t *p0, const uint8_t *p1, int part)
{
    (void)part;
    const __m512i shift = _mm512_set_epi64(0x0004000400040004, 0x0004000400040004, 0, 0,
                                           0x0004000400040004, 0x0004000400040004, 0, 0);
    __m512i v = _mm512_broadcast_i32x4(load16(p0));
    v = _mm512_mask_broadcast_i32x4(v, 0xff00, load16(p1));
    return (u8x64)_mm512_and_si512(_mm512_srlv_epi16(v, shift), _mm512_set1_epi8(15));
}
INLINE u8x64 bits2(uint32_t from0, uint32_t from1, uint8_t value, int part)
{
    (void)part;
    return (u8x64)_mm512_maskz_set1_epi8((uint64_t)from1 << 32 | from0, (char)value);
}
INLINE u8x64 lookup(const int8_t table[16], u8x64 index)
{
    __m512i t = _mm512_broadcast_i32x4(load16((const uint8_t *)table));
    return (u8x64)_mm512_shuffle_epi8(t, (__m512i)index);
}
INLINE f32x16 set_make(f32x8 low, f32x8 high)
{
    return (f32x16)join((u8x32)low, (u8x32)high, 0);
}
INLINE f32x16 set_spread(const f32x16 *set, int g, int part, bool halves)
{
    (void)part;
    const int i = halves ? 4 * g : 2 * g, a = halves ? i + 1 : i, b = halves ? i + 2 : i + 1,
              c = halves ? i + 3 : i + 1;
    return __builtin_shuffle(*set, (i32x16){i, i, i, i, a, a, a, a, b, b, b, b, c, c, c, c});
}
INLINE f32x8 parts_sum(const f32x16 parts[1])
{
    return (f32x8)_mm512_castps512_ps256((__m512)parts[0]) +
           (f32x8)_mm256_castpd_ps(_mm512_extractf64x4_pd((__m512d)parts[0], 1));
}

INLINE i32x16 dot_unsigned(i32x16 acc, u8x64 u, u8x64 x)
{
    return (i32x16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)u, (__m512i)x);
}
INLINE i32x16 signed_start(u8x64 x)
{
    return -dot_unsigned((i32x16){0}, (u8x64){0} + 128, x);
}
INLINE i32x16 dot_signed(i32x16 acc, u8x64 w, u8x64 x)
{
    return dot_unsigned(acc, w ^ 128, x);
}
INLINE i32x8 dot_unsigned32(i32x8 acc, u8x32 u, u8x32 x)
{
    return (i32x8)_mm256_dpbusd_epi32((__m256i)acc, (__m256i)u, (__m256i)x);
}
INLINE i32x8 signed_start32(u8x32 x)
{
    return -dot_unsigned32((i32x8){0}, (u8x32){0} + 128, x);
}
INLINE i32x8 dot_signed32(i32x8 acc, u8x32 w, u8x32 x)
{
    return dot_unsigned32(acc, w ^ 128, x);
}

INLINE i32x16 dp4_unsigned(i32x16 acc, u8x64 w, const int8_t *four)
{
    __m512i x = _mm512_set1_epi32((int)load_u32(four));
    return (i32x16)_mm512_dpbusd_epi32((__m512i)acc, (__m512i)w, x);
}
INLINE i32x16 dp4_signed(i32x16 acc, u8x64 w, const int8_t *four)
{
    return dp4_unsigned(acc, w, four);
}

#define DOTS cpu_dots_avx512
#include "kernels/cpu_dot.inc"
#else
typedef int cpu_dot_avx512_is_for_x86;
#endif
