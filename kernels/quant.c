#include "config.h"

#include "kernels/quant.h"

#include <math.h>

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

/* The scale that divides is the float amax/127, not its f16 form, so that |q| <= 127. A block
 * with anything that is not finite has no scale: its values become NaN, not a plausible number. */
static void q8_0_from_float(const float *row, void *out, int64_t n)
{
    struct quant_q8_0 *b = out;
    for (; n > 0; n -= QUANT_BLOCK, row += QUANT_BLOCK, b++) {
        float amax = 0, sum = 0;
        for (int j = 0; j < QUANT_BLOCK; j++) {
            amax = fmaxf(amax, fabsf(row[j]));
            sum += row[j] * 0.0f;
        }
        float inverse = amax > 0 ? 127.0f / amax : 0.0f;
        if (sum != 0 || !isfinite(inverse))
            inverse = 0;
        b->d = quant_f32_to_f16(sum != 0 ? NAN : amax / 127.0f);
        for (int j = 0; j < QUANT_BLOCK; j++)
            b->qs[j] = (int8_t)(inverse ? lrintf(row[j] * inverse) : 0);
    }
}

/* Indexed by the file's number. */
static const struct quant_info infos[QUANT_N_TYPES] = {
    [QUANT_F32] = {"F32", 1, 4, f32_copy, f32_from_float},
    [QUANT_F16] = {"F16", 1, 2, f16_to_float, f16_from_float},
    [QUANT_Q4_0] = {"Q4_0", QUANT_BLOCK, 18, NULL, NULL},
    [QUANT_Q4_1] = {"Q4_1", QUANT_BLOCK, 20, NULL, NULL},
    [QUANT_Q5_0] = {"Q5_0", QUANT_BLOCK, 22, NULL, NULL},
    [QUANT_Q5_1] = {"Q5_1", QUANT_BLOCK, 24, NULL, NULL},
    [QUANT_Q8_0] = {"Q8_0", QUANT_BLOCK, 34, q8_0_to_float, q8_0_from_float},
    [QUANT_Q2_K] = {"Q2_K", QUANT_SUPER, 84, NULL, NULL},
    [QUANT_Q3_K] = {"Q3_K", QUANT_SUPER, 110, NULL, NULL},
    [QUANT_Q4_K] = {"Q4_K", QUANT_SUPER, 144, NULL, NULL},
    [QUANT_Q5_K] = {"Q5_K", QUANT_SUPER, 176, NULL, NULL},
    [QUANT_Q6_K] = {"Q6_K", QUANT_SUPER, 210, NULL, NULL},
    [QUANT_IQ2_XXS] = {"IQ2_XXS", QUANT_SUPER, 66, NULL, NULL},
    [QUANT_IQ2_XS] = {"IQ2_XS", QUANT_SUPER, 74, NULL, NULL},
    [QUANT_IQ3_XXS] = {"IQ3_XXS", QUANT_SUPER, 98, NULL, NULL},
    [QUANT_IQ1_S] = {"IQ1_S", QUANT_SUPER, 50, NULL, NULL},
    [QUANT_IQ4_NL] = {"IQ4_NL", QUANT_BLOCK, 18, NULL, NULL},
    [QUANT_IQ3_S] = {"IQ3_S", QUANT_SUPER, 110, NULL, NULL},
    [QUANT_IQ2_S] = {"IQ2_S", QUANT_SUPER, 82, NULL, NULL},
    [QUANT_IQ4_XS] = {"IQ4_XS", QUANT_SUPER, 136, NULL, NULL},
    [QUANT_I8] = {"I8", 1, 1, NULL, NULL},
    [QUANT_I16] = {"I16", 1, 2, NULL, NULL},
    [QUANT_I32] = {"I32", 1, 4, NULL, NULL},
    [QUANT_I64] = {"I64", 1, 8, NULL, NULL},
    [QUANT_F64] = {"F64", 1, 8, NULL, NULL},
    [QUANT_IQ1_M] = {"IQ1_M", QUANT_SUPER, 56, NULL, NULL},
    [QUANT_BF16] = {"BF16", 1, 2, bf16_to_float, bf16_from_float},
    [QUANT_TQ1_0] = {"TQ1_0", QUANT_SUPER, 54, NULL, NULL},
    [QUANT_TQ2_0] = {"TQ2_0", QUANT_SUPER, 66, NULL, NULL},
    [QUANT_MXFP4] = {"MXFP4", QUANT_BLOCK, 17, NULL, NULL},
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
