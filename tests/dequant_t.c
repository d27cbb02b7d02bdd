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

/* Blocks whose byte i is 73 i + 41 and whose scale and minimum are 1/2 and 1/8 (MXFP4: 2^-3), with
 * values worked out element by element in a program of its own, from the formats' description. */
static const struct fixed {
    enum quant_type type;
    int d_at, m_at; /* offsets of scale and minimum; -1 = none */
    struct {
        int element;
        float value;
    } want[8]; /* an element 0 ends the list */
} fixed[] = {
    {QUANT_Q4_0, 0, -1, {{1, -2}, {14, 0.5}, {17, -4}, {31, -4}}},
    {QUANT_Q4_1, 0, 2, {{1, 3.125}, {14, 5.625}, {17, 4.625}, {31, 4.625}}},
    {QUANT_Q5_0, 0, -1, {{1, 4}, {14, -1.5}, {17, -7}, {31, 1}}},
    {QUANT_Q5_1, 0, 2, {{1, 5.125}, {14, 7.625}, {17, 13.625}, {31, 5.625}}},
    {QUANT_Q8_0, 0, -1, {{1, 2}, {14, -35.5}, {17, -54}, {31, -55}}},
    {QUANT_Q2_K,
     80,
     82,
     {{1, 8.75},
      {14, 13.25},
      {47, -1.375},
      {77, 12.5},
      {111, -1.625},
      {130, 0.625},
      {199, 1.375},
      {254, -0.875}}},
    {QUANT_Q3_K,
     108,
     -1,
     {{1, 7}, {14, -10.5}, {47, -54}, {77, -28.5}, {111, 17}, {130, -12}, {199, -26}, {254, 12}}},
    {QUANT_Q4_K,
     0,
     2,
     {{1, 6.875},
      {14, 39.375},
      {47, -7.25},
      {77, 216.625},
      {111, 38.5},
      {130, 112.375},
      {199, 219.75},
      {254, -2.875}}},
    {QUANT_Q5_K,
     0,
     2,
     {{1, 6.875},
      {14, 143.375},
      {47, 14.75},
      {77, 464.625},
      {111, 78.5},
      {130, 112.375},
      {199, 219.75},
      {254, -2.875}}},
    {QUANT_Q6_K,
     208,
     -1,
     {{1, -23},
      {14, -264.5},
      {47, -1968},
      {77, -19.5},
      {111, -1212.5},
      {130, 661.5},
      {199, -1105},
      {254, -360}}},
    {QUANT_IQ4_NL, 0, -1, {{1, -24.5}, {14, 6.5}, {17, -63.5}, {31, -63.5}}},
    {QUANT_IQ4_XS,
     0,
     -1,
     {{1, 362.5},
      {14, 1638.5},
      {47, 2},
      {77, -242},
      {111, 4.5},
      {130, 552.5},
      {199, 1524},
      {254, 525}}},
    {QUANT_TQ1_0,
     52,
     -1,
     {{1, 0}, {14, -0.5}, {47, -0.5}, {77, 0.5}, {111, 0.5}, {130, -0.5}, {199, 0}, {254, -0.5}}},
    {QUANT_TQ2_0,
     64,
     -1,
     {{1, 0.5}, {14, 1}, {47, -0.5}, {77, 0}, {111, 0}, {130, 1}, {199, -0.5}, {254, 1}}},
    {QUANT_MXFP4, -1, -1, {{1, -0.1875}, {14, 0}, {17, -0.1875}, {31, -0.1875}}},
};

static void test_fixed(const struct fixed *v)
{
    const struct quant_info *info = quant_find(v->type);
    uint8_t block[256];
    float out[256];
    int n_bad = 0;
    for (int i = 0; i < info->block_bytes; i++)
        block[i] = (uint8_t)(73 * i + 41);
    if (v->d_at >= 0)
        memcpy(block + v->d_at, &(uint16_t){0x3800}, 2);
    if (v->m_at >= 0)
        memcpy(block + v->m_at, &(uint16_t){0x3000}, 2);
    if (v->type == QUANT_MXFP4)
        block[0] = 127 - 3;
    info->to_float(block, out, info->block_elems);
    for (int i = 0; i < 8 && v->want[i].element; i++)
        if (out[v->want[i].element] != v->want[i].value && ++n_bad)
            diag("element %d: got %g, want %g", v->want[i].element, out[v->want[i].element],
                 v->want[i].value);
    ok(!n_bad, "%s: built-in block", info->name);
}

/* What the table says and does not say of the types that are known by name only. */
static void test_unsupported(void)
{
    int n_supported = 0, n_named = 0;
    for (uint32_t type = 0; type < QUANT_N_TYPES; type++) {
        const struct quant_info *info = quant_find(type);
        n_supported += info && info->to_float;
        n_named += info && !info->to_float;
    }
    is_int(n_supported, 18, "values of 18 types");
    is_int(n_named, 12, "12 more known by name and size: integers, F64, the codebook types");
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
    for (size_t i = 0; i < sizeof fixed / sizeof *fixed; i++)
        test_fixed(&fixed[i]);
    test_unsupported();
    test_references();
    return tap_done();
}
