/* The router of a mixture of experts, and the weighted sum of what the experts gave. Their matrix
 * products stand in cuda_matmul.cu. */
#include "kernels/cuda_common.cuh"

#define THREADS 256

/* A warp has one token. What is not a number loses to every number; ties go to the lower one. */
template <class REAL>
static __global__ void router_kernel(struct tensor weights, struct tensor chosen,
                                     struct tensor logits, bool normalise)
{
    __shared__ REAL p[MAX_EXPERTS];
    __shared__ bool is_taken[MAX_EXPERTS];
    const int32_t row = blockIdx.x, lane = threadIdx.x, n = logits.n_cols;
    const float *x = row_floats(logits, row);
    int32_t *ids = (int32_t *)row_floats(chosen, row);
    REAL max = -INFINITY, sum = 0, sum_chosen = 0;
    for (int32_t e = lane; e < n; e += WARP)
        max = x[e] > max ? (REAL)x[e] : max;
    max = warp_max(max);
    for (int32_t e = lane; e < n; e += WARP) {
        p[e] = real_exp((REAL)x[e] - max);
        is_taken[e] = false;
        sum += p[e];
    }
    sum = warp_sum(sum);
    __syncwarp();
    for (int32_t j = 0; j < weights.n_cols; j++) {
        int32_t best = INT32_MAX;
        REAL most = -2;
        for (int32_t e = lane; e < n; e += WARP) {
            const REAL value = p[e] >= 0 ? p[e] : (REAL)-1;
            if (!is_taken[e] && value > most) {
                most = value;
                best = e;
            }
        }
        const REAL top = warp_max(most);
        for (int d = WARP / 2; d; d >>= 1) {
            const int32_t mine = most == top ? best : INT32_MAX;
            const int32_t other = __shfl_xor_sync(~0u, mine, d);
            best = min(mine, other);
            most = best == INT32_MAX ? (REAL)-2 : top;
        }
        if (lane == 0) {
            is_taken[best] = true;
            ids[j] = best;
        }
        sum_chosen += p[best];
        __syncwarp();
    }
    for (int32_t j = lane; j < weights.n_cols; j += WARP)
        row_floats(weights, row)[j] = (float)(p[ids[j]] / (normalise ? sum_chosen : sum));
}

int cuda_router(const struct op_args *a, const struct cuda_call *call)
{
    const unsigned n = (unsigned)a->in[0].n_rows;
    if (a->in[0].n_cols > MAX_EXPERTS)
        return cudaErrorInvalidValue;
    if (a->form == FORM_F64)
        router_kernel<double>
            <<<n, WARP, 0, stream_of(call)>>>(a->out, a->out2, a->in[0], a->normalise);
    else
        router_kernel<float>
            <<<n, WARP, 0, stream_of(call)>>>(a->out, a->out2, a->in[0], a->normalise);
    return cudaGetLastError();
}

template <class REAL>
static __global__ void mix_kernel(struct tensor out, struct tensor x, struct tensor weights)
{
    const int32_t c = blockIdx.y * THREADS + threadIdx.x, r = blockIdx.x, n = weights.n_cols;
    if (c >= out.n_cols)
        return;
    REAL sum = 0;
    for (int32_t j = 0; j < n; j++)
        sum += (REAL)row_floats(weights, r)[j] * (REAL)row_floats(x, r * n + j)[c];
    row_floats(out, r)[c] = (float)sum;
}

int cuda_mix(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, THREADS));
    if (a->form == FORM_F64)
        mix_kernel<double><<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);
    else
        mix_kernel<float><<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);
    return cudaGetLastError();
}
