/* out = x matrix^T. The reference forms decode each weight where it is used: mm in tiles through
 * shared memory, mv a warp for each output. The fast forms: mv in cuda_mv.cu; mm by tensor cores on
 * weights decoded to bf16. */
#include "kernels/cuda_blas.h"
#include "kernels/cuda_mv.cuh"

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

/* ---- fast mm: tensor cores ---- */

/* Eight elements of a row from col, a multiple of 8. */
template <int TYPE>
static __device__ __forceinline__ void decode8(float (&out)[8], const struct tensor &m, int row,
                                               int col)
{
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = weight<TYPE>(m, 0, row, col + i);
}
template <>
__device__ __forceinline__ void decode8<QUANT_Q8_0>(float (&out)[8], const struct tensor &m,
                                                    int row, int col)
{
    const int2 packed = *(const int2 *)(q8_quants(m, 0, row) + col);
    const int8_t *q = (const int8_t *)&packed;
    const float d = __half2float(q8_scales(m, 0, row)[col / QUANT_BLOCK]);
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = d * (float)q[i];
}
template <>
__device__ __forceinline__ void decode8<QUANT_Q4_K>(float (&out)[8], const struct tensor &m,
                                                    int row, int col)
{
    const struct quant_q4_k *b = packed_row<struct quant_q4_k>(m, 0, row) + col / QUANT_SUPER;
    const int j = col % QUANT_SUPER, shift = j / 32 % 2 * 4;
    const uint2 packed = *(const uint2 *)(b->qs + j / 64 * 32 + j % 32);
    const uint8_t *q = (const uint8_t *)&packed;
    int scale, min;
    quant_scale_min(b->scales, j / 32, &scale, &min);
    const float d = half_bits(b->d) * (float)scale, low = half_bits(b->dmin) * (float)min;
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] = d * (float)(q[i] >> shift & 15) - low;
}
template <>
__device__ __forceinline__ void decode8<QUANT_Q6_K>(float (&out)[8], const struct tensor &m,
                                                    int row, int col)
{
    const struct q6_planes p = q6_planes_of(m);
    const int64_t b = q6_block(m, 0, row) + col / QUANT_SUPER;
    const int j = col % QUANT_SUPER, half = j / 128, l = j % 128;
    const uint2 low = *(const uint2 *)(p.low + b * 128 + half * 64 + l % 64);
    const uint2 high = *(const uint2 *)(p.high + b * 64 + half * 32 + l % 32);
    const uint8_t *lows = (const uint8_t *)&low, *highs = (const uint8_t *)&high;
    const float d = __half2float(p.d[b]) * (float)p.scales[b * 16 + j / 16];
#pragma unroll
    for (int i = 0; i < 8; i++)
        out[i] =
            d * (float)(((lows[i] >> l / 64 * 4 & 15) | (highs[i] >> l / 32 * 2 & 3) << 4) - 32);
}

/* A thread decodes eight elements, 2,048 to a block. */
template <int TYPE>
static __global__ void decode_kernel(__nv_bfloat16 *out, struct tensor m, int32_t first)
{
    const int32_t c = (blockIdx.y * blockDim.x + threadIdx.x) * 8, row = blockIdx.x;
    float w[8];
    if (c >= m.n_cols)
        return;
    decode8<TYPE>(w, m, first + row, c);
    uint4 packed;
    __nv_bfloat162 *two = (__nv_bfloat162 *)&packed;
#pragma unroll
    for (int i = 0; i < 4; i++)
        two[i] = __floats2bfloat162_rn(w[2 * i], w[2 * i + 1]);
    *(uint4 *)(out + (int64_t)row * m.n_cols + c) = packed;
}

static int decode_rows(__nv_bfloat16 *out, const struct tensor &m, int32_t first, int32_t n,
                       const struct cuda_call *call)
{
    const dim3 grid(n, blocks_for(m.n_cols, 2048));
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

/* Rows first ... first + n - 1 of a tensor. */
static struct tensor rows_of(struct tensor t, int32_t first, int32_t n)
{
    t.data = (char *)t.data + first * t.row_bytes;
    t.n_rows = n;
    return t;
}

/* out = x m^T, plus what out holds where `adds`: as many decoded rows of the matrix at a time as
 * the workspace takes. */
static int mm_tensor(const struct tensor &out, const struct tensor &x, const struct tensor &m,
                     bool adds, const struct cuda_call *call)
{
    const size_t fit = call_space_bytes() / ((size_t)m.n_cols * 2);
    const int32_t step = fit > (size_t)m.n_rows ? m.n_rows : (int32_t)(fit / 16 * 16);
    const int32_t half = x.n_rows / 2;
    struct rounded xs;
    if (step == 0)
        return cudaErrorMemoryAllocation;
    if ((size_t)n_elements_of(x) * 5 / 2 + 1024 > CUDA_ROUND_BYTES) {
        const int rc = mm_tensor(rows_of(out, 0, half), rows_of(x, 0, half), m, adds, call);
        return rc ? rc
                  : mm_tensor(rows_of(out, half, x.n_rows - half),
                              rows_of(x, half, x.n_rows - half), m, adds, call);
    }
    int rc = cuda_round(&xs, x, CUDA_BF16, call);
    for (int32_t first = 0; !rc && first < m.n_rows; first += step) {
        const int32_t n = m.n_rows - first < step ? m.n_rows - first : step;
        const bool as_is = m.type == QUANT_BF16;
        const __nv_bfloat16 *w = as_is ? (const __nv_bfloat16 *)m.data + (int64_t)first * m.n_cols
                                       : (const __nv_bfloat16 *)call_space(call);
        rc = as_is ? 0 : decode_rows((__nv_bfloat16 *)call_space(call), m, first, n, call);
        const struct cuda_blas_args product = {(float *)out.data + first,
                                               out.row_bytes / (int64_t)sizeof(float),
                                               w,
                                               xs.halves,
                                               n,
                                               x.n_rows,
                                               m.n_cols,
                                               adds,
                                               blas_space(call)};
        if (!rc && cuda_blas_matmul(call->blas, &product, call->stream))
            rc = cudaErrorInvalidValue;
    }
    return rc;
}

/* ---- operators ---- */

/* Shapes that cuBLAS can address. */
static bool mm_takes(const struct op_args *a)
{
    return a->form == FORM_FAST && a->in[1].type != QUANT_F32 && a->in[1].n_cols % 32 == 0 &&
           a->in[0].row_bytes % 16 == 0 && a->in[1].n_rows % 8 == 0 && a->out.row_bytes % 16 == 0;
}

int cuda_matmul_mm(const struct op_args *a, const struct cuda_call *call)
{
    return mm_takes(a) ? mm_tensor(a->out, a->in[0], a->in[1], false, call)
                       : reference_typed(a, call, SHAPE_MM);
}

int cuda_matmul_mv(const struct op_args *a, const struct cuda_call *call)
{
    if (a->out.n_rows > cuda_mv_most_rows(a->in[1]) && mm_takes(a))
        return mm_tensor(a->out, a->in[0], a->in[1], false, call);
    return cuda_mv_takes(a, a->in[1]) ? cuda_mv(a, choice_of(a, false), NULL, call)
                                      : reference_typed(a, call, SHAPE_MV);
}

int cuda_experts_mv(const struct op_args *a, const struct cuda_call *call)
{
    return cuda_mv_takes(a, a->in[1]) ? cuda_mv(a, choice_of(a, true), NULL, call)
                                      : reference_typed(a, call, SHAPE_EXPERTS);
}

/* A prefill's tokens are spread over the experts: each goes by itself. */
int cuda_experts_mm(const struct op_args *a, const struct cuda_call *call)
{
    return cuda_experts_mv(a, call);
}

/* The call's scratch as packed rows like those of out. */
static struct tensor scratch_like(const struct op_args *a)
{
    struct tensor t = a->out;
    t.data = a->scratch;
    t.row_bytes = (int64_t)t.n_cols * (int64_t)sizeof(float);
    t.mat_bytes = t.row_bytes * t.n_rows;
    return t;
}

static int add_product(const struct op_args *a, const struct cuda_call *call, cuda_fn matmul)
{
    struct op_args product = *a, sum = *a;
    product.out = scratch_like(a);
    sum.in[0] = a->in[2];
    sum.in[1] = product.out;
    const int rc = matmul(&product, call);
    return rc ? rc : cuda_add(&sum, call);
}

int cuda_add_matmul_mm(const struct op_args *a, const struct cuda_call *call)
{
    if (mm_takes(a) && a->in[2].data == a->out.data)
        return mm_tensor(a->out, a->in[0], a->in[1], true, call);
    return add_product(a, call, cuda_matmul_mm);
}

int cuda_add_matmul_mv(const struct op_args *a, const struct cuda_call *call)
{
    if (a->out.n_rows > cuda_mv_most_rows(a->in[1]))
        return cuda_add_matmul_mm(a, call);
    if (cuda_mv_takes(a, a->in[1]))
        return cuda_mv(a, choice_of(a, false), &a->in[2], call);
    return add_product(a, call, cuda_matmul_mv);
}

int cuda_project_mv(const struct op_args *a, const struct cuda_call *call)
{
    const struct tensor outs[] = {a->out, a->out2, a->out3, a->out4};
    bool all = true;
    int rc = 0;
    for (int i = 1; i <= 4 && a->in[i].data; i++)
        all = all && cuda_mv_takes(a, a->in[i]) && a->out.n_rows <= cuda_mv_most_rows(a->in[i]);
    if (all)
        return cuda_mv_project(a, call);
    for (int i = 0; !rc && i < 4 && a->in[1 + i].data; i++) {
        struct op_args product = *a;
        product.out = outs[i];
        product.in[1] = a->in[1 + i];
        rc = cuda_matmul_mv(&product, call);
    }
    return rc;
}

int cuda_glu_mv(const struct op_args *a, const struct cuda_call *call)
{
    struct op_args gate = *a, up = *a, both = *a;
    bool is_done = false;
    int rc = 0;
    if (a->out.n_rows <= cuda_mv_most_rows(a->in[1]) && a->in[1].type == a->in[2].type &&
        cuda_mv_takes(a, a->in[1]))
        rc = cuda_mv_glu(a, &is_done, call);
    if (rc || is_done)
        return rc;
    gate.out = scratch_like(a);
    up.in[1] = a->in[2];
    both.in[0] = gate.out;
    both.in[1] = up.out;
    rc = cuda_matmul_mv(&gate, call);
    rc = rc ? rc : cuda_matmul_mv(&up, call);
    return rc ? rc : cuda_swiglu(&both, call);
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

static __global__ void place_q4_0_kernel(const struct quant_q4_0 *raw, uint8_t *placed,
                                         int64_t n_blocks)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    if (i >= n_blocks)
        return;
    if (threadIdx.x < 16)
        placed[i * 16 + threadIdx.x] = raw[i].qs[threadIdx.x];
    else if (threadIdx.x == 16)
        ((uint16_t *)(placed + n_blocks * 16))[i] = raw[i].d;
}

static __global__ void place_q6_k_kernel(struct tensor placed, const struct quant_q6_k *raw,
                                         int64_t n_blocks)
{
    const int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y;
    const struct q6_planes p = q6_planes_of(placed);
    if (i >= n_blocks)
        return;
    for (int j = threadIdx.x; j < 128; j += WARP)
        ((uint8_t *)p.low)[i * 128 + j] = raw[i].ql[j];
    for (int j = threadIdx.x; j < 64; j += WARP)
        ((uint8_t *)p.high)[i * 64 + j] = raw[i].qh[j];
    if (threadIdx.x < 16)
        ((int8_t *)p.scales)[i * 16 + threadIdx.x] = raw[i].scales[threadIdx.x];
    if (threadIdx.x == 0)
        ((uint16_t *)p.d)[i] = raw[i].d;
}

int cuda_place(const struct tensor *t, const void *raw, void *placed, const struct cuda_call *call)
{
    const int64_t bytes = t->mat_bytes * t->n_mats;
    const dim3 block(WARP, 8);
    struct tensor to = *t;
    to.data = placed;
    if (t->type == QUANT_Q8_0) {
        const int64_t n = bytes / (int64_t)sizeof(struct quant_q8_0);
        place_q8_0_kernel<<<blocks_for(n, 8), block, 0, stream_of(call)>>>(
            *t, (const struct quant_q8_0 *)raw, placed, n);
    } else if (t->type == QUANT_Q4_0) {
        const int64_t n = bytes / (int64_t)sizeof(struct quant_q4_0);
        place_q4_0_kernel<<<blocks_for(n, 8), block, 0, stream_of(call)>>>(
            (const struct quant_q4_0 *)raw, (uint8_t *)placed, n);
    } else if (t->type == QUANT_Q6_K) {
        const int64_t n = bytes / (int64_t)sizeof(struct quant_q6_k);
        place_q6_k_kernel<<<blocks_for(n, 8), block, 0, stream_of(call)>>>(
            to, (const struct quant_q6_k *)raw, n);
    } else {
        return cudaMemcpyAsync(placed, raw, bytes, cudaMemcpyDeviceToDevice, stream_of(call));
    }
    return cudaGetLastError();
}
