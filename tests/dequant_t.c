/* Weight types: fixed vectors worked out by hand from the formats, exhaustive checks of the 16-bit
 * conversions, and third-party blocks with their values, bit for bit. */
#include "kernels/quant.h"
#include "tests/tap.h"

#include <ctype.h>
#include <math.h>

static void test_table(void)
{
    static const struct {
        uint32_t type;
        const char *name;
        int elems, bytes;
    } want[] = {
        {0, "F32", 1, 4},       {1, "F16", 1, 2},   {8, "Q8_0", 32, 34},
        {12, "Q4_K", 256, 144}, {30, "BF16", 1, 2}, {39, "MXFP4", 32, 17},
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
        const struct quant_info *info = quant_find(want[i].type);
        ok(info && !strcmp(info->name, want[i].name) && info->block_elems == want[i].elems &&
               info->block_bytes == want[i].bytes,
           "type %u is %s, %d elements in %d bytes", want[i].type, want[i].name, want[i].elems,
           want[i].bytes);
    }
    static const uint32_t unknown[] = {4, 5, 31, 40, 1000, UINT32_MAX};
    for (size_t i = 0; i < sizeof unknown / sizeof *unknown; i++)
        ok(!quant_find(unknown[i]), "type %u is unknown", unknown[i]);
    is_int(quant_row_bytes(QUANT_Q8_0, 96), 102, "bytes of 96 elements of Q8_0");
}

/* The value of an f16 from its definition. */
static double f16_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    double v = e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return h & 0x8000 ? -v : v;
}

/* Every f16 and its neighbour's midpoint: exact there and back, ties to even, else to nearest. */
static void test_f16(void)
{
    int bad_value = 0, bad_back = 0, bad_tie = 0, bad_near = 0;
    for (int h = 0; h < 0x10000; h++) {
        if ((h & 0x7c00) == 0x7c00)
            continue;
        float f = quant_f16_to_f32((uint16_t)h);
        bad_value += (double)f != f16_value((uint16_t)h) || !signbit(f) != !(h & 0x8000);
        bad_back += quant_f32_to_f16(f) != h;
        double next = (h & 0x7fff) == 0x7bff ? copysign(65536, f) : f16_value((uint16_t)(h + 1));
        float tie = (float)((f + next) / 2);
        bad_tie += quant_f32_to_f16(tie) != h + (h & 1);
        bad_near += quant_f32_to_f16(nextafterf(tie, 0)) != h;
        bad_near += quant_f32_to_f16(nextafterf(tie, copysignf(INFINITY, f))) != h + 1;
    }
    is_int(bad_value, 0, "f16: every finite number has its value");
    is_int(bad_back, 0, "f16: every finite number survives the way there and back");
    is_int(bad_tie, 0, "f16: every midpoint goes to the even neighbour");
    is_int(bad_near, 0, "f16: beside a midpoint the nearer neighbour is taken");
    ok(quant_f16_to_f32(0x7c00) == INFINITY && quant_f16_to_f32(0xfc00) == -INFINITY &&
           quant_f32_to_f16(INFINITY) == 0x7c00 && quant_f32_to_f16(-1e30f) == 0xfc00,
       "f16: infinities, and overflow into them");
    ok(isnan(quant_f16_to_f32(0x7c01)) && isnan(quant_f16_to_f32(0xfe00)) &&
           (quant_f32_to_f16(NAN) & 0x7fff) > 0x7c00,
       "f16: NaN stays NaN");
    is_int(quant_f32_to_f16(quant_bits_to_f32(1)), 0, "f16: the smallest float becomes zero");
}

static void test_bf16(void)
{
    int bad_back = 0, bad_tie = 0, bad_near = 0;
    for (uint32_t h = 0; h < 0x10000; h++) {
        if ((h & 0x7f80) == 0x7f80)
            continue;
        bad_back += quant_f32_to_bf16(quant_bf16_to_f32((uint16_t)h)) != h;
        bad_tie += quant_f32_to_bf16(quant_bits_to_f32(h << 16 | 0x8000)) != h + (h & 1);
        bad_near += quant_f32_to_bf16(quant_bits_to_f32(h << 16 | 0x7fff)) != h;
        bad_near += quant_f32_to_bf16(quant_bits_to_f32(h << 16 | 0x8001)) != h + 1;
    }
    is_int(bad_back, 0, "bf16: every finite number survives the way there and back");
    is_int(bad_tie, 0, "bf16: every midpoint goes to the even neighbour");
    is_int(bad_near, 0, "bf16: beside a midpoint the nearer neighbour is taken");
    ok(isnan(quant_bf16_to_f32(quant_f32_to_bf16(quant_bits_to_f32(0x7f800001)))) &&
           quant_f32_to_bf16(-INFINITY) == 0xff80,
       "bf16: NaN stays NaN, infinity stays infinite");
}

/* What the engine packs: activations and the cache. */
static void test_q8_0(void)
{
    float in[64] = {0}, back[64];
    struct quant_q8_0 b[2];
    for (int j = 0; j < 32; j++)
        in[j] = (float)(j - 16) * 4; /* amax 64, scale 64/127 */
    quant_find(QUANT_Q8_0)->from_float(in, b, 64);
    ok(b[0].qs[0] == -127 && b[0].qs[16] == 0 && b[0].qs[31] == 119 && b[0].qs[17] == 8,
       "q8_0: packed to the nearest of 255 levels");
    is_int(b[0].d, quant_f32_to_f16(64.0f / 127), "q8_0: the scale is amax/127");
    ok(b[1].d == 0 && b[1].qs[0] == 0 && b[1].qs[31] == 0, "q8_0: a zero block stays zero");
    quant_find(QUANT_Q8_0)->to_float(b, back, 64);
    float worst = 0;
    for (int j = 0; j < 64; j++)
        worst = fmaxf(worst, fabsf(back[j] - in[j]));
    ok(worst <= 64.0f / 127 * 0.5f + 64 * 0x1p-11f,
       "q8_0: off by half a level and the scale's rounding at most");

    in[3] = NAN;
    in[40] = INFINITY;
    quant_find(QUANT_Q8_0)->from_float(in, b, 64);
    quant_find(QUANT_Q8_0)->to_float(b, back, 64);
    ok(isnan(back[0]) && isnan(back[32]), "q8_0: NaN or infinity makes the block NaN");
    in[3] = in[40] = 0;
    in[0] = 1e-40f;
    for (int j = 1; j < 32; j++)
        in[j] = 0;
    quant_find(QUANT_Q8_0)->from_float(in, b, 64);
    ok(b[0].d == 0 && b[0].qs[0] == 0, "q8_0: a block too small for a scale becomes zero");
}

static void *read_file(const char *path, size_t *out_size)
{
    FILE *f = fopen(path, "rb");
    void *p = NULL;
    *out_size = 0;
    if (!f)
        return NULL;
    fseek(f, 0, SEEK_END);
    long size = ftell(f);
    rewind(f);
    if (size > 0 && (p = malloc((size_t)size)))
        *out_size = fread(p, 1, (size_t)size, f);
    fclose(f);
    return p;
}

/* Path of a type's reference: the files spell "q4_K" where the table says "Q4_K". */
static void *read_reference(const char *dir, const char *type, const char *suffix, size_t *out_size)
{
    char name[32], path[4096];
    size_t n = strlen(type);
    for (size_t i = 0; i <= n; i++)
        name[i] = (char)(type[i] == 'K' ? 'K' : tolower((unsigned char)type[i]));
    snprintf(path, sizeof path, "%s/ref/dequant/%s.%s", dir, name, suffix);
    return read_file(path, out_size);
}

static void test_reference(const char *dir, const struct quant_info *info)
{
    size_t blk_size, f32_size;
    void *blk = read_reference(dir, info->name, "blk", &blk_size);
    float *want = read_reference(dir, info->name, "f32", &f32_size);
    int64_t n = (int64_t)(f32_size / sizeof *want);
    float *got = malloc(f32_size + 1);
    if (ok(blk && want && n > 0 && n % info->block_elems == 0 &&
               (int64_t)blk_size == n / info->block_elems * info->block_bytes,
           "%s: the reference has whole blocks", info->name)) {
        info->to_float(blk, got, n);
        int64_t i = 0;
        while (i < n && quant_f32_to_bits(got[i]) == quant_f32_to_bits(want[i]))
            i++;
        if (!ok(i == n, "%s: %lld values bit for bit", info->name, (long long)n))
            diag("element %lld: got %.9g, want %.9g", (long long)i, got[i], want[i]);
    }
    free(blk);
    free(want);
    free(got);
}

static void test_references(void)
{
    const char *dir = tap_shared();
    for (uint32_t type = 0; type < QUANT_N_TYPES; type++) {
        const struct quant_info *info = quant_find(type);
        if (!info || !info->to_float || type == QUANT_F32)
            continue;
        if (dir)
            test_reference(dir, info);
        else
            skip(info->name, "NEARTIE_SHARED is not set");
    }
}

int main(void)
{
    test_table();
    test_f16();
    test_bf16();
    test_q8_0();
    test_references();
    return tap_done();
}
