/* What a layer does to each head between its products, in one kernel: norms, rotary positions and
 * the cache; the delta net's convolution, norms and gates; its gated output norm. */
#include "kernels/cuda_round.cuh"
#include "kernels/cuda_store.cuh"

#define HEADS 8 /* of a block, a warp for each */

/* ---- attention ---- */

struct head_args {
    struct tensor out, keys, values, q, k, v;
    const float *q_norm, *k_norm; /* NULL = none */
    const int32_t *seqs, *positions;
    const double *frequencies;
    int32_t n_heads, n_kv_heads, dim, n_rot;
    double eps;
    bool adjacent;
};

/* Where head `head` of token `row` stands, in a tensor with a row for each head or each token. */
static __device__ __forceinline__ const float *head_of(const struct tensor &t, int32_t row,
                                                       int32_t head, int32_t n_heads, int32_t dim)
{
    return t.n_cols == dim ? row_floats(t, row * n_heads + head) : row_floats(t, row) + head * dim;
}

/* Element i of the head after turning; x holds it before. */
template <class REAL>
static __device__ __forceinline__ float turned(const float *x, int32_t i, const double *sine,
                                               const double *cosine, const struct head_args &a)
{
    if (i >= a.n_rot)
        return x[i];
    const int32_t half = a.n_rot / 2, pair = a.adjacent ? i / 2 : i % half;
    const bool is_second = a.adjacent ? i % 2 : i >= half;
    const REAL c = (REAL)cosine[pair], s = (REAL)sine[pair];
    const REAL first = x[a.adjacent ? 2 * pair : pair];
    const REAL second = x[a.adjacent ? 2 * pair + 1 : pair + half];
    return (float)(is_second ? first * s + second * c : first * c - second * s);
}

/* A head of q, of k or of v: from, normed and turned, to its place. x is this warp's. */
template <class REAL>
static __device__ __forceinline__ void head_move(const struct head_args &a, int32_t row,
                                                 int32_t head, float *x, const double *sine,
                                                 const double *cosine)
{
    const int which = (head >= a.n_heads) + (head >= a.n_heads + a.n_kv_heads);
    const int32_t lane = threadIdx.x, dim = a.dim;
    head -= which == 0 ? 0 : which == 1 ? a.n_heads : a.n_heads + a.n_kv_heads;
    const struct tensor &from = which == 0 ? a.q : which == 1 ? a.k : a.v;
    const float *in = head_of(from, row, head, which ? a.n_kv_heads : a.n_heads, dim);
    const float *norm = which == 0 ? a.q_norm : which == 1 ? a.k_norm : NULL;
    REAL sum = 0;
    for (int32_t i = lane; i < dim; i += WARP) {
        x[i] = in[i];
        sum += (REAL)x[i] * (REAL)x[i];
    }
    const REAL scale = 1 / real_sqrt(warp_sum(sum) / dim + (REAL)a.eps);
    for (int32_t i = lane; norm && i < dim; i += WARP)
        x[i] = (float)(x[i] * scale * (REAL)norm[i]);
    __syncwarp();
    for (int32_t i = lane; i < dim; i += WARP) {
        const float y = which == 2 ? x[i] : turned<REAL>(x, i, sine, cosine, a);
        if (which == 0)
            row_floats(a.out, row)[head * dim + i] = y;
        else
            cache_store(which == 1 ? a.keys : a.values, a.seqs[row], a.positions[row],
                        head * dim + i, y);
    }
    __syncwarp();
}

/* A warp has one head at a time: of q, then of k, then of v. */
template <class REAL>
static __global__ void __launch_bounds__(HEADS *WARP)
    heads_kernel(const __grid_constant__ struct head_args a)
{
    __shared__ float held[HEADS][MAX_HEAD_DIM];
    __shared__ double sine[MAX_HEAD_DIM / 2], cosine[MAX_HEAD_DIM / 2];
    const int32_t row = blockIdx.x, warp = threadIdx.y, n = a.n_heads + 2 * a.n_kv_heads;
    next_may_start();
    wait_for_previous();
    for (int32_t i = warp * WARP + threadIdx.x; i < a.n_rot / 2; i += HEADS * WARP)
        sincos(a.positions[row] * a.frequencies[i], &sine[i], &cosine[i]);
    __syncthreads();
    for (int32_t head = blockIdx.y * HEADS + warp; head < n; head += gridDim.y * HEADS)
        head_move<REAL>(a, row, head, held[warp], sine, cosine);
}

int cuda_heads(const struct op_args *a, const struct cuda_call *call)
{
    const struct head_args args = {a->out,
                                   a->out2,
                                   a->out3,
                                   a->in[0],
                                   a->in[1],
                                   a->in[2],
                                   (const float *)a->in[3].data,
                                   (const float *)a->in[4].data,
                                   (const int32_t *)a->in[5].data,
                                   (const int32_t *)a->in[6].data,
                                   (const double *)a->in[7].data,
                                   a->n_heads,
                                   a->n_kv_heads,
                                   a->out.n_cols / a->n_heads,
                                   a->n_rot,
                                   a->eps,
                                   a->adjacent};
    /* Many rows fill the device; each then finds its angles once. */
    const unsigned columns =
        a->out.n_rows > 64 ? 1 : blocks_for(a->n_heads + 2 * a->n_kv_heads, HEADS);
    const dim3 grid(a->out.n_rows, columns);
    const dim3 block(WARP, HEADS);
    if (args.dim > MAX_HEAD_DIM)
        return cudaErrorInvalidValue;
    return a->form == FORM_F64 ? launch(call, heads_kernel<double>, grid, block, 0, args)
                               : launch(call, heads_kernel<float>, grid, block, 0, args);
}

/* ---- delta net ---- */

#define TAPS  8 /* most inputs that the convolution sums */
#define STEPS 8 /* rows of a block in prefill, which share their loads */

struct delta_args {
    struct tensor out, decay, strength, x, weight, state, alpha, beta;
    const float *dt_bias, *rate;
    const int32_t *seqs;
    int32_t key_dim, n_key_heads; /* the first 2 n_key_heads blocks of columns are normed */
    float scale, eps;
};

static __device__ __forceinline__ float *state_at(const struct tensor &state, int32_t seq,
                                                  int32_t row)
{
    return (float *)((char *)state.data + seq * state.mat_bytes + row * state.row_bytes);
}

static __device__ void gates_step(const struct delta_args &a, int32_t row, int32_t head)
{
    const float x = row_floats(a.alpha, row)[head] + a.dt_bias[head];
    const float softplus = x > 40 ? x : log1pf(expf(x));
    row_floats(a.decay, row)[head] = expf(a.rate[head] * softplus);
    row_floats(a.strength, row)[head] = real_sigmoid(row_floats(a.beta, row)[head]);
}

/* Rows first ... first + n - 1, all of one sequence, in columns as wide as a key head; the last
 * block has the gates. What came before a row of this call stands in the row above or, for the
 * first of the call, in the state. ONE: a row is alone in its sequence and its state goes on. */
template <bool ONE>
static __global__ void delta_heads_kernel(const __grid_constant__ struct delta_args a)
{
    const int32_t first = blockIdx.x * (ONE ? 1 : STEPS), width = a.weight.n_cols;
    const int32_t n = ONE ? 1 : min(STEPS, a.x.n_rows - first);
    const int32_t c = blockIdx.y * a.key_dim + threadIdx.x;
    const bool is_there = (int32_t)threadIdx.x < a.key_dim && c < a.x.n_cols;
    next_may_start();
    wait_for_previous();
    if (blockIdx.y == gridDim.y - 1) {
        for (int32_t i = threadIdx.x; i < n * a.decay.n_cols; i += blockDim.x)
            gates_step(a, first + i / a.decay.n_cols, i % a.decay.n_cols);
        return;
    }
    const int32_t seq = a.seqs[first];
    float past[TAPS], tap[TAPS]; /* past[i]: i rows before the row at hand */
#pragma unroll
    for (int i = 0; i < TAPS; i++) {
        const bool reads = is_there && i < width;
        tap[i] = reads ? row_floats(a.weight, c)[width - 1 - i] : 0;
        past[i] = 0;
        if (reads && i > 0) /* i rows before `first` */
            past[i - 1] = !ONE && first >= i
                              ? row_floats(a.x, first - i)[c]
                              : state_at(a.state, seq, width - 1 - i + (ONE ? 0 : first))[c];
    }
    for (int32_t r = first; r < first + n; r++) {
#pragma unroll
        for (int i = TAPS - 1; i > 0; i--)
            past[i] = past[i - 1];
        past[0] = is_there ? row_floats(a.x, r)[c] : 0;
        float y = 0;
#pragma unroll
        for (int i = 0; i < TAPS; i++)
            y += i < width ? tap[i] * past[i] : 0;
        y *= real_sigmoid(y);
        if (blockIdx.y < 2 * a.n_key_heads) {
            const float sum = block_sum(is_there ? y * y : 0.0f);
            y *= ((int32_t)blockIdx.y < a.n_key_heads ? a.scale : 1.0f) / sqrtf(sum + a.eps);
        }
        if (is_there)
            row_floats(a.out, r)[c] = y;
    }
#pragma unroll
    for (int i = 0; ONE && i + 1 < TAPS; i++)
        if (is_there && i + 1 < width)
            state_at(a.state, seq, width - 2 - i)[c] = past[i];
}

/* After a prefill: the last rows of the call, or of the state before it. */
static __global__ void delta_state_kernel(const __grid_constant__ struct delta_args a)
{
    const int32_t c = blockIdx.x * blockDim.x + threadIdx.x, n = a.x.n_rows;
    const int32_t width = a.weight.n_cols;
    next_may_start();
    wait_for_previous();
    if (c >= a.x.n_cols)
        return;
    for (int32_t i = 0; i + 1 < width; i++) { /* what is read stands behind what is written */
        const int32_t at = n - (width - 1) + i;
        state_at(a.state, a.seqs[0], i)[c] =
            at >= 0 ? row_floats(a.x, at)[c] : state_at(a.state, a.seqs[0], width - 1 + at)[c];
    }
}

static int delta_heads_fast(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t key_dim = a->key_width / a->n_kv_heads, n = a->in[0].n_rows;
    const struct delta_args args = {a->out,
                                    a->out2,
                                    a->out3,
                                    a->in[0],
                                    a->in[1],
                                    a->in[2],
                                    a->in[4],
                                    a->in[5],
                                    (const float *)a->in[6].data,
                                    (const float *)a->in[7].data,
                                    (const int32_t *)a->in[3].data,
                                    key_dim,
                                    a->n_kv_heads,
                                    (float)a->scale,
                                    (float)a->eps};
    const unsigned columns = blocks_for(a->in[0].n_cols, key_dim) + 1;
    const dim3 block(blocks_for(key_dim, WARP) * WARP);
    if (!a->many)
        return launch(call, delta_heads_kernel<true>, dim3(n, columns), block, 0, args);
    const int rc = launch(call, delta_heads_kernel<false>, dim3(blocks_for(n, STEPS), columns),
                          block, 0, args);
    return rc ? rc
              : launch(call, delta_state_kernel, dim3(blocks_for(a->in[0].n_cols, 256)), dim3(256),
                       0, args);
}

int cuda_delta_heads(const struct op_args *a, const struct cuda_call *call)
{
    struct op_args part = *a;
    if (a->form == FORM_FAST && a->in[1].n_cols <= TAPS && a->key_width / a->n_kv_heads <= 1024)
        return delta_heads_fast(a, call);
    int rc = cuda_conv(a, call);
    part.n_heads = a->n_kv_heads;
    for (int i = 0; !rc && i < 2; i++) {
        part.out.data = (float *)a->out.data + i * a->key_width;
        part.out.n_cols = a->key_width;
        part.in[0] = part.out;
        part.scale = i ? 1 : a->scale;
        rc = cuda_l2_norm(&part, call);
    }
    part.out = a->out2;
    part.out2 = a->out3;
    for (int i = 0; i < 4; i++)
        part.in[i] = a->in[4 + i];
    return rc ? rc : cuda_delta_gates(&part, call);
}

/* A warp has one head. */
template <class REAL>
static __global__ void __launch_bounds__(HEADS *WARP)
    gated_norm_kernel(struct tensor out, struct tensor x, const float *weights, struct tensor gate,
                      struct rounded rounded, int32_t n_heads, int32_t n, double eps)
{
    const int32_t row = blockIdx.x, head = blockIdx.y * HEADS + threadIdx.y;
    next_may_start();
    wait_for_previous();
    if (head >= n_heads)
        return;
    const float *in = row_floats(x, row) + head * n, *z = row_floats(gate, row) + head * n;
    REAL sum = 0;
    for (int32_t i = threadIdx.x; i < n; i += WARP)
        sum += (REAL)in[i] * (REAL)in[i];
    const REAL scale = 1 / real_sqrt(warp_sum(sum) / n + (REAL)eps);
    for (int32_t i = threadIdx.x; i < n; i += WARP) {
        const float normed = (float)(in[i] * scale * (REAL)weights[i]);
        const float y = (float)(z[i] * real_sigmoid((REAL)z[i]) * normed);
        row_floats(out, row)[head * n + i] = y;
        round1(rounded, (int64_t)row * out.n_cols + head * n + i, y);
    }
}

int cuda_gated_norm(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->out.n_cols / a->n_heads;
    const dim3 grid(a->out.n_rows, blocks_for(a->n_heads, HEADS)), block(WARP, HEADS);
    const float *weights = (const float *)a->in[1].data;
    const struct rounded rounded =
        rounded_new(call, a->out, n % QUANT_BLOCK ? 0 : rounding_of(a, a->out, a->out.n_rows));
    return a->form == FORM_F64
               ? launch(call, gated_norm_kernel<double>, grid, block, 0, a->out, a->in[0], weights,
                        a->in[2], rounded, a->n_heads, n, a->eps)
               : launch(call, gated_norm_kernel<float>, grid, block, 0, a->out, a->in[0], weights,
                        a->in[2], rounded, a->n_heads, n, a->eps);
}
