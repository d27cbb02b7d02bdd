/* The CUDA forms under the fixtures of kernels_t.c, which includes this: every buffer of a call is
 * copied to the device, the call made there, and every buffer copied back. */
#include <cuda_runtime_api.h>

#include "kernels/cuda.h"
#include "kernels/cuda_blas.h"

/* Where a fixture's buffers, and its weights in the operators' order, stand on the device. */
struct mirror {
    const struct fixture *x;
    char *buffers[MAX_BUFFERS];
    void *placed;
};

static struct cuda_call cuda_call;
static struct tensor rounded;

static bool cuda_start(void)
{
    int n = 0;
    cudaStream_t stream;
    if (cudaGetDeviceCount(&n) || n == 0 || cudaStreamCreate(&stream))
        return false;
    cuda_call.stream = stream;
    cuda_call.workspace_bytes = 256 << 20;
    cuda_call.sm_count = 16;
    cuda_call.rounded = &rounded;
    cuda_call.blas = cuda_blas_open();
    return cuda_call.blas && !cudaMalloc(&cuda_call.workspace, cuda_call.workspace_bytes);
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

static bool is_product(enum op op)
{
    return op == OP_MATMUL_MM || op == OP_MATMUL_MV || op == OP_EXPERTS_MM || op == OP_EXPERTS_MV;
}

/* Make the call on the device; returns its error. */
static int run_cuda(enum op op, enum op_form form, struct fixture *x)
{
    struct mirror m = {.x = x};
    struct op_args a = x->a;
    int weight = op == OP_ROWS ? 0 : is_product(op) ? 1 : -1;
    a.form = form;
    for (int i = 0; i < x->n_buffers; i++) {
        cudaMalloc((void **)&m.buffers[i], buffer_bytes(x, i));
        cudaMemcpy(m.buffers[i], x->buffers[i].base, buffer_bytes(x, i), cudaMemcpyHostToDevice);
    }
    for (int i = 0; i < OP_MAX_INPUTS; i++)
        a.in[i].data = on_device(&m, x->a.in[i].data);
    a.out.data = on_device(&m, x->a.out.data);
    a.out2.data = on_device(&m, x->a.out2.data);
    if (weight >= 0) {
        cudaMalloc(&m.placed, (size_t)(a.in[weight].mat_bytes * a.in[weight].n_mats));
        cuda_place(&x->a.in[weight], a.in[weight].data, m.placed, &cuda_call);
        a.in[weight].data = m.placed;
    }
    cudaMemset(cuda_call.workspace, 0xff, 1 << 20); /* NaN, so that a hole shows */
    rounded.data = NULL;
    int rc = cuda_ops[op](&a, &cuda_call);
    rc = rc ? rc : (int)cudaStreamSynchronize(cuda_call.stream);
    for (int i = 0; i < x->n_buffers; i++) {
        cudaMemcpy(x->buffers[i].base, m.buffers[i], buffer_bytes(x, i), cudaMemcpyDeviceToHost);
        cudaFree(m.buffers[i]);
    }
    cudaFree(m.placed);
    return rc;
}

/* bf16 keeps 8 bits of weights and activations: 2^-9 / sqrt(3) each. */
static double cuda_tolerance(enum op op, enum op_form form, const struct fixture *x)
{
    if (form == FORM_F64)
        return 3e-7;
    if (form == FORM_FAST && is_product(op))
        return op == OP_MATMUL_MM ? 0.004 : tolerance(op, form, x);
    return 5e-6;
}

/* The same fixtures, but: a prefill is of one sequence; and every other product has the aligned
 * shape that the tensor cores and the 8-bit loops take. */
static struct fixture make_cuda(enum op op, int n, int v)
{
    struct fixture x = {.n = n};
    if ((op != OP_MATMUL_MM && op != OP_MATMUL_MV) || v % 2 == 0) {
        x = make(op, n, v);
        for (int i = 0; op == OP_ATTENTION_MM && i < n; i++)
            ((int32_t *)x.a.in[3].data)[i] = 0;
        return x;
    }
    seed = (uint64_t)op * 1000 + (uint64_t)v;
    x.a.in[0] = floats(&x, n, 64 * (v + 5));
    x.a.in[1] = random_tensor(&x, matrix_types[1 + v / 2 % 3], 1, 8 * (v + 3), 64 * (v + 5));
    x.a.out = output(&x, n, 8 * (v + 3));
    x.a.two_groups = v > 7;
    x.row_inputs = 1;
    x.scratch = buffer(&x, ops[op].scratch_bytes(&x.a));
    x.a.scratch = x.scratch;
    return x;
}

static void check_cuda_form(enum op op, enum op_form form, const char *form_name)
{
    static const int counts[] = {1, 5, 38};
    struct tally tally = {0};
    int failed = 0;
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
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

static void check_cuda(void)
{
    if (!cuda_start()) {
        skip("the CUDA forms", "no GPU here");
        return;
    }
    for (int op = 0; op < N_OPS; op++) {
        check_cuda_form((enum op)op, FORM_F32, "float");
        check_cuda_form((enum op)op, FORM_F64, "double");
        check_cuda_form((enum op)op, FORM_FAST, "fast");
    }
}
