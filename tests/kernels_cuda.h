/* The CUDA forms under the fixtures of kernels_t.c, which includes this: every buffer of a call is
 * copied to the device, the call made there, and every buffer copied back. */
#include <cuda_runtime_api.h>

#include "kernels/cuda.h"
#include "kernels/cuda_blas.h"

/* Where a fixture's buffers, and its weights in the operators' order, stand on the device. */
struct mirror {
    const struct fixture *x;
    char *buffers[MAX_BUFFERS];
    void *placed[OP_MAX_INPUTS];
};

static struct cuda_call cuda_call;
static struct cuda_rounded rounded;

static bool has_overlap(void)
{
    int major = 0;
    cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0);
    return major >= 9;
}

static bool cuda_start(void)
{
    int n = 0;
    cudaStream_t stream;
    if (cudaGetDeviceCount(&n) || n == 0 || cudaStreamCreate(&stream))
        return false;
    cuda_call.stream = stream;
    cuda_call.sm_count = 16;
    cuda_call.overlap = has_overlap();
    cuda_call.rounded = &rounded;
    cuda_call.blas = cuda_blas_open();
    return cuda_call.blas && !cudaMalloc(&cuda_call.workspace, CUDA_WORKSPACE_BYTES);
}

static size_t buffer_bytes(const struct fixture *x, int i)
{
    return x->buffers[i].size + 2 * GUARD;
}

static void *on_device(const struct mirror *m, const void *p)
{
    for (int i = 0; i < m->x->n_buffers; i++) {
        const char *base = m->x->buffers[i].base;
        if ((const char *)p >= base && (const char *)p < base + buffer_bytes(m->x, i))
            return m->buffers[i] + ((const char *)p - base);
    }
    return NULL;
}

/* Is in[i] a weight, which stands on the device in the operators' order? */
static bool is_weight(enum op op, const struct op_args *a, int i)
{
    bool is_add = op == OP_ADD_MATMUL_MM || op == OP_ADD_MATMUL_MV;
    bool is_experts = op == OP_EXPERTS_MM || op == OP_EXPERTS_MV;
    if (!a->in[i].data)
        return false;
    return op == OP_ROWS ? i == 0 : is_product(op) && i > 0 && !((is_add || is_experts) && i == 2);
}

/* Make the call on the device; returns its error. */
static int run_cuda(enum op op, enum op_form form, struct fixture *x)
{
    struct mirror m = {.x = x};
    struct op_args a = x->a;
    a.form = form;
    for (int i = 0; i < x->n_buffers; i++) {
        cudaMalloc((void **)&m.buffers[i], buffer_bytes(x, i));
        cudaMemcpy(m.buffers[i], x->buffers[i].base, buffer_bytes(x, i), cudaMemcpyHostToDevice);
    }
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        a.in[i].data = on_device(&m, x->a.in[i].data);
    a.out.data = on_device(&m, x->a.out.data);
    a.out2.data = on_device(&m, x->a.out2.data);
    a.out3.data = on_device(&m, x->a.out3.data);
    a.out4.data = on_device(&m, x->a.out4.data);
    a.scratch = on_device(&m, x->a.scratch);
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        if (is_weight(op, &x->a, i)) {
            cudaMalloc(&m.placed[i], (size_t)(a.in[i].mat_bytes * a.in[i].n_mats));
            cuda_place(&x->a.in[i], a.in[i].data, m.placed[i], &cuda_call);
            a.in[i].data = m.placed[i];
        }
    cudaMemset(cuda_call.workspace, 0xff, 1 << 20); /* NaN, so that a hole shows */
    rounded.x.data = NULL;
    int rc = cuda_ops[op](&a, &cuda_call);
    rc = rc ? rc : (int)cudaStreamSynchronize(cuda_call.stream);
    for (int i = 0; i < x->n_buffers; i++) {
        cudaMemcpy(x->buffers[i].base, m.buffers[i], buffer_bytes(x, i), cudaMemcpyDeviceToHost);
        cudaFree(m.buffers[i]);
    }
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        cudaFree(m.placed[i]);
    return rc;
}

/* bf16 keeps 8 bits of weights and activations: 2^-9 / sqrt(3) each. Half precision keeps 11 of
 * queries and softmax weights. */
static double cuda_tolerance(enum op op, enum op_form form, const struct fixture *x)
{
    bool is_attention = op == OP_ATTENTION_MM || op == OP_ATTENTION_MV;
    if (form == FORM_F64)
        return 3e-7;
    if (op == OP_HEADS && x->a.out2.type != QUANT_F32)
        return 5e-4; /* a value halfway between two of the cache's may go to either */
    if (form == FORM_F32)
        return 5e-6;
    if (is_attention)
        return x->a.in[1].type == QUANT_F32 ? 5e-6 : 0.002;
    if (!is_product(op))
        return 5e-6;
    if (op == OP_MATMUL_MM || op == OP_ADD_MATMUL_MM)
        return 0.004;
    return op == OP_GLU_MV ? 0.036 : 0.012;
}

static const int32_t cuda_types[] = {QUANT_F16,  QUANT_BF16, QUANT_Q8_0, QUANT_Q4_0,
                                     QUANT_Q4_K, QUANT_Q5_K, QUANT_Q6_K};

/* Products in shapes that the tensor cores and the vector loads take. */
static void make_aligned_product(struct fixture *x, enum op op, int n, int v)
{
    struct tensor *outs[] = {&x->a.out, &x->a.out2, &x->a.out3, &x->a.out4};
    bool is_add = op == OP_ADD_MATMUL_MM || op == OP_ADD_MATMUL_MV;
    int n_matrices = op == OP_PROJECT_MV ? v % 3 + 2 : op == OP_GLU_MV ? 2 : 1;
    bool is_whole = v % 4 == 3; /* of the steps that pairs of rows are read in */
    int cols = is_whole ? 512 * (v + 1) : 256 * (v + 1);
    x->a.in[0] = floats(x, n, cols);
    for (int i = 0; i < n_matrices; i++) {
        int32_t type = cuda_types[(v / 2 + n + (op == OP_PROJECT_MV ? i / 2 : 0)) % 7];
        type = is_whole && v != 7 ? QUANT_Q8_0 : type;
        int rows = is_whole ? 32 * (v + 1) : 8 * (v + 3 + (op == OP_PROJECT_MV ? i : 0));
        x->a.in[1 + i] = random_tensor(x, type, 1, rows, cols);
        if (i == 0 || op == OP_PROJECT_MV)
            *outs[i] = output(x, n, rows);
    }
    if (is_add) {
        x->a.in[2] = floats(x, n, x->a.out.n_cols);
        x->row_inputs = 5;
        if (v % 4 == 1)
            x->a.out = x->results[0] = x->a.in[2];
    }
    x->row_inputs |= 1;
    x->a.two_groups = v > 5;
}

/* Many keys, wide heads, large groups. */
static void make_long_attention(struct fixture *x, int n, int v)
{
    static const int dims[] = {64, 96, 128, 256};
    int dim = dims[v % 4], n_ctx = 100 * v + n;
    x->a.n_kv_heads = v % 2 + 1;
    x->a.n_heads = x->a.n_kv_heads * (v % 3 + 3);
    x->a.scale = 1 / sqrt(dim);
    x->a.n_split = v % 3 * 3;
    x->a.in[0] = floats(x, n, x->a.n_heads * dim);
    for (int i = 1; i < 3; i++)
        x->a.in[i] = random_tensor(x, cache_types[1 + v / 4 % 2], 2, n_ctx, x->a.n_kv_heads * dim);
    x->a.in[3] = ints_below(x, n, 2);
    x->a.in[4] = counting(x, n, n_ctx - n);
    x->a.out = output(x, n, x->a.n_heads * dim);
}

/* A delta net of the width that prefill has a kernel for. */
static void make_wide_delta_net(struct fixture *x, int n, int v)
{
    int key_dim = v % 4 == 1 ? 64 : 128, value_dim = 32 * (v % 3 + 1);
    make_delta_net(x, n, v);
    for (int i = 0; i < x->n_buffers; i++)
        free(x->buffers[i].base);
    x->n_buffers = x->n_results = 0;
    for (int i = 0; i < 2; i++)
        x->a.in[i] = floats(x, n, x->a.n_kv_heads * key_dim);
    for (int i = 0; i < n * x->a.n_kv_heads * key_dim; i++)
        ((float *)x->a.in[1].data)[i] /= sqrtf((float)key_dim);
    x->a.in[2] = floats(x, n, x->a.n_heads * value_dim);
    for (int i = 3; i < 5; i++) {
        x->a.in[i] = floats(x, n, x->a.n_heads);
        for (int j = 0; j < n * x->a.n_heads; j++)
            ((float *)x->a.in[i].data)[j] = (float)uniform();
    }
    x->a.in[5] = result(x, random_tensor(x, QUANT_F32, 2, x->a.n_heads * value_dim, key_dim));
    x->a.in[6] = ints_below(x, n, 2);
    x->a.out = output(x, n, x->a.n_heads * value_dim);
}

static void make_delta_heads_planes(struct fixture *x, int n)
{
    struct tensor *state = &x->a.in[2];
    *state = random_tensor(x, QUANT_F32, n, state->n_rows, state->n_cols);
    x->results[0] = *state;
}

/* The fixtures of the C forms, but of the two kinds that an engine makes: a prefill is of one
 * sequence, a step of decode has each once. Every other one has a shape that a fast form takes. */
static struct fixture make_cuda(enum op op, int n, int v)
{
    struct fixture x = {.n = n};
    bool is_odd = v % 2 && is_product(op) && op != OP_EXPERTS_MM && op != OP_EXPERTS_MV;
    bool is_long = v > 3 && (op == OP_ATTENTION_MM || op == OP_ATTENTION_MV);
    seed = (uint64_t)op * 1000 + (uint64_t)v;
    x.a.many = v % 2;
    if (is_odd)
        make_aligned_product(&x, op, n, v);
    else if (is_long)
        make_long_attention(&x, n, v);
    else if (op == OP_DELTA_NET && v % 2)
        make_wide_delta_net(&x, n, v);
    else
        makers[op](&x, n, v);
    if (op == OP_DELTA_HEADS && !x.a.many)
        make_delta_heads_planes(&x, n);
    int seqs = op == OP_ATTENTION_MM || op == OP_DELTA_HEADS ? 3 : op == OP_DELTA_NET ? 6 : -1;
    for (int i = 0; seqs >= 0 && i < n; i++)
        if (op == OP_ATTENTION_MM || x.a.many || op == OP_DELTA_HEADS)
            ((int32_t *)x.a.in[seqs].data)[i] = op != OP_ATTENTION_MM && !x.a.many ? i : 0;
    x.scratch = buffer(&x, ops[op].scratch_bytes(&x.a));
    x.a.scratch = x.scratch;
    return x;
}

static void check_cuda_form(enum op op, enum op_form form, const char *form_name)
{
    static const int counts[] = {1, 5, 38, 70, 12, 20}; /* the last ones for products */
    struct tally tally = {0};
    int failed = 0;
    for (size_t i = 0; i < (is_product(op) ? 6 : 4); i++)
        for (int v = 0; v < N_VARIANTS; v++) {
            struct fixture ref = make_cuda(op, counts[i], v), x = make_cuda(op, counts[i], v);
            struct fixture y = make_cuda(op, counts[i], v);
            size_t size;
            run_part(op, FORM_F64, &ref, 0, ref.n);
            int rc = run_cuda(op, form, &x);
            failed = rc ? rc : failed;
            run_cuda(op, form, &y);
            float *want = values(&ref, &size), *got = values(&x, &size), *again = values(&y, &size);
            double error = relative_error(got, want, size) / cuda_tolerance(op, form, &x);
            tally.worst = error > tally.worst ? error : tally.worst;
            tally.n_wrong += !(error <= 1);
            tally.n_guards += !guards_hold(&x);
            tally.n_threads += memcmp(got, again, size * sizeof *got) != 0;
            if (!(error <= 1))
                diag("%d rows, variant %d: %g of the tolerance", counts[i], v, error);
            free(want), free(got), free(again);
            unmake(&ref), unmake(&x), unmake(&y);
        }
    const char *name = ops[op].name;
    ok(tally.n_wrong == 0 && !failed, "%s, cuda, %s: agrees with float64 on the CPU", name,
       form_name);
    diag("largest error %.2g of the tolerance%s%s", tally.worst, failed ? "; " : "",
         failed ? cudaGetErrorString(failed) : "");
    ok(tally.n_guards == 0, "%s, cuda, %s: writes inside its outputs", name, form_name);
    ok(tally.n_threads == 0, "%s, cuda, %s: the same bits again", name, form_name);
}

/* All operators, or one by its name. */
static void check_cuda(const char *only)
{
    if (!cuda_start()) {
        skip("the CUDA forms", "no GPU here");
        return;
    }
    for (int op = 0; op < N_OPS; op++) {
        if (only && strcmp(only, ops[op].name))
            continue;
        check_cuda_form((enum op)op, FORM_F32, "float");
        check_cuda_form((enum op)op, FORM_F64, "double");
        check_cuda_form((enum op)op, FORM_FAST, "fast");
    }
}
