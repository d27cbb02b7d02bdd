/* The inner loops of the fast matrix products, for every weight type and instruction set: against
 * double arithmetic on the types' values, against each other bit for bit, row by row and token by
 * token, at sizes that no vector divides. */
#include "kernels/cpu_dot.h"
#include "kernels/quant.h"
#include "tests/tap.h"

#include <math.h>

enum { MAX_ROWS = 21, MAX_TOKENS = 11, MAX_COLS = 1024 };

/* One product: weights as packed and as values, activations as given and as rounded. */
struct product {
    int32_t type;
    const struct quant_info *info;
    int n_rows, n_tokens, n_cols;
    bool two_groups;
    int64_t row_bytes;
    uint8_t *w;     /* (n_rows, row_bytes) */
    float *w_value; /* (n_rows, n_cols) */
    float *x;       /* (n_tokens, n_cols) */
};

static uint64_t state = 1;

static uint32_t next_u32(void)
{
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(state >> 32);
}

static float next_unit(void) /* -1 ... 1 */
{
    return (float)((int32_t)next_u32() * 0x1p-31);
}

/* Where the f16 scales of a block stand; every other byte of a block may be anything. */
static const struct {
    int at[2], n;
} halves[QUANT_N_TYPES] = {
    [QUANT_F16] = {{0}, 1},       [QUANT_Q4_0] = {{0}, 1},    [QUANT_Q4_1] = {{0, 2}, 2},
    [QUANT_Q5_0] = {{0}, 1},      [QUANT_Q5_1] = {{0, 2}, 2}, [QUANT_Q8_0] = {{0}, 1},
    [QUANT_Q2_K] = {{80, 82}, 2}, [QUANT_Q3_K] = {{108}, 1},  [QUANT_Q4_K] = {{0, 2}, 2},
    [QUANT_Q5_K] = {{0, 2}, 2},   [QUANT_Q6_K] = {{208}, 1},  [QUANT_IQ4_NL] = {{0}, 1},
    [QUANT_IQ4_XS] = {{0}, 1},    [QUANT_TQ1_0] = {{52}, 1},  [QUANT_TQ2_0] = {{64}, 1},
};

static void fill_block(int32_t type, uint8_t *block, int n_bytes)
{
    for (int i = 0; i < n_bytes; i++)
        block[i] = (uint8_t)(next_u32() >> 24);
    for (int i = 0; i < halves[type].n; i++)
        memcpy(block + halves[type].at[i], &(uint16_t){quant_f32_to_f16(next_unit() * 0.05f)}, 2);
    if (type == QUANT_MXFP4)
        block[0] = (uint8_t)(120 + next_u32() % 8);
    if (type == QUANT_F32)
        memcpy(block, &(float){next_unit()}, 4);
    if (type == QUANT_BF16)
        memcpy(block, &(uint16_t){quant_f32_to_bf16(next_unit())}, 2);
}

static struct product product_new(int32_t type, int n_rows, int n_tokens, int n_cols)
{
    struct product p = {.type = type, .n_rows = n_rows, .n_tokens = n_tokens, .n_cols = n_cols};
    p.info = quant_find((uint32_t)type);
    p.row_bytes = quant_row_bytes((uint32_t)type, n_cols);
    p.w = malloc((size_t)(n_rows * p.row_bytes));
    p.w_value = malloc(sizeof(float) * (size_t)(n_rows * n_cols));
    p.x = malloc(sizeof(float) * (size_t)(n_tokens * n_cols));
    for (int64_t i = 0; i < n_rows * p.row_bytes; i += p.info->block_bytes)
        fill_block(type, p.w + i, p.info->block_bytes);
    for (int r = 0; r < n_rows; r++)
        p.info->to_float(p.w + r * p.row_bytes, p.w_value + r * n_cols, n_cols);
    for (int i = 0; i < n_tokens * n_cols; i++)
        p.x[i] = next_unit() * (next_u32() % 16 ? 1 : 8);
    return p;
}

static void product_free(struct product *p)
{
    free(p->w);
    free(p->w_value);
    free(p->x);
}

/* Rows first ... of the product with tokens first_t ..., as one call; out is (n_t, MAX_ROWS). */
static void run(const struct product *p, enum cpu_isa isa, bool many, int first, int n, int first_t,
                int n_t, float out[][MAX_ROWS])
{
    const struct cpu_dot *dot = cpu_dot_find(isa, p->type);
    const void *x[MAX_TOKENS];
    float *rows[MAX_TOKENS];
    void *packed[MAX_TOKENS] = {NULL};
    for (int t = 0; t < n_t; t++) {
        const float *floats = p->x + (first_t + t) * p->n_cols;
        x[t] = floats;
        if (dot->pack) {
            x[t] = packed[t] = aligned_alloc(64, cpu_dot_pack_bytes(p->n_cols));
            dot->pack(floats, p->n_cols, packed[t]);
        }
        rows[t] = out[t];
    }
    struct cpu_dot_call call = {
        p->w + first * p->row_bytes, p->row_bytes, n, p->n_cols, n_t, x, rows, p->two_groups};
    (many ? dot->mm : dot->mv)(&call);
    for (int t = 0; t < n_t; t++)
        free(packed[t]);
}

/* How far a result may be from the exact product. Rounding an activation moves it by half a step,
 * amax/254 of its block, or by nothing in float types. The float operations: per block the scale's
 * and the product's rounding and one addition to a sum, over at most n_cols / 32 + 8 additions
 * (float types: n_cols), each off by 2^-24 of the sum of magnitudes; offsets count as well, which
 * for types with minima are up to twice what the values sum to. */
static double bound_at(const struct product *p, int r, int t)
{
    const float *w = p->w_value + r * p->n_cols, *x = p->x + t * p->n_cols;
    bool rounds = cpu_dot_find(CPU_PORTABLE, p->type)->pack;
    double rounding = 0, magnitude = 0;
    for (int i = 0; i < p->n_cols; i += 32) {
        double amax = 0, w_sum = 0, w_max = 0;
        int n = p->n_cols - i < 32 ? p->n_cols - i : 32;
        for (int j = i; j < i + n; j++) {
            amax = fmax(amax, fabs(x[j]));
            w_max = fmax(w_max, fabs(w[j]));
            w_sum += fabs(w[j]);
        }
        rounding += w_sum * amax / 254;
        magnitude += 3 * n * w_max * amax;
    }
    int n_adds = rounds ? p->n_cols / 32 + 8 : p->n_cols;
    return (rounds ? rounding : 0) + magnitude * (n_adds + 4) * 0x1p-24;
}

/* Largest |error| / bound. */
static double worst_error(const struct product *p, float out[][MAX_ROWS])
{
    double worst = 0;
    for (int t = 0; t < p->n_tokens; t++)
        for (int r = 0; r < p->n_rows; r++) {
            double want = 0;
            for (int i = 0; i < p->n_cols; i++)
                want += (double)p->w_value[r * p->n_cols + i] * p->x[t * p->n_cols + i];
            double error = fabs(out[t][r] - want) / bound_at(p, r, t);
            worst = error > worst || isnan(error) ? error : worst;
        }
    return worst;
}

static bool is_same(const struct product *p, float a[][MAX_ROWS], float b[][MAX_ROWS])
{
    for (int t = 0; t < p->n_tokens; t++)
        if (memcmp(a[t], b[t], sizeof(float) * (size_t)p->n_rows))
            return false;
    return true;
}

/* Every result alone, as a call of one row and one token. */
static void run_single(const struct product *p, enum cpu_isa isa, bool many, float out[][MAX_ROWS])
{
    for (int t = 0; t < p->n_tokens; t++)
        for (int r = 0; r < p->n_rows; r++) {
            float one[1][MAX_ROWS];
            run(p, isa, many, r, 1, t, 1, one);
            out[t][r] = one[0][0];
        }
}

static void test_type(int32_t type, bool many, bool two_groups)
{
    static const int shapes[][3] = {/* rows, tokens, blocks or odd columns */
                                    {1, 1, 1},
                                    {4, 3, 2},
                                    {7, 5, 3},
                                    {16, 4, 4},
                                    {21, 11, 3}};
    const struct quant_info *info = quant_find((uint32_t)type);
    double worst = 0;
    int n_differ[N_CPU_ISAS] = {0}, n_single = 0;
    for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++) {
        int n_cols = info->block_elems == 1    ? 67 * shapes[s][2] - 66
                     : info->block_elems == 32 ? 32 * (9 * shapes[s][2] - 8)
                                               : 256 * shapes[s][2];
        static float want[MAX_TOKENS][MAX_ROWS], got[MAX_TOKENS][MAX_ROWS];
        struct product p = product_new(type, shapes[s][0], shapes[s][1], n_cols);
        p.two_groups = two_groups;
        run(&p, CPU_PORTABLE, many, 0, p.n_rows, 0, p.n_tokens, want);
        worst = fmax(worst, worst_error(&p, want));
        for (int isa = 0; isa < N_CPU_ISAS; isa++)
            if (cpu_isa_works(isa)) {
                run(&p, isa, many, 0, p.n_rows, 0, p.n_tokens, got);
                n_differ[isa] += !is_same(&p, got, want);
                run_single(&p, isa, many, got);
                n_single += !is_same(&p, got, want);
            }
        product_free(&p);
    }
    const char *form = two_groups ? "mv in two groups" : many ? "mm" : "mv";
    if (!ok(worst <= 1, "%s %s: within the bound of the exact product", info->name, form))
        diag("error / bound: %g", worst);
    is_int(n_single, 0, "%s %s: a row and token alone give the same bits", info->name, form);
    for (int isa = CPU_PORTABLE + 1; isa < N_CPU_ISAS; isa++) {
        char name[64];
        snprintf(name, sizeof name, "%s %s: %s equals portable bit for bit", info->name, form,
                 cpu_isa_name(isa));
        if (cpu_isa_works(isa))
            is_int(n_differ[isa], 0, "%s", name);
        else
            skip(name, "this processor does not have it");
    }
}

/* Activations that are exact in 8 bits leave float rounding only: integers must be exact, at
 * their extremes too. */
static void test_extremes(enum cpu_isa isa)
{
    struct quant_q8_0 w[3];
    float x[96], out[2][MAX_ROWS];
    struct product p = {.type = QUANT_Q8_0,
                        .n_rows = 1,
                        .n_tokens = 1,
                        .n_cols = 96,
                        .row_bytes = sizeof w,
                        .w = (uint8_t *)w,
                        .x = x};
    for (int i = 0; i < 96; i++) {
        w[i / 32].d = 0x3c00; /* 1 */
        w[i / 32].qs[i % 32] = i < 32 ? -128 : i < 64 ? 127 : i % 2 ? -128 : 127;
        x[i] = i < 64 ? -127 : i % 2 ? 127 : -127;
    }
    float want = 32.0f * 128 * 127 - 32.0f * 127 * 127 - 16.0f * 127 * (127 + 128);
    run(&p, isa, false, 0, 1, 0, 1, out);
    run(&p, isa, true, 0, 1, 0, 1, out + 1);
    ok(out[0][0] == want && out[1][0] == want, "%s: extreme bytes are summed exactly",
       cpu_isa_name(isa));
    x[40] = NAN;
    run(&p, isa, false, 0, 1, 0, 1, out);
    run(&p, isa, true, 0, 1, 0, 1, out + 1);
    ok(isnan(out[0][0]) && isnan(out[1][0]), "%s: NaN in an activation reaches the result",
       cpu_isa_name(isa));
    x[40] = -INFINITY;
    run(&p, isa, false, 0, 1, 0, 1, out);
    ok(!isfinite(out[0][0]), "%s: infinity in an activation reaches the result", cpu_isa_name(isa));
    for (int i = 0; i < 96; i++)
        x[i] = i % 2 ? 1e-44f : 0;
    run(&p, isa, false, 0, 1, 0, 1, out);
    ok(out[0][0] == 0, "%s: activations too small for a scale count as zeros", cpu_isa_name(isa));
}

/* The packed row against the engine's q8_0, which differs in its f16 scale only. */
static void test_pack(enum cpu_isa isa)
{
    float x[96];
    uint8_t packed[256] __attribute__((aligned(64)));
    struct quant_q8_0 want[3];
    int n_bad = 0;
    for (int i = 0; i < 96; i++)
        x[i] = next_unit();
    x[7] = 0.5f / 127, x[0] = 1; /* ties to even: 0.5 steps */
    x[8] = 1.5f / 127;
    cpu_dot_find(isa, QUANT_Q8_0)->pack(x, 96, packed);
    quant_find(QUANT_Q8_0)->from_float(x, want, 96);
    struct cpu_dot_x got = cpu_dot_x_at(packed, 96);
    for (int i = 0; i < 96; i++)
        n_bad += got.q[i] != want[i / 32].qs[i % 32];
    for (int h = 0; h < 6; h++) {
        int sum = 0;
        for (int i = 0; i < 16; i++)
            sum += got.q[16 * h + i];
        n_bad += sum != got.sum[h] || quant_f32_to_f16(got.d[h / 2]) != want[h / 2].d;
    }
    is_int(n_bad, 0, "%s: activations are rounded as q8_0 is", cpu_isa_name(isa));
}

int main(void)
{
    for (int32_t type = 0; type < QUANT_N_TYPES; type++)
        if (cpu_dot_find(CPU_PORTABLE, type)) {
            test_type(type, false, false);
            test_type(type, true, false);
        }
    test_type(QUANT_Q8_0, false, true);
    for (int isa = 0; isa < N_CPU_ISAS; isa++)
        if (cpu_isa_works(isa)) {
            test_extremes(isa);
            test_pack(isa);
        }
    ok(!cpu_dot_find(CPU_PORTABLE, QUANT_IQ2_XS) && !cpu_dot_find(CPU_PORTABLE, 99),
       "types without values have no loops");
    return tap_done();
}
