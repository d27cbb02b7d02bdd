/* Attention over the cache. Prefill: a block takes 16 queries of one head through tiles of 64 keys
 * in shared memory. Decode: a block takes one part of the cache for the query heads of a key head;
 * a second kernel adds the parts in order. cuda_flash.cu has the fast forms for narrow caches. */
#include "kernels/cuda_flash.cuh"

#define TILE_KEYS    64
#define TILE_QUERIES 16
#define WARPS        4
#define PER_WARP     (TILE_QUERIES / WARPS)

struct heads {
    int32_t n_heads, n_kv_heads, dim;
    double scale;
};

/* Element i of a cached head. */
template <int TYPE>
static __device__ __forceinline__ float cached(const struct tensor &cache, int32_t seq, int32_t pos,
                                               int32_t i)
{
    return element<TYPE>((const char *)cache.data + seq * cache.mat_bytes + pos * cache.row_bytes,
                         i);
}

/* ---- prefill ---- */

/* Load keys or values first ... first + n - 1 of a head; rows one element longer than the head, so
 * that a column's reads hit different banks. */
template <int TYPE>
static __device__ void tile_load(float *tile, const struct tensor &cache, int32_t seq,
                                 int32_t first, int32_t n, int32_t kv_head, int32_t dim)
{
    for (int32_t i = threadIdx.x; i < n * dim; i += WARPS * WARP)
        tile[i / dim * (dim + 1) + i % dim] =
            cached<TYPE>(cache, seq, first + i / dim, kv_head * dim + i % dim);
}

/* Softmax-weighted values of one query, spread over a warp: lane l has elements l, l + 32, ... */
template <class REAL, int E> struct partial {
    REAL max, sum, acc[E];

    __device__ __forceinline__ void init()
    {
        max = -INFINITY;
        sum = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            acc[e] = 0;
    }
    __device__ __forceinline__ void raise(REAL to)
    {
        if (!(to > max))
            return;
        const REAL shrink = real_exp(max - to);
        max = to;
        sum *= shrink;
#pragma unroll
        for (int e = 0; e < E; e++)
            acc[e] *= shrink;
    }
};

template <class REAL, int TYPE, int E>
static __global__ void __launch_bounds__(WARPS *WARP)
    prefill_kernel(struct tensor out, struct tensor q, struct tensor keys, struct tensor values,
                   const int32_t *seqs, const int32_t *positions, struct heads h)
{
    extern __shared__ float shared[];
    const int32_t dim = h.dim, head = blockIdx.y, kv_head = head / (h.n_heads / h.n_kv_heads);
    const int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    const int32_t first_query = blockIdx.x * TILE_QUERIES, seq = seqs[first_query];
    const int32_t last_query = min(first_query + TILE_QUERIES, q.n_rows) - 1;
    float *query = shared;                    /* (TILE_QUERIES, dim) */
    float *tile = query + TILE_QUERIES * dim; /* (TILE_KEYS, dim + 1) */
    REAL *weight = (REAL *)(tile + TILE_KEYS * (dim + 1) + (TILE_KEYS * (dim + 1) & 1));
    weight += warp * PER_WARP * TILE_KEYS; /* (PER_WARP, TILE_KEYS) of this warp */

    for (int32_t i = threadIdx.x; i < TILE_QUERIES * dim; i += WARPS * WARP)
        query[i] = row_floats(q, min(first_query + i / dim, last_query))[head * dim + i % dim];
    struct partial<REAL, E> part[PER_WARP];
    int32_t n_keys[PER_WARP];
#pragma unroll
    for (int j = 0; j < PER_WARP; j++) {
        part[j].init();
        n_keys[j] = positions[min(first_query + warp * PER_WARP + j, last_query)] + 1;
    }
    const int32_t most = positions[last_query] + 1;
    for (int32_t first = 0; first < most; first += TILE_KEYS) {
        const int32_t n = min(TILE_KEYS, most - first);
        __syncthreads();
        tile_load<TYPE>(tile, keys, seq, first, n, kv_head, dim);
        __syncthreads();
        /* Scores: a lane has keys lane and lane + 32. */
        REAL score[PER_WARP][2] = {};
        for (int32_t d = 0; d < dim; d++) {
            const REAL k0 = tile[lane * (dim + 1) + d], k1 = tile[(lane + WARP) * (dim + 1) + d];
#pragma unroll
            for (int j = 0; j < PER_WARP; j++) {
                const REAL x = query[(warp * PER_WARP + j) * dim + d];
                score[j][0] += x * k0;
                score[j][1] += x * k1;
            }
        }
#pragma unroll
        for (int j = 0; j < PER_WARP; j++) {
            const bool has0 = lane < n && first + lane < n_keys[j];
            const bool has1 = lane + WARP < n && first + lane + WARP < n_keys[j];
            const REAL s0 = has0 ? score[j][0] * (REAL)h.scale : (REAL)-INFINITY;
            const REAL s1 = has1 ? score[j][1] * (REAL)h.scale : (REAL)-INFINITY;
            part[j].raise(warp_max(s0 > s1 ? s0 : s1));
            const REAL w0 = has0 ? real_exp(s0 - part[j].max) : (REAL)0;
            const REAL w1 = has1 ? real_exp(s1 - part[j].max) : (REAL)0;
            part[j].sum += warp_sum(w0 + w1);
            weight[j * TILE_KEYS + lane] = w0;
            weight[j * TILE_KEYS + lane + WARP] = w1;
        }
        __syncthreads();
        tile_load<TYPE>(tile, values, seq, first, n, kv_head, dim);
        __syncthreads();
        for (int32_t key = 0; key < n; key++)
#pragma unroll
            for (int e = 0; e < E; e++) {
                const int32_t i = lane + WARP * e;
                const REAL v = i < dim ? tile[key * (dim + 1) + i] : 0.0f;
#pragma unroll
                for (int j = 0; j < PER_WARP; j++)
                    part[j].acc[e] += weight[j * TILE_KEYS + key] * v;
            }
    }
#pragma unroll
    for (int j = 0; j < PER_WARP; j++) {
        const int32_t r = first_query + warp * PER_WARP + j;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (r <= last_query && lane + WARP * e < dim)
                row_floats(out, r)[head * dim + lane + WARP * e] =
                    (float)(part[j].acc[e] / part[j].sum);
    }
}

/* ---- decode ---- */

/* What a part leaves: max, sum, then the head's weighted values. */
static __host__ __device__ __forceinline__ int64_t part_at(int32_t row, int32_t head, int32_t part,
                                                           int32_t n_heads, int32_t n_parts,
                                                           int32_t dim)
{
    return (((int64_t)row * n_heads + head) * n_parts + part) * (dim + 2);
}

/* Parts of a cache of n_keys: as many as asked, or as many as keep a part above 64 keys. */
static __device__ __forceinline__ int32_t parts_of(int32_t n_keys, int32_t asked, int32_t most)
{
    const int32_t n = asked > 0 ? asked : min(most, (n_keys + 63) / 64);
    return min(n, n_keys);
}

/* A block: one part of one row's cache, for one query head; its warps take keys in turn. */
template <class REAL, int TYPE, int E>
static __global__ void __launch_bounds__(WARPS *WARP)
    decode_kernel(REAL *parts, struct tensor q, struct tensor keys, struct tensor values,
                  const int32_t *seqs, const int32_t *positions, struct heads h, int32_t asked)
{
    __shared__ REAL gathered[WARPS][WARP * E + 2];
    const int32_t row = blockIdx.z, head = blockIdx.y, p = blockIdx.x, n_parts = gridDim.x;
    const int32_t dim = h.dim, kv_head = head / (h.n_heads / h.n_kv_heads), seq = seqs[row];
    const int32_t n_keys = positions[row] + 1, n = parts_of(n_keys, asked, n_parts);
    if (p >= n)
        return;
    const int32_t begin = (int32_t)((int64_t)p * n_keys / n);
    const int32_t end = (int32_t)((int64_t)(p + 1) * n_keys / n);
    const int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    REAL x[E];
    struct partial<REAL, E> part;
    part.init();
#pragma unroll
    for (int e = 0; e < E; e++)
        x[e] = lane + WARP * e < dim ? row_floats(q, row)[head * dim + lane + WARP * e] : 0.0f;
    for (int32_t key = begin + warp; key < end; key += WARPS) {
        REAL score = 0;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (lane + WARP * e < dim)
                score += x[e] * cached<TYPE>(keys, seq, key, kv_head * dim + lane + WARP * e);
        score = warp_sum(score) * (REAL)h.scale;
        part.raise(score);
        const REAL w = real_exp(score - part.max);
        part.sum += w;
#pragma unroll
        for (int e = 0; e < E; e++)
            if (lane + WARP * e < dim)
                part.acc[e] += w * cached<TYPE>(values, seq, key, kv_head * dim + lane + WARP * e);
    }
    if (lane == 0)
        gathered[warp][0] = part.max, gathered[warp][1] = part.sum;
#pragma unroll
    for (int e = 0; e < E; e++)
        gathered[warp][2 + lane + WARP * e] = part.acc[e];
    __syncthreads();
    REAL max = gathered[0][0], sum = 0;
    for (int w = 1; w < WARPS; w++)
        max = gathered[w][0] > max ? gathered[w][0] : max;
    REAL *to = parts + part_at(row, head, p, h.n_heads, n_parts, dim);
    for (int w = 0; w < WARPS; w++)
        sum += gathered[w][1] * real_exp(gathered[w][0] - max);
    for (int32_t i = threadIdx.x; i < dim; i += WARPS * WARP) {
        REAL acc = 0;
        for (int w = 0; w < WARPS; w++)
            acc += gathered[w][2 + i] * real_exp(gathered[w][0] - max);
        to[2 + i] = acc;
    }
    if (threadIdx.x == 0)
        to[0] = max, to[1] = sum;
}

template <class REAL>
static __global__ void combine_kernel(struct tensor out, const REAL *parts,
                                      const int32_t *positions, struct heads h, int32_t asked,
                                      int32_t n_parts)
{
    const int32_t row = blockIdx.y, head = blockIdx.x, dim = h.dim;
    const int32_t n = parts_of(positions[row] + 1, asked, n_parts);
    const REAL *from = parts + part_at(row, head, 0, h.n_heads, n_parts, dim);
    REAL max = -INFINITY, sum = 0;
    for (int32_t p = 0; p < n; p++)
        max = from[p * (dim + 2)] > max ? from[p * (dim + 2)] : max;
    for (int32_t p = 0; p < n; p++)
        sum += from[p * (dim + 2) + 1] * real_exp(from[p * (dim + 2)] - max);
    for (int32_t i = threadIdx.x; i < dim; i += blockDim.x) {
        REAL acc = 0;
        for (int32_t p = 0; p < n; p++)
            acc += from[p * (dim + 2) + 2 + i] * real_exp(from[p * (dim + 2)] - max);
        row_floats(out, row)[head * dim + i] = (float)(acc / sum);
    }
}

/* ---- launchers ---- */

template <class REAL, int TYPE, int E>
static int prefill(const struct op_args *a, const struct heads &h, const struct cuda_call *call)
{
    const size_t floats = (size_t)TILE_QUERIES * h.dim + (size_t)TILE_KEYS * (h.dim + 1) + 1;
    const size_t bytes = floats * sizeof(float) + TILE_QUERIES * TILE_KEYS * sizeof(REAL) + 8;
    const dim3 grid(blocks_for(a->in[0].n_rows, TILE_QUERIES), h.n_heads);
    cudaError_t rc = cudaFuncSetAttribute(prefill_kernel<REAL, TYPE, E>,
                                          cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    if (rc)
        return rc;
    prefill_kernel<REAL, TYPE, E><<<grid, WARPS * WARP, bytes, stream_of(call)>>>(
        a->out, a->in[0], a->in[1], a->in[2], (const int32_t *)a->in[3].data,
        (const int32_t *)a->in[4].data, h);
    return cudaGetLastError();
}

template <class REAL, int TYPE, int E>
static int decode(const struct op_args *a, const struct heads &h, const struct cuda_call *call)
{
    const int32_t n_rows = a->in[0].n_rows, *seqs = (const int32_t *)a->in[3].data;
    const int32_t *positions = (const int32_t *)a->in[4].data;
    const int32_t fill = 2 * call->sm_count / (h.n_heads * n_rows);
    const int32_t n_parts = a->n_split > 0 ? a->n_split : fill < 1 ? 1 : fill > 32 ? 32 : fill;
    REAL *parts = (REAL *)call_space(call);
    if ((size_t)part_at(n_rows, 0, 0, h.n_heads, n_parts, h.dim) * sizeof(REAL) >
        call_space_bytes())
        return cudaErrorMemoryAllocation;
    decode_kernel<REAL, TYPE, E>
        <<<dim3(n_parts, h.n_heads, n_rows), WARPS * WARP, 0, stream_of(call)>>>(
            parts, a->in[0], a->in[1], a->in[2], seqs, positions, h, a->n_split);
    combine_kernel<REAL><<<dim3(h.n_heads, n_rows), 64, 0, stream_of(call)>>>(
        a->out, parts, positions, h, a->n_split, n_parts);
    return cudaGetLastError();
}

template <bool IS_PREFILL, class REAL, int TYPE, int E>
static int attend(const struct op_args *a, const struct heads &h, const struct cuda_call *call)
{
    return IS_PREFILL ? prefill<REAL, TYPE, E>(a, h, call) : decode<REAL, TYPE, E>(a, h, call);
}

/* Head sizes in steps; the double form, for which speed does not matter, has one. */
template <bool IS_PREFILL, class REAL, int TYPE>
static int attend_sized(const struct op_args *a, const struct cuda_call *call)
{
    const struct heads h = {a->n_heads, a->n_kv_heads, a->in[0].n_cols / a->n_heads, a->scale};
    if (h.dim > MAX_HEAD_DIM)
        return cudaErrorInvalidValue;
    if constexpr (sizeof(REAL) == sizeof(float)) {
        if (h.dim <= 2 * WARP)
            return attend<IS_PREFILL, REAL, TYPE, 2>(a, h, call);
        if (h.dim <= 4 * WARP)
            return attend<IS_PREFILL, REAL, TYPE, 4>(a, h, call);
        if (h.dim <= 8 * WARP)
            return attend<IS_PREFILL, REAL, TYPE, 8>(a, h, call);
    }
    return attend<IS_PREFILL, REAL, TYPE, MAX_HEAD_DIM / WARP>(a, h, call);
}

/* The element types of a cache. */
template <bool IS_PREFILL, class REAL>
static int attend_typed(const struct op_args *a, const struct cuda_call *call)
{
    switch (a->in[1].type) {
    case QUANT_F32:
        return attend_sized<IS_PREFILL, REAL, QUANT_F32>(a, call);
    case QUANT_F16:
        return attend_sized<IS_PREFILL, REAL, QUANT_F16>(a, call);
    default:
        return attend_sized<IS_PREFILL, REAL, QUANT_Q8_0>(a, call);
    }
}

int cuda_attention_mm(const struct op_args *a, const struct cuda_call *call)
{
    if (cuda_flash_takes(a))
        return cuda_flash(a, call, true);
    return a->form == FORM_F64 ? attend_typed<true, double>(a, call)
                               : attend_typed<true, float>(a, call);
}

int cuda_attention_mv(const struct op_args *a, const struct cuda_call *call)
{
    if (cuda_flash_takes(a))
        return cuda_flash(a, call, false);
    return a->form == FORM_F64 ? attend_typed<false, double>(a, call)
                               : attend_typed<false, float>(a, call);
}
