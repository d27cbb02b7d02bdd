/* Vector types and loads that the loops of cpu_dot.inc share between instruction sets. Included
 * after the file's target pragma. Private to kernels/cpu_dot_*.c. */
#ifndef NEARTIE_KERNELS_CPU_DOT_VEC_H
#define NEARTIE_KERNELS_CPU_DOT_VEC_H

#include <stddef.h>
#include <string.h>

#include "kernels/cpu_dot.h"
#include "kernels/quant.h"

#define INLINE static inline __attribute__((always_inline))

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
INLINE f32x8 bytes_to_f32x8(const uint32_t words[2])
{
    u8x8 v;
    memcpy(&v, words, sizeof v);
    return __builtin_convertvector(__builtin_convertvector(v, i32x8), f32x8);
}
INLINE f32x8 int8s_to_f32x8(const uint8_t *p)
{
    i8x8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(__builtin_convertvector(v, i32x8), f32x8);
}
INLINE f32x8 int16s_to_f32x8(const int16_t *p)
{
    i16x8 v;
    memcpy(&v, p, sizeof v);
    return __builtin_convertvector(__builtin_convertvector(v, i32x8), f32x8);
}

#endif
