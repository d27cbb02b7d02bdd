#include "config.h"

#include "kernels/quant.h"

#include <math.h>
#include <stdbool.h>

const int8_t quant_iq4_values[16] = QUANT_IQ4_VALUES;
const int8_t quant_mxfp4_values[16] = QUANT_MXFP4_VALUES;

static uint32_t load_u32(const uint8_t p[4])
{
    return (uint32_t)p[0] | (uint32_t)p[1] << 8 | (uint32_t)p[2] << 16 | (uint32_t)p[3] << 24;
}

static void f32_copy(const void *row, float *out, int64_t n)
{
    memcpy(out, row, (size_t)n * sizeof *out);
}

static void f32_from_float(const float *row, void *out, int64_t n)
{
    memcpy(out, row, (size_t)n * sizeof *row);
}

static void f16_to_float(const void *row, float *out, int64_t n)
{
    const uint16_t *h = row;
    for (int64_t i = 0; i < n; i++)
        out[i] = quant_f16_to_f32(h[i]);
}

static void f16_from_float(const float *row, void *out, int64_t n)
{
    uint16_t *h = out;
    for (int64_t i = 0; i < n; i++)
        h[i] = quant_f32_to_f16(row[i]);
}

static void bf16_to_float(const void *row, float *out, int64_t n)
{
    const uint16_t *h = row;
    for (int64_t i = 0; i < n; i++)
        out[i] = quant_bf16_to_f32(h[i]);
}

static void bf16_from_float(const float *row, void *out, int64_t n)
{
    uint16_t *h = out;
    for (int64_t i = 0; i < n; i++)
        h[i] = quant_f32_to_bf16(row[i]);
}

static void q8_0_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q8_0 *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int j = 0; j < QUANT_BLOCK; j++)
            out[j] = d * b->qs[j];
    }
}

/* The bits of the largest magnitude of a block: magnitudes compare as their bits do, and what is
 * not finite is largest. */
static uint32_t q8_0_amax_bits(const float *x)
{
    uint32_t most = 0;
    for (int j = 0; j < QUANT_BLOCK; j++) {
        uint32_t mag = quant_f32_to_bits(x[j]) & 0x7fffffff;
        most = mag > most ? mag : most;
    }
    return most;
}

/* The scale that divides is the float amax/127, not its f16 form, so that |q| <= 127. A block
 * with anything that is not finite has the scale NaN: its values do not pass for numbers. Below
 * 2^-119 the inverse would overflow and the f16 scale is zero anyway. */
static void q8_0_from_float(const float *row, void *out, int64_t n)
{
    struct quant_q8_0 *b = out;
    for (; n > 0; n -= QUANT_BLOCK, row += QUANT_BLOCK, b++) {
        uint32_t most = q8_0_amax_bits(row);
        bool is_number = most < 0x7f800000 && most >= 0x04000000;
        float amax = quant_bits_to_f32(most), inverse = is_number ? 127.0f / amax : 0.0f;
        b->d = quant_f32_to_f16(most < 0x7f800000 ? amax / 127.0f : NAN);
        for (int j = 0; j < QUANT_BLOCK; j++) {
            /* adding 1.5 * 2^23 rounds to an integer, ties to even */
            float shifted = (is_number ? row[j] : 0.0f) * inverse + 12582912.0f;
            b->qs[j] = (int8_t)(quant_f32_to_bits(shifted) - 0x4b400000u);
        }
    }
}

static void q4_0_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q4_0 *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j] = d * ((b->qs[j] & 15) - 8);
            out[j + 16] = d * ((b->qs[j] >> 4) - 8);
        }
    }
}

static void q4_1_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q4_1 *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_f16_to_f32(b->d), m = quant_f16_to_f32(b->m);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (b->qs[j] & 15) + m;
            out[j + 16] = d * (b->qs[j] >> 4) + m;
        }
    }
}

static void q5_0_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q5_0 *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_f16_to_f32(b->d);
        uint32_t high = load_u32(b->qh);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (int)((b->qs[j] & 15) + (high >> j & 1) * 16 - 16);
            out[j + 16] = d * (int)((b->qs[j] >> 4) + (high >> (j + 16) & 1) * 16 - 16);
        }
    }
}

static void q5_1_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q5_1 *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_f16_to_f32(b->d), m = quant_f16_to_f32(b->m);
        uint32_t high = load_u32(b->qh);
        for (int j = 0; j < 16; j++) {
            out[j] = d * (int)((b->qs[j] & 15) + (high >> j & 1) * 16) + m;
            out[j + 16] = d * (int)((b->qs[j] >> 4) + (high >> (j + 16) & 1) * 16) + m;
        }
    }
}

static void iq4_nl_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_iq4_nl *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int j = 0; j < 16; j++) {
            out[j] = d * quant_iq4_values[b->qs[j] & 15];
            out[j + 16] = d * quant_iq4_values[b->qs[j] >> 4];
        }
    }
}

static void mxfp4_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_mxfp4 *b = row;
    for (; n > 0; n -= QUANT_BLOCK, out += QUANT_BLOCK, b++) {
        float d = quant_e8m0_half(b->e);
        for (int j = 0; j < 16; j++) {
            out[j] = d * quant_mxfp4_values[b->qs[j] & 15];
            out[j + 16] = d * quant_mxfp4_values[b->qs[j] >> 4];
        }
    }
}

static void q2_k_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q2_k *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
        for (int s = 0; s < 16; s++) {
            float scale = d * (b->scales[s] & 15), min = dmin * (b->scales[s] >> 4);
            const uint8_t *qs = b->qs + s / 8 * 32 + s % 2 * 16;
            for (int l = 0; l < 16; l++)
                out[16 * s + l] = scale * (qs[l] >> s % 8 / 2 * 2 & 3) - min;
        }
    }
}

static void q3_k_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q3_k *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int s = 0; s < 16; s++) {
            float scale = d * quant_q3_k_scale(b->scales, s);
            const uint8_t *qs = b->qs + s / 8 * 32 + s % 2 * 16, *high = b->hmask + s % 2 * 16;
            for (int l = 0; l < 16; l++)
                out[16 * s + l] =
                    scale * ((qs[l] >> s % 8 / 2 * 2 & 3) + (high[l] >> s / 2 & 1) * 4 - 4);
        }
    }
}

static void q4_k_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q4_k *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
        for (int s = 0; s < 8; s++) {
            int sub_scale, sub_min;
            quant_scale_min(b->scales, s, &sub_scale, &sub_min);
            float scale = d * sub_scale, min = dmin * sub_min;
            const uint8_t *qs = b->qs + s / 2 * 32;
            for (int l = 0; l < 32; l++)
                out[32 * s + l] = scale * (qs[l] >> s % 2 * 4 & 15) - min;
        }
    }
}

static void q5_k_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q5_k *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d), dmin = quant_f16_to_f32(b->dmin);
        for (int s = 0; s < 8; s++) {
            int sub_scale, sub_min;
            quant_scale_min(b->scales, s, &sub_scale, &sub_min);
            float scale = d * sub_scale, min = dmin * sub_min;
            const uint8_t *qs = b->qs + s / 2 * 32;
            for (int l = 0; l < 32; l++)
                out[32 * s + l] =
                    scale * ((qs[l] >> s % 2 * 4 & 15) + (b->qh[l] >> s & 1) * 16) - min;
        }
    }
}

static void q6_k_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_q6_k *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int s = 0; s < 16; s++) {
            float scale = d * b->scales[s];
            const uint8_t *ql = b->ql + s / 8 * 64 + s % 4 * 16,
                          *qh = b->qh + s / 8 * 32 + s % 2 * 16;
            for (int l = 0; l < 16; l++)
                out[16 * s + l] = scale * ((ql[l] >> s % 8 / 4 * 4 & 15) +
                                           (qh[l] >> s % 8 / 2 * 2 & 3) * 16 - 32);
        }
    }
}

static void iq4_xs_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_iq4_xs *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int s = 0; s < 8; s++) {
            float scale = d * quant_iq4_xs_scale(b, s);
            for (int l = 0; l < 16; l++) {
                out[32 * s + l] = scale * quant_iq4_values[b->qs[16 * s + l] & 15];
                out[32 * s + l + 16] = scale * quant_iq4_values[b->qs[16 * s + l] >> 4];
            }
        }
    }
}

/* Digit k of a byte that holds five base-3 digits as a fraction of 256, most significant first. */
static int base3_digit(uint8_t byte, int k)
{
    static const uint8_t power[5] = {1, 3, 9, 27, 81};
    return (uint8_t)(byte * power[k]) * 3 >> 8;
}

/* Bytes 0-31 hold elements 0-159, digit by digit; bytes 32-47 elements 160-239; qh the last 16. */
static void tq1_0_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_tq1_0 *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int i = 0; i < 160; i++)
            out[i] = d * (base3_digit(b->qs[i % 32], i / 32) - 1);
        for (int i = 0; i < 80; i++)
            out[160 + i] = d * (base3_digit(b->qs[32 + i % 16], i / 16) - 1);
        for (int i = 0; i < 16; i++)
            out[240 + i] = d * (base3_digit(b->qh[i % 4], i / 4) - 1);
    }
}

static void tq2_0_to_float(const void *row, float *out, int64_t n)
{
    const struct quant_tq2_0 *b = row;
    for (; n > 0; n -= QUANT_SUPER, out += QUANT_SUPER, b++) {
        float d = quant_f16_to_f32(b->d);
        for (int i = 0; i < QUANT_SUPER; i++)
            out[i] = d * ((b->qs[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3) - 1);
    }
}

/* Indexed by the file's number. */
static const struct quant_info infos[QUANT_N_TYPES] = {
    [QUANT_F32] = {"F32", 1, 4, f32_copy, f32_from_float},
    [QUANT_F16] = {"F16", 1, 2, f16_to_float, f16_from_float},
    [QUANT_Q4_0] = {"Q4_0", QUANT_BLOCK, 18, q4_0_to_float, NULL},
    [QUANT_Q4_1] = {"Q4_1", QUANT_BLOCK, 20, q4_1_to_float, NULL},
    [QUANT_Q5_0] = {"Q5_0", QUANT_BLOCK, 22, q5_0_to_float, NULL},
    [QUANT_Q5_1] = {"Q5_1", QUANT_BLOCK, 24, q5_1_to_float, NULL},
    [QUANT_Q8_0] = {"Q8_0", QUANT_BLOCK, 34, q8_0_to_float, q8_0_from_float},
    [QUANT_Q2_K] = {"Q2_K", QUANT_SUPER, 84, q2_k_to_float, NULL},
    [QUANT_Q3_K] = {"Q3_K", QUANT_SUPER, 110, q3_k_to_float, NULL},
    [QUANT_Q4_K] = {"Q4_K", QUANT_SUPER, 144, q4_k_to_float, NULL},
    [QUANT_Q5_K] = {"Q5_K", QUANT_SUPER, 176, q5_k_to_float, NULL},
    [QUANT_Q6_K] = {"Q6_K", QUANT_SUPER, 210, q6_k_to_float, NULL},
    [QUANT_IQ2_XXS] = {"IQ2_XXS", QUANT_SUPER, 66, NULL, NULL},
    [QUANT_IQ2_XS] = {"IQ2_XS", QUANT_SUPER, 74, NULL, NULL},
    [QUANT_IQ3_XXS] = {"IQ3_XXS", QUANT_SUPER, 98, NULL, NULL},
    [QUANT_IQ1_S] = {"IQ1_S", QUANT_SUPER, 50, NULL, NULL},
    [QUANT_IQ4_NL] = {"IQ4_NL", QUANT_BLOCK, 18, iq4_nl_to_float, NULL},
    [QUANT_IQ3_S] = {"IQ3_S", QUANT_SUPER, 110, NULL, NULL},
    [QUANT_IQ2_S] = {"IQ2_S", QUANT_SUPER, 82, NULL, NULL},
    [QUANT_IQ4_XS] = {"IQ4_XS", QUANT_SUPER, 136, iq4_xs_to_float, NULL},
    [QUANT_I8] = {"I8", 1, 1, NULL, NULL},
    [QUANT_I16] = {"I16", 1, 2, NULL, NULL},
    [QUANT_I32] = {"I32", 1, 4, NULL, NULL},
    [QUANT_I64] = {"I64", 1, 8, NULL, NULL},
    [QUANT_F64] = {"F64", 1, 8, NULL, NULL},
    [QUANT_IQ1_M] = {"IQ1_M", QUANT_SUPER, 56, NULL, NULL},
    [QUANT_BF16] = {"BF16", 1, 2, bf16_to_float, bf16_from_float},
    [QUANT_TQ1_0] = {"TQ1_0", QUANT_SUPER, 54, tq1_0_to_float, NULL},
    [QUANT_TQ2_0] = {"TQ2_0", QUANT_SUPER, 66, tq2_0_to_float, NULL},
    [QUANT_MXFP4] = {"MXFP4", QUANT_BLOCK, 17, mxfp4_to_float, NULL},
};

const struct quant_info *quant_find(uint32_t type)
{
    return type < QUANT_N_TYPES && infos[type].name ? &infos[type] : NULL;
}

int64_t quant_row_bytes(uint32_t type, int64_t n)
{
    const struct quant_info *info = quant_find(type);
    assert(info && n % info->block_elems == 0);
    return n / info->block_elems * info->block_bytes;
}
