/* The host capture against a full sort: every instruction set that this machine has, sizes from 1
 * to a large vocabulary, ties, non-finite values, denormals, and all three types. */
#include "config.h"

#include <math.h>
#include <stdint.h>

#include "shim/capture.h"
#include "tests/tap.h"

static uint64_t rng_state = 88172645463325252u;

static uint32_t rng(void)
{
    rng_state ^= rng_state << 13;
    rng_state ^= rng_state >> 7;
    rng_state ^= rng_state << 17;
    return (uint32_t)(rng_state >> 16);
}

static float uniform(void)
{
    return (float)rng() / 4294967296.0f * 40 - 25;
}

static float from_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

/* What a row is filled with; i of n. */
static float fill_random(int i, int n)
{
    (void)i, (void)n;
    return uniform();
}
static float fill_ties(int i, int n)
{
    (void)i, (void)n;
    return (float)(rng() % 7);
}
static float fill_equal(int i, int n)
{
    (void)i, (void)n;
    return -3.5f;
}
static float fill_ascending(int i, int n)
{
    return (float)i / (float)n * 30 - 20;
}
static float fill_descending(int i, int n)
{
    return -fill_ascending(i, n);
}
static float fill_all_nan(int i, int n)
{
    (void)i, (void)n;
    return NAN;
}
static float fill_some_nan(int i, int n)
{
    (void)i, (void)n;
    return rng() % 3 ? uniform() : rng() % 2 ? NAN : -NAN;
}
static float fill_masked(int i, int n)
{
    (void)n;
    return i % 97 == 5 ? uniform() : -INFINITY;
}
static float fill_all_masked(int i, int n)
{
    (void)i, (void)n;
    return -INFINITY;
}
static float fill_any(int i, int n)
{
    (void)i, (void)n;
    static const float odd[] = {NAN, INFINITY, -INFINITY, 0.0f, -0.0f, 1e-42f, -1e-42f, 65000};
    return rng() % 4 ? uniform() : odd[rng() % 8];
}
static float fill_denormal(int i, int n)
{
    (void)i, (void)n;
    return from_bits((rng() & 0x807fffff));
}
static float fill_zeros(int i, int n)
{
    (void)i, (void)n;
    return rng() % 2 ? 0.0f : -0.0f;
}

static const struct {
    const char *name;
    float (*at)(int i, int n);
} fills[] = {
    {"random", fill_random},         {"ties", fill_ties},
    {"all equal", fill_equal},       {"ascending", fill_ascending},
    {"descending", fill_descending}, {"all NaN", fill_all_nan},
    {"some NaN", fill_some_nan},     {"masked", fill_masked},
    {"all masked", fill_all_masked}, {"anything", fill_any},
    {"denormal", fill_denormal},     {"both zeros", fill_zeros},
};
enum { N_FILLS = sizeof fills / sizeof *fills };

static int by_value_then_id(const void *a, const void *b)
{
    const struct record_top *x = a, *y = b;
    if (x->logit != y->logit)
        return x->logit < y->logit ? 1 : -1;
    return x->token < y->token ? -1 : 1;
}

/* The contract, written the slow way. */
static void reference(struct capture *out, struct record_top *all, const float *x, int n, int k)
{
    int n_all = 0;
    double max = -INFINITY, sum = 0;
    *out = (struct capture){.first_bad = -1};
    for (int i = 0; i < n; i++) {
        out->n_nan += isnan(x[i]) != 0;
        out->n_posinf += x[i] == INFINITY;
        out->n_neginf += x[i] == -INFINITY;
        if (out->first_bad < 0 && (isnan(x[i]) || x[i] == INFINITY))
            out->first_bad = i;
        if (!isnan(x[i]))
            all[n_all++] = (struct record_top){i, x[i]};
        if (!isnan(x[i]) && (double)x[i] > max)
            max = (double)x[i];
    }
    for (int i = 0; i < n_all; i++)
        sum += isinf(max) ? 0 : exp((double)all[i].logit - max);
    out->lse = isinf(max) ? max : max + log(sum);
    qsort(all, (size_t)n_all, sizeof *all, by_value_then_id);
    out->n_top = n_all < k ? n_all : k;
    for (int i = 0; i < out->n_top; i++)
        out->top[i] = all[i];
}

/* The same class of non-finite, or within 2e-6 of the magnitude. */
static int lse_close(double a, double b)
{
    return a == b || fabs(a - b) <= 2e-6 * (fabs(b) > 1 ? fabs(b) : 1);
}

static int same(const struct capture *a, const struct capture *b)
{
    if (a->n_nan != b->n_nan || a->n_posinf != b->n_posinf || a->n_neginf != b->n_neginf ||
        a->first_bad != b->first_bad || a->n_top != b->n_top || !lse_close(a->lse, b->lse)) {
        diag("nan %u/%u +inf %u/%u -inf %u/%u bad %d/%d top %d/%d lse %.9g/%.9g", a->n_nan,
             b->n_nan, a->n_posinf, b->n_posinf, a->n_neginf, b->n_neginf, a->first_bad,
             b->first_bad, a->n_top, b->n_top, a->lse, b->lse);
        return 0;
    }
    for (int i = 0; i < a->n_top; i++)
        if (a->top[i].token != b->top[i].token ||
            memcmp(&a->top[i].logit, &b->top[i].logit, sizeof(float))) {
            diag("rank %d: %d:%.9g, want %d:%.9g", i, a->top[i].token, (double)a->top[i].logit,
                 b->top[i].token, (double)b->top[i].logit);
            return 0;
        }
    return 1;
}

/* Round to the nearest even value of a shorter float: e exponent and m mantissa bits. */
static uint16_t to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isnan(x))
        return (uint16_t)(bits >> 16 | 64);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static float bf16_value(uint16_t h)
{
    return from_bits((uint32_t)h << 16);
}

/* Value of a half-precision float by its definition. */
static float f16_value(uint16_t h)
{
    int e = h >> 10 & 31, m = h & 1023;
    float sign = h & 0x8000 ? -1.0f : 1.0f;
    if (e == 31)
        return m ? NAN : sign * INFINITY;
    return sign * (e ? ldexpf((float)(m + 1024), e - 25) : ldexpf((float)m, -24));
}

static void test_sizes(const struct capture_path *path)
{
    static const int sizes[] = {1, 2, 3, 15, 16, 17, 1023, 1024, 1025, 2048, 151936, 248320};
    static const int ks[] = {1, 2, 20, 64};
    float *x = malloc(248321 * sizeof *x);
    struct record_top *all = malloc(248320 * sizeof *all);
    for (int f = 0; f < N_FILLS; f++) {
        int good = 1;
        for (unsigned s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            int n = sizes[s], k = ks[(s + (unsigned)f) % 4];
            float *row = x + n % 2; /* rows need not be aligned to vectors */
            for (int i = 0; i < n; i++)
                row[i] = fills[f].at(i, n);
            struct capture got, want;
            reference(&want, all, row, n, k);
            path->row(&got, row, PROBE_F32, n, k);
            if (!same(&got, &want))
                good = 0, diag("n %d, k %d", n, k);
        }
        ok(good, "%s: %s rows of 1 to 248,320 values equal a full sort", path->name, fills[f].name);
    }
    free(all);
    free(x);
}

static void test_halves(const struct capture_path *path)
{
    enum { N = 65536 };
    static uint16_t h[N];
    static float x[N];
    static struct record_top all[N];
    struct capture got, want;

    for (int i = 0; i < N; i++)
        h[i] = (uint16_t)(i * 40503u), x[i] = f16_value(h[i]);
    reference(&want, all, x, N, 64);
    path->row(&got, h, PROBE_F16, N, 64);
    ok(same(&got, &want), "%s: a row of every f16 value", path->name);

    int exact = 1;
    for (int i = 0; i < N; i++) {
        float v = capture_value(h, PROBE_F16, i);
        exact &= isnan(x[i]) ? isnan(v) : !memcmp(&v, &x[i], 4);
    }
    ok(exact, "%s: f16 is converted exactly", path->name);

    for (int i = 0; i < N; i++)
        h[i] = to_bf16(i % 50 ? uniform() : fill_any(i, N)), x[i] = bf16_value(h[i]);
    reference(&want, all, x, N, 20);
    path->row(&got, h, PROBE_BF16, N, 20);
    ok(same(&got, &want), "%s: a row of bf16 values with ties and non-finite ones", path->name);
}

/* What a row is recorded as must not depend on the machine. */
static void test_equal(void)
{
    enum { N = 151936 };
    float *x = malloc(N * sizeof *x);
    int equal = 1;
    for (int f = 0; f < N_FILLS; f++)
        for (int dtype = PROBE_F32; dtype <= PROBE_BF16; dtype++) {
            struct capture first = {0}, got = {0};
            for (int i = 0; i < N; i++)
                x[i] = fills[f].at(i, N);
            capture_row(&first, x, (enum probe_dtype)dtype, N, 64);
            for (const struct capture_path *p = capture_paths; p->name; p++) {
                if (p->usable())
                    p->row(&got, x, (enum probe_dtype)dtype, N, 64);
                equal &= !p->usable() || !memcmp(&got, &first, sizeof got);
            }
        }
    ok(equal, "every instruction set gives the same bits, log-sum-exp included");
    free(x);
}

int main(void)
{
    for (const struct capture_path *p = capture_paths; p->name; p++) {
        if (!p->usable()) {
            skip(p->name, "this machine lacks %s", p->name);
            continue;
        }
        test_sizes(p);
        test_halves(p);
    }
    test_equal();
    return tap_done();
}
