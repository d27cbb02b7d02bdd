/* out = x matrix^T. The reference forms decode each weight where it is used: mm in tiles through
 * shared memory, mv a warp for each output. The fast forms: mv by 8-bit dot products for q8_0; mm
 * by tensor cores on weights decoded to bf16. */
#include "kernels/cuda_blas.h"
#include "kernels/cuda_common.cuh"

/* ---- reference ---- */

#define TILE 16

/* A block has TILE tokens by TILE outputs, a thread one of them; inputs in order. */
template <int TYPE, class REAL>
static __global__ void mm_kernel(struct tensor out, struct tensor x, struct tensor m)
{
    __shared__ float xs[TILE][TILE + 1], ws[TILE][TILE + 1];
    const int32_t i = threadIdx.x, j = threadIdx.y;
    const int32_t token = blockIdx.y * TILE + j, output = blockIdx.x * TILE + i;
    REAL sum = 0;
    for (int32_t col = 0; col < m.n_cols; col += TILE) {
        const int32_t row = blockIdx.x * TILE + j;
        xs[j][i] = token < out.n_rows && col + i < m.n_cols ? row_floats(x, token)[col + i] : 0.0f;
        ws[j][i] = row < m.n_rows && col + i < m.n_cols ? weight<TYPE>(m, 0, row, col + i) : 0.0f;
        __syncthreads();
        REAL part = 0;
#pragma unroll
        for (int32_t c = 0; c < TILE; c++)
            part += (REAL)xs[j][c] * (REAL)ws[i][c];
        sum += part;
        __syncthreads();
    }
    if (token < out.n_rows && output < m.n_rows)
        row_floats(out, token)[output] = (float)sum;
}

/* Which plane of the matrices a row of the output takes, and which row of x. */
struct choice {
    const int32_t *ids; /* (rows of the output); NULL: plane 0 */
    int32_t rows_per_x; /* rows of the output that read the same row of x */
};

static struct choice choice_of(const struct op_args *a, bool has_experts)
{
    return {has_experts ? (const int32_t *)a->in[2].data : NULL, a->out.n_rows / a->in[0].n_rows};
}

/* A warp has one element of one row of the output; a lane every 32nd input. */
template <int TYPE, class REAL>
static __global__ void mv_kernel(struct tensor out, struct tensor x, struct tensor m,
                                 struct choice choice)
{
    const int32_t output = blockIdx.y * blockDim.y + threadIdx.y, token = blockIdx.x;
    const int32_t mat = choice.ids ? choice.ids[token] : 0;
    if (output >= m.n_rows)
        return;
    const float *row = row_floats(x, token / choice.rows_per_x);
    REAL sum = 0;
    for (int32_t c = threadIdx.x; c < m.n_cols; c += WARP)
        sum += (REAL)row[c] * (REAL)weight<TYPE>(m, mat, output, c);
    sum = warp_sum(sum);
    if (threadIdx.x == 0)
        row_floats(out, token)[output] = (float)sum;
}

/* How a product is shaped: many tokens through one matrix, few, or each through its own. */
enum shape { SHAPE_MM, SHAPE_MV, SHAPE_EXPERTS };

template <int TYPE, class REAL>
static int reference(const struct op_args *a, const struct cuda_call *call, enum shape shape)
{
    const struct tensor &m = a->in[1];
    if (shape == SHAPE_MM)
        mm_kernel<TYPE, REAL><<<dim3(blocks_for(m.n_rows, TILE), blocks_for(a->out.n_rows, TILE)),
                                dim3(TILE, TILE), 0, stream_of(call)>>>(a->out, a->in[0], m);
    else
        mv_kernel<TYPE, REAL>
            <<<dim3(a->out.n_rows, blocks_for(m.n_rows, 8)), dim3(WARP, 8), 0, stream_of(call)>>>(
                a->out, a->in[0], m, choice_of(a, shape == SHAPE_EXPERTS));
    return cudaGetLastError();
}

static int reference_typed(const struct op_args *a, const struct cuda_call *call, enum shape shape)
{
#define LAUNCH(TYPE)                                                                               \
    case TYPE:                                                                                     \
        return a->form == FORM_F64 ? reference<TYPE, double>(a, call, shape)                       \
                                   : reference<TYPE, float>(a, call, shape);
    switch (a->in[1].type) {
        FOR_WEIGHT_TYPES(LAUNCH)
    }
#undef LAUNCH
    return cudaErrorInvalidValue;
}

/* ---- fast mv: q8_0 ---- */

/* Rounded rows of x in the workspace: (n_rows, n_cols) quants, then (n_rows, n_cols / 32) scales.
 */
struct rounded {
    int8_t *quants;
    float *scales;
};

static struct rounded rounded_at(const struct cuda_call *call, int64_t n_elements)
{
    int8_t *quants = (int8_t *)call->workspace;
    return {quants, (float *)(quants + (n_elements + 255) / 256 * 256)};
}

/* A warp rounds 128 elements, four to a lane. */
static __global__ void round_kernel(struct rounded out, struct tensor x)
{
    const int32_t r = blockIdx.x, c = (blockIdx.y * blockDim.x + threadIdx.x) * 4;
    if (c >= x.n_cols)
        return;
    const float4 v = *(const float4 *)(row_floats(x, r) + c);
    /* Magnitudes compare as their bits do, and what is not finite is largest. */
    uint32_t bits = 0;
    const float element[4] = {v.x, v.y, v.z, v.w};
    const unsigned group = 0xffu << (threadIdx.x % WARP / 8 * 8);
    for (int i = 0; i < 4; i++)
        bits = max(bits, __float_as_uint(element[i]) & 0x7fffffff);
    for (int d = 4; d; d >>= 1)
        bits = max(bits, __shfl_xor_sync(group, bits, d));
    const float most = __uint_as_float(bits < 0x7f800000 ? bits : 0x7fc00000);
    const float inverse = most > 0 ? 127.0f / most : 0.0f;
    char4 q;
    q.x = (signed char)__float2int_rn(v.x * inverse);
    q.y = (signed char)__float2int_rn(v.y * inverse);
    q.z = (signed char)__float2int_rn(v.z * inverse);
    q.w = (signed char)__float2int_rn(v.w * inverse);
    *(char4 *)(out.quants + (int64_t)r * x.n_cols + c) = q;
    if (threadIdx.x % 8 == 0)
        out.scales[(int64_t)r * (x.n_cols / QUANT_BLOCK) + c / QUANT_BLOCK] = most / 127.0f;
}

/* Consecutive products of one x round it once. */
static void round_once(struct rounded out, const struct tensor &x, const struct cuda_call *call)
{
    struct tensor *known = call->rounded;
    if (known->data == x.data && known->n_rows == x.n_rows && known->n_cols == x.n_cols)
        return;
    round_kernel<<<dim3(x.n_rows, blocks_for(x.n_cols, 512)), 128, 0, stream_of(call)>>>(out, x);
    *known = x;
}

#define MV_ROWS 8 /* outputs of a block, a warp for each */

static __device__ __forceinline__ int dot16(int4 a, int4 b)
{
    return __dp4a(a.x, b.x, __dp4a(a.y, b.y, __dp4a(a.z, b.z, __dp4a(a.w, b.w, 0))));
}

/* A warp has one output for up to N tokens; a lane half a block of 32, and with two_groups the
 * products of odd and even turns are summed apart. */
template <int N, bool TWO_GROUPS>
static __global__ void __launch_bounds__(WARP *MV_ROWS)
    mv_q8_kernel(struct tensor out, struct rounded x, struct tensor m, struct choice choice)
{
    const int32_t output = blockIdx.y * MV_ROWS + threadIdx.y, lane = threadIdx.x;
    const int32_t first = blockIdx.x * N, n_tokens = min(N, out.n_rows - first);
    const int32_t n = m.n_cols, n_blocks = n / QUANT_BLOCK;
    if (output >= m.n_rows)
        return;
    const int32_t mat = choice.ids ? choice.ids[first] : 0;
    const int8_t *quants = q8_quants(m, mat, output) + lane * 16;
    const __half *scales = q8_scales(m, mat, output) + lane / 2;
    float sum[N][2] = {};
#pragma unroll 4
    for (int32_t c = 0; c < n; c += WARP * 16) {
        if (c + lane * 16 >= n)
            break;
        const int4 w = __ldcs((const int4 *)(quants + c));
        const float d = __half2float(scales[c / QUANT_BLOCK]);
#pragma unroll
        for (int t = 0; t < N; t++) {
            if (t >= n_tokens)
                break;
            const int64_t row = (first + t) / choice.rows_per_x;
            const int4 v = *(const int4 *)(x.quants + row * n + c + lane * 16);
            const float scale = x.scales[row * n_blocks + c / QUANT_BLOCK + lane / 2];
            sum[t][0] += d * scale * (float)dot16(w, v);
            if (TWO_GROUPS) { /* take turns */
                const float other = sum[t][1];
                sum[t][1] = sum[t][0];
                sum[t][0] = other;
            }
        }
    }
#pragma unroll
    for (int t = 0; t < N; t++) {
        const float total = warp_sum(sum[t][0] + (TWO_GROUPS ? sum[t][1] : 0.0f));
        if (lane == 0 && t < n_tokens)
            row_floats(out, first + t)[output] = total;
    }
}

template <bool TWO_GROUPS>
static int mv_q8(const struct op_args *a, const struct cuda_call *call, enum shape shape)
{
    const struct tensor &m = a->in[1];
    const int32_t n_rows = a->out.n_rows, n_x = a->in[0].n_rows;
    const struct rounded x = rounded_at(call, (int64_t)n_x * m.n_cols);
    const struct choice choice = choice_of(a, shape == SHAPE_EXPERTS);
    if ((int64_t)n_x * m.n_cols * 2 + 512 > (int64_t)call->workspace_bytes)
        return cudaErrorMemoryAllocation;
    round_once(x, a->in[0], call);
    const dim3 block(WARP, MV_ROWS);
    const unsigned blocks = blocks_for(m.n_rows, MV_ROWS);
    if (n_rows == 1 || shape == SHAPE_EXPERTS)
        mv_q8_kernel<1, TWO_GROUPS>
            <<<dim3(n_rows, blocks), block, 0, stream_of(call)>>>(a->out, x, m, choice);
    else
        mv_q8_kernel<8, TWO_GROUPS>
            <<<dim3(blocks_for(n_rows, 8), blocks), block, 0, stream_of(call)>>>(a->out, x, m,
                                                                                 choice);
    return cudaGetLastError();
}

/* ---- fast mm: tensor cores ---- */

template <int TYPE>
static __global__ void decode_kernel(__nv_bfloat16 *out, struct tensor m, int32_t first)
{
    const int32_t c = blockIdx.y * blockDim.x + threadIdx.x, row = blockIdx.x;
    if (c < m.n_cols)
        out[(int64_t)row * m.n_cols + c] = __float2bfloat16(weight<TYPE>(m, 0, first + row, c));
}

static int decode_rows(__nv_bfloat16 *out, const struct tensor &m, int32_t first, int32_t n,
                       const struct cuda_call *call)
{
    const dim3 grid(n, blocks_for(m.n_cols, 256));
#define LAUNCH(TYPE)                                                                               \
    case TYPE:                                                                                     \
        decode_kernel<TYPE><<<grid, 256, 0, stream_of(call)>>>(out, m, first);                     \
        break;
    switch (m.type) {
        FOR_WEIGHT_TYPES(LAUNCH)
    }
#undef LAUNCH
    return cudaGetLastError();
}

/* The workspace holds x in bf16, cuBLAS's own, and as many decoded rows of the matrix as fit. */
static int mm_tensor(const struct op_args *a, const struct cuda_call *call)
{
    const struct tensor &x = a->in[0], &m = a->in[1];
    const size_t own = CUDA_BLAS_WORKSPACE;
    const size_t x_bytes = ((size_t)x.n_rows * m.n_cols * 2 + 255) / 256 * 256;
    char *at = (char *)call->workspace;
    __nv_bfloat16 *xs = (__nv_bfloat16 *)(at + own), *ws = (__nv_bfloat16 *)(at + own + x_bytes);
    if (own + x_bytes + (size_t)m.n_cols * 2 * 16 > call->workspace_bytes)
        return cudaErrorMemoryAllocation;
    const size_t fit = (call->workspace_bytes - own - x_bytes) / ((size_t)m.n_cols * 2);
    const int32_t step = fit > (size_t)m.n_rows ? m.n_rows : (int32_t)(fit / 16 * 16);
    int rc = decode_rows(xs, x, 0, x.n_rows, call);
    for (int32_t first = 0; !rc && first < m.n_rows; first += step) {
        const int32_t n = m.n_rows - first < step ? m.n_rows - first : step;
        const bool as_is = m.type == QUANT_BF16;
        const __nv_bfloat16 *w =
            as_is ? (const __nv_bfloat16 *)m.data + (int64_t)first * m.n_cols : ws;
        rc = as_is ? 0 : decode_rows(ws, m, first, n, call);
        const struct cuda_blas_args product = {(float *)a->out.data + first,
                                               a->out.row_bytes / (int64_t)sizeof(float),
                                               w,
                                               xs,
                                               n,
                                               x.n_rows,
                                               m.n_cols,
                                               at};
        if (!rc && cuda_blas_matmul(call->blas, &product, call->stream))
            rc = cudaErrorInvalidValue;
    }
    return rc;
}

/* Shapes that the fast forms take: rows that vector loads and cuBLAS can address. */
static bool is_aligned(const struct op_args *a)
{
    return a->in[1].n_cols % 32 == 0 && a->in[0].row_bytes % 16 == 0 && a->in[1].n_rows % 8 == 0 &&
           a->out.row_bytes % 16 == 0;
}

int cuda_matmul_mm(const struct op_args *a, const struct cuda_call *call)
{
    if (a->form == FORM_FAST && a->in[1].type != QUANT_F32 && is_aligned(a))
        return mm_tensor(a, call);
    return reference_typed(a, call, SHAPE_MM);
}

static int few(const struct op_args *a, const struct cuda_call *call, enum shape shape)
{
    if (a->form == FORM_FAST && a->in[1].type == QUANT_Q8_0 && is_aligned(a))
        return a->two_groups ? mv_q8<true>(a, call, shape) : mv_q8<false>(a, call, shape);
    return reference_typed(a, call, shape);
}

int cuda_matmul_mv(const struct op_args *a, const struct cuda_call *call)
{
    return few(a, call, SHAPE_MV);
}

int cuda_experts_mv(const struct op_args *a, const struct cuda_call *call)
{
    return few(a, call, SHAPE_EXPERTS);
}

/* A prefill's tokens are spread over the experts: each goes by itself. */
int cuda_experts_mm(const struct op_args *a, const struct cuda_call *call)
{
    return few(a, call, SHAPE_EXPERTS);
}

/* ---- placing ---- */

static __global__ void place_q8_0_kernel(struct tensor t, const struct quant_q8_0 *raw,
                                         void *placed, int64_t n_blocks)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= n_blocks)
        return;
    int8_t *quants = (int8_t *)placed;
    quants[i * QUANT_BLOCK + threadIdx.x] = raw[i].qs[threadIdx.x];
    if (threadIdx.x == 0)
        ((uint16_t *)(quants + n_blocks * QUANT_BLOCK))[i] = raw[i].d;
}

int cuda_place(const struct tensor *t, const void *raw, void *placed, const struct cuda_call *call)
{
    const int64_t bytes = t->mat_bytes * t->n_mats;
    if (t->type != QUANT_Q8_0)
        return cudaMemcpyAsync(placed, raw, bytes, cudaMemcpyDeviceToDevice, stream_of(call));
    const int64_t n_blocks = bytes / (int64_t)sizeof(struct quant_q8_0);
    place_q8_0_kernel<<<blocks_for(n_blocks, 8), dim3(WARP, 8), 0, stream_of(call)>>>(
        *t, (const struct quant_q8_0 *)raw, placed, n_blocks);
    return cudaGetLastError();
}
