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
    next_may_start();
    wait_for_previous();
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
    return launch(call, delta_kernel<REAL, E>, grid, dim3(STATE_ROWS * LANES), 0, a->out, in, state,
                  state.n_rows / a->n_heads, a->n_kv_heads);
}

template <class REAL> static int delta_sized(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->in[5].n_cols;
    return n <= 4 * LANES    ? delta<REAL, 4>(a, call)
           : n <= 16 * LANES ? delta<REAL, 16>(a, call)
           : n <= 64 * LANES ? delta<REAL, 64>(a, call)
                             : cudaErrorInvalidValue;
}

/* ---- prefill: the tokens of one sequence, a few at a time through shared memory ---- */

#define TOKENS 16 /* of a stage */

/* A stage: keys and queries of the block's head, values of its rows, both gates. */
template <int N> struct delta_stage {
    float k[TOKENS][N], q[TOKENS][N], v[TOKENS][STATE_ROWS], decay[TOKENS], beta[TOKENS];
};

template <int BYTES> static __device__ __forceinline__ void copy(void *to, const void *from)
{
    const uint32_t address = (uint32_t)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address), "l"(from), "n"(BYTES));
}

template <int N>
static __device__ void stage_load(struct delta_stage<N> &s, const struct delta_inputs &in,
                                  int32_t first, int32_t row, int32_t head, int32_t key_at)
{
    const int32_t n = min(TOKENS, in.n_tokens - first);
    for (int32_t i = threadIdx.x; i < n * (N / 4); i += STATE_ROWS * LANES) {
        const int32_t t = i / (N / 4), c = i % (N / 4) * 4;
        copy<16>(&s.k[t][c], row_floats(in.k, first + t) + key_at + c);
        copy<16>(&s.q[t][c], row_floats(in.q, first + t) + key_at + c);
    }
    for (int32_t i = threadIdx.x; i < n * (STATE_ROWS / 4); i += STATE_ROWS * LANES) {
        const int32_t t = i / (STATE_ROWS / 4), c = i % (STATE_ROWS / 4) * 4;
        copy<16>(&s.v[t][c], row_floats(in.v, first + t) + row + c);
    }
    if ((int32_t)threadIdx.x < n) {
        copy<4>(&s.decay[threadIdx.x], row_floats(in.decay, first + threadIdx.x) + head);
        copy<4>(&s.beta[threadIdx.x], row_floats(in.beta, first + threadIdx.x) + head);
    }
    asm volatile("cp.async.commit_group;");
}

static __device__ __forceinline__ float dot4(float4 a, float4 b)
{
    return a.x * b.x + a.y * b.y + (a.z * b.z + a.w * b.w);
}

static __device__ __forceinline__ void lanes_sum2(float &x, float &y)
{
    for (int d = LANES / 2; d; d >>= 1) {
        x += __shfl_xor_sync(~0u, x, d);
        y += __shfl_xor_sync(~0u, y, d);
    }
}

/* What a thread reads of one token. */
template <int E> struct delta_token {
    float4 k[E], q[E];
    float v, decay, beta;

    template <int N>
    __device__ __forceinline__ void load(const struct delta_stage<N> &s, int32_t t, int32_t row,
                                         int32_t lane)
    {
#pragma unroll
        for (int e = 0; e < E; e++) {
            k[e] = *(const float4 *)&s.k[t][(e * LANES + lane) * 4];
            q[e] = *(const float4 *)&s.q[t][(e * LANES + lane) * 4];
        }
        v = s.v[t][row];
        decay = s.decay[t];
        beta = s.beta[t];
    }
    __device__ __forceinline__ float dot(const float4 (&x)[E], const float4 (&y)[E]) const
    {
        float even = 0, odd = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            (e % 2 ? odd : even) += dot4(x[e], y[e]);
        return even + odd;
    }
};

/* LANES threads have a row of the state: N / LANES elements each, in groups of four. */
template <int N>
static __global__ void __launch_bounds__(STATE_ROWS *LANES)
    delta_prefill_kernel(struct tensor out, struct delta_inputs in, struct tensor state,
                         int32_t value_dim, int32_t n_key_heads)
{
    extern __shared__ __align__(16) char shared[];
    struct delta_stage<N> *stages = (struct delta_stage<N> *)shared;
    constexpr int E = N / LANES / 4;
    const int32_t first_row = blockIdx.x * STATE_ROWS, head = first_row / value_dim;
    const int32_t mine = threadIdx.x / LANES, lane = threadIdx.x % LANES;
    const int32_t key_at = head % n_key_heads * N;
    float *memory = (float *)((char *)state.data + in.seqs[0] * state.mat_bytes +
                              (first_row + mine) * state.row_bytes);
    float4 s[E];
#pragma unroll
    for (int e = 0; e < E; e++)
        s[e] = *(const float4 *)(memory + (e * LANES + lane) * 4);
    stage_load(stages[0], in, 0, first_row, head, key_at);
    for (int32_t first = 0, at = 0; first < in.n_tokens; first += TOKENS, at ^= 1) {
        const struct delta_stage<N> &now = stages[at];
        if (first + TOKENS < in.n_tokens)
            stage_load(stages[at ^ 1], in, first + TOKENS, first_row, head, key_at);
        else
            asm volatile("cp.async.commit_group;");
        asm volatile("cp.async.wait_group 1;");
        __syncthreads();
        const int32_t n = min(TOKENS, in.n_tokens - first);
        struct delta_token<E> next;
        float y = 0;
        next.load(now, 0, mine, lane);
        for (int32_t t = 0; t < n; t++) {
            const struct delta_token<E> token = next;
            next.load(now, t + 1 < n ? t + 1 : t, mine, lane);
            /* What the last token gives is summed along with what this one asks. */
            float dot = token.dot(s, token.k);
            lanes_sum2(dot, y);
            if (lane == 0 && t > 0)
                row_floats(out, first + t - 1)[first_row + mine] = y;
            const float change = (token.v - token.decay * dot) * token.beta;
#pragma unroll
            for (int e = 0; e < E; e++) {
                s[e].x = token.decay * s[e].x + change * token.k[e].x;
                s[e].y = token.decay * s[e].y + change * token.k[e].y;
                s[e].z = token.decay * s[e].z + change * token.k[e].z;
                s[e].w = token.decay * s[e].w + change * token.k[e].w;
            }
            y = token.dot(s, token.q);
        }
        y = lanes_sum(y);
        if (lane == 0)
            row_floats(out, first + n - 1)[first_row + mine] = y;
        __syncthreads();
    }
#pragma unroll
    for (int e = 0; e < E; e++)
        *(float4 *)(memory + (e * LANES + lane) * 4) = s[e];
}

template <int N> static int delta_prefill(const struct op_args *a, const struct cuda_call *call)
{
    const struct tensor &state = a->in[5];
    const struct delta_inputs in = {a->in[0],     a->in[1], a->in[2],
                                    a->in[3],     a->in[4], (const int32_t *)a->in[6].data,
                                    a->out.n_rows};
    const size_t bytes = 2 * sizeof(struct delta_stage<N>);
    const int rc = cudaFuncSetAttribute(delta_prefill_kernel<N>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (rc)
        return rc;
    delta_prefill_kernel<N>
        <<<state.n_rows / STATE_ROWS, STATE_ROWS * LANES, bytes, stream_of(call)>>>(
            a->out, in, state, state.n_rows / a->n_heads, a->n_kv_heads);
    return cudaGetLastError();
}

/* Whole blocks of rows of one head, and rows that can be copied by sixteen bytes. */
static bool prefill_takes(const struct op_args *a)
{
    bool is_aligned = true;
    for (int i = 0; i < 3; i++)
        is_aligned =
            is_aligned && a->in[i].row_bytes % 16 == 0 && (uintptr_t)a->in[i].data % 16 == 0;
    return a->form == FORM_FAST && a->many && is_aligned &&
           a->in[5].n_rows / a->n_heads % STATE_ROWS == 0 && a->in[5].row_bytes % 16 == 0;
}

int cuda_delta_net(const struct op_args *a, const struct cuda_call *call)
{
    if (prefill_takes(a) && a->in[5].n_cols == 128)
        return delta_prefill<128>(a, call);
    if (prefill_takes(a) && a->in[5].n_cols == 64)
        return delta_prefill<64>(a, call);
    return a->form == FORM_F64 ? delta_sized<double>(a, call) : delta_sized<float>(a, call);
}
