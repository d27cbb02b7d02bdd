/* Every operator of ops.def, in every form and instruction set: against the float64 form, at odd
 * sizes, with poisoned outputs; bit-equal with any number of threads and, where ops.def says so,
 * however its rows are cut. A new operator fails here until it has a row in `makers`. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "kernels/kernels.h"
#include "kernels/quant.h"
#include "tests/tap.h"

enum { MAX_BUFFERS = 10, GUARD = 64 };

/* One call and everything it touches, each buffer between two guards. */
struct fixture {
    struct op_args a;
    unsigned row_inputs; /* bit i: in[i] has a row for each row of out */
    unsigned col_inputs; /* bit i: in[i] is ints, a column for each row of out */
    int n_results;
    struct tensor results[3]; /* what the call writes */
    int n_buffers;
    struct {
        char *base;
        size_t size;
    } buffers[MAX_BUFFERS];
    void *scratch;
};

static uint64_t seed;

static double uniform(void)
{
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    return (double)(seed >> 11) / 9007199254740992.0;
}

/* Roughly normal, as activations and weights are. */
static float normal(void)
{
    return (float)(uniform() + uniform() + uniform() + uniform() - 2) * 1.7f;
}

static void *buffer(struct fixture *x, size_t size)
{
    char *base = aligned_alloc(64, (size + 2 * GUARD + 63) / 64 * 64);
    memset(base, 0xab, size + 2 * GUARD);
    x->buffers[x->n_buffers].base = base;
    x->buffers[x->n_buffers++].size = size;
    return base + GUARD;
}

static bool guards_hold(const struct fixture *x)
{
    for (int i = 0; i < x->n_buffers; i++)
        for (int j = 0; j < GUARD; j++)
            if ((unsigned char)x->buffers[i].base[j] != 0xab ||
                (unsigned char)x->buffers[i].base[GUARD + x->buffers[i].size + (size_t)j] != 0xab)
                return false;
    return true;
}

static struct tensor blank(struct fixture *x, int type, int mats, int rows, int cols)
{
    struct tensor t = tensor_packed(NULL, type, mats, rows, cols);
    t.data = buffer(x, (size_t)t.mat_bytes * (size_t)mats);
    return t;
}

/* Random values in a type; a type that is never written is filled with plausible blocks. */
static struct tensor random_tensor(struct fixture *x, int type, int mats, int rows, int cols)
{
    struct tensor t = blank(x, type, mats, rows, cols);
    const struct quant_info *q = quant_find((uint32_t)type);
    float *row = malloc((size_t)cols * sizeof *row);
    for (int r = 0; r < mats * rows; r++) {
        for (int c = 0; c < cols; c++)
            row[c] = normal();
        q->from_float(row, tensor_row(&t, r / rows, r % rows), cols);
    }
    free(row);
    return t;
}

static struct tensor floats(struct fixture *x, int rows, int cols)
{
    return random_tensor(x, QUANT_F32, 1, rows, cols);
}

static struct tensor ints_below(struct fixture *x, int n, int bound)
{
    struct tensor t = blank(x, QUANT_I32, 1, 1, n);
    for (int i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = (int32_t)(uniform() * bound);
    return t;
}

static struct tensor counting(struct fixture *x, int n, int first)
{
    struct tensor t = blank(x, QUANT_I32, 1, 1, n);
    for (int i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = first + i;
    return t;
}

static struct tensor result(struct fixture *x, struct tensor t)
{
    x->results[x->n_results++] = t;
    return t;
}

/* A result that holds nothing yet: NaN, so that a hole shows. */
static struct tensor output(struct fixture *x, int rows, int cols)
{
    struct tensor t = blank(x, QUANT_F32, 1, rows, cols);
    memset(t.data, 0xff, (size_t)t.mat_bytes);
    return result(x, t);
}

/* Makers: one call of about n rows, with sizes that follow from the variant. */
static const int32_t matrix_types[] = {QUANT_F32, QUANT_F16, QUANT_BF16, QUANT_Q8_0};
enum { N_VARIANTS = 12 };

static void make_rows(struct fixture *x, int n, int v)
{
    x->a.in[0] = random_tensor(x, matrix_types[v % 4], 1, 9, 32 * (v + 1));
    x->a.in[1] = ints_below(x, n, 9);
    x->a.out = output(x, n, 32 * (v + 1));
    x->col_inputs = 2;
}

static void make_norm(struct fixture *x, int n, int v)
{
    x->a.n_heads = v % 3 + 1;
    x->a.eps = 1e-6;
    x->a.scale = 0.25;
    x->a.in[0] = floats(x, n, x->a.n_heads * (5 * v + 1));
    x->a.in[1] = floats(x, 1, 5 * v + 1);
    x->a.out = output(x, n, x->a.in[0].n_cols);
    x->row_inputs = 1;
}

static void make_matmul(struct fixture *x, int n, int v)
{
    int32_t type = matrix_types[v % 4];
    int cols = type == QUANT_Q8_0 ? 32 * (3 * v + 1) : 61 * v + 1;
    x->a.in[0] = floats(x, n, cols);
    x->a.in[1] = random_tensor(x, type, 1, 7 * v + 1, cols);
    x->a.out = output(x, n, 7 * v + 1);
    x->a.two_groups = v > 7;
    x->row_inputs = 1;
}

static void make_pair(struct fixture *x, int n, int v)
{
    x->a.in[0] = floats(x, n, 13 * v + 1);
    x->a.in[1] = floats(x, n, 13 * v + 1);
    x->a.out = output(x, n, 13 * v + 1);
    x->row_inputs = 3;
}

static void make_rope(struct fixture *x, int n, int v)
{
    x->a.n_heads = v % 3 + 1;
    x->a.n_rot = 2 * v + 2;
    x->a.adjacent = v % 2;
    x->a.in[0] = floats(x, n, x->a.n_heads * (2 * v + 6));
    x->a.in[1] = ints_below(x, n, 5000);
    x->a.in[2] = blank(x, QUANT_F64, 1, 1, v + 1);
    for (int i = 0; i <= v; i++)
        ((double *)x->a.in[2].data)[i] = pow(10000, -i / (v + 1.0));
    x->a.out = output(x, n, x->a.in[0].n_cols);
    x->row_inputs = 1;
    x->col_inputs = 2;
}

static const int32_t cache_types[] = {QUANT_F32, QUANT_F16, QUANT_Q8_0};

static void make_store(struct fixture *x, int n, int v)
{
    x->a.in[0] = floats(x, n, 32 * (v + 1));
    x->a.in[1] = ints_below(x, n, 3);
    x->a.in[2] = counting(x, n, 2);
    x->a.out = result(x, random_tensor(x, cache_types[v % 3], 3, n + 4, 32 * (v + 1)));
    x->row_inputs = 1;
    x->col_inputs = 6;
}

static void make_attention(struct fixture *x, int n, int v)
{
    int head_dim = 32 * (v % 4 + 1), n_ctx = 40 * v + n + 1;
    x->a.n_kv_heads = v % 3 + 1;
    x->a.n_heads = x->a.n_kv_heads * (v % 2 + 1);
    x->a.scale = 1 / sqrt(head_dim);
    x->a.n_split = v % 5;
    x->a.n_pairs = (int64_t)n * n_ctx;
    x->a.in[0] = floats(x, n, x->a.n_heads * head_dim);
    x->a.in[1] = random_tensor(x, cache_types[v % 3], 2, n_ctx, x->a.n_kv_heads * head_dim);
    x->a.in[2] = random_tensor(x, cache_types[v % 3], 2, n_ctx, x->a.n_kv_heads * head_dim);
    x->a.in[3] = ints_below(x, n, 2);
    x->a.in[4] = counting(x, n, n_ctx - n);
    x->a.out = output(x, n, x->a.n_heads * head_dim);
    x->row_inputs = 1;
    x->col_inputs = 24;
}

static void make_conv(struct fixture *x, int n, int v)
{
    int channels = 17 * v + 3, width = v % 4 + 2;
    x->a.in[0] = floats(x, n, channels);
    x->a.in[1] = floats(x, channels, width);
    x->a.in[2] = result(x, random_tensor(x, QUANT_F32, 2, width - 1, channels));
    x->a.in[3] = ints_below(x, n, 2);
    x->a.out = output(x, n, channels);
    x->row_inputs = 1;
    x->col_inputs = 8;
}

static void make_delta_gates(struct fixture *x, int n, int v)
{
    x->a.in[0] = floats(x, n, v + 1);
    x->a.in[1] = floats(x, n, v + 1);
    x->a.in[2] = floats(x, 1, v + 1);
    x->a.in[3] = floats(x, 1, v + 1);
    for (int i = 0; i <= v; i++)
        ((float *)x->a.in[3].data)[i] = -fabsf(((float *)x->a.in[3].data)[i]);
    x->a.out = output(x, n, v + 1);
    x->a.out2 = output(x, n, v + 1);
    x->row_inputs = 3;
}

static void make_delta_net(struct fixture *x, int n, int v)
{
    int key_dim = 8 * v + 4, value_dim = 6 * v + 2;
    x->a.n_kv_heads = v % 2 + 1;
    x->a.n_heads = x->a.n_kv_heads * (v % 3 + 1);
    x->a.in[0] = floats(x, n, x->a.n_kv_heads * key_dim);
    x->a.in[1] = floats(x, n, x->a.n_kv_heads * key_dim);
    for (int i = 0; i < n * x->a.n_kv_heads * key_dim; i++)
        ((float *)x->a.in[1].data)[i] /= sqrtf((float)key_dim); /* keys are normed in a model */
    x->a.in[2] = floats(x, n, x->a.n_heads * value_dim);
    x->a.in[3] = floats(x, n, x->a.n_heads);
    x->a.in[4] = floats(x, n, x->a.n_heads);
    for (int i = 0; i < n * x->a.n_heads; i++) {
        ((float *)x->a.in[3].data)[i] = (float)uniform();
        ((float *)x->a.in[4].data)[i] = (float)uniform();
    }
    x->a.in[5] = result(x, random_tensor(x, QUANT_F32, 2, x->a.n_heads * value_dim, key_dim));
    x->a.in[6] = ints_below(x, n, 2);
    x->a.out = output(x, n, x->a.n_heads * value_dim);
    x->row_inputs = 31;
    x->col_inputs = 64;
}

static void (*const makers[N_OPS])(struct fixture *x, int n, int v) = {
    [OP_ROWS] = make_rows,
    [OP_RMS_NORM] = make_norm,
    [OP_L2_NORM] = make_norm,
    [OP_MATMUL_MM] = make_matmul,
    [OP_MATMUL_MV] = make_matmul,
    [OP_ADD] = make_pair,
    [OP_SWIGLU] = make_pair,
    [OP_GATE] = make_pair,
    [OP_ROPE] = make_rope,
    [OP_STORE] = make_store,
    [OP_ATTENTION_MM] = make_attention,
    [OP_ATTENTION_MV] = make_attention,
    [OP_CONV] = make_conv,
    [OP_DELTA_GATES] = make_delta_gates,
    [OP_DELTA_NET] = make_delta_net,
};

static struct fixture make(enum op op, int n, int v)
{
    struct fixture x = {0};
    seed = (uint64_t)op * 1000 + (uint64_t)v;
    makers[op](&x, n, v);
    x.scratch = buffer(&x, ops[op].scratch_bytes(&x.a));
    x.a.scratch = x.scratch;
    return x;
}

static void unmake(struct fixture *x)
{
    for (int i = 0; i < x->n_buffers; i++)
        free(x->buffers[i].base);
}

static int n_rows(const struct fixture *x)
{
    return x->row_inputs & 1 ? x->a.in[0].n_rows : x->a.out.n_rows;
}

/* Run rows first ... first+n-1 only. */
static void run_part(enum op op, enum op_form form, const struct fixture *x, int first, int n)
{
    struct op_args a = x->a;
    bool out_has_rows = op != OP_STORE;
    a.form = form;
    for (int i = 0; i < OP_MAX_INPUTS; i++) {
        if (x->row_inputs >> i & 1) {
            a.in[i].data = tensor_row(&x->a.in[i], 0, first);
            a.in[i].n_rows = n;
        }
        if (x->col_inputs >> i & 1) {
            a.in[i].data = (int32_t *)x->a.in[i].data + first;
            a.in[i].n_cols = n;
        }
    }
    struct tensor *outs[] = {&a.out, &a.out2};
    for (int i = 0; i < 2 && out_has_rows; i++)
        if (outs[i]->data) {
            outs[i]->data = tensor_row(outs[i], 0, first);
            outs[i]->n_rows = n;
        }
    ops[op].fn[form](&a);
}

/* The results as floats; owned. */
static float *values(const struct fixture *x, size_t *out_n)
{
    size_t n = 0;
    for (int i = 0; i < x->n_results; i++)
        n += (size_t)x->results[i].n_mats * (size_t)x->results[i].n_rows *
             (size_t)x->results[i].n_cols;
    float *out = malloc(n * sizeof *out);
    n = 0;
    for (int i = 0; i < x->n_results; i++) {
        const struct tensor *t = &x->results[i];
        for (int m = 0; m < t->n_mats; m++)
            for (int r = 0; r < t->n_rows; r++, n += (size_t)t->n_cols)
                quant_find((uint32_t)t->type)->to_float(tensor_row(t, m, r), out + n, t->n_cols);
    }
    *out_n = n;
    return out;
}

/* Root of the mean squared difference over that of the reference; infinite for NaN. */
static double relative_error(const float *got, const float *want, size_t n)
{
    double d2 = 0, w2 = 1e-30;
    for (size_t i = 0; i < n; i++) {
        d2 += pow((double)got[i] - want[i], 2);
        w2 += pow(want[i], 2);
    }
    return isnan(d2) ? INFINITY : sqrt(d2 / w2);
}

/* Float forms: some dozens of roundings of 6e-8, growing as the root of their number. 8 bits: a
 * block's largest magnitude is about 2.5 sigma, so the rounding step's error is 2.5/127/sqrt(12)
 * = 0.6 % per element and at most that in a dot product. */
static double tolerance(enum op op, enum op_form form, const struct fixture *x)
{
    bool is_matmul = op == OP_MATMUL_MM || op == OP_MATMUL_MV;
    return form == FORM_FAST && is_matmul && x->a.in[1].type == QUANT_Q8_0 ? 0.012 : 3e-6;
}

struct tally {
    double worst; /* error over tolerance */
    int n_wrong, n_guards, n_threads, n_parts;
};

static void check_variant(enum op op, enum op_form form, int n, int v, struct tally *tally)
{
    struct fixture ref = make(op, n, v), x = make(op, n, v), y = make(op, n, v), z = make(op, n, v);
    size_t size;
    run_part(op, FORM_F64, &ref, 0, n_rows(&ref));
    run_part(op, form, &x, 0, n_rows(&x));
    float *want = values(&ref, &size), *got = values(&x, &size);
    double error = relative_error(got, want, size) / tolerance(op, form, &x);
    tally->worst = error > tally->worst ? error : tally->worst;
    tally->n_wrong += !(error <= 1);
    tally->n_guards += !guards_hold(&x);

#ifdef _OPENMP
    int n_threads = omp_get_max_threads();
    omp_set_num_threads(n_threads == 3 ? 2 : 3);
#endif
    run_part(op, form, &y, 0, n_rows(&y));
#ifdef _OPENMP
    omp_set_num_threads(n_threads);
#endif
    float *threaded = values(&y, &size);
    tally->n_threads += memcmp(got, threaded, size * sizeof *got) != 0;

    int cut = n_rows(&z) / 3;
    if (cut)
        run_part(op, form, &z, 0, cut);
    run_part(op, form, &z, cut, n_rows(&z) - cut);
    float *parts = values(&z, &size);
    tally->n_parts += memcmp(got, parts, size * sizeof *got) != 0;
    free(want), free(got), free(threaded), free(parts);
    unmake(&ref), unmake(&x), unmake(&y), unmake(&z);
}

static void check_form(enum op op, enum op_form form, const char *form_name)
{
    static const int counts[] = {1, 5, 38};
    struct tally tally = {0};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int v = 0; v < N_VARIANTS; v++)
            check_variant(op, form, counts[i], v, &tally);
    const char *name = ops[op].name;
    ok(tally.n_wrong == 0, "%s, %s: agrees with float64", name, form_name);
    diag("largest error %.2g of the tolerance", tally.worst);
    ok(tally.n_guards == 0, "%s, %s: writes inside its outputs", name, form_name);
    ok(tally.n_threads == 0, "%s, %s: bit-equal with other threads", name, form_name);
    if (ops[op].invariance == ROW_INVARIANT)
        ok(tally.n_parts == 0, "%s, %s: bit-equal however its rows are cut", name, form_name);
    else
        ok(tally.n_parts > 0, "%s, %s: depends on the cut, as declared", name, form_name);
}

/* An infinity or NaN must reach the output, also through 8 bits. */
static void check_not_finite(enum op op, const char *form_name)
{
    float bad[] = {NAN, INFINITY, -INFINITY};
    for (int i = 0; i < 3; i++) {
        struct fixture x = make(op, 3, 7); /* variant 7: Q8_0 */
        ((float *)x.a.in[0].data)[5] = bad[i];
        run_part(op, FORM_FAST, &x, 0, 3);
        const float *row = x.a.out.data;
        int n_lost = 0, n_spread = 0;
        for (int c = 0; c < x.a.out.n_cols; c++) {
            n_lost += isfinite(row[c]) != 0;
            n_spread += !isfinite(row[x.a.out.n_cols + c]);
        }
        ok(n_lost == 0 && n_spread == 0, "%s, %s: %g reaches its row and no other", ops[op].name,
           form_name, (double)bad[i]);
        unmake(&x);
    }
}

int main(void)
{
    static const char *const isas[] = {"portable", "avx2", "avx512-vnni"};
    kernels_always_thread();
    for (int op = 0; op < N_OPS; op++) {
        if (!ok(makers[op] != NULL, "%s has a test", ops[op].name))
            continue;
        check_form((enum op)op, FORM_F32, "float");
        for (int i = 0; i < 3; i++) {
            if (!kernels_set_isa(isas[i])) {
                skip(ops[op].name, "this machine has no %s", isas[i]);
                continue;
            }
            check_form((enum op)op, FORM_FAST, isas[i]);
            if (op == OP_MATMUL_MM || op == OP_MATMUL_MV)
                check_not_finite((enum op)op, isas[i]);
        }
    }
    return tap_done();
}
