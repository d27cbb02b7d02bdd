/* Products of few rows: a warp for each output, the weights read once, in their own format, past
 * the activations in 8 bits (or in float for weights of 16 bits). A format is a struct that says
 * what a lane loads at a time and what that is worth. A kernel's first weights are on their way
 * while the kernel before it still runs. */
#include "kernels/cuda_mv.cuh"

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

/* ---- formats ---- */

static __device__ __forceinline__ int dot16(int4 a, int4 b)
{
    return __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, 0))));
}
static __device__ __forceinline__ int4 and4(int4 a, int shift, int mask)
{
    return {a.x >> shift & mask, a.y >> shift & mask, a.z >> shift & mask, a.w >> shift & mask};
}
static __device__ __forceinline__ int4 or4(int4 a, int4 b)
{
    return {a.x | b.x, a.y | b.y, a.z | b.z, a.w | b.w};
}
static __device__ __forceinline__ int4 stream16(const void *p)
{
    return __ldcs((const int4 *)p);
}
static __device__ __forceinline__ int4 quants16(const struct rounded &x, int64_t e)
{
    return *(const int4 *)(x.quants + e);
}

/* A format: unit = elements of a load; N = loads on their way at a time; fetch a row's unit, and
 * its dot product with x from element `at` on. */
struct format_q8_0 {
    enum { UNIT = 16, N = 8 };
    int4 q;
    __half d;
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int unit)
    {
        q = stream16(q8_quants(m, mat, row) + unit * UNIT);
        d = q8_scales(m, mat, row)[unit / 2];
    }
    __device__ __forceinline__ float dot(const struct rounded &x, int64_t at, int unit) const
    {
        at += unit * UNIT;
        return __half2float(d) * x.scales[at / QUANT_BLOCK] * (float)dot16(q, quants16(x, at));
    }
};

struct format_q4_0 {
    enum { UNIT = 32, N = 4 };
    int4 q;
    __half d;
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int unit)
    {
        q = stream16(q4_quants(m, mat, row) + unit * 16);
        d = q4_scales(m, mat, row)[unit];
    }
    __device__ __forceinline__ float dot(const struct rounded &x, int64_t at, int unit) const
    {
        at += unit * UNIT;
        const int sum = dot16(and4(q, 0, 0x0f0f0f0f), quants16(x, at)) +
                        dot16(and4(q, 4, 0x0f0f0f0f), quants16(x, at + 16));
        return __half2float(d) *
               (x.scales[at / QUANT_BLOCK] * (float)sum - 8 * x.sums[at / QUANT_BLOCK]);
    }
};

/* Byte i of the 16 that begin a q4_k or q5_k superblock. */
static __device__ __forceinline__ int header_byte(int4 h, int i)
{
    const int word = i < 8 ? (i < 4 ? h.x : h.y) : (i < 12 ? h.z : h.w);
    return word >> i % 4 * 8 & 255;
}

/* The scale and minimum of sub-block s: quant_scale_min() on a header in registers. */
static __device__ __forceinline__ void header_scale_min(int4 h, int s, float *scale, float *min)
{
    const int low = header_byte(h, 4 + s % 4), mid = header_byte(h, 8 + s % 4);
    const int high = header_byte(h, 12 + s % 4);
    *scale = (float)(s < 4 ? low & 63 : (high & 15) | low >> 6 << 4);
    *min = (float)(s < 4 ? mid & 63 : high >> 4 | mid >> 6 << 4);
}

/* Sub-blocks 2p and 2p + 1, 16 elements of each from 16h on: what q4_k and q5_k share. */
static __device__ __forceinline__ float pair_dot(int4 header, int4 low, int4 high, int p, int h,
                                                 const struct rounded &x, int64_t at)
{
    const __half2 ds = *(const __half2 *)&header.x;
    const int64_t block = at / QUANT_BLOCK;
    float scale0, min0, scale1, min1;
    header_scale_min(header, 2 * p, &scale0, &min0);
    header_scale_min(header, 2 * p + 1, &scale1, &min1);
    float sum = scale0 * x.scales[block] * (float)dot16(low, quants16(x, at + 16 * h)) +
                scale1 * x.scales[block + 1] * (float)dot16(high, quants16(x, at + 32 + 16 * h));
    sum *= __low2float(ds);
    if (h == 0) /* for both halves */
        sum -= __high2float(ds) * (min0 * x.sums[block] + min1 * x.sums[block + 1]);
    return sum;
}

/* A unit: 16 bytes of quants, so elements 16h ... of sub-blocks 2p and 2p + 1. */
struct format_q4_k {
    enum { UNIT = 32, N = 4 };
    int4 header, q;
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int unit)
    {
        const struct quant_q4_k *b = packed_row<struct quant_q4_k>(m, mat, row) + unit / 8;
        header = *(const int4 *)b;
        q = stream16(b->qs + unit % 8 * 16);
    }
    __device__ __forceinline__ float dot(const struct rounded &x, int64_t at, int unit) const
    {
        const int p = unit % 8 / 2, h = unit % 2;
        return pair_dot(header, and4(q, 0, 0x0f0f0f0f), and4(q, 4, 0x0f0f0f0f), p, h, x,
                        at + unit / 8 * QUANT_SUPER + p * 64);
    }
};

struct format_q5_k {
    enum { UNIT = 32, N = 4 };
    int4 header, q, fifth;
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int unit)
    {
        const struct quant_q5_k *b = packed_row<struct quant_q5_k>(m, mat, row) + unit / 8;
        header = *(const int4 *)b;
        fifth = *(const int4 *)(b->qh + unit % 2 * 16);
        q = stream16(b->qs + unit % 8 * 16);
    }
    __device__ __forceinline__ float dot(const struct rounded &x, int64_t at, int unit) const
    {
        const int p = unit % 8 / 2, h = unit % 2;
        int4 low = and4(fifth, 2 * p, 0x01010101), high = and4(fifth, 2 * p + 1, 0x01010101);
        low = or4({low.x << 4, low.y << 4, low.z << 4, low.w << 4}, and4(q, 0, 0x0f0f0f0f));
        high = or4({high.x << 4, high.y << 4, high.z << 4, high.w << 4}, and4(q, 4, 0x0f0f0f0f));
        return pair_dot(header, low, high, p, h, x, at + unit / 8 * QUANT_SUPER + p * 64);
    }
};

/* A unit: 16 bytes of low nibbles, so elements 128h + 16s ... and 64 further on. Four times
 * q - 32 fits a signed byte: six bits at the top, the highest turned over. */
struct format_q6_k {
    enum { UNIT = 32, N = 4 };
    int4 q, high;
    int8_t scale0, scale1;
    __half d;
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int unit)
    {
        const int64_t b = q6_block(m, mat, row) + unit / 8;
        const int h = unit % 8 / 4, s = unit % 4;
        const struct q6_planes t = q6_planes_of(m);
        q = stream16(t.low + b * 128 + h * 64 + s * 16);
        high = *(const int4 *)(t.high + b * 64 + h * 32 + s % 2 * 16);
        scale0 = t.scales[b * 16 + h * 8 + s];
        scale1 = t.scales[b * 16 + h * 8 + 4 + s];
        d = t.d[b];
    }
    static __device__ __forceinline__ int six(int low, int high)
    {
        return ((low & 0x0f0f0f0f) << 2 | (high & 0x03030303) << 6) ^ 0x80808080;
    }
    __device__ __forceinline__ float dot(const struct rounded &x, int64_t at, int unit) const
    {
        const int h = unit % 8 / 4, s = unit % 4, shift = s / 2 * 2;
        const int64_t e = at + unit / 8 * QUANT_SUPER + h * 128 + s * 16;
        const int4 a = {six(q.x, high.x >> shift), six(q.y, high.y >> shift),
                        six(q.z, high.z >> shift), six(q.w, high.w >> shift)};
        const int4 b = {six(q.x >> 4, high.x >> (shift + 4)), six(q.y >> 4, high.y >> (shift + 4)),
                        six(q.z >> 4, high.z >> (shift + 4)), six(q.w >> 4, high.w >> (shift + 4))};
        const float sum =
            (float)scale0 * x.scales[e / QUANT_BLOCK] * (float)dot16(a, quants16(x, e)) +
            (float)scale1 * x.scales[(e + 64) / QUANT_BLOCK] * (float)dot16(b, quants16(x, e + 64));
        return 0.25f * __half2float(d) * sum;
    }
};

/* 16-bit weights: eight of them past float activations. */
template <class HALF> struct format_half {
    enum { UNIT = 8, N = 8 };
    int4 q;
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int unit)
    {
        q = stream16(packed_row<HALF>(m, mat, row) + unit * UNIT);
    }
    static __device__ __forceinline__ float wide(__half h)
    {
        return __half2float(h);
    }
    static __device__ __forceinline__ float wide(__nv_bfloat16 h)
    {
        return __bfloat162float(h);
    }
    __device__ __forceinline__ float dot(const float *x, int unit) const
    {
        const float4 a = *(const float4 *)(x + unit * UNIT);
        const float4 b = *(const float4 *)(x + unit * UNIT + 4);
        const HALF *w = (const HALF *)&q;
        return wide(w[0]) * a.x + wide(w[1]) * a.y + wide(w[2]) * a.z + wide(w[3]) * a.w +
               (wide(w[4]) * b.x + wide(w[5]) * b.y + wide(w[6]) * b.z + wide(w[7]) * b.w);
    }
};

/* ---- kernels ---- */

/* What a launch computes: up to four matrices of one x, and what is done with the result. */
struct products {
    struct tensor m[4], out[4];
    int32_t end[4];         /* outputs of this matrix and the ones before it */
    struct tensor x, sum;   /* x in float; sum: data NULL = none */
    struct rounded rounded; /* x in 8 bits */
    struct choice choice;
};

template <class F>
static __device__ __forceinline__ float unit_dot(const F &f, const struct products &p, int64_t row,
                                                 int32_t n_cols, int unit)
{
    return f.dot(p.rounded, row * n_cols, unit);
}
template <class HALF>
static __device__ __forceinline__ float
unit_dot(const format_half<HALF> &f, const struct products &p, int64_t row, int32_t, int unit)
{
    return f.dot(row_floats(p.x, row), unit);
}

/* A row's loads from unit `first` on, one in 32 for each lane; what is past the end is skipped. */
template <class F> struct loads {
    F f[F::N];
    __device__ __forceinline__ void fetch(const struct tensor &m, int mat, int row, int first)
    {
#pragma unroll
        for (int i = 0; i < F::N; i++)
            if (first + i * WARP < m.n_cols / F::UNIT)
                f[i].fetch(m, mat, row, first + i * WARP);
    }
};

/* Dot products of a matrix row with rows first ... first + N - 1 of x, whose first weights have
 * been fetched. With two_groups even and odd loads are summed apart. */
template <class F, int N, bool TWO_GROUPS>
static __device__ __forceinline__ void row_dots(float (&sum)[N], struct loads<F> &w,
                                                const struct products &p, const struct tensor &m,
                                                int mat, int row, int32_t first, int32_t n_rows)
{
    const int lane = threadIdx.x, n_units = m.n_cols / F::UNIT;
    float other[N];
#pragma unroll
    for (int t = 0; t < N; t++)
        sum[t] = other[t] = 0;
    for (int unit = lane; unit < n_units; unit += WARP * F::N) {
        if (unit != lane)
            w.fetch(m, mat, row, unit);
#pragma unroll
        for (int i = 0; i < F::N; i++)
            if (unit + i * WARP < n_units)
#pragma unroll
                for (int t = 0; t < N; t++)
                    if (N == 1 || t < n_rows)
                        (TWO_GROUPS && i % 2 ? other : sum)[t] +=
                            unit_dot(w.f[i], p, (first + t) / p.choice.rows_per_x, m.n_cols,
                                     unit + i * WARP);
    }
#pragma unroll
    for (int t = 0; t < N; t++)
        sum[t] = warp_sum(TWO_GROUPS ? sum[t] + other[t] : sum[t]);
}

#define MV_ROWS 8 /* outputs of a block, a warp for each */

template <class F, int N, bool TWO_GROUPS>
static __global__ void __launch_bounds__(WARP *MV_ROWS)
    mv_kernel(const __grid_constant__ struct products p)
{
    int32_t output = blockIdx.y * MV_ROWS + threadIdx.y;
    const int32_t first = blockIdx.x * N, n_rows = min(N, p.out[0].n_rows - first);
    const int which = (output >= p.end[0]) + (output >= p.end[1]) + (output >= p.end[2]);
    const struct tensor &m = p.m[which], &out = p.out[which];
    struct loads<F> w;
    float sum[N];
    next_may_start();
    output -= which ? p.end[which - 1] : 0;
    const bool is_there = output < m.n_rows;
    int32_t mat = 0;
    if (p.choice.ids) { /* which weights is not known before */
        wait_for_previous();
        mat = p.choice.ids[first];
    }
    if (is_there)
        w.fetch(m, mat, output, threadIdx.x);
    if (!p.choice.ids)
        wait_for_previous();
    if (!is_there)
        return;
    row_dots<F, N, TWO_GROUPS>(sum, w, p, m, mat, output, first, n_rows);
#pragma unroll
    for (int t = 0; t < N; t++)
        if (threadIdx.x == 0 && t < n_rows)
            row_floats(out, first + t)[output] =
                p.sum.data ? row_floats(p.sum, first + t)[output] + sum[t] : sum[t];
}

#define GLU_EACH 4 /* outputs of a warp, so that a block's are a whole block of 32 */

/* silu(x gate^T) * (x up^T): a block has 32 outputs of N rows, which it rounds. */
template <class F, int N, bool TWO_GROUPS>
static __global__ void __launch_bounds__(WARP *MV_ROWS)
    glu_kernel(const __grid_constant__ struct products p, struct rounded rounded)
{
    __shared__ float hidden[N][WARP];
    const int32_t output = blockIdx.y * WARP + threadIdx.y * GLU_EACH;
    const int32_t first = blockIdx.x * N, n_rows = min(N, p.out[0].n_rows - first);
    const int32_t n = min(GLU_EACH, p.m[0].n_rows - output);
    struct loads<F> w;
    float gate[N], up[N];
    next_may_start();
    if (n > 0)
        w.fetch(p.m[0], 0, output, threadIdx.x);
    wait_for_previous();
    for (int j = 0; j < n; j++) {
        if (j)
            w.fetch(p.m[0], 0, output + j, threadIdx.x);
        row_dots<F, N, TWO_GROUPS>(gate, w, p, p.m[0], 0, output + j, first, n_rows);
        w.fetch(p.m[1], 0, output + j, threadIdx.x);
        row_dots<F, N, TWO_GROUPS>(up, w, p, p.m[1], 0, output + j, first, n_rows);
#pragma unroll
        for (int t = 0; t < N; t++)
            if (threadIdx.x == 0)
                hidden[t][threadIdx.y * GLU_EACH + j] = gate[t] * real_sigmoid(gate[t]) * up[t];
    }
    __syncthreads();
    const int32_t t = threadIdx.y, c = blockIdx.y * WARP + threadIdx.x;
    if (t >= n_rows || c >= p.out[0].n_cols)
        return;
    row_floats(p.out[0], first + t)[c] = hidden[t][threadIdx.x];
    round1(rounded, (int64_t)(first + t) * p.out[0].n_cols + c, hidden[t][threadIdx.x]);
}

/* ---- launchers ---- */

/* Rows of x that share a pass over the weights. */
#define MV_TOGETHER MV_ROWS

template <class F, bool TWO_GROUPS>
static int run(const struct products &p, const struct rounded *glu, const struct cuda_call *call)
{
    const int32_t n_rows = p.out[0].n_rows;
    const bool alone = n_rows == 1 || p.choice.ids;
    const unsigned x = alone ? n_rows : blocks_for(n_rows, MV_TOGETHER);
    if (glu) {
        const dim3 grid(x, blocks_for(p.m[0].n_rows, WARP)), block(WARP, MV_ROWS);
        return alone
                   ? launch(call, glu_kernel<F, 1, TWO_GROUPS>, grid, block, 0, p, *glu)
                   : launch(call, glu_kernel<F, MV_TOGETHER, TWO_GROUPS>, grid, block, 0, p, *glu);
    }
    const dim3 grid(x, blocks_for(p.end[3], MV_ROWS)), block(WARP, MV_ROWS);
    return alone ? launch(call, mv_kernel<F, 1, TWO_GROUPS>, grid, block, 0, p)
                 : launch(call, mv_kernel<F, MV_TOGETHER, TWO_GROUPS>, grid, block, 0, p);
}

static int run_typed(const struct op_args *a, const struct products &p, const struct rounded *glu,
                     const struct cuda_call *call)
{
    switch (p.m[0].type) {
    case QUANT_Q8_0:
        return a->two_groups ? run<format_q8_0, true>(p, glu, call)
                             : run<format_q8_0, false>(p, glu, call);
    case QUANT_Q4_0:
        return run<format_q4_0, false>(p, glu, call);
    case QUANT_Q4_K:
        return run<format_q4_k, false>(p, glu, call);
    case QUANT_Q5_K:
        return run<format_q5_k, false>(p, glu, call);
    case QUANT_Q6_K:
        return run<format_q6_k, false>(p, glu, call);
    case QUANT_F16:
        return run<format_half<__half>, false>(p, glu, call);
    default:
        return run<format_half<__nv_bfloat16>, false>(p, glu, call);
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
    return rc ? rc : run_typed(a, p, NULL, call);
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
            rc = run_typed(a, p, NULL, call);
        if (rc)
            return rc;
    }
    return 0;
}

int cuda_mv_glu(const struct op_args *a, const struct cuda_call *call)
{
    struct products p;
    int n = 0;
    const int rc = products_begin(&p, a, a->in[1].type, {NULL, 1}, call);
    products_add(&p, &n, a->in[1], a->out);
    products_add(&p, &n, a->in[2], a->out);
    const struct rounded rounded = rounded_new(call, a->out, rounding_of(a, a->out, a->out.n_rows));
    return rc ? rc : run_typed(a, p, &rounded, call);
}
