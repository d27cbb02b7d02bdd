/* Operators that work on each row by itself: look-up, norms, gates, rotary positions, the cache. */
#include "kernels/cuda_round.cuh"
#include "kernels/cuda_store.cuh"

#define THREADS 256

template <int TYPE>
static __global__ void rows_kernel(struct tensor out, struct tensor table, struct tensor ids)
{
    const int32_t r = blockIdx.x, c = blockIdx.y * THREADS + threadIdx.x;
    next_may_start();
    wait_for_previous();
    if (c < table.n_cols)
        row_floats(out, r)[c] = weight<TYPE>(table, 0, ints(ids)[r], c);
}

int cuda_rows(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, THREADS));
#define LAUNCH(TYPE)                                                                               \
    case TYPE:                                                                                     \
        return launch(call, rows_kernel<TYPE>, grid, dim3(THREADS), 0, a->out, a->in[0], a->in[1]);
    switch (a->in[0].type) {
        FOR_WEIGHT_TYPES(LAUNCH)
    }
#undef LAUNCH
    return cudaErrorInvalidValue;
}

/* One block for each head of each row. */
template <class REAL, bool IS_RMS>
static __global__ void norm_kernel(struct tensor out, struct tensor x, const float *weights,
                                   int32_t n, double eps, double factor)
{
    const float *in = row_floats(x, blockIdx.x) + blockIdx.y * n;
    float *to = row_floats(out, blockIdx.x) + blockIdx.y * n;
    REAL sum = 0;
    for (int32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (REAL)in[i] * (REAL)in[i];
    sum = block_sum(sum);
    const REAL scale =
        IS_RMS ? 1 / real_sqrt(sum / n + (REAL)eps) : (REAL)factor / real_sqrt(sum + (REAL)eps);
    for (int32_t i = threadIdx.x; i < n; i += blockDim.x)
        to[i] = (float)(in[i] * scale * (IS_RMS ? (REAL)weights[i] : (REAL)1));
}

#define NORM_EACH 4 /* most groups of four elements of a thread */

/* A block has a row, which it also rounds. */
static __global__ void norm_round_kernel(struct tensor out, struct rounded rounded, struct tensor x,
                                         const float *weights, double eps)
{
    const int32_t row = blockIdx.x, n = x.n_cols;
    float4 v[NORM_EACH], w[NORM_EACH];
    float sum = 0;
    next_may_start();
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++) {
        const int32_t c = (i * blockDim.x + threadIdx.x) * 4;
        if (c < n)
            w[i] = *(const float4 *)(weights + c);
    }
    wait_for_previous();
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++) {
        const int32_t c = (i * blockDim.x + threadIdx.x) * 4;
        if (c < n) {
            v[i] = *(const float4 *)(row_floats(x, row) + c);
            sum += v[i].x * v[i].x + v[i].y * v[i].y + (v[i].z * v[i].z + v[i].w * v[i].w);
        }
    }
    const float scale = 1 / sqrtf(block_sum(sum) / n + (float)eps);
#pragma unroll
    for (int i = 0; i < NORM_EACH; i++) {
        const int32_t c = (i * blockDim.x + threadIdx.x) * 4;
        if (c >= n)
            continue;
        const float4 y = {v[i].x * scale * w[i].x, v[i].y * scale * w[i].y, v[i].z * scale * w[i].z,
                          v[i].w * scale * w[i].w};
        *(float4 *)(row_floats(out, row) + c) = y;
        round4(rounded, (int64_t)row * n + c, y);
    }
}

/* Few rows are done soonest by many threads each, many rows by few. */
static int norm_threads(int32_t n, int32_t n_rows)
{
    const int least = (n + 4 * NORM_EACH - 1) / (4 * NORM_EACH);
    return n_rows < 64 && n >= 4096 ? 1024 : least <= 256 ? 256 : 1024;
}

static bool is_round(const struct tensor &t)
{
    return t.n_cols % QUANT_BLOCK == 0 && t.row_bytes % 16 == 0 && (uintptr_t)t.data % 16 == 0;
}

/* What the fast forms of a norm and of the gates give the next product. */
static struct rounded round_out(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n_rows = a->out.n_rows / (a->n_heads > 1 ? a->n_heads : 1);
    return rounded_new(call, a->out, rounding_of(a, a->out, n_rows));
}

template <bool IS_RMS> static int norm(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->out.n_cols / a->n_heads;
    const int threads = n >= 1024 ? 512 : n >= 256 ? 128 : 32;
    const dim3 grid(a->out.n_rows, a->n_heads);
    const float *weights = (const float *)a->in[1].data;
    if (a->form == FORM_F64)
        norm_kernel<double, IS_RMS>
            <<<grid, threads, 0, stream_of(call)>>>(a->out, a->in[0], weights, n, a->eps, a->scale);
    else
        norm_kernel<float, IS_RMS>
            <<<grid, threads, 0, stream_of(call)>>>(a->out, a->in[0], weights, n, a->eps, a->scale);
    return cudaGetLastError();
}

int cuda_rms_norm(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->out.n_cols;
    if (a->form == FORM_FAST && a->n_heads == 1 && n >= 512 && n <= 1024 * 4 * NORM_EACH &&
        is_round(a->in[0]) && is_round(a->out) && is_round(a->in[1]))
        return launch(call, norm_round_kernel, dim3(a->out.n_rows),
                      dim3(norm_threads(n, a->out.n_rows)), 0, a->out, round_out(a, call), a->in[0],
                      (const float *)a->in[1].data, a->eps);
    return norm<true>(a, call);
}

int cuda_l2_norm(const struct op_args *a, const struct cuda_call *call)
{
    return norm<false>(a, call);
}

/* out[r][c] = f(in0[r][c], in1[r or 0][c or 0]) */
struct add_of {
    template <class REAL> static __device__ REAL of(float x, float y)
    {
        return (REAL)(x + y);
    }
};
struct swiglu_of {
    template <class REAL> static __device__ REAL of(float gate, float up)
    {
        return gate * real_sigmoid((REAL)gate) * up;
    }
};
struct gate_of {
    template <class REAL> static __device__ REAL of(float x, float gate)
    {
        return x * real_sigmoid((REAL)gate);
    }
};

template <class REAL, class F>
static __global__ void pairwise_kernel(struct tensor out, struct tensor x, struct tensor y)
{
    const int32_t r = blockIdx.x, c = blockIdx.y * THREADS + threadIdx.x;
    if (c < out.n_cols)
        row_floats(out, r)[c] = (float)F::template of<REAL>(
            row_floats(x, r)[c], row_floats(y, y.n_rows == 1 ? 0 : r)[y.n_cols == 1 ? 0 : c]);
}

template <class F> static int pairwise(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, THREADS));
    if (a->form == FORM_F64)
        pairwise_kernel<double, F>
            <<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);
    else
        pairwise_kernel<float, F>
            <<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);
    return cudaGetLastError();
}

/* The same for rows of groups of four, which are rounded. */
template <class F>
static __global__ void pairwise4_kernel(struct tensor out, struct rounded rounded, struct tensor x,
                                        struct tensor y)
{
    const int32_t r = blockIdx.x, c = (blockIdx.y * THREADS + threadIdx.x) * 4;
    next_may_start();
    wait_for_previous();
    if (c >= out.n_cols)
        return;
    const float4 a = *(const float4 *)(row_floats(x, r) + c);
    const float4 b = *(const float4 *)(row_floats(y, r) + c);
    const float4 z = {F::template of<float>(a.x, b.x), F::template of<float>(a.y, b.y),
                      F::template of<float>(a.z, b.z), F::template of<float>(a.w, b.w)};
    *(float4 *)(row_floats(out, r) + c) = z;
    round4(rounded, (int64_t)r * out.n_cols + c, z);
}

template <class F> static int pairwise_round(const struct op_args *a, const struct cuda_call *call)
{
    if (a->form != FORM_FAST || !is_round(a->out) || !is_round(a->in[0]) || !is_round(a->in[1]) ||
        a->in[1].n_rows != a->out.n_rows || a->in[1].n_cols != a->out.n_cols)
        return pairwise<F>(a, call);
    return launch(call, pairwise4_kernel<F>,
                  dim3(a->out.n_rows, blocks_for(a->out.n_cols, 4 * THREADS)), dim3(THREADS), 0,
                  a->out, round_out(a, call), a->in[0], a->in[1]);
}

int cuda_add(const struct op_args *a, const struct cuda_call *call)
{
    return pairwise<add_of>(a, call);
}

int cuda_swiglu(const struct op_args *a, const struct cuda_call *call)
{
    return pairwise_round<swiglu_of>(a, call);
}

int cuda_gate(const struct op_args *a, const struct cuda_call *call)
{
    return pairwise_round<gate_of>(a, call);
}

/* A thread turns one pair, or copies one element that does not turn. */
template <class REAL>
static __global__ void rope_kernel(struct tensor out, struct tensor x, const int32_t *positions,
                                   const double *frequency, int32_t n, int32_t n_rot, bool adjacent)
{
    const int32_t r = blockIdx.x, half = n_rot / 2, i = blockIdx.z * blockDim.x + threadIdx.x;
    const float *in = row_floats(x, r) + blockIdx.y * n;
    float *to = row_floats(out, r) + blockIdx.y * n;
    if (i < half) {
        double sine, cosine; /* in double: at position 32,768 a float angle is off by 2e-3 */
        sincos(positions[r] * frequency[i], &sine, &cosine);
        const int32_t at = adjacent ? 2 * i : i, other = adjacent ? at + 1 : i + half;
        const REAL c = (REAL)cosine, s = (REAL)sine, x0 = in[at], y0 = in[other];
        to[at] = (float)(x0 * c - y0 * s);
        to[other] = (float)(x0 * s + y0 * c);
    } else if (i + half < n) {
        to[i + half] = in[i + half];
    }
}

int cuda_rope(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->out.n_cols / a->n_heads;
    const dim3 grid(a->out.n_rows, a->n_heads, blocks_for(n - a->n_rot / 2, 64));
    const int32_t *positions = (const int32_t *)a->in[1].data;
    const double *frequency = (const double *)a->in[2].data;
    if (a->form == FORM_F64)
        rope_kernel<double><<<grid, 64, 0, stream_of(call)>>>(a->out, a->in[0], positions,
                                                              frequency, n, a->n_rot, a->adjacent);
    else
        rope_kernel<float><<<grid, 64, 0, stream_of(call)>>>(a->out, a->in[0], positions, frequency,
                                                             n, a->n_rot, a->adjacent);
    return cudaGetLastError();
}

static __global__ void store_kernel(struct tensor cache, struct tensor x, const int32_t *seqs,
                                    const int32_t *positions)
{
    const int32_t r = blockIdx.x, c = blockIdx.y * THREADS + threadIdx.x;
    if (c < x.n_cols)
        cache_store(cache, seqs[r], positions[r], c, row_floats(x, r)[c]);
}

int cuda_store(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->in[0].n_rows, blocks_for(a->in[0].n_cols, THREADS));
    store_kernel<<<grid, THREADS, 0, stream_of(call)>>>(
        a->out, a->in[0], (const int32_t *)a->in[1].data, (const int32_t *)a->in[2].data);
    return cudaGetLastError();
}
