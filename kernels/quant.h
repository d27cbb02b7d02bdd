/* Weight types: how a GGUF file packs rows of numbers, and what the packed numbers are worth.
 * The only copy of the block layouts, for C and CUDA. Rows are whole blocks; every layout is
 * little-endian without padding, so a block may stand at any 2-byte (MXFP4: any) address.
 *
 * Formats: the type numbers and layouts of the GGUF files written by llama.cpp; MXFP4 is the OCP
 * Microscaling Formats specification 1.0 (E2M1 elements, E8M0 scale). */
#ifndef NEARTIE_KERNELS_QUANT_H
#define NEARTIE_KERNELS_QUANT_H

#include <assert.h>
#include <stdint.h>
#include <string.h>

#ifdef __CUDACC__
#define QUANT_INLINE static __host__ __device__ inline
#else
#define QUANT_INLINE static inline
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Numbers of the types in a file. */
enum quant_type {
    QUANT_F32 = 0,
    QUANT_F16 = 1,
    QUANT_Q4_0 = 2,
    QUANT_Q4_1 = 3,
    QUANT_Q5_0 = 6,
    QUANT_Q5_1 = 7,
    QUANT_Q8_0 = 8,
    QUANT_Q2_K = 10,
    QUANT_Q3_K = 11,
    QUANT_Q4_K = 12,
    QUANT_Q5_K = 13,
    QUANT_Q6_K = 14,
    QUANT_IQ2_XXS = 16,
    QUANT_IQ2_XS = 17,
    QUANT_IQ3_XXS = 18,
    QUANT_IQ1_S = 19,
    QUANT_IQ4_NL = 20,
    QUANT_IQ3_S = 21,
    QUANT_IQ2_S = 22,
    QUANT_IQ4_XS = 23,
    QUANT_I8 = 24,
    QUANT_I16 = 25,
    QUANT_I32 = 26,
    QUANT_I64 = 27,
    QUANT_F64 = 28,
    QUANT_IQ1_M = 29,
    QUANT_BF16 = 30,
    QUANT_TQ1_0 = 34,
    QUANT_TQ2_0 = 35,
    QUANT_MXFP4 = 39,
    QUANT_N_TYPES
};

enum { QUANT_BLOCK = 32, QUANT_SUPER = 256 }; /* elements of a small block and of a superblock */

/* Blocks of 32. Scales d and offsets m are f16; element j of the first half is the low nibble of
 * qs[j], element j + 16 the high nibble. */
struct quant_q4_0 { /* d * (q - 8) */
    uint16_t d;
    uint8_t qs[16];
};
struct quant_q4_1 { /* d * q + m */
    uint16_t d, m;
    uint8_t qs[16];
};
struct quant_q5_0 { /* d * (q - 16) */
    uint16_t d;
    uint8_t qh[4]; /* bit j: fifth bit of element j */
    uint8_t qs[16];
};
struct quant_q5_1 { /* d * q + m */
    uint16_t d, m;
    uint8_t qh[4];
    uint8_t qs[16];
};
struct quant_q8_0 { /* d * q */
    uint16_t d;
    int8_t qs[32];
};
struct quant_iq4_nl { /* d * quant_iq4_values[q] */
    uint16_t d;
    uint8_t qs[16];
};
struct quant_mxfp4 { /* 2^(e - 127) * E2M1(q) = quant_e8m0_half(e) * quant_mxfp4_values[q] */
    uint8_t e;
    uint8_t qs[16];
};

/* Superblocks of 256: sub-blocks of 16 or 32 with small integer scales below one f16 scale. */
struct quant_q2_k { /* 16 sub-blocks of 16: d * (scale & 15) * q - dmin * (scale >> 4) */
    uint8_t scales[16];
    uint8_t qs[64]; /* byte 32 h + l holds elements 128 h + 32 s + l at bits 2 s */
    uint16_t d, dmin;
};
struct quant_q3_k {     /* 16 sub-blocks of 16: d * (scale - 32) * (q - 4) */
    uint8_t hmask[32];  /* bit s of byte l: third bit of element 32 s + l */
    uint8_t qs[64];     /* low two bits, as in q2_k */
    uint8_t scales[12]; /* 16 of 6 bits: low nibbles in bytes 0-7, high pairs in bytes 8-11 */
    uint16_t d;
};
struct quant_q4_k { /* 8 sub-blocks of 32: d * scale * q - dmin * min */
    uint16_t d, dmin;
    uint8_t scales[12]; /* 8 scales and 8 minima of 6 bits: quant_scale_min() */
    uint8_t qs[128];    /* byte 32 p + l: element 64 p + l low, 64 p + 32 + l high */
};
struct quant_q5_k { /* as q4_k with a fifth bit */
    uint16_t d, dmin;
    uint8_t scales[12];
    uint8_t qh[32]; /* bit s of byte l: fifth bit of element 32 s + l */
    uint8_t qs[128];
};
struct quant_q6_k {  /* 16 sub-blocks of 16: d * scale * (q - 32) */
    uint8_t ql[128]; /* byte 64 h + l: elements 128 h + l low, 128 h + 64 + l high; l below 64 */
    uint8_t qh[64];  /* byte 32 h + l: high two bits of elements 128 h + 32 s + l at bits 2 s */
    int8_t scales[16];
    uint16_t d;
};
struct quant_iq4_xs { /* 8 sub-blocks of 32: d * (scale - 32) * quant_iq4_values[q] */
    uint16_t d;
    uint16_t scales_h; /* high two bits of each scale */
    uint8_t scales_l[4];
    uint8_t qs[128]; /* sub-block s: bytes 16 s ... 16 s + 15, as iq4_nl */
};
struct quant_tq1_0 { /* d * (q - 1), q of three values, five to a byte in base 3 */
    uint8_t qs[48];
    uint8_t qh[4];
    uint16_t d;
};
struct quant_tq2_0 { /* d * (q - 1), q of two bits, as in q2_k */
    uint8_t qs[64];
    uint16_t d;
};

static_assert(sizeof(struct quant_q4_0) == 18, "q4_0");
static_assert(sizeof(struct quant_q4_1) == 20, "q4_1");
static_assert(sizeof(struct quant_q5_0) == 22, "q5_0");
static_assert(sizeof(struct quant_q5_1) == 24, "q5_1");
static_assert(sizeof(struct quant_q8_0) == 34, "q8_0");
static_assert(sizeof(struct quant_iq4_nl) == 18, "iq4_nl");
static_assert(sizeof(struct quant_mxfp4) == 17, "mxfp4");
static_assert(sizeof(struct quant_q2_k) == 84, "q2_k");
static_assert(sizeof(struct quant_q3_k) == 110, "q3_k");
static_assert(sizeof(struct quant_q4_k) == 144, "q4_k");
static_assert(sizeof(struct quant_q5_k) == 176, "q5_k");
static_assert(sizeof(struct quant_q6_k) == 210, "q6_k");
static_assert(sizeof(struct quant_iq4_xs) == 136, "iq4_xs");
static_assert(sizeof(struct quant_tq1_0) == 54, "tq1_0");
static_assert(sizeof(struct quant_tq2_0) == 66, "tq2_0");

/* The 16 levels of iq4_nl and iq4_xs; E2M1's 16 values, doubled. Initialisers as well, because
 * device code needs tables of its own. */
#define QUANT_IQ4_VALUES                                                                           \
    {                                                                                              \
        -127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113                   \
    }
#define QUANT_MXFP4_VALUES                                                                         \
    {                                                                                              \
        0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12                                    \
    }
extern const int8_t quant_iq4_values[16];
extern const int8_t quant_mxfp4_values[16];

/* A row of the type table. */
struct quant_info {
    const char *name;    /* as GGUF tools spell it: "Q4_K" */
    int32_t block_elems; /* elements per block */
    int32_t block_bytes; /* bytes per block */
    /* Values of n packed elements, n a multiple of block_elems; float arithmetic in the order
     * that the layouts state, so results are bit-equal on every machine. NULL: known by name and
     * size only, an error wherever values are needed. */
    void (*to_float)(const void *row, float *out, int64_t n);
    /* The nearest packed row (f16, bf16: ties to even; q8_0: scale amax/127). NULL where the
     * engine never packs. */
    void (*from_float)(const float *row, void *out, int64_t n);
};

/* The type of a file's number; NULL = unknown. */
const struct quant_info *quant_find(uint32_t type);

/* Bytes of n elements of a known type, n a multiple of its block. */
int64_t quant_row_bytes(uint32_t type, int64_t n);

/* Scale and minimum of sub-block s of a q4_k or q5_k superblock, 6 bits each. */
QUANT_INLINE void quant_scale_min(const uint8_t scales[12], int s, int *out_scale, int *out_min)
{
    if (s < 4) {
        *out_scale = scales[s] & 63;
        *out_min = scales[s + 4] & 63;
    } else {
        *out_scale = (scales[s + 4] & 15) | (scales[s - 4] >> 6) << 4;
        *out_min = scales[s + 4] >> 4 | (scales[s] >> 6) << 4;
    }
}

/* Scale of sub-block s of a q3_k superblock, -32 ... 31. */
QUANT_INLINE int quant_q3_k_scale(const uint8_t scales[12], int s)
{
    int low = scales[s & 7] >> (s >> 3) * 4 & 15, high = scales[8 + (s & 3)] >> (s >> 2) * 2 & 3;
    return (high << 4 | low) - 32;
}

/* Scale of sub-block s of an iq4_xs superblock, -32 ... 31. */
QUANT_INLINE int quant_iq4_xs_scale(const struct quant_iq4_xs *b, int s)
{
    int low = b->scales_l[s >> 1] >> (s & 1) * 4 & 15, high = b->scales_h >> s * 2 & 3;
    return (high << 4 | low) - 32;
}

QUANT_INLINE float quant_bits_to_f32(uint32_t bits)
{
    float f;
    memcpy(&f, &bits, sizeof f);
    return f;
}

QUANT_INLINE uint32_t quant_f32_to_bits(float f)
{
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    return bits;
}

/* 2^(e - 128): half of an E8M0 scale, to go with quant_mxfp4_values, twice E2M1's. */
QUANT_INLINE float quant_e8m0_half(uint8_t e)
{
    return quant_bits_to_f32(e < 2 ? 0x00200000u << e : (uint32_t)(e - 1) << 23);
}

/* Half precision, exact; a signalling NaN becomes quiet, as the instructions do it. */
QUANT_INLINE float quant_f16_to_f32(uint16_t h)
{
    uint32_t sign = (uint32_t)(h & 0x8000) << 16, mag = h & 0x7fff;
    if (mag > 0x7c00)
        return quant_bits_to_f32(sign | 0x7fc00000 | mag << 13);
    if (mag == 0x7c00)
        return quant_bits_to_f32(sign | 0x7f800000);
    if (mag < 0x0400) {
        float f = (float)(int32_t)mag * 5.9604644775390625e-8f; /* 2^-24: subnormal */
        return sign ? -f : f;
    }
    return quant_bits_to_f32(sign | ((mag << 13) + ((127 - 15) << 23)));
}

/* Half precision, ties to even; 65520 and above become infinite. */
QUANT_INLINE uint16_t quant_f32_to_f16(float f)
{
    uint32_t bits = quant_f32_to_bits(f), sign = bits >> 16 & 0x8000, mag = bits & 0x7fffffff;
    if (mag > 0x7f800000)
        return (uint16_t)(sign | 0x7e00 | (mag >> 13 & 0x03ff));
    if (mag >= 0x47800000)
        return (uint16_t)(sign | 0x7c00);
    if (mag < 0x38800000) { /* below 2^-14: the sum with 0.5 rounds at 2^-24, f16's last bit */
        uint32_t sum = quant_f32_to_bits(quant_bits_to_f32(mag) + 0.5f);
        return (uint16_t)(sign | (sum - 0x3f000000));
    }
    mag += 0x0fff + (mag >> 13 & 1);
    return (uint16_t)(sign | ((mag - 0x38000000) >> 13));
}

QUANT_INLINE float quant_bf16_to_f32(uint16_t h)
{
    return quant_bits_to_f32((uint32_t)h << 16);
}

/* The upper half of a float, ties to even; a NaN stays one. */
QUANT_INLINE uint16_t quant_f32_to_bf16(float f)
{
    uint32_t bits = quant_f32_to_bits(f);
    if ((bits & 0x7fffffff) > 0x7f800000)
        return (uint16_t)(bits >> 16 | 0x0040);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

#ifdef __cplusplus
}
#endif

#endif
