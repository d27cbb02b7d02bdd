/* Attention on the tensor cores, for caches in half precision or 8 bits (which are widened to
 * halves): tiles of keys pass by a warp's 16 query rows, the softmax kept relative to the largest
 * score so far (Dao, FlashAttention-2, 2023). Prefill: a row is a token, a block 64 of one head.
 * Decode: a row is a query head of one key head, a block one part of the cache, its warps a
 * quarter of each tile; a second kernel adds the parts in order. */
#include "kernels/cuda_flash.cuh"

#define WARPS   4
#define THREADS (WARPS * WARP)
#define ROWS    16 /* of a warp */
#define LOG2_E  1.4426950408889634f
#define STAGES  2

struct shape {
    int32_t n_heads, n_kv_heads, dim;
    float scale; /* of the scores, and by log2(e) */
};

/* ---- instructions (PTX ISA, sm_80) ---- */

static __device__ __forceinline__ uint32_t shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}
/* 16 bytes, or zeros. */
static __device__ __forceinline__ void copy16(void *to, const void *from, bool is_there)
{
    const int n = is_there ? 16 : 0;
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(to)),
                 "l"(from), "r"(n));
}
static __device__ __forceinline__ void copies_commit()
{
    asm volatile("cp.async.commit_group;");
}
template <int N> static __device__ __forceinline__ void copies_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N));
}
static __device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
static __device__ __forceinline__ void load_transposed(uint32_t (&r)[4], const void *p)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}
static __device__ __forceinline__ void multiply(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                                uint32_t b1)
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, "
                 "{%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

static __device__ __forceinline__ float power_of_2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* ---- tiles ---- */

/* Where 8 halves of a row stand: a row's sixteenths change places, so that a column's hit
 * different banks. */
template <int D> static __device__ __forceinline__ char *chunk_at(char *tile, int row, int chunk)
{
    return tile + (row * (D / 8) + (chunk ^ (row & 7))) * 16;
}

static __device__ __forceinline__ uint32_t two_halves(float x, float y)
{
    const __half2 h = __floats2half2_rn(x, y);
    return *(const uint32_t *)&h;
}

/* 8 elements of a cached row of 8-bit blocks, from element e. */
static __device__ __forceinline__ uint4 widen(const char *row, int e)
{
    const struct quant_q8_0 *b = (const struct quant_q8_0 *)row + e / QUANT_BLOCK;
    const float d = half_bits(b->d);
    const int8_t *q = b->qs + e % QUANT_BLOCK;
    return {two_halves(d * q[0], d * q[1]), two_halves(d * q[2], d * q[3]),
            two_halves(d * q[4], d * q[5]), two_halves(d * q[6], d * q[7])};
}

/* Keys or values first ... first + N - 1 of a head; zeros from `end` on. */
template <int D, int N, int TYPE>
static __device__ __forceinline__ void tile_load(char *tile, const struct tensor &cache,
                                                 int32_t seq, int32_t first, int32_t end,
                                                 int32_t column, int32_t dim)
{
    const char *plane = (const char *)cache.data + seq * cache.mat_bytes;
#pragma unroll
    for (int i = threadIdx.x; i < N * (D / 8); i += THREADS) {
        const int r = i / (D / 8), c = i % (D / 8);
        const bool is_there = first + r < end && c * 8 < dim;
        const char *row = plane + (is_there ? first + r : 0) * cache.row_bytes;
        const int e = column + (is_there ? c * 8 : 0);
        char *to = chunk_at<D>(tile, r, c);
        if (TYPE == QUANT_F16)
            copy16(to, row + e * 2, is_there);
        else
            *(uint4 *)to = is_there ? widen(row, e) : make_uint4(0, 0, 0, 0);
    }
}

/* 8 floats of a query. */
template <int D>
static __device__ __forceinline__ void query_load(char *tile, int r, int c, const float *head,
                                                  bool is_there)
{
    uint4 h = {0, 0, 0, 0};
    if (is_there) {
        const float4 x = *(const float4 *)(head + c * 8), y = *(const float4 *)(head + c * 8 + 4);
        h = {two_halves(x.x, x.y), two_halves(x.z, x.w), two_halves(y.x, y.y),
             two_halves(y.z, y.w)};
    }
    *(uint4 *)chunk_at<D>(tile, r, c) = h;
}

/* What a warp has summed for its rows: a lane holds rows lane / 4 and 8 more, and of each eight
 * columns 2 (lane % 4) and the next. */
template <int D> struct sums {
    float o[D / 8][4], max[2], sum[2];

    __device__ __forceinline__ void init()
    {
#pragma unroll
        for (int i = 0; i < D / 8; i++)
            o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0;
        max[0] = max[1] = -INFINITY;
        sum[0] = sum[1] = 0;
    }
    __device__ __forceinline__ void raise(int r, float to)
    {
        const float shrink = power_of_2(max[r] - (to == -INFINITY ? 0 : to));
        max[r] = to;
        sum[r] *= shrink;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            o[i][2 * r] *= shrink;
            o[i][2 * r + 1] *= shrink;
        }
    }
};

static __device__ __forceinline__ float lanes4_sum(float x)
{
    x += __shfl_xor_sync(~0u, x, 1);
    return x + __shfl_xor_sync(~0u, x, 2);
}
static __device__ __forceinline__ float lanes4_max(float x)
{
    x = fmaxf(x, __shfl_xor_sync(~0u, x, 1));
    return fmaxf(x, __shfl_xor_sync(~0u, x, 2));
}

/* Scores of 16 queries and N keys from key0 of the tile. */
template <int D, int N>
static __device__ __forceinline__ void scores_of(float (&s)[N / 8][4], char *q, char *k, int key0)
{
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int i = 0; i < N / 8; i++)
        s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0;
#pragma unroll
    for (int c = 0; c < D / 8; c += 2) {
        uint32_t a[4], b[4];
        load_matrices(a, chunk_at<D>(q, lane % 16, c + lane / 16));
#pragma unroll
        for (int i = 0; i < N / 8; i += 2) {
            const int key = key0 + i * 8 + lane / 16 * 8 + lane % 8;
            load_matrices(b, chunk_at<D>(k, key, c + lane / 8 % 2));
            multiply(s[i], a, b[0], b[1]);
            multiply(s[i + 1], a, b[2], b[3]);
        }
    }
}

/* Take N keys from key0 of the tile into the sums; where MASKS, the two rows see only those before
 * `seen`. */
template <int D, int N, bool MASKS>
static __device__ __forceinline__ void tile_add(struct sums<D> &f, char *q, char *k, char *v,
                                                int key0, const int (&seen)[2], float scale)
{
    const int lane = threadIdx.x % WARP, column = lane % 4 * 2;
    float s[N / 8][4];
    uint32_t p[N / 8][2];
    scores_of<D, N>(s, q, k, key0);
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float max = -INFINITY;
#pragma unroll
        for (int i = 0; i < N / 8; i++)
#pragma unroll
            for (int e = 0; e < 2; e++) {
                float &x = s[i][2 * r + e];
                x = !MASKS || i * 8 + column + e < seen[r] ? x * scale : -INFINITY;
                max = fmaxf(max, x);
            }
        f.raise(r, fmaxf(f.max[r], lanes4_max(max)));
        const float base = f.max[r] == -INFINITY ? 0 : f.max[r];
#pragma unroll
        for (int i = 0; i < N / 8; i++) {
            const float x = power_of_2(s[i][2 * r] - base);
            const float y = power_of_2(s[i][2 * r + 1] - base);
            f.sum[r] += x + y;
            p[i][r] = two_halves(x, y);
        }
    }
#pragma unroll
    for (int i = 0; i < N / 8; i += 2) {
        const uint32_t a[4] = {p[i][0], p[i][1], p[i + 1][0], p[i + 1][1]};
#pragma unroll
        for (int c = 0; c < D / 8; c += 2) {
            uint32_t b[4];
            load_transposed(b, chunk_at<D>(v, key0 + i * 8 + lane % 16, c + lane / 16));
            multiply(f.o[c], a, b[0], b[1]);
            multiply(f.o[c + 1], a, b[2], b[3]);
        }
    }
}

/* ---- prefill ---- */

#define PREFILL_KEYS(D) ((D) > 128 ? 32 : 64)

template <int D, int TYPE>
static __global__ void __launch_bounds__(THREADS)
    flash_prefill_kernel(struct tensor out, struct rounded rounded, struct tensor q,
                         struct tensor keys, struct tensor values, const int32_t *seqs,
                         const int32_t *positions, struct shape h)
{
    extern __shared__ __align__(128) char shared[];
    constexpr int N = PREFILL_KEYS(D), TILE = N * D * 2;
    const int32_t first = (gridDim.x - 1 - blockIdx.x) * WARPS * ROWS; /* the longest begin */
    const int32_t last = min(first + WARPS * ROWS, q.n_rows) - 1, head = blockIdx.y;
    const int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP, seq = seqs[first];
    const int32_t column = head / (h.n_heads / h.n_kv_heads) * h.dim, end = positions[last] + 1;
    char *qs = shared, *tiles = qs + WARPS * ROWS * D * 2;

    tile_load<D, N, TYPE>(tiles, keys, seq, 0, end, column, h.dim);
    tile_load<D, N, TYPE>(tiles + TILE, values, seq, 0, end, column, h.dim);
    copies_commit();
    for (int i = threadIdx.x; i < WARPS * ROWS * (D / 8); i += THREADS) {
        const int r = i / (D / 8), c = i % (D / 8);
        query_load<D>(qs, r, c, row_floats(q, min(first + r, last)) + head * h.dim, c * 8 < h.dim);
    }
    int row[2], n_seen[2];
    struct sums<D> f;
    f.init();
#pragma unroll
    for (int r = 0; r < 2; r++) {
        row[r] = first + warp * ROWS + lane / 4 + 8 * r;
        n_seen[r] = positions[min(row[r], last)] + 1;
    }
    const int32_t first_seen = positions[first] + 1; /* by every row */
    for (int32_t key = 0, stage = 0; key < end; key += N, stage ^= 1) {
        char *now = tiles + stage * 2 * TILE, *next = tiles + (stage ^ 1) * 2 * TILE;
        if (key + N < end) {
            tile_load<D, N, TYPE>(next, keys, seq, key + N, end, column, h.dim);
            tile_load<D, N, TYPE>(next + TILE, values, seq, key + N, end, column, h.dim);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        const int seen[2] = {n_seen[0] - key, n_seen[1] - key};
        char *mine = qs + warp * ROWS * D * 2;
        if (key + N <= first_seen)
            tile_add<D, N, false>(f, mine, now, now + TILE, 0, seen, h.scale);
        else
            tile_add<D, N, true>(f, mine, now, now + TILE, 0, seen, h.scale);
        __syncthreads();
    }
#pragma unroll
    for (int r = 0; r < 2; r++) {
        const float inverse = 1 / lanes4_sum(f.sum[r]);
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            const int c = i * 8 + lane % 4 * 2, at = head * h.dim + c;
            if (row[r] > last || c >= h.dim)
                continue;
            const float2 y = {f.o[i][2 * r] * inverse, f.o[i][2 * r + 1] * inverse};
            *(float2 *)(row_floats(out, row[r]) + at) = y;
            if (rounded.kind == CUDA_BF16)
                *(__nv_bfloat162 *)(rounded.halves + (int64_t)row[r] * out.n_cols + at) =
                    __floats2bfloat162_rn(y.x, y.y);
        }
    }
}

/* ---- decode ---- */

#define DECODE_KEYS (WARPS * ROWS)

/* A part's result: max, sum, then the head's weighted values. */
static __host__ __device__ __forceinline__ int64_t part_at(int64_t row, int32_t part,
                                                           int32_t n_parts, int32_t dim)
{
    return (row * n_parts + part) * (dim + 2);
}

/* Parts of a cache of n_keys: as many as asked, or as many as keep a part at 64 keys and more. */
static __device__ __forceinline__ int32_t parts_of(int32_t n_keys, int32_t asked, int32_t most)
{
    const int32_t n = asked > 0 ? asked : min(most, (n_keys + DECODE_KEYS - 1) / DECODE_KEYS);
    return min(n, n_keys);
}

/* Add the four warps' sums in order, and leave them as a part of each head. */
template <int D>
static __device__ void part_store(float *parts, struct sums<D> &f, float *shared, int32_t n_group,
                                  int64_t first_row, int32_t part, int32_t n_parts, int32_t dim)
{
    const int32_t warp = threadIdx.x / WARP, lane = threadIdx.x % WARP;
    __syncthreads(); /* the tiles are done with */
#pragma unroll
    for (int r = 0; r < 2; r++) {
        float *to = shared + (warp * ROWS + lane / 4 + 8 * r) * (D + 2);
        const float sum = lanes4_sum(f.sum[r]);
        if (lane % 4 == 0)
            to[0] = f.max[r], to[1] = sum;
#pragma unroll
        for (int i = 0; i < D / 8; i++) {
            to[2 + i * 8 + lane % 4 * 2] = f.o[i][2 * r];
            to[3 + i * 8 + lane % 4 * 2] = f.o[i][2 * r + 1];
        }
    }
    __syncthreads();
    for (int32_t i = threadIdx.x; i < n_group * (dim + 1); i += THREADS) {
        const int32_t head = i / (dim + 1), c = i % (dim + 1); /* c 0: the sum */
        const float *from = shared + head * (D + 2);
        float *to = parts + part_at(first_row + head, part, n_parts, dim), max = from[0], sum = 0;
        for (int w = 1; w < WARPS; w++)
            max = fmaxf(max, from[w * ROWS * (D + 2)]);
        for (int w = 0; w < WARPS; w++)
            sum += from[w * ROWS * (D + 2) + 1 + c] * exp2f(from[w * ROWS * (D + 2)] - max);
        to[1 + c] = sum;
        if (c == 0)
            to[0] = max;
    }
}

template <int D, int TYPE>
static __global__ void __launch_bounds__(THREADS)
    flash_decode_kernel(float *parts, struct tensor q, struct tensor keys, struct tensor values,
                        const int32_t *seqs, const int32_t *positions, struct shape h,
                        int32_t asked)
{
    extern __shared__ __align__(128) char shared[];
    constexpr int TILE = DECODE_KEYS * D * 2;
    const int32_t row = blockIdx.z, part = blockIdx.x, n_group = h.n_heads / h.n_kv_heads;
    const int32_t column = blockIdx.y * h.dim, warp = threadIdx.x / WARP;
    char *qs = shared, *tiles = qs + ROWS * D * 2;
    next_may_start();
    wait_for_previous();
    const int32_t n_keys = positions[row] + 1, n = parts_of(n_keys, asked, gridDim.x);
    if (part >= n)
        return;
    const int32_t seq = seqs[row], begin = (int32_t)((int64_t)part * n_keys / n);
    const int32_t end = (int32_t)((int64_t)(part + 1) * n_keys / n);
    tile_load<D, DECODE_KEYS, TYPE>(tiles, keys, seq, begin, end, column, h.dim);
    tile_load<D, DECODE_KEYS, TYPE>(tiles + TILE, values, seq, begin, end, column, h.dim);
    copies_commit();
    for (int i = threadIdx.x; i < ROWS * (D / 8); i += THREADS) {
        const int r = i / (D / 8), c = i % (D / 8);
        query_load<D>(qs, r, c, row_floats(q, row) + (blockIdx.y * n_group + r) * h.dim,
                      r < n_group && c * 8 < h.dim);
    }
    struct sums<D> f;
    f.init();
    for (int32_t key = begin, stage = 0; key < end; key += DECODE_KEYS, stage ^= 1) {
        char *now = tiles + stage * 2 * TILE, *next = tiles + (stage ^ 1) * 2 * TILE;
        if (key + DECODE_KEYS < end) {
            const int32_t first = key + DECODE_KEYS;
            tile_load<D, DECODE_KEYS, TYPE>(next, keys, seq, first, end, column, h.dim);
            tile_load<D, DECODE_KEYS, TYPE>(next + TILE, values, seq, first, end, column, h.dim);
        }
        copies_commit();
        copies_wait<1>();
        __syncthreads();
        const int left = end - key - warp * ROWS, seen[2] = {left, left};
        tile_add<D, ROWS, true>(f, qs, now, now + TILE, warp * ROWS, seen, h.scale);
        __syncthreads();
    }
    part_store<D>(parts, f, (float *)tiles, n_group,
                  (int64_t)row * h.n_heads + blockIdx.y * n_group, part, gridDim.x, h.dim);
}

/* A block has one head of one row, a thread one element. */
static __global__ void flash_combine_kernel(struct tensor out, struct rounded rounded,
                                            const float *parts, const int32_t *positions,
                                            struct shape h, int32_t asked, int32_t n_parts)
{
    const int32_t row = blockIdx.y, head = blockIdx.x, i = threadIdx.x;
    next_may_start();
    wait_for_previous();
    const int32_t n = parts_of(positions[row] + 1, asked, n_parts);
    const float *from = parts + part_at((int64_t)row * h.n_heads + head, 0, n_parts, h.dim);
    float max = from[0], sum = 0, acc = 0;
    for (int32_t p = 1; p < n; p++)
        max = fmaxf(max, from[p * (h.dim + 2)]);
    for (int32_t p = 0; p < n; p++) {
        const float weight = exp2f(from[p * (h.dim + 2)] - max);
        sum += weight * from[p * (h.dim + 2) + 1];
        acc += weight * (i < h.dim ? from[p * (h.dim + 2) + 2 + i] : 0);
    }
    const float y = acc / sum;
    if (i < h.dim)
        row_floats(out, row)[head * h.dim + i] = y;
    round1(rounded, (int64_t)row * out.n_cols + head * h.dim + i, y);
}

/* ---- launchers ---- */

template <class K> static int allow_shared(K kernel, size_t bytes)
{
    return cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
}

static struct shape shape_of(const struct op_args *a)
{
    return {a->n_heads, a->n_kv_heads, a->in[0].n_cols / a->n_heads, (float)a->scale * LOG2_E};
}

template <int D, int TYPE> static int prefill(const struct op_args *a, const struct cuda_call *call)
{
    const struct shape h = shape_of(a);
    const size_t bytes =
        (size_t)WARPS * ROWS * D * 2 + (size_t)STAGES * 2 * PREFILL_KEYS(D) * D * 2;
    const dim3 grid(blocks_for(a->in[0].n_rows, WARPS * ROWS), h.n_heads);
    const int kind = rounding_of(a, a->out, a->out.n_rows);
    const struct rounded rounded =
        rounded_new(call, a->out, h.dim % QUANT_BLOCK || kind != CUDA_BF16 ? 0 : kind);
    const int rc = allow_shared(flash_prefill_kernel<D, TYPE>, bytes);
    if (rc)
        return rc;
    flash_prefill_kernel<D, TYPE><<<grid, THREADS, bytes, stream_of(call)>>>(
        a->out, rounded, a->in[0], a->in[1], a->in[2], (const int32_t *)a->in[3].data,
        (const int32_t *)a->in[4].data, h);
    return cudaGetLastError();
}

template <int D, int TYPE> static int decode(const struct op_args *a, const struct cuda_call *call)
{
    const struct shape h = shape_of(a);
    const int32_t n_rows = a->in[0].n_rows, *seqs = (const int32_t *)a->in[3].data;
    const int32_t *positions = (const int32_t *)a->in[4].data;
    const size_t bytes = (size_t)ROWS * D * 2 + (size_t)STAGES * 2 * DECODE_KEYS * D * 2;
    const int32_t fill = (D > 128 ? 1 : 2) * call->sm_count / (h.n_kv_heads * n_rows);
    const int32_t n_parts = a->n_split > 0 ? a->n_split : fill < 1 ? 1 : fill > 64 ? 64 : fill;
    float *parts = (float *)call_space(call);
    if ((size_t)part_at((int64_t)n_rows * h.n_heads, 0, n_parts, h.dim) * sizeof *parts >
        call_space_bytes())
        return cudaErrorMemoryAllocation;
    int rc = allow_shared(flash_decode_kernel<D, TYPE>, bytes);
    if (!rc)
        rc = launch(call, flash_decode_kernel<D, TYPE>, dim3(n_parts, h.n_kv_heads, n_rows),
                    dim3(THREADS), bytes, parts, a->in[0], a->in[1], a->in[2], seqs, positions, h,
                    a->n_split);
    const struct rounded rounded =
        rounded_new(call, a->out, h.dim % QUANT_BLOCK ? 0 : rounding_of(a, a->out, a->out.n_rows));
    if (!rc)
        rc = launch(call, flash_combine_kernel, dim3(h.n_heads, n_rows),
                    dim3(blocks_for(h.dim, WARP) * WARP), 0, a->out, rounded, (const float *)parts,
                    positions, h, a->n_split, n_parts);
    return rc;
}

template <int D> static int sized(const struct op_args *a, const struct cuda_call *call, bool many)
{
    if (a->in[1].type == QUANT_F16)
        return many ? prefill<D, QUANT_F16>(a, call) : decode<D, QUANT_F16>(a, call);
    return many ? prefill<D, QUANT_Q8_0>(a, call) : decode<D, QUANT_Q8_0>(a, call);
}

bool cuda_flash_takes(const struct op_args *a)
{
    const int32_t dim = a->in[0].n_cols / a->n_heads;
    const bool has_type = a->in[1].type == QUANT_F16 || a->in[1].type == QUANT_Q8_0;
    return a->form == FORM_FAST && has_type && a->in[1].type == a->in[2].type && dim % 8 == 0 &&
           dim <= 256 && a->n_heads / a->n_kv_heads <= ROWS && a->in[0].row_bytes % 16 == 0 &&
           a->out.row_bytes % 8 == 0;
}

int cuda_flash(const struct op_args *a, const struct cuda_call *call, bool many)
{
    const int32_t dim = a->in[0].n_cols / a->n_heads;
    return dim <= 64    ? sized<64>(a, call, many)
           : dim <= 128 ? sized<128>(a, call, many)
                        : sized<256>(a, call, many);
}
