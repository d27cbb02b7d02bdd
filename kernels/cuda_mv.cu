/* Products of few rows: activations in 8 bits, and a warp for each output. Rows of whole steps go
 * through cuda_pairs.cu. A kernel's first weights are on their way while the kernel before it still
 * runs. */
#include "kernels/cuda_formats.cuh"

/* ---- rounding ---- */

/* A thread rounds four elements. */
static __global__ void round_kernel(struct rounded out, struct tensor x)
{
    const int32_t r = blockIdx.x, c = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    next_may_start();
    wait_for_previous();
    if (c < x.n_cols)
        round4(out, (int64_t)r * x.n_cols + c, *(const float4 *)(row_floats(x, r) + c));
}

int cuda_round(struct rounded *out, const struct tensor &x, int kind, const struct cuda_call *call)
{
    const struct cuda_rounded *known = call->rounded;
    if (known->x.data == x.data && known->kind == kind && is_packed(x) &&
        n_elements_of(known->x) == n_elements_of(x)) {
        *out = rounded_at(call, known->slot, kind, n_elements_of(x));
        return 0;
    }
    *out = rounded_new(call, x, kind);
    if (!out->kind)
        return cudaErrorMemoryAllocation;
    if (!is_packed(x))
        call->rounded->x.data = NULL;
    return launch(call, round_kernel, dim3(x.n_rows, blocks_for(x.n_cols, 512)), dim3(128), 0, *out,
                  x);
}

/* ---- kernel ---- */

#define MV_ROWS 8 /* outputs of a block, a warp for each */

/* A row's loads from unit `first` on, one in 32 for each lane; what is past the end is skipped. */
template <class F> struct loads {
    F f[2 * F::STEP];
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int first)
    {
#pragma unroll
        for (int i = 0; i < 2 * F::STEP; i++)
            if (first + i * WARP < m.n_cols / F::UNIT)
                f[i].fetch(m, mat, row, first + i * WARP);
    }
};

/* With two_groups even and odd loads are summed apart. */
template <class F, bool TWO_GROUPS>
static __global__ void __launch_bounds__(WARP *MV_ROWS)
    mv_kernel(const __grid_constant__ struct products p)
{
    int32_t output = blockIdx.y * MV_ROWS + threadIdx.y;
    const int32_t row = blockIdx.x, lane = threadIdx.x;
    const int which = (output >= p.end[0]) + (output >= p.end[1]) + (output >= p.end[2]);
    const struct tensor &m = p.m[which], &out = p.out[which];
    const int n_units = m.n_cols / F::UNIT;
    struct loads<F> w;
    float sum = 0, other = 0;
    next_may_start();
    output -= which ? p.end[which - 1] : 0;
    const bool is_there = output < m.n_rows;
    int32_t mat = 0;
    if (p.choice.ids) { /* which weights is not known before */
        wait_for_previous();
        mat = p.choice.ids[row];
    }
    if (is_there)
        w.fetch(m, mat, output, lane);
    if (!p.choice.ids)
        wait_for_previous();
    if (!is_there)
        return;
    for (int unit = lane; unit < n_units; unit += WARP * 2 * F::STEP) {
        if (unit != lane)
            w.fetch(m, mat, output, unit);
#pragma unroll
        for (int i = 0; i < 2 * F::STEP; i++)
            if (unit + i * WARP < n_units)
                (TWO_GROUPS && i % 2 ? other : sum) +=
                    unit_dot(w.f[i], p, row / p.choice.rows_per_x, 0, unit + i * WARP);
    }
    sum = warp_sum(TWO_GROUPS ? sum + other : sum);
    if (lane == 0)
        row_floats(out, row)[output] = p.sum.data ? row_floats(p.sum, row)[output] + sum : sum;
}

/* ---- launchers ---- */

template <class F, bool TWO_GROUPS>
static int run(const struct products &p, const struct cuda_call *call)
{
    const dim3 grid(p.out[0].n_rows, blocks_for(p.end[3], MV_ROWS));
    return launch(call, mv_kernel<F, TWO_GROUPS>, grid, dim3(WARP, MV_ROWS), 0, p);
}

static int run_typed(const struct op_args *a, const struct products &p,
                     const struct cuda_call *call)
{
    if (cuda_batch_takes(p))
        return cuda_batch(p, false, a->two_groups, call);
    if (cuda_pairs_takes(p, false))
        return cuda_pairs(p, NULL, a->two_groups, call);
    switch (p.m[0].type) {
    case QUANT_Q8_0:
        return a->two_groups ? run<format_q8_0, true>(p, call) : run<format_q8_0, false>(p, call);
    case QUANT_Q4_0:
        return run<format_q4_0, false>(p, call);
    case QUANT_Q4_K:
        return run<format_q4_k, false>(p, call);
    case QUANT_Q5_K:
        return run<format_q5_k, false>(p, call);
    case QUANT_Q6_K:
        return run<format_q6_k, false>(p, call);
    case QUANT_F16:
        return run<format_half<__half>, false>(p, call);
    default:
        return run<format_half<__nv_bfloat16>, false>(p, call);
    }
}

bool cuda_mv_takes(const struct op_args *a, const struct tensor &m)
{
    const int32_t type = m.type;
    const bool is_16 = type == QUANT_F16 || type == QUANT_BF16;
    const bool has_type = is_16 || type == QUANT_Q8_0 || type == QUANT_Q4_0 || type == QUANT_Q4_K ||
                          type == QUANT_Q5_K || type == QUANT_Q6_K;
    return a->form == FORM_FAST && has_type && m.n_cols % 32 == 0 && a->in[0].row_bytes % 16 == 0;
}

/* The activations of a call, for matrices of one type. */
static int products_begin(struct products *p, const struct op_args *a, int32_t type,
                          struct choice choice, const struct cuda_call *call)
{
    *p = {};
    p->x = a->in[0];
    p->choice = choice;
    return type == QUANT_F16 || type == QUANT_BF16
               ? 0
               : cuda_round(&p->rounded, a->in[0], CUDA_INT8, call);
}

static void products_add(struct products *p, int *n, const struct tensor &m,
                         const struct tensor &out)
{
    p->m[*n] = m;
    p->out[*n] = out;
    for (int i = *n; i < 4; i++)
        p->end[i] = (*n ? p->end[*n - 1] : 0) + m.n_rows;
    ++*n;
}

int cuda_mv(const struct op_args *a, struct choice choice, const struct tensor *sum,
            const struct cuda_call *call)
{
    struct products p;
    int n = 0;
    const int rc = products_begin(&p, a, a->in[1].type, choice, call);
    products_add(&p, &n, a->in[1], a->out);
    if (sum)
        p.sum = *sum;
    return rc ? rc : run_typed(a, p, call);
}

/* Neighbours of one type go together. */
int cuda_mv_project(const struct op_args *a, const struct cuda_call *call)
{
    const struct tensor outs[] = {a->out, a->out2, a->out3, a->out4};
    for (int i = 0; i < 4 && a->in[1 + i].data;) {
        struct products p;
        const int32_t type = a->in[1 + i].type;
        int n = 0, rc = products_begin(&p, a, type, {NULL, 1}, call);
        for (; i < 4 && a->in[1 + i].data && a->in[1 + i].type == type; i++)
            products_add(&p, &n, a->in[1 + i], outs[i]);
        if (!rc)
            rc = run_typed(a, p, call);
        if (rc)
            return rc;
    }
    return 0;
}

/* The two products are in m[0] and m[1] of a launch of its own kind. */
int cuda_mv_glu(const struct op_args *a, bool *out_done, const struct cuda_call *call)
{
    struct products p;
    int n = 0;
    const int rc = products_begin(&p, a, a->in[1].type, {NULL, 1}, call);
    products_add(&p, &n, a->in[1], a->out);
    products_add(&p, &n, a->in[2], a->out);
    *out_done = !rc && (cuda_batch_takes(p) || cuda_pairs_takes(p, true));
    if (!*out_done)
        return rc;
    if (cuda_batch_takes(p))
        return cuda_batch(p, true, a->two_groups, call);
    const struct rounded rounded = rounded_new(call, a->out, rounding_of(a, a->out, a->out.n_rows));
    return cuda_pairs(p, &rounded, a->two_groups, call);
}
