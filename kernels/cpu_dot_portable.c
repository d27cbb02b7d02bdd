/* The dot products in plain C: what machines without the other instruction sets run, and what
 * those are compared with. */
#include "config.h"

#include "kernels/cpu_dot_vec.h"

enum { LANES = 8, SIGNED_ZERO = 0 };
typedef f32x8 f32xl;
typedef i32x8 i32xl;
typedef u8x32 u8xl;

INLINE f32x8 half8(uint16_t h)
{
    return (f32x8){0} + quant_f16_to_f32(h);
}
INLINE f32x8 load_half8(const uint8_t *p)
{
    f32x8 v;
    for (int i = 0; i < 8; i++)
        v[i] = quant_f16_to_f32(load_u16(p + 2 * i));
    return v;
}
INLINE f32x8 pairs8(const float *p)
{
    return (f32x8){p[0], p[0], p[0], p[0], p[1], p[1], p[1], p[1]};
}
INLINE u8x32 nibbles(const uint8_t *p)
{
    uint8_t v[32];
    for (int i = 0; i < 16; i++) {
        v[i] = p[i] & 15;
        v[i + 16] = p[i] >> 4;
    }
    return load_u8x32(v);
}
INLINE u8x32 bits(uint32_t from, uint8_t value)
{
    uint8_t v[32];
    for (int i = 0; i < 32; i++)
        v[i] = (uint8_t)((from >> i & 1) * value);
    return load_u8x32(v);
}
INLINE u8x32 lookup(const int8_t table[16], u8x32 index)
{
    uint8_t v[32];
    for (int i = 0; i < 32; i++)
        v[i] = (uint8_t)table[index[i]];
    return load_u8x32(v);
}

INLINE i32x8 dot_unsigned(u8x32 u, i8x32 x)
{
    i32x8 v;
    for (int i = 0; i < 8; i++)
        v[i] = u[4 * i] * x[4 * i] + u[4 * i + 1] * x[4 * i + 1] + u[4 * i + 2] * x[4 * i + 2] +
               u[4 * i + 3] * x[4 * i + 3];
    return v;
}
INLINE i32x8 signed_bias(i8x32 x)
{
    (void)x;
    return (i32x8){0};
}
INLINE i32x8 dot_signed(i8x32 w, i8x32 x, i32x8 bias)
{
    i32x8 v;
    (void)bias;
    for (int i = 0; i < 8; i++)
        v[i] = w[4 * i] * x[4 * i] + w[4 * i + 1] * x[4 * i + 1] + w[4 * i + 2] * x[4 * i + 2] +
               w[4 * i + 3] * x[4 * i + 3];
    return v;
}

INLINE i8x32 repeat4(const int8_t *four)
{
    u32x8 v = (u32x8){0} + load_u32(four);
    return (i8x32)v;
}
INLINE i32x8 dp4_unsigned(i32x8 acc, u8x32 w, const int8_t *four)
{
    return acc + dot_unsigned(w, repeat4(four));
}
INLINE i32x8 dp4_signed(i32x8 acc, u8x32 w, const int8_t *four)
{
    return acc + dot_signed((i8x32)w, repeat4(four), (i32x8){0});
}

#define DOTS cpu_dots_portable
#include "kernels/cpu_dot.inc"
