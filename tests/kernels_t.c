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

enum { MAX_BUFFERS = 16, GUARD = 64 };

/* One call and everything it touches, each buffer between two guards. */
struct fixture {
    struct op_args a;
    int n;               /* rows, usually tokens; a tensor may have several for each */
    unsigned row_inputs; /* bit i: in[i] has rows for each of them */
    unsigned col_inputs; /* bit i: in[i] is ints, a column for each of them */
    int n_results;
    struct tensor results[4]; /* what the call writes */
    int n_buffers;
    struct {
        char *base;  /* guard, size bytes, guard */
        char *saved; /* (size) */
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

/* A row of random blocks of a type that is never written, with scales about 0.01. */
static void random_blocks(const struct quant_info *q, int type, char *row, int cols)
{
    static const struct {
        int type, at[2]; /* bytes of the block where an f16 scale stands; -1 = none */
    } scales[] = {
        {QUANT_Q4_0, {0, -1}}, {QUANT_Q4_K, {0, 2}}, {QUANT_Q5_K, {0, 2}}, {QUANT_Q6_K, {208, -1}}};
    for (int i = 0; i < cols / q->block_elems; i++, row += q->block_bytes) {
        for (int j = 0; j < q->block_bytes; j++)
            row[j] = (char)(uniform() * 256);
        for (size_t k = 0; k < sizeof scales / sizeof scales[0]; k++)
            for (int j = 0; scales[k].type == type && j < 2; j++) {
                float d = (float)(0.01 + 0.01 * uniform());
                if (scales[k].at[j] >= 0)
                    quant_find(QUANT_F16)->from_float(&d, row + scales[k].at[j], 1);
            }
    }
}

/* Random values in a type; a type that is never written is filled with plausible blocks. */
static struct tensor random_tensor(struct fixture *x, int type, int mats, int rows, int cols)
{
    struct tensor t = blank(x, type, mats, rows, cols);
    const struct quant_info *q = quant_find((uint32_t)type);
    float *row = malloc((size_t)cols * sizeof *row);
    for (int r = 0; r < mats * rows; r++) {
        char *to = tensor_row(&t, r / rows, r % rows);
        for (int c = 0; c < cols; c++)
            row[c] = normal();
        if (q->from_float)
            q->from_float(row, to, cols);
        else
            random_blocks(q, type, to, cols);
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

static void make_router(struct fixture *x, int n, int v)
{
    x->a.normalise = v % 2;
    x->a.in[0] = floats(x, n, 4 * v + 4);
    x->a.out = output(x, n, v % 4 + 1);
    x->a.out2 = result(x, blank(x, QUANT_I32, 1, n, v % 4 + 1));
    x->row_inputs = 1;
}

static void make_experts(struct fixture *x, int n, int v)
{
    int n_experts = v + 2, n_used = v % 2 + 1, per_x = v % 4 < 2 ? 1 : n_used;
    int32_t type = matrix_types[v % 4];
    int cols = type == QUANT_Q8_0 ? 32 * (v + 1) : 17 * v + 1;
    x->a.in[0] = floats(x, n * (n_used / per_x), cols);
    x->a.in[1] = random_tensor(x, type, n_experts, 7 * v + 1, cols);
    x->a.in[2] = ints_below(x, n * n_used, n_experts);
    x->a.in[2] = tensor_packed(x->a.in[2].data, QUANT_I32, 1, n, n_used);
    x->a.out = output(x, n * n_used, 7 * v + 1);
    x->row_inputs = 5;
}

static void make_mix(struct fixture *x, int n, int v)
{
    x->a.in[0] = floats(x, n * (v % 4 + 1), 9 * v + 1);
    x->a.in[1] = floats(x, n, v % 4 + 1);
    x->a.out = output(x, n, 9 * v + 1);
    x->row_inputs = 3;
}

static void make_project(struct fixture *x, int n, int v)
{
    struct tensor *outs[] = {&x->a.out, &x->a.out2, &x->a.out3, &x->a.out4};
    int cols = 32 * (3 * v + 1);
    x->a.in[0] = floats(x, n, cols);
    for (int i = 0; i <= v % 4; i++) {
        x->a.in[1 + i] = random_tensor(x, matrix_types[(v + i) % 4], 1, 7 * v + i + 1, cols);
        *outs[i] = output(x, n, 7 * v + i + 1);
    }
    x->a.two_groups = v > 7;
    x->row_inputs = 1;
}

static void make_glu(struct fixture *x, int n, int v)
{
    int32_t type = matrix_types[v % 4];
    int cols = 32 * (v + 1);
    x->a.in[0] = floats(x, n, cols);
    x->a.in[1] = random_tensor(x, type, 1, 7 * v + 1, cols);
    x->a.in[2] = random_tensor(x, type, 1, 7 * v + 1, cols);
    x->a.out = output(x, n, 7 * v + 1);
    x->a.two_groups = v > 7;
    x->row_inputs = 1;
}

/* Half of them add to what out holds. */
static void make_add_matmul(struct fixture *x, int n, int v)
{
    make_matmul(x, n, v);
    x->a.in[2] = floats(x, n, x->a.out.n_cols);
    x->row_inputs = 5;
    if (v / 2 % 2 == 0)
        return;
    x->a.out = x->results[0] = x->a.in[2];
}

static void make_heads(struct fixture *x, int n, int v)
{
    int dim = 32 * (v % 3 + 1), kv = v % 2 + 1, group = v % 3 + 1, part = v % 4 / 2 + 1;
    x->a.n_kv_heads = kv;
    x->a.n_heads = kv * group;
    x->a.n_rot = dim / (v % 2 + 1);
    x->a.adjacent = v % 5 == 0;
    x->a.eps = 1e-6;
    x->a.in[0] = floats(x, n * kv * group, dim * part); /* queries, maybe gates between them */
    x->a.in[0].n_cols = dim;
    x->a.in[1] = floats(x, n, kv * dim);
    x->a.in[2] = floats(x, n, kv * dim);
    if (v % 4) {
        x->a.in[3] = floats(x, 1, dim);
        x->a.in[4] = floats(x, 1, dim);
    }
    x->a.in[5] = ints_below(x, n, 3);
    x->a.in[6] = counting(x, n, 2);
    x->a.in[7] = blank(x, QUANT_F64, 1, 1, x->a.n_rot / 2);
    for (int i = 0; i < x->a.n_rot / 2; i++)
        ((double *)x->a.in[7].data)[i] = pow(10000, -2.0 * i / x->a.n_rot);
    x->a.out = output(x, n, x->a.n_heads * dim);
    x->a.out2 = result(x, random_tensor(x, cache_types[v % 3], 3, n + 4, kv * dim));
    x->a.out3 = result(x, random_tensor(x, cache_types[v % 3], 3, n + 4, kv * dim));
    x->row_inputs = 7;
    x->col_inputs = 96;
}

static void make_delta_heads(struct fixture *x, int n, int v)
{
    int key_dim = 8 * v + 4, keys = v % 2 + 1, values = keys * (v % 3 + 1);
    x->a.n_kv_heads = keys;
    x->a.key_width = keys * key_dim;
    x->a.scale = 0.25;
    x->a.eps = 1e-6;
    int channels = 2 * keys * key_dim + values * (6 * v + 2), width = v % 4 + 2;
    x->a.in[0] = floats(x, n, channels);
    x->a.in[1] = floats(x, channels, width);
    x->a.in[2] = result(x, random_tensor(x, QUANT_F32, 2, width - 1, channels));
    x->a.in[3] = ints_below(x, n, 2);
    for (int i = 4; i < 8; i++)
        x->a.in[i] = floats(x, i < 6 ? n : 1, values);
    for (int i = 0; i < values; i++)
        ((float *)x->a.in[7].data)[i] = -fabsf(((float *)x->a.in[7].data)[i]);
    x->a.out = output(x, n, channels);
    x->a.out2 = output(x, n, values);
    x->a.out3 = output(x, n, values);
    x->row_inputs = 49;
    x->col_inputs = 8;
}

static void make_gated_norm(struct fixture *x, int n, int v)
{
    make_norm(x, n, v);
    x->a.in[2] = floats(x, n, x->a.out.n_cols);
    x->row_inputs = 5;
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
    [OP_ROUTER] = make_router,
    [OP_EXPERTS_MM] = make_experts,
    [OP_EXPERTS_MV] = make_experts,
    [OP_MIX] = make_mix,
    [OP_PROJECT_MV] = make_project,
    [OP_GLU_MV] = make_glu,
    [OP_ADD_MATMUL_MM] = make_add_matmul,
    [OP_ADD_MATMUL_MV] = make_add_matmul,
    [OP_HEADS] = make_heads,
    [OP_DELTA_HEADS] = make_delta_heads,
    [OP_GATED_NORM] = make_gated_norm,
};

static struct fixture make(enum op op, int n, int v)
{
    struct fixture x = {.n = n};
    seed = (uint64_t)op * 1000 + (uint64_t)v;
    makers[op](&x, n, v);
    x.scratch = buffer(&x, ops[op].scratch_bytes(&x.a));
    x.a.scratch = x.scratch;
    return x;
}

static void unmake(struct fixture *x)
{
    for (int i = 0; i < x->n_buffers; i++)
        free(x->buffers[i].base), free(x->buffers[i].saved);
}

/* Rows first ... first+n-1 of all only. */
static void rows_cut(struct tensor *t, const struct fixture *x, int first, int n)
{
    int each = t->n_rows / x->n;
    t->data = tensor_row(t, 0, first * each);
    t->n_rows = n * each;
}

static void run_part(enum op op, enum op_form form, const struct fixture *x, int first, int n)
{
    struct op_args a = x->a;
    a.form = form;
    for (int i = 0; i < OP_MAX_INPUTS; i++) {
        if (x->row_inputs >> i & 1)
            rows_cut(&a.in[i], x, first, n);
        if (x->col_inputs >> i & 1) {
            a.in[i].data = (int32_t *)x->a.in[i].data + first;
            a.in[i].n_cols = n;
        }
    }
    struct tensor *outs[] = {&a.out, &a.out2, &a.out3, &a.out4};
    for (int i = 0; i < 4; i++) {
        bool is_cache = op == OP_STORE || (op == OP_HEADS && i > 0);
        if (outs[i]->data && !is_cache)
            rows_cut(outs[i], x, first, n);
    }
    ops[op].fn[form](&a);
}

static void row_values(int32_t type, const void *row, float *out, int n)
{
    if (type != QUANT_I32)
        quant_find((uint32_t)type)->to_float(row, out, n);
    for (int i = 0; type == QUANT_I32 && i < n; i++)
        out[i] = (float)((const int32_t *)row)[i];
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
                row_values(t->type, tensor_row(t, m, r), out + n, t->n_cols);
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

/* Matrices are in[1] and on. */
static bool is_product(enum op op)
{
    return op == OP_MATMUL_MM || op == OP_MATMUL_MV || op == OP_EXPERTS_MM || op == OP_EXPERTS_MV ||
           op == OP_PROJECT_MV || op == OP_GLU_MV || op == OP_ADD_MATMUL_MM ||
           op == OP_ADD_MATMUL_MV;
}

/* Float forms: some dozens of roundings of 6e-8, growing as the root of their number. 8 bits: a
 * block's largest magnitude is about 2.5 sigma, so the rounding step's error is 2.5/127/sqrt(12)
 * = 0.6 % per element and at most that in a dot product. */
static double tolerance(enum op op, enum op_form form, const struct fixture *x)
{
    bool has_8_bits = false;
    for (int i = 1; is_product(op) && i < OP_MAX_INPUTS; i++)
        has_8_bits |= x->a.in[i].data && x->a.in[i].type == QUANT_Q8_0;
    double each = form == FORM_FAST && has_8_bits ? 0.012 : 3e-6;
    return op == OP_GLU_MV ? 3 * each : each; /* of two such products, one through silu */
}

/* The forms under test: the float reference, and the fast one in each instruction set. */
static const struct form {
    const char *name;
    enum op_form form;
    bool has_isa;
} forms[] = {
    {"float", FORM_F32, false},
    {"portable", FORM_FAST, true},
    {"avx2", FORM_FAST, true},
    {"avx512-vnni", FORM_FAST, true},
};
enum { N_TESTED = sizeof forms / sizeof forms[0] };

struct tally {
    bool is_here;
    double worst; /* error over tolerance */
    int n_wrong, n_guards, n_threads, n_parts;
};

/* What every buffer held before the first run. */
static void buffers_save(struct fixture *x)
{
    for (int i = 0; i < x->n_buffers; i++) {
        x->buffers[i].saved = malloc(x->buffers[i].size);
        memcpy(x->buffers[i].saved, x->buffers[i].base + GUARD, x->buffers[i].size);
    }
}

/* Run rows first ... first+n-1 and the rest; the results, owned; everything as it was before. */
static float *results_of(enum op op, enum op_form form, struct fixture *x, int cut, size_t *size)
{
    if (cut)
        run_part(op, form, x, 0, cut);
    run_part(op, form, x, cut, x->n - cut);
    float *out = values(x, size);
    for (int i = 0; i < x->n_buffers; i++)
        memcpy(x->buffers[i].base + GUARD, x->buffers[i].saved, x->buffers[i].size);
    return out;
}

static int set_threads(int n)
{
#ifdef _OPENMP
    int before = omp_get_max_threads();
    omp_set_num_threads(n);
    return before;
#else
    return n;
#endif
}

static void check_form(enum op op, enum op_form form, struct fixture *x, const float *want,
                       struct tally *tally)
{
    size_t size;
    float *got = results_of(op, form, x, 0, &size);
    double error = relative_error(got, want, size) / tolerance(op, form, x);
    tally->worst = error > tally->worst ? error : tally->worst;
    tally->n_wrong += !(error <= 1);
    tally->n_guards += !guards_hold(x);

    int before = set_threads(3);
    float *threaded = results_of(op, form, x, 0, &size);
    set_threads(before);
    tally->n_threads += memcmp(got, threaded, size * sizeof *got) != 0;

    float *parts = results_of(op, form, x, x->n / 3, &size);
    tally->n_parts += memcmp(got, parts, size * sizeof *got) != 0;
    free(got), free(threaded), free(parts);
}

static void check_variant(enum op op, int n, int v, struct tally tallies[N_TESTED])
{
    struct fixture x = make(op, n, v);
    size_t size;
    buffers_save(&x);
    float *want = results_of(op, FORM_F64, &x, 0, &size);
    for (int i = 0; i < N_TESTED; i++) {
        tallies[i].is_here = !forms[i].has_isa || kernels_set_isa(forms[i].name);
        if (tallies[i].is_here)
            check_form(op, forms[i].form, &x, want, &tallies[i]);
    }
    free(want);
    unmake(&x);
}

static void report(enum op op, const char *form, const struct tally *t)
{
    const char *name = ops[op].name;
    if (!t->is_here) {
        skip(name, "this machine has no %s", form);
        return;
    }
    ok(t->n_wrong == 0, "%s, %s: agrees with float64", name, form);
    diag("largest error %.2g of the tolerance", t->worst);
    ok(t->n_guards == 0, "%s, %s: writes inside its outputs", name, form);
    ok(t->n_threads == 0, "%s, %s: bit-equal with three threads", name, form);
    if (ops[op].invariance == ROW_INVARIANT)
        ok(t->n_parts == 0, "%s, %s: bit-equal however its rows are cut", name, form);
    else
        ok(t->n_parts > 0, "%s, %s: depends on the cut, as declared", name, form);
}

static void check_op(enum op op)
{
    static const int counts[] = {1, 5, 38};
    struct tally tallies[N_TESTED] = {0};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (int v = 0; v < N_VARIANTS; v++)
            check_variant(op, counts[i], v, tallies);
    for (int i = 0; i < N_TESTED; i++)
        report(op, forms[i].name, &tallies[i]);
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

#ifdef HAVE_CUDA
#include "tests/kernels_cuda.h"
#else
static void check_cuda(const char *only)
{
    (void)only;
    skip("the CUDA forms", "configured without the CUDA Toolkit");
}
#endif

/* `kernels_t cuda [OPERATOR]` tests only the CUDA forms, as a sanitizer wants it. */
int main(int argc, char **argv)
{
    bool only_cuda = argc > 1 && !strcmp(argv[1], "cuda");
    set_threads(1);
    kernels_always_thread();
    for (int op = 0; op < N_OPS && !only_cuda; op++) {
        if (!ok(makers[op] != NULL, "%s has a test", ops[op].name))
            continue;
        check_op((enum op)op);
        for (int i = 0; i < N_TESTED; i++)
            if ((op == OP_MATMUL_MM || op == OP_MATMUL_MV) && forms[i].has_isa &&
                kernels_set_isa(forms[i].name))
                check_not_finite((enum op)op, forms[i].name);
    }
    check_cuda(argc > 2 ? argv[2] : NULL);
    return tap_done();
}
