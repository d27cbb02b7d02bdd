/* The packers of the model generator: how far a packed row is from what went in, on normal
 * values, on edge cases, and beside foreign packed blocks of the same input. */
#include "tests/pack.h"

#include <ctype.h>
#include <math.h>

#include "kernels/quant.h"
#include "tests/tap.h"

enum { N = 2048 };

/* Largest acceptable error of normal values, root mean square over root mean square: what a
 * uniform step between the extremes of a block of that width gives, rounded up. */
static const struct {
    uint32_t type;
    double error;
} bounds[] = {
    {QUANT_F16, 3e-4},   {QUANT_BF16, 3e-3},  {QUANT_Q8_0, 0.006},  {QUANT_Q6_K, 0.025},
    {QUANT_Q5_K, 0.04},  {QUANT_Q5_1, 0.04},  {QUANT_Q5_0, 0.045},  {QUANT_Q4_K, 0.085},
    {QUANT_Q4_1, 0.085}, {QUANT_Q4_0, 0.095}, {QUANT_IQ4_NL, 0.09}, {QUANT_IQ4_XS, 0.09},
    {QUANT_MXFP4, 0.14}, {QUANT_Q3_K, 0.17},  {QUANT_Q2_K, 0.38},   {QUANT_TQ2_0, 0.9},
    {QUANT_TQ1_0, 0.9},
};

static uint64_t state = 88172645463325252u;

static float uniform(void) /* 0 ... 1 */
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(state >> 40) * 0x1p-24f;
}

static float normal(void)
{
    return sqrtf(-2 * logf(uniform() + 0x1p-25f)) * cosf(6.2831853f * uniform());
}

/* RMS of back - in over RMS of in. */
static double relative_error(const float *in, const float *back, int n)
{
    double error = 0, size = 0;
    for (int i = 0; i < n; i++) {
        error += ((double)back[i] - in[i]) * ((double)back[i] - in[i]);
        size += (double)in[i] * in[i];
    }
    return sqrt(error / size);
}

static double round_trip(uint32_t type, const float *in, float *back, int n)
{
    const struct quant_info *info = quant_find(type);
    void *packed = malloc((size_t)quant_row_bytes(type, n));
    pack_row(type, in, packed, n);
    info->to_float(packed, back, n);
    free(packed);
    return relative_error(in, back, n);
}

static void test_normal(uint32_t type, double bound)
{
    float in[N], back[N];
    for (int i = 0; i < N; i++)
        in[i] = normal() * 0.02f;
    double error = round_trip(type, in, back, N);
    if (!ok(error < bound, "%s: normal values come back within %g", quant_find(type)->name, bound))
        diag("relative error %g", error);
    diag("%s %.4f", quant_find(type)->name, error);
}

static void test_edges(uint32_t type)
{
    float in[N] = {0}, back[N];
    int n_bad = 0;
    round_trip(type, in, back, N);
    for (int i = 0; i < N; i++)
        n_bad += back[i] != 0;
    is_int(n_bad, 0, "%s: zeros come back as zeros", quant_find(type)->name);
    for (int i = 0; i < N; i++)
        in[i] = i % 256 == 100 ? -3.0f : 0;
    round_trip(type, in, back, N);
    for (int i = 0; i < N; i++)
        n_bad += fabsf(back[i] - in[i]) > 0.35f;
    is_int(n_bad, 0, "%s: one value among zeros comes back in its place", quant_find(type)->name);
}

static float *read_floats(const char *path)
{
    FILE *f = fopen(path, "rb");
    float *x = malloc(N * sizeof *x);
    if (f && fread(x, sizeof *x, N, f) == N) {
        fclose(f);
        return x;
    }
    if (f)
        fclose(f);
    free(x);
    return NULL;
}

/* A foreign quantiser searches for better scales; plain rounding may lose up to half as much more
 * again. */
static void test_foreign(const char *dir, uint32_t type)
{
    char name[32], path[4096];
    float back[N];
    const char *type_name = quant_find(type)->name;
    for (size_t i = 0; i <= strlen(type_name); i++)
        name[i] = (char)(type_name[i] == 'K' ? 'K' : tolower((unsigned char)type_name[i]));
    snprintf(path, sizeof path, "%s/ref/dequant/input.f32", dir);
    float *in = read_floats(path);
    snprintf(path, sizeof path, "%s/ref/dequant/%s.f32", dir, name);
    float *foreign = read_floats(path);
    if (ok(in && foreign, "%s: foreign input and values can be read", type_name)) {
        double ours = round_trip(type, in, back, N), theirs = relative_error(in, foreign, N);
        if (!ok(ours <= 1.5 * theirs, "%s: error at most 1.5 times a foreign quantiser's",
                type_name))
            diag("ours %g, theirs %g", ours, theirs);
    }
    free(in);
    free(foreign);
}

int main(void)
{
    const char *dir = tap_shared();
    for (size_t i = 0; i < sizeof bounds / sizeof *bounds; i++) {
        ok(pack_has(bounds[i].type), "%s can be packed", quant_find(bounds[i].type)->name);
        test_normal(bounds[i].type, bounds[i].error);
        test_edges(bounds[i].type);
        if (dir)
            test_foreign(dir, bounds[i].type);
        else
            skip("error beside a foreign quantiser's", "NEARTIE_SHARED is not set");
    }
    for (uint32_t type = 0; type < QUANT_N_TYPES; type++)
        if (quant_find(type))
            ok(pack_has(type) == !!quant_find(type)->to_float,
               "%s: packed if and only if it has values", quant_find(type)->name);
    return tap_done();
}
