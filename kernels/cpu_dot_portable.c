/* The dot products in plain C: what machines without the other instruction sets run, and what
 * those are compared with. */
#include "config.h"

#define PARTS 2

#include "kernels/cpu_dot_vec.h"

enum { LANES = 8, TOKENS = 4, SIGNED_ZERO = 0 };
typedef f32x8 f32xl;
typedef i32x8 i32xl;
typedef u8x32 u8xl;

INLINE f32x8 half8(uint16_t h)
{
    return (f32x8){0} + quant_f16_to_f32(h);
}
INLINE f32x8 halves2(const uint8_t *p0, const uint8_t *p1, int part)
{
    return half8(load_u16(part ? p1 : p0));
}
INLINE f32x8 load_half8(const uint8_t *p)
{
    f32x8 v;
    for (int i = 0; i < 8; i++)
        v[i] = quant_f16_to_f32(load_u16(p + 2 * i));
    return v;
}
INLINE f32x8 set_spread(const scale_set *set, int g, int part, bool halves)
{
    const float *s = set->scale;
    if (!halves)
        return (f32x8){0} + s[2 * g + part];
    s += 4 * g + 2 * part;
    return (f32x8){s[0], s[0], s[0], s[0], s[1], s[1], s[1], s[1]};
}
INLINE u8x32 nibbles2(const uint8_t *p0, const uint8_t *p1, int part)
{
    const uint8_t *p = part ? p1 : p0;
    uint8_t v[32];
    for (int i = 0; i < 16; i++) {
        v[i] = p[i] & 15;
        v[i + 16] = p[i] >> 4;
    }
    return load_u8x32(v);
}
INLINE u8x32 bits2(uint32_t from0, uint32_t from1, uint8_t value, int part)
{
    uint8_t v[32];
    for (int i = 0; i < 32; i++)
        v[i] = (uint8_t)(((part ? from1 : from0) >> i & 1) * value);
    return load_u8x32(v);
}
INLINE u8x32 lookup(const int8_t table[16], u8x32 index)
{
    uint8_t v[32];
    memcpy(v, &index, sizeof v);
    for (int i = 0; i < 32; i++)
        v[i] = (uint8_t)table[v[i]];
    return load_u8x32(v);
}

/* 16-bit products, then sums of two and of two again, in lanes twice as wide each time. */
typedef int16_t i16x32 __attribute__((vector_size(64)));
typedef int32_t i32x16 __attribute__((vector_size(64)));
typedef int64_t i64x8 __attribute__((vector_size(64)));

INLINE i32x8 sum_fours(i32x8 acc, i16x32 products)
{
    i32x16 twos = ((i32x16)products << 16 >> 16) + ((i32x16)products >> 16);
    i64x8 fours = ((i64x8)twos << 32 >> 32) + ((i64x8)twos >> 32);
    return acc + __builtin_convertvector(fours, i32x8);
}
INLINE i32x8 dot_unsigned(i32x8 acc, u8x32 u, u8x32 x)
{
    return sum_fours(acc, __builtin_convertvector(u, i16x32) *
                              __builtin_convertvector((i8x32)x, i16x32));
}
INLINE i32x8 signed_start(u8x32 x)
{
    (void)x;
    return (i32x8){0};
}
INLINE i32x8 dot_signed(i32x8 acc, u8x32 w, u8x32 x)
{
    return sum_fours(acc, __builtin_convertvector((i8x32)w, i16x32) *
                              __builtin_convertvector((i8x32)x, i16x32));
}
#define signed_start32 signed_start
#define dot_signed32   dot_signed

INLINE u8x32 repeat4(const int8_t *four)
{
    return (u8x32)((u32x8){0} + load_u32(four));
}
INLINE i32x8 dp4_unsigned(i32x8 acc, u8x32 w, const int8_t *four)
{
    return dot_unsigned(acc, w, repeat4(four));
}
INLINE i32x8 dp4_signed(i32x8 acc, u8x32 w, const int8_t *four)
{
    return dot_signed(acc, w, repeat4(four));
}

#define DOTS cpu_dots_portable
#include "kernels/cpu_dot.inc"
