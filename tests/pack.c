#include "config.h"

#include "tests/pack.h"

#include <math.h>
#include <string.h>

#include "kernels/quant.h"

typedef void (*pack_fn)(const float *x, void *block);

static int nearest(float v, int low, int high)
{
    float shifted = v + 12582912.0f; /* 1.5 * 2^23: nearest integer, ties to even */
    int q = (int)(quant_f32_to_bits(shifted) - 0x4b400000u);
    return q < low ? low : q > high ? high : q;
}

static float inverse(float scale)
{
    return scale != 0 ? 1 / scale : 0;
}

/* Smallest and largest of n values. */
static void range(const float *x, int n, float *out_min, float *out_max)
{
    *out_min = *out_max = x[0];
    for (int i = 1; i < n; i++) {
        *out_min = x[i] < *out_min ? x[i] : *out_min;
        *out_max = x[i] > *out_max ? x[i] : *out_max;
    }
}

/* The value of largest magnitude, with its sign. */
static float extreme(const float *x, int n)
{
    float min, max;
    range(x, n, &min, &max);
    return max > -min ? max : min;
}

static float round_half(float v, uint16_t *out_half)
{
    *out_half = quant_f32_to_f16(v);
    return quant_f16_to_f32(*out_half);
}

/* ---- Blocks of 32 ---- */

static void pack_nibbles(const int q[32], uint8_t qs[16])
{
    for (int j = 0; j < 16; j++)
        qs[j] = (uint8_t)((q[j] & 15) | (q[j + 16] & 15) << 4);
}

static void pack_fifth_bits(const int q[32], uint8_t qh[4])
{
    for (int b = 0; b < 4; b++) {
        qh[b] = 0;
        for (int j = 0; j < 8; j++)
            qh[b] |= (uint8_t)((q[8 * b + j] >> 4 & 1) << j);
    }
}

/* 2 * half levels around zero; the extreme value takes the lowest, which has no opposite. */
static float levels_around_zero(const float *x, int half, uint16_t *out_d, int q[32])
{
    float d = round_half(extreme(x, 32) / (float)-half, out_d), inv = inverse(d);
    for (int j = 0; j < 32; j++)
        q[j] = nearest(x[j] * inv, -half, half - 1) + half;
    return d;
}

/* Levels 0 ... top from the smallest value to the largest. */
static void levels_from_min(const float *x, int top, uint16_t *out_d, uint16_t *out_m, int q[32])
{
    float min, max;
    range(x, 32, &min, &max);
    float m = round_half(min, out_m), inv = inverse(round_half((max - min) / (float)top, out_d));
    for (int j = 0; j < 32; j++)
        q[j] = nearest((x[j] - m) * inv, 0, top);
}

static void pack_q4_0(const float *x, void *block)
{
    struct quant_q4_0 *b = block;
    int q[32];
    levels_around_zero(x, 8, &b->d, q);
    pack_nibbles(q, b->qs);
}

static void pack_q4_1(const float *x, void *block)
{
    struct quant_q4_1 *b = block;
    int q[32];
    levels_from_min(x, 15, &b->d, &b->m, q);
    pack_nibbles(q, b->qs);
}

static void pack_q5_0(const float *x, void *block)
{
    struct quant_q5_0 *b = block;
    int q[32];
    levels_around_zero(x, 16, &b->d, q);
    pack_nibbles(q, b->qs);
    pack_fifth_bits(q, b->qh);
}

static void pack_q5_1(const float *x, void *block)
{
    struct quant_q5_1 *b = block;
    int q[32];
    levels_from_min(x, 31, &b->d, &b->m, q);
    pack_nibbles(q, b->qs);
    pack_fifth_bits(q, b->qh);
}

/* Index of the table entry closest to v. */
static int nearest_entry(float v, const int8_t table[16])
{
    int best = 0;
    for (int i = 1; i < 16; i++)
        if (fabsf(v - table[i]) < fabsf(v - table[best]))
            best = i;
    return best;
}

/* The extreme value takes the table's lowest entry, -127. */
static void pack_iq4_nl(const float *x, void *block)
{
    struct quant_iq4_nl *b = block;
    int q[32];
    float inv = inverse(round_half(extreme(x, 32) / -127, &b->d));
    for (int j = 0; j < 32; j++)
        q[j] = nearest_entry(x[j] * inv, quant_iq4_values);
    pack_nibbles(q, b->qs);
}

/* The power of two that puts the extreme value between 4 and 8; E2M1 ends at 6. */
static void pack_mxfp4(const float *x, void *block)
{
    struct quant_mxfp4 *b = block;
    float amax = fabsf(extreme(x, 32));
    int q[32], e = amax > 0 ? ilogbf(amax) - 2 + 127 : 0;
    b->e = (uint8_t)(e < 0 ? 0 : e > 254 ? 254 : e);
    float inv = 1 / quant_e8m0_half(b->e);
    for (int j = 0; j < 32; j++)
        q[j] = amax > 0 ? nearest_entry(x[j] * inv, quant_mxfp4_values) : 0;
    pack_nibbles(q, b->qs);
}

/* ---- Superblocks ---- */

/* Scale and minimum (as the amount that is taken off, never negative) of a sub-block of levels
 * 0 ... top. */
static void sub_range(const float *x, int n, int top, float *out_scale, float *out_min)
{
    float min, max;
    range(x, n, &min, &max);
    min = min < 0 ? min : 0;
    *out_scale = max > min ? (max - min) / (float)top : 0;
    *out_min = -min;
}

/* Levels of 8 sub-blocks of 32 and their 6-bit scales and minima; levels to q. */
static void pack_k4(const float *x, int top, uint16_t *out_d, uint16_t *out_dmin,
                    uint8_t scales[12], uint8_t q[256])
{
    float scale[8], min[8], max_scale = 0, max_min = 0;
    for (int s = 0; s < 8; s++) {
        sub_range(x + 32 * s, 32, top, &scale[s], &min[s]);
        max_scale = scale[s] > max_scale ? scale[s] : max_scale;
        max_min = min[s] > max_min ? min[s] : max_min;
    }
    float d = round_half(max_scale / 63, out_d), dmin = round_half(max_min / 63, out_dmin);
    memset(scales, 0, 12);
    for (int s = 0; s < 8; s++) {
        int sc = nearest(scale[s] * inverse(d), 0, 63), m = nearest(min[s] * inverse(dmin), 0, 63);
        if (s < 4) {
            scales[s] |= (uint8_t)sc;
            scales[s + 4] |= (uint8_t)m;
        } else {
            scales[s + 4] |= (uint8_t)((sc & 15) | (m & 15) << 4);
            scales[s - 4] |= (uint8_t)(sc >> 4 << 6);
            scales[s] |= (uint8_t)(m >> 4 << 6);
        }
        float inv = inverse(d * (float)sc);
        for (int l = 32 * s; l < 32 * s + 32; l++)
            q[l] = (uint8_t)nearest((x[l] + dmin * (float)m) * inv, 0, top);
    }
}

static void pack_k4_nibbles(const uint8_t q[256], uint8_t qs[128])
{
    for (int i = 0; i < 128; i++)
        qs[i] =
            (uint8_t)((q[i / 32 * 64 + i % 32] & 15) | (q[i / 32 * 64 + i % 32 + 32] & 15) << 4);
}

static void pack_q4_k(const float *x, void *block)
{
    struct quant_q4_k *b = block;
    uint8_t q[256];
    pack_k4(x, 15, &b->d, &b->dmin, b->scales, q);
    pack_k4_nibbles(q, b->qs);
}

static void pack_q5_k(const float *x, void *block)
{
    struct quant_q5_k *b = block;
    uint8_t q[256];
    pack_k4(x, 31, &b->d, &b->dmin, b->scales, q);
    pack_k4_nibbles(q, b->qs);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++)
        b->qh[i % 32] |= (uint8_t)((q[i] >> 4) << i / 32);
}

/* Two bits of each level, as q2_k, q3_k and tq2_0 store them. */
static void pack_pairs(const uint8_t q[256], uint8_t qs[64])
{
    memset(qs, 0, 64);
    for (int i = 0; i < 256; i++)
        qs[i / 128 * 32 + i % 32] |= (uint8_t)((q[i] & 3) << i % 128 / 32 * 2);
}

static void pack_q2_k(const float *x, void *block)
{
    struct quant_q2_k *b = block;
    float scale[16], min[16], max_scale = 0, max_min = 0;
    uint8_t q[256];
    for (int s = 0; s < 16; s++) {
        sub_range(x + 16 * s, 16, 3, &scale[s], &min[s]);
        max_scale = scale[s] > max_scale ? scale[s] : max_scale;
        max_min = min[s] > max_min ? min[s] : max_min;
    }
    float d = round_half(max_scale / 15, &b->d), dmin = round_half(max_min / 15, &b->dmin);
    for (int s = 0; s < 16; s++) {
        int sc = nearest(scale[s] * inverse(d), 0, 15), m = nearest(min[s] * inverse(dmin), 0, 15);
        b->scales[s] = (uint8_t)(sc | m << 4);
        float inv = inverse(d * (float)sc);
        for (int l = 16 * s; l < 16 * s + 16; l++)
            q[l] = (uint8_t)nearest((x[l] + dmin * (float)m) * inv, 0, 3);
    }
    pack_pairs(q, b->qs);
}

/* Signed scales of sub-blocks of n whose extreme values take level -half, as multiples of one d
 * that reach max_multiple. */
static float sub_scales(const float *x, int n, int half, int max_multiple, uint16_t *out_d,
                        int multiple[])
{
    float scale[16];
    for (int s = 0; s < QUANT_SUPER / n; s++)
        scale[s] = extreme(x + n * s, n) / (float)-half;
    float d = round_half(fabsf(extreme(scale, QUANT_SUPER / n)) / (float)max_multiple, out_d);
    for (int s = 0; s < QUANT_SUPER / n; s++)
        multiple[s] = nearest(scale[s] * inverse(d), -max_multiple, max_multiple);
    return d;
}

static void pack_q3_k(const float *x, void *block)
{
    struct quant_q3_k *b = block;
    int multiple[16];
    uint8_t q[256];
    float d = sub_scales(x, 16, 4, 31, &b->d, multiple);
    memset(b->scales, 0, sizeof b->scales);
    memset(b->hmask, 0, sizeof b->hmask);
    for (int s = 0; s < 16; s++) {
        int biased = multiple[s] + 32;
        b->scales[s % 8] |= (uint8_t)((biased & 15) << s / 8 * 4);
        b->scales[8 + s % 4] |= (uint8_t)(biased >> 4 << s / 4 * 2);
        for (int l = 16 * s; l < 16 * s + 16; l++) {
            q[l] = (uint8_t)(nearest(x[l] * inverse(d * (float)multiple[s]), -4, 3) + 4);
            b->hmask[l % 32] |= (uint8_t)((q[l] >> 2) << l / 32);
        }
    }
    pack_pairs(q, b->qs);
}

static void pack_q6_k(const float *x, void *block)
{
    struct quant_q6_k *b = block;
    int multiple[16];
    float d = sub_scales(x, 16, 32, 127, &b->d, multiple);
    memset(b->ql, 0, sizeof b->ql);
    memset(b->qh, 0, sizeof b->qh);
    for (int i = 0; i < 256; i++) {
        int q = nearest(x[i] * inverse(d * (float)multiple[i / 16]), -32, 31) + 32;
        b->scales[i / 16] = (int8_t)multiple[i / 16];
        b->ql[i / 128 * 64 + i % 64] |= (uint8_t)((q & 15) << i % 128 / 64 * 4);
        b->qh[i / 128 * 32 + i % 32] |= (uint8_t)((q >> 4) << i % 128 / 32 * 2);
    }
}

static void pack_iq4_xs(const float *x, void *block)
{
    struct quant_iq4_xs *b = block;
    int multiple[8];
    float d = sub_scales(x, 32, 127, 31, &b->d, multiple);
    memset(b->scales_l, 0, sizeof b->scales_l);
    b->scales_h = 0;
    for (int s = 0; s < 8; s++) {
        int q[32], biased = multiple[s] + 32;
        b->scales_l[s / 2] |= (uint8_t)((biased & 15) << s % 2 * 4);
        b->scales_h |= (uint16_t)(biased >> 4 << 2 * s);
        for (int l = 0; l < 32; l++)
            q[l] = nearest_entry(x[32 * s + l] * inverse(d * (float)multiple[s]), quant_iq4_values);
        pack_nibbles(q, b->qs + 16 * s);
    }
}

static void ternary(const float *x, uint16_t *out_d, uint8_t q[256])
{
    float inv = inverse(round_half(fabsf(extreme(x, 256)), out_d));
    for (int i = 0; i < 256; i++)
        q[i] = (uint8_t)(nearest(x[i] * inv, -1, 1) + 1);
}

/* A byte of n base-3 digits, most significant first, rounded up so that digits multiply out. */
static uint8_t base3_byte(const uint8_t *q, int n, int stride)
{
    int v = 0;
    for (int k = 0; k < 5; k++)
        v = v * 3 + (k < n ? q[k * stride] : 0);
    return (uint8_t)((v * 256 + 242) / 243);
}

static void pack_tq1_0(const float *x, void *block)
{
    struct quant_tq1_0 *b = block;
    uint8_t q[256];
    ternary(x, &b->d, q);
    for (int i = 0; i < 32; i++)
        b->qs[i] = base3_byte(q + i, 5, 32);
    for (int i = 0; i < 16; i++)
        b->qs[32 + i] = base3_byte(q + 160 + i, 5, 16);
    for (int i = 0; i < 4; i++)
        b->qh[i] = base3_byte(q + 240 + i, 4, 4);
}

static void pack_tq2_0(const float *x, void *block)
{
    struct quant_tq2_0 *b = block;
    uint8_t q[256];
    ternary(x, &b->d, q);
    pack_pairs(q, b->qs);
}

static const pack_fn packers[QUANT_N_TYPES] = {
    [QUANT_Q4_0] = pack_q4_0,   [QUANT_Q4_1] = pack_q4_1,     [QUANT_Q5_0] = pack_q5_0,
    [QUANT_Q5_1] = pack_q5_1,   [QUANT_IQ4_NL] = pack_iq4_nl, [QUANT_MXFP4] = pack_mxfp4,
    [QUANT_Q2_K] = pack_q2_k,   [QUANT_Q3_K] = pack_q3_k,     [QUANT_Q4_K] = pack_q4_k,
    [QUANT_Q5_K] = pack_q5_k,   [QUANT_Q6_K] = pack_q6_k,     [QUANT_IQ4_XS] = pack_iq4_xs,
    [QUANT_TQ1_0] = pack_tq1_0, [QUANT_TQ2_0] = pack_tq2_0,
};

bool pack_has(uint32_t type)
{
    const struct quant_info *info = quant_find(type);
    return info && (info->from_float || packers[type]);
}

void pack_row(uint32_t type, const float *x, void *out, int64_t n)
{
    const struct quant_info *info = quant_find(type);
    if (info->from_float) {
        info->from_float(x, out, n);
        return;
    }
    for (int64_t i = 0; i < n; i += info->block_elems)
        packers[type](x + i, (char *)out + i / info->block_elems * info->block_bytes);
}
