/* Products of few rows whose weights come in whole steps: a warp takes two rows of weights at a
 * time, so that it reads the activations once for both, and always has the next step's weights on
 * their way to registers; the first ones while the kernel before still runs. */
#include "kernels/cuda_formats.cuh"

#define WARPS    8
#define RESIDENT 2 /* blocks of a multiprocessor; with one, which leaves room, decode is slower */
#define TOGETHER 8 /* rows of x that share a pass over the weights */
#define GLU_EACH (WARP / WARPS)

/* A step of two rows: STEP loads of each for every lane. */
template <class F> struct step {
    F f[2][F::STEP];
};

/* The work of a warp: its items, a pair of rows each, in order, and the steps of each. */
template <bool GLU> struct cursor {
    int32_t item, at; /* at: the step */

    /* The first of two outputs, or the one of both matrices. */
    __device__ __forceinline__ int32_t output() const
    {
        if (!GLU)
            return ((item * (int32_t)gridDim.x + (int32_t)blockIdx.x) * WARPS +
                    (int32_t)threadIdx.y) *
                   2;
        return (item / GLU_EACH * (int32_t)gridDim.x + (int32_t)blockIdx.x) * WARP +
               (int32_t)threadIdx.y * GLU_EACH + item % GLU_EACH;
    }
    __device__ __forceinline__ void advance(int32_t n_steps)
    {
        if (++at == n_steps) {
            at = 0;
            item++;
        }
    }
};

/* Which of the matrices side by side has an output. */
static __device__ __forceinline__ int matrix_of(const struct products &p, int32_t output)
{
    return (output >= p.end[0]) + (output >= p.end[1]) + (output >= p.end[2]);
}

template <class F, bool GLU>
static __device__ __forceinline__ void step_fetch(struct step<F> &s, const struct products &p,
                                                  int32_t n_outputs, const struct cursor<GLU> &c)
{
    const int32_t output = c.output(), first = c.at * WARP * F::STEP + (int32_t)threadIdx.x;
    if (output >= n_outputs)
        return;
    const int which = GLU ? 0 : matrix_of(p, output);
    const int32_t row = output - (which ? p.end[which - 1] : 0);
#pragma unroll
    for (int r = 0; r < 2; r++)
#pragma unroll
        for (int i = 0; i < F::STEP; i++)
            s.f[r][i].fetch(p.m[GLU ? r : which], 0, GLU ? row : row + r, first + i * WARP);
}

/* With two_groups even and odd loads are summed apart. */
template <class F, int N, bool TWO_GROUPS>
static __device__ __forceinline__ void step_add(float (&sum)[N][2], float (&other)[N][2],
                                                const struct step<F> &s, const struct products &p,
                                                int32_t at, int32_t first, int32_t n_rows)
{
    const int32_t unit = at * WARP * F::STEP + (int32_t)threadIdx.x;
#pragma unroll
    for (int i = 0; i < F::STEP; i++)
#pragma unroll
        for (int t = 0; t < N; t++)
            if (N == 1 || t < n_rows)
#pragma unroll
                for (int r = 0; r < 2; r++)
                    (TWO_GROUPS && i % 2 ? other : sum)[t][r] +=
                        unit_dot(s.f[r][i], p, first + t, 0, unit + i * WARP);
}

/* Where a pair's results go. */
template <int N, bool GLU>
static __device__ __forceinline__ void
pair_store(const float (&total)[N][2], const struct products &p, const struct cursor<GLU> &c,
           float (&hidden)[2][N][WARP], int32_t first, int32_t n_rows)
{
    const int32_t output = c.output();
    const int which = GLU ? 0 : matrix_of(p, output);
    const int32_t column = output - (which ? p.end[which - 1] : 0);
#pragma unroll
    for (int t = 0; t < N; t++) {
        if (GLU) {
            if (threadIdx.x == 0)
                hidden[c.item / GLU_EACH & 1][t][output % WARP] =
                    total[t][0] * real_sigmoid(total[t][0]) * total[t][1];
        } else if (threadIdx.x < 2 && t < n_rows) {
            const float x = threadIdx.x ? total[t][1] : total[t][0];
            const int32_t at = column + threadIdx.x;
            row_floats(p.out[which], first + t)[at] =
                p.sum.data ? row_floats(p.sum, first + t)[at] + x : x;
        }
    }
}

/* GLU: silu(x m[0]^T) * (x m[1]^T), 32 outputs of a block at a time, which it rounds. */
template <class F, int N, bool GLU, bool TWO_GROUPS>
static __global__ void __launch_bounds__(WARP *WARPS, RESIDENT)
    pairs_kernel(const __grid_constant__ struct products p,
                 const __grid_constant__ struct rounded rounded, int32_t n_outputs)
{
    __shared__ float hidden[2][N][WARP];
    const int32_t first = blockIdx.y * N, n_rows = min(N, p.out[0].n_rows - first);
    const int32_t n_steps = p.m[0].n_cols / (F::UNIT * F::STEP * WARP);
    struct step<F> even, odd;
    struct cursor<GLU> now = {0, 0}, ahead = {
        0, 0
    };
    float sum[N][2] = {}, other[N][2] = {};
    next_may_start();
    step_fetch<F, GLU>(even, p, n_outputs, ahead);
    ahead.advance(n_steps);
    step_fetch<F, GLU>(odd, p, n_outputs, ahead);
    ahead.advance(n_steps);
    wait_for_previous();
    for (bool is_odd = false; now.output() < n_outputs; is_odd = !is_odd) {
        if (is_odd) {
            step_add<F, N, TWO_GROUPS>(sum, other, odd, p, now.at, first, n_rows);
            step_fetch<F, GLU>(odd, p, n_outputs, ahead);
        } else {
            step_add<F, N, TWO_GROUPS>(sum, other, even, p, now.at, first, n_rows);
            step_fetch<F, GLU>(even, p, n_outputs, ahead);
        }
        ahead.advance(n_steps);
        if (now.at + 1 == n_steps) {
#pragma unroll
            for (int t = 0; t < N; t++)
#pragma unroll
                for (int r = 0; r < 2; r++) {
                    sum[t][r] = warp_sum(TWO_GROUPS ? sum[t][r] + other[t][r] : sum[t][r]);
                    other[t][r] = 0;
                }
            pair_store<N, GLU>(sum, p, now, hidden, first, n_rows);
#pragma unroll
            for (int t = 0; t < N; t++)
                sum[t][0] = sum[t][1] = 0;
            if (GLU && now.item % GLU_EACH + 1 == GLU_EACH) { /* the same for all warps */
                __syncthreads();
                if ((int32_t)threadIdx.y < n_rows) {
                    const int32_t c = now.output() / WARP * WARP + (int32_t)threadIdx.x;
                    const int32_t row = first + (int32_t)threadIdx.y;
                    const float y = hidden[now.item / GLU_EACH & 1][threadIdx.y][threadIdx.x];
                    row_floats(p.out[0], row)[c] = y;
                    round1(rounded, (int64_t)row * p.out[0].n_cols + c, y);
                }
            }
        }
        now.advance(n_steps);
    }
}

/* ---- launchers ---- */

bool cuda_pairs_takes(const struct products &p, bool is_glu)
{
    bool is_even = !is_glu || p.m[0].n_rows % WARP == 0;
    for (int i = 0; i < 4 && p.m[i].data; i++)
        is_even = is_even && p.m[i].n_rows % 2 == 0;
    return is_even && !p.choice.ids && p.choice.rows_per_x == 1 && p.m[0].n_cols % 2048 == 0;
}

template <class F, int N, bool GLU, bool TWO_GROUPS>
static int run(const struct products &p, const struct rounded &rounded,
               const struct cuda_call *call)
{
    const int32_t n_outputs = GLU ? p.m[0].n_rows : p.end[3];
    const int32_t n_blocks = (int32_t)blocks_for(n_outputs, GLU ? WARP : 2 * WARPS);
    const int32_t most = RESIDENT * call->sm_count;
    const dim3 grid(n_blocks < most ? n_blocks : most, blocks_for(p.out[0].n_rows, N));
    return launch(call, pairs_kernel<F, N, GLU, TWO_GROUPS>, grid, dim3(WARP, WARPS), 0, p, rounded,
                  n_outputs);
}

template <class F, bool TWO_GROUPS>
static int run_sized(const struct products &p, const struct rounded *glu,
                     const struct cuda_call *call)
{
    const struct rounded none = {};
    if (p.out[0].n_rows == 1)
        return glu ? run<F, 1, true, TWO_GROUPS>(p, *glu, call)
                   : run<F, 1, false, TWO_GROUPS>(p, none, call);
    return glu ? run<F, TOGETHER, true, TWO_GROUPS>(p, *glu, call)
               : run<F, TOGETHER, false, TWO_GROUPS>(p, none, call);
}

int cuda_pairs(const struct products &p, const struct rounded *glu, bool two_groups,
               const struct cuda_call *call)
{
    switch (p.m[0].type) {
    case QUANT_Q8_0:
        return two_groups ? run_sized<format_q8_0, true>(p, glu, call)
                          : run_sized<format_q8_0, false>(p, glu, call);
    case QUANT_Q4_0:
        return run_sized<format_q4_0, false>(p, glu, call);
    case QUANT_Q4_K:
        return run_sized<format_q4_k, false>(p, glu, call);
    case QUANT_Q5_K:
        return run_sized<format_q5_k, false>(p, glu, call);
    case QUANT_Q6_K:
        return run_sized<format_q6_k, false>(p, glu, call);
    case QUANT_F16:
        return run_sized<format_half<__half>, false>(p, glu, call);
    default:
        return run_sized<format_half<__nv_bfloat16>, false>(p, glu, call);
    }
}
