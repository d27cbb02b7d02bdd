/* Vector types and loads that the loops of cpu_dot.inc share between instruction sets. Included
 * after the file's target pragma. Private to kernels/cpu_dot_*.c. */
#ifndef NEARTIE_KERNELS_CPU_DOT_VEC_H
#define NEARTIE_KERNELS_CPU_DOT_VEC_H

#include <stddef.h>
#include <string.h>

#include "kernels/cpu_dot.h"
#include "kernels/quant.h"

/* Code that is copied into every type's loop, and loops that are unrolled: what makes them fast.
 * Not for the plain form, whose code would be large, nor with sanitizers, whose checks would make
 * minutes of compilation of it. */
#if defined __SANITIZE_ADDRESS__ || !defined __AVX2__
#define INLINE static inline
#define UNROLL(n)
#else
#define INLINE           static inline __attribute__((always_inline))
#define UNROLL(n)        UNROLL_PRAGMA(GCC unroll n)
#define UNROLL_PRAGMA(x) _Pragma(#x)
#endif

typedef uint8_t u8x32 __attribute__((vector_size(32)));
typedef int8_t i8x32 __attribute__((vector_size(32)));
typedef int8_t i8x8 __attribute__((vector_size(8)));
typedef uint8_t u8x8 __attribute__((vector_size(8)));
typedef int16_t i16x8 __attribute__((vector_size(16)));
typedef int32_t i32x8 __attribute__((vector_size(32)));
typedef uint32_t u32x8 __attribute__((vector_size(32)));
typedef float f32x8 __attribute__((vector_size(32)));

INLINE uint16_t load_u16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE uint32_t load_u32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE u8x32 load_u8x32(const void *p)
{
    u8x32 v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE i32x8 load_i32x8(const void *p)
{
    i32x8 v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE f32x8 load_f32x8(const float *p)
{
    f32x8 v;
    memcpy(&v, p, sizeof v);
    return v;
}
INLINE void store_f32x8(float *p, f32x8 v)
{
    memcpy(p, &v, sizeof v);
}
/* Eight small integers to eight ints. gcc 12 would take three instructions for each. */
#ifdef __AVX2__
INLINE i32x8 widen_u8(u8x8 v)
{
    return (i32x8)_mm256_cvtepu8_epi32(_mm_set_epi64x(0, (long long)v));
}
INLINE i32x8 widen_i8(i8x8 v)
{
    return (i32x8)_mm256_cvtepi8_epi32(_mm_set_epi64x(0, (long long)v));
}
INLINE i32x8 widen_i16(i16x8 v)
{
    return (i32x8)_mm256_cvtepi16_epi32((__m128i)v);
}
#else
INLINE i32x8 widen_u8(u8x8 v)
{
    return __builtin_convertvector(v, i32x8);
}
INLINE i32x8 widen_i8(i8x8 v)
{
    return __builtin_convertvector(v, i32x8);
}
INLINE i32x8 widen_i16(i16x8 v)
{
    return __builtin_convertvector(v, i32x8);
}
#endif

/* Eight unsigned bytes, in two words. */
INLINE f32x8 bytes_to_f32x8(uint32_t low, uint32_t high)
{
    uint64_t both = (uint64_t)high << 32 | low;
    u8x8 v;
    memcpy(&v, &both, sizeof v);
    return __builtin_convertvector(widen_u8(v), f32x8);
}
INLINE f32x8 int8s_to_f32x8(const uint8_t *p)
{
    i8x8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(widen_i8(v), f32x8);
}
INLINE i32x8 int16s_to_i32x8(const void *p)
{
    i16x8 v;
    memcpy(&v, p, sizeof v);
    return widen_i16(v);
}
INLINE f32x8 int16s_to_f32x8(const int16_t *p)
{
    return __builtin_convertvector(int16s_to_i32x8(p), f32x8);
}

/* The parts of 64 bytes where a vector has 32: one of two. */
#if PARTS == 2
typedef f32x8 fx;
typedef i32x8 ix;
typedef u8x32 ux;

INLINE u8x32 join(u8x32 a, u8x32 b, int part)
{
    return part ? b : a;
}
INLINE u8x32 shift2(u8x32 v, int s0, int s1, int part)
{
    return v >> (part ? s1 : s0);
}
INLINE f32x8 floats2(float a, float b, int part)
{
    return (f32x8){0} + (part ? b : a);
}
INLINE f32x8 parts_sum(const f32x8 parts[2])
{
    return parts[0] + parts[1];
}

typedef struct {
    float scale[16];
} scale_set;

INLINE scale_set set_make(f32x8 low, f32x8 high)
{
    scale_set set;
    store_f32x8(set.scale, low);
    store_f32x8(set.scale + 8, high);
    return set;
}
#endif

#endif
