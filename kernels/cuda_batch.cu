/* Products of 8-bit weights with a batch of rows, in decode: integer tensor cores take a block of
 * 32 at a time, so that its sum is exact and then gets both scales. A block of threads has 32
 * outputs (with a gated linear unit 16 and their gates); its warps share the inputs out among them
 * and add up in order. */
#include "kernels/cuda_formats.cuh"

#define WARPS  8
#define GROUP  4              /* blocks of 32 that are loaded at a time */
#define TILE   16             /* outputs of a tensor core's tile, and 8 rows of x */
#define STRIDE (2 * TILE + 4) /* between rows of x in shared memory, against bank conflicts */

/* Two tiles of weights, a group of blocks: of a lane, rows lane / 4 and 8 more of each. In a block
 * a lane has the bytes 8 (lane % 4) and on, which stand for its two places in the tile; the
 * activations are taken in the same order. */
struct weights {
    uint2 q[2][2][GROUP];
    uint2 d[2][2]; /* GROUP halves */
};

/* Where the two tiles of a block begin. */
struct tiles {
    const int8_t *q[2];
    const __half *d[2];
};

static __device__ __forceinline__ void weights_load(struct weights &w, const struct tiles &tiles,
                                                    int32_t n_cols, int32_t group)
{
    const int lane = threadIdx.x;
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int r = 0; r < 2; r++) {
            const int64_t row = lane / 4 + 8 * r;
            const int8_t *q =
                tiles.q[tile] + row * n_cols + group * (GROUP * QUANT_BLOCK) + lane % 4 * 8;
#pragma unroll
            for (int b = 0; b < GROUP; b++)
                w.q[tile][r][b] = __ldcs((const uint2 *)(q + b * QUANT_BLOCK));
            w.d[tile][r] =
                *(const uint2 *)(tiles.d[tile] + row * (n_cols / QUANT_BLOCK) + group * GROUP);
        }
}

static __device__ __forceinline__ void multiply(int (&c)[4], const struct weights &w, int tile,
                                                int b, uint2 x)
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, "
                 "{%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
                 : "r"(w.q[tile][0][b].x), "r"(w.q[tile][1][b].x), "r"(w.q[tile][0][b].y),
                   "r"(w.q[tile][1][b].y), "r"(x.x), "r"(x.y));
}

static __device__ __forceinline__ float half_of(uint2 d, int b)
{
    return half_bits((uint16_t)((b < 2 ? d.x : d.y) >> b % 2 * 16));
}

/* Add a group's products with 8 N rows of x from `first` on, of which n exist. */
template <int N>
static __device__ __forceinline__ void group_add(float (&sum)[2][N][4], const struct weights &w,
                                                 const struct rounded &x, int32_t n_cols,
                                                 int32_t group, int32_t first, int32_t n)
{
    const int lane = threadIdx.x;
#pragma unroll
    for (int t = 0; t < N; t++) {
        const int64_t row = first + min(t * 8 + lane / 4, n - 1);
        const int8_t *q = x.quants + row * n_cols + group * (GROUP * QUANT_BLOCK) + lane % 4 * 8;
        float d[2][GROUP];
#pragma unroll
        for (int e = 0; e < 2; e++) {
            const int64_t other = first + min(t * 8 + lane % 4 * 2 + e, n - 1);
            *(float4 *)d[e] =
                *(const float4 *)(x.scales + other * (n_cols / QUANT_BLOCK) + group * GROUP);
        }
#pragma unroll
        for (int b = 0; b < GROUP; b++) {
            const uint2 place = *(const uint2 *)(q + b * QUANT_BLOCK);
#pragma unroll
            for (int tile = 0; tile < 2; tile++) {
                int c[4] = {0, 0, 0, 0};
                multiply(c, w, tile, b, place);
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sum[tile][t][e] += half_of(w.d[tile][e / 2], b) * d[e % 2][b] * (float)c[e];
            }
        }
    }
}

/* Which of the matrices side by side has an output. */
static __device__ __forceinline__ int matrix_of(const struct products &p, int32_t output)
{
    return (output >= p.end[0]) + (output >= p.end[1]) + (output >= p.end[2]);
}

/* TWO_GROUPS: a warp's inputs stand together, not in turns with the other warps': another order. */
template <int N, bool GLU, bool TWO_GROUPS>
static __global__ void __launch_bounds__(WARP *WARPS)
    batch_kernel(const __grid_constant__ struct products p)
{
    extern __shared__ float shared[]; /* (WARPS, 8 N, STRIDE) */
    const int32_t output = blockIdx.x * (GLU ? TILE : 2 * TILE),
                  which = GLU ? 0 : matrix_of(p, output);
    const int32_t first = blockIdx.y * 8 * N, n = min(8 * N, p.out[0].n_rows - first);
    const int32_t lane = threadIdx.x, warp = threadIdx.y, n_cols = p.m[0].n_cols;
    const int32_t n_groups = n_cols / (GROUP * QUANT_BLOCK);
    const int32_t column = output - (which ? p.end[which - 1] : 0);
    struct tiles tiles;
#pragma unroll
    for (int tile = 0; tile < 2; tile++) {
        const struct tensor &m = p.m[GLU ? tile : which];
        const int32_t row = column + (GLU ? 0 : tile * TILE);
        tiles.q[tile] = q8_quants(m, 0, row);
        tiles.d[tile] = q8_scales(m, 0, row);
    }
    const int32_t begin = TWO_GROUPS ? warp * n_groups / WARPS : warp;
    const int32_t end = TWO_GROUPS ? (warp + 1) * n_groups / WARPS : n_groups;
    const int32_t step = TWO_GROUPS ? 1 : WARPS;
    struct weights next;
    float sum[2][N][4] = {};
    next_may_start();
    if (begin < end)
        weights_load(next, tiles, n_cols, begin);
    wait_for_previous();
    for (int32_t group = begin; group < end; group += step) {
        const struct weights w = next;
        if (group + step < end)
            weights_load(next, tiles, n_cols, group + step);
        group_add<N>(sum, w, p.rounded, n_cols, group, first, n);
    }
#pragma unroll
    for (int tile = 0; tile < 2; tile++)
#pragma unroll
        for (int t = 0; t < N; t++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                shared[(warp * 8 * N + t * 8 + lane % 4 * 2 + e % 2) * STRIDE + tile * TILE +
                       lane / 4 + e / 2 * 8] = sum[tile][t][e];
    __syncthreads();
    for (int32_t i = warp * WARP + lane; i < n * WARP; i += WARPS * WARP) {
        const int32_t row = i / WARP, c = i % WARP;
        float total = 0;
        for (int w = 0; w < WARPS; w++)
            total += shared[(w * 8 * N + row) * STRIDE + c];
        const float up = __shfl_down_sync(~0u, total, TILE);
        float *out = row_floats(p.out[which], first + row) + column + c;
        if (!GLU)
            *out = p.sum.data ? row_floats(p.sum, first + row)[column + c] + total : total;
        else if (c < TILE)
            *out = total * real_sigmoid(total) * up;
    }
}

/* ---- launchers ---- */

bool cuda_batch_takes(const struct products &p)
{
    bool is_whole = p.out[0].n_rows > 1 && !p.choice.ids && p.choice.rows_per_x == 1;
    for (int i = 0; i < 4 && p.m[i].data; i++)
        is_whole = is_whole && p.m[i].type == QUANT_Q8_0 && p.m[i].n_rows % (2 * TILE) == 0;
    return is_whole && p.m[0].n_cols % (GROUP * QUANT_BLOCK) == 0;
}

template <int N, bool GLU, bool TWO_GROUPS>
static int run(const struct products &p, const struct cuda_call *call)
{
    const int32_t n_outputs = GLU ? p.m[0].n_rows : p.end[3];
    const dim3 grid(n_outputs / (GLU ? TILE : 2 * TILE), blocks_for(p.out[0].n_rows, 8 * N));
    const size_t bytes = (size_t)WARPS * 8 * N * STRIDE * sizeof(float);
    const int rc = cudaFuncSetAttribute(batch_kernel<N, GLU, TWO_GROUPS>,
                                        cudaFuncAttributeMaxDynamicSharedMemorySize, (int)bytes);
    return rc ? rc
              : launch(call, batch_kernel<N, GLU, TWO_GROUPS>, grid, dim3(WARP, WARPS), bytes, p);
}

template <bool GLU, bool TWO_GROUPS>
static int run_sized(const struct products &p, const struct cuda_call *call)
{
    const int32_t n = p.out[0].n_rows;
    return n <= 8    ? run<1, GLU, TWO_GROUPS>(p, call)
           : n <= 16 ? run<2, GLU, TWO_GROUPS>(p, call)
           : n <= 32 ? run<4, GLU, TWO_GROUPS>(p, call)
                     : run<8, GLU, TWO_GROUPS>(p, call);
}

int cuda_batch(const struct products &p, bool is_glu, bool two_groups, const struct cuda_call *call)
{
    if (is_glu)
        return two_groups ? run_sized<true, true>(p, call) : run_sized<true, false>(p, call);
    return two_groups ? run_sized<false, true>(p, call) : run_sized<false, false>(p, call);
}
