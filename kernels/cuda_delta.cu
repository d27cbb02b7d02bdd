/* The gated delta net: short convolution, gates, and the recurrence of each head's matrix state. */
#include "kernels/cuda_common.cuh"

#define THREADS 256

/* Most inputs that the convolution sums. */
#define MAX_WIDTH 8

/* Where a channel's inputs before a row stand: of this call, or of the window that the last call
 * left. */
struct past {
    int32_t n;              /* of this call */
    int32_t row[MAX_WIDTH]; /* the newest first */
};

/* The rows of the same sequence from row r backwards, r itself the newest. One thread fills it. */
static __device__ void past_find(struct past *p, const int32_t *seqs, int32_t r, int32_t n)
{
    p->n = 0;
    for (int32_t at = r; at >= 0 && p->n < n; at--)
        if (seqs[at] == seqs[r])
            p->row[p->n++] = at;
}

/* The input that stands `back` rows before the newest. */
static __device__ __forceinline__ float past_input(const struct past *p, int32_t back,
                                                   const struct tensor &x,
                                                   const struct tensor &state, int32_t seq,
                                                   int32_t width, int32_t c)
{
    if (back < p->n)
        return row_floats(x, p->row[back])[c];
    return ((const float *)((const char *)state.data + seq * state.mat_bytes +
                            (width - 1 - (back - p->n) - 1) * state.row_bytes))[c];
}

template <class REAL>
static __global__ void conv_kernel(struct tensor out, struct tensor x, struct tensor weight,
                                   struct tensor state, const int32_t *seqs)
{
    __shared__ struct past past;
    const int32_t c = blockIdx.y * THREADS + threadIdx.x, r = blockIdx.x, width = weight.n_cols;
    if (threadIdx.x == 0)
        past_find(&past, seqs, r, width);
    __syncthreads();
    if (c >= out.n_cols)
        return;
    const float *w = row_floats(weight, c);
    REAL sum = (REAL)w[width - 1] * (REAL)row_floats(x, r)[c];
    for (int32_t i = 0; i + 1 < width; i++)
        sum += (REAL)w[i] * (REAL)past_input(&past, width - 1 - i, x, state, seqs[r], width, c);
    row_floats(out, r)[c] = (float)(sum * real_sigmoid(sum));
}

/* The last row of each sequence leaves the window for the next call. */
static __global__ void window_kernel(struct tensor x, struct tensor state, const int32_t *seqs,
                                     int32_t width)
{
    __shared__ struct past past;
    __shared__ bool is_last;
    const int32_t c = blockIdx.y * THREADS + threadIdx.x, r = blockIdx.x, seq = seqs[r];
    if (threadIdx.x == 0) {
        is_last = true;
        for (int32_t i = r + 1; i < x.n_rows && is_last; i++)
            is_last = seqs[i] != seq;
        if (is_last)
            past_find(&past, seqs, r, width);
    }
    __syncthreads();
    if (!is_last || c >= x.n_cols)
        return;
    char *window = (char *)state.data + seq * state.mat_bytes;
    for (int32_t i = 0; i + 1 < width; i++) /* what is read stands behind what is written */
        ((float *)(window + i * state.row_bytes))[c] =
            past_input(&past, width - 2 - i, x, state, seq, width, c);
}

int cuda_conv(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, THREADS));
    const int32_t *seqs = (const int32_t *)a->in[3].data;
    if (a->in[1].n_cols > MAX_WIDTH)
        return cudaErrorInvalidValue;
    if (a->form == FORM_F64)
        conv_kernel<double>
            <<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1], a->in[2], seqs);
    else
        conv_kernel<float>
            <<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1], a->in[2], seqs);
    window_kernel<<<grid, THREADS, 0, stream_of(call)>>>(a->in[0], a->in[2], seqs, a->in[1].n_cols);
    return cudaGetLastError();
}

template <class REAL>
static __global__ void gates_kernel(struct tensor decay, struct tensor strength,
                                    struct tensor alpha, struct tensor beta, const float *dt_bias,
                                    const float *rate)
{
    const int32_t r = blockIdx.x, h = blockIdx.y * blockDim.x + threadIdx.x;
    if (h >= decay.n_cols)
        return;
    const REAL x = (REAL)row_floats(alpha, r)[h] + dt_bias[h];
    const REAL softplus = x > 40 ? x : real_log1p(real_exp(x));
    const REAL b = row_floats(beta, r)[h];
    row_floats(decay, r)[h] = (float)real_exp(rate[h] * softplus);
    row_floats(strength, r)[h] = (float)real_sigmoid(b);
}

int cuda_delta_gates(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, 64));
    const float *dt_bias = (const float *)a->in[2].data, *rate = (const float *)a->in[3].data;
    if (a->form == FORM_F64)
        gates_kernel<double>
            <<<grid, 64, 0, stream_of(call)>>>(a->out, a->out2, a->in[0], a->in[1], dt_bias, rate);
    else
        gates_kernel<float>
            <<<grid, 64, 0, stream_of(call)>>>(a->out, a->out2, a->in[0], a->in[1], dt_bias, rate);
    return cudaGetLastError();
}

/* Rows of the state of a block, and lanes that share a row: each keeps E of its elements. */
#define STATE_ROWS 32
#define LANES      8

template <class REAL> static __device__ __forceinline__ REAL lanes_sum(REAL x)
{
    for (int d = LANES / 2; d; d >>= 1)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}

/* The tokens of a call; all are (n_tokens, ...) but seqs. */
struct delta_inputs {
    struct tensor q, k, v, decay, beta;
    const int32_t *seqs;
    int32_t n_tokens;
};

/* Is no earlier token of the sequence in this call? */
static __device__ bool is_first_of_its_sequence(const int32_t *seqs, int32_t t)
{
    for (int32_t i = t - 1; i >= 0; i--)
        if (seqs[i] == seqs[t])
            return false;
    return true;
}

/* A state row stays in the registers of LANES threads while the tokens of its sequence, from
 * `first` on, pass. */
template <class REAL, int E>
static __device__ void delta_run(const struct tensor &out, const struct delta_inputs &in,
                                 float *memory, int32_t row, int32_t head, int32_t key_at,
                                 int32_t n, int32_t first)
{
    const int32_t lane = threadIdx.x % LANES, seq = in.seqs[first];
    float s[E], key[E];
#pragma unroll
    for (int e = 0; e < E; e++)
        s[e] = lane + LANES * e < n ? memory[lane + LANES * e] : 0.0f;
    for (int32_t t = first; t < in.n_tokens; t++) {
        if (in.seqs[t] != seq)
            continue;
        const float *kt = row_floats(in.k, t) + key_at, *qt = row_floats(in.q, t) + key_at;
        const REAL g = row_floats(in.decay, t)[head], strength = row_floats(in.beta, t)[head];
        REAL dot = 0, y = 0;
#pragma unroll
        for (int e = 0; e < E; e++) {
            key[e] = lane + LANES * e < n ? kt[lane + LANES * e] : 0.0f;
            s[e] = (float)((REAL)s[e] * g);
            dot += (REAL)s[e] * (REAL)key[e];
        }
        const REAL change = ((REAL)row_floats(in.v, t)[row] - lanes_sum(dot)) * strength;
#pragma unroll
        for (int e = 0; e < E; e++) {
            s[e] = (float)(s[e] + change * key[e]);
            y += (REAL)s[e] * (REAL)(lane + LANES * e < n ? qt[lane + LANES * e] : 0.0f);
        }
        y = lanes_sum(y);
        if (lane == 0)
            row_floats(out, t)[row] = (float)y;
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        if (lane + LANES * e < n)
            memory[lane + LANES * e] = s[e];
}

template <class REAL, int E>
static __global__ void __launch_bounds__(STATE_ROWS *LANES)
    delta_kernel(struct tensor out, struct delta_inputs in, struct tensor state, int32_t value_dim,
                 int32_t n_key_heads)
{
    const int32_t row = blockIdx.x * STATE_ROWS + threadIdx.x / LANES, head = row / value_dim;
    if (row >= state.n_rows)
        return;
    for (int32_t t = blockIdx.y; t < in.n_tokens; t += gridDim.y)
        if (is_first_of_its_sequence(in.seqs, t))
            delta_run<REAL, E>(out, in,
                               (float *)((char *)state.data + in.seqs[t] * state.mat_bytes +
                                         row * state.row_bytes),
                               row, head, head % n_key_heads * state.n_cols, state.n_cols, t);
}

template <class REAL, int E> static int delta(const struct op_args *a, const struct cuda_call *call)
{
    const struct tensor &state = a->in[5];
    const struct delta_inputs in = {a->in[0],     a->in[1], a->in[2],
                                    a->in[3],     a->in[4], (const int32_t *)a->in[6].data,
                                    a->out.n_rows};
    const dim3 grid(blocks_for(state.n_rows, STATE_ROWS),
                    a->out.n_rows < 256 ? a->out.n_rows : 256);
    delta_kernel<REAL, E><<<grid, STATE_ROWS * LANES, 0, stream_of(call)>>>(
        a->out, in, state, state.n_rows / a->n_heads, a->n_kv_heads);
    return cudaGetLastError();
}

template <class REAL> static int delta_sized(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->in[5].n_cols;
    return n <= 4 * LANES    ? delta<REAL, 4>(a, call)
           : n <= 16 * LANES ? delta<REAL, 16>(a, call)
           : n <= 64 * LANES ? delta<REAL, 64>(a, call)
                             : cudaErrorInvalidValue;
}

int cuda_delta_net(const struct op_args *a, const struct cuda_call *call)
{
    return a->form == FORM_F64 ? delta_sized<double>(a, call) : delta_sized<float>(a, call);
}
