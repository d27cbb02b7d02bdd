/* What the CUDA forms share: arithmetic in float or double by overload, reductions in a fixed
 * order, the value of a packed element, and the choice of a type at launch. */
#ifndef NEARTIE_KERNELS_CUDA_COMMON_CUH
#define NEARTIE_KERNELS_CUDA_COMMON_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "kernels/cuda.h"
#include "kernels/quant.h"

#define WARP 32

static __device__ __forceinline__ float real_exp(float x)
{
    return expf(x);
}
static __device__ __forceinline__ double real_exp(double x)
{
    return exp(x);
}
static __device__ __forceinline__ float real_log1p(float x)
{
    return log1pf(x);
}
static __device__ __forceinline__ double real_log1p(double x)
{
    return log1p(x);
}
static __device__ __forceinline__ float real_sqrt(float x)
{
    return sqrtf(x);
}
static __device__ __forceinline__ double real_sqrt(double x)
{
    return sqrt(x);
}
template <class REAL> static __device__ __forceinline__ REAL real_sigmoid(REAL x)
{
    return 1 / (1 + real_exp(-x));
}

/* Sum, or maximum, over a warp; every lane has it. */
template <class REAL> static __device__ __forceinline__ REAL warp_sum(REAL x)
{
    for (int d = WARP / 2; d; d >>= 1)
        x += __shfl_xor_sync(~0u, x, d);
    return x;
}
template <class REAL> static __device__ __forceinline__ REAL warp_max(REAL x)
{
    for (int d = WARP / 2; d; d >>= 1) {
        const REAL y = __shfl_xor_sync(~0u, x, d);
        x = y > x ? y : x;
    }
    return x;
}

/* Sum over a block of up to 1024 threads, in the same order every time; every thread has it. */
template <class REAL> static __device__ REAL block_sum(REAL x)
{
    __shared__ REAL part[WARP];
    const int n_warps = (blockDim.x + WARP - 1) / WARP;
    x = warp_sum(x);
    __syncthreads();
    if (threadIdx.x % WARP == 0)
        part[threadIdx.x / WARP] = x;
    __syncthreads();
    return warp_sum((int)(threadIdx.x % WARP) < n_warps ? part[threadIdx.x % WARP] : (REAL)0);
}

static __device__ __forceinline__ const int32_t *ints(const struct tensor &t)
{
    return (const int32_t *)t.data;
}

static __device__ __forceinline__ float *row_floats(const struct tensor &t, int32_t row)
{
    return (float *)((char *)t.data + row * t.row_bytes);
}

/* Element col of a packed row, with the arithmetic of quant.c. */
template <int TYPE> static __device__ __forceinline__ float element(const void *row, int col);

template <> __device__ __forceinline__ float element<QUANT_F32>(const void *row, int col)
{
    return ((const float *)row)[col];
}
template <> __device__ __forceinline__ float element<QUANT_F16>(const void *row, int col)
{
    return __half2float(((const __half *)row)[col]);
}
template <> __device__ __forceinline__ float element<QUANT_BF16>(const void *row, int col)
{
    return __bfloat162float(((const __nv_bfloat16 *)row)[col]);
}

static __device__ __forceinline__ float half_bits(uint16_t h)
{
    return __half2float(__ushort_as_half(h));
}
/* The nibble of element j of a block of 32. */
static __device__ __forceinline__ int nibble(const uint8_t *qs, int j)
{
    return qs[j & 15] >> (j >> 4) * 4 & 15;
}
static __device__ __forceinline__ int fifth_bit(const uint8_t *qh, int j)
{
    return (qh[j >> 3] >> (j & 7) & 1) << 4;
}

#define BLOCK_ELEMENT(TYPE, STRUCT, PER_BLOCK, VALUE)                                              \
    template <> __device__ __forceinline__ float element<TYPE>(const void *row, int col)           \
    {                                                                                              \
        const struct STRUCT *b = (const struct STRUCT *)row + col / PER_BLOCK;                     \
        const int j = col % PER_BLOCK;                                                             \
        return VALUE;                                                                              \
    }
#define SCALED(q) __fmul_rn(half_bits(b->d), (float)(q))

BLOCK_ELEMENT(QUANT_Q8_0, quant_q8_0, QUANT_BLOCK, SCALED(b->qs[j]))
BLOCK_ELEMENT(QUANT_Q4_0, quant_q4_0, QUANT_BLOCK, SCALED(nibble(b->qs, j) - 8))
BLOCK_ELEMENT(QUANT_Q4_1, quant_q4_1, QUANT_BLOCK,
              __fadd_rn(SCALED(nibble(b->qs, j)), half_bits(b->m)))
BLOCK_ELEMENT(QUANT_Q5_0, quant_q5_0, QUANT_BLOCK,
              SCALED((nibble(b->qs, j) | fifth_bit(b->qh, j)) - 16))
BLOCK_ELEMENT(QUANT_Q5_1, quant_q5_1, QUANT_BLOCK,
              __fadd_rn(SCALED(nibble(b->qs, j) | fifth_bit(b->qh, j)), half_bits(b->m)))

static __constant__ int8_t iq4_values[16] = QUANT_IQ4_VALUES;
static __constant__ int8_t mxfp4_values[16] = QUANT_MXFP4_VALUES;

BLOCK_ELEMENT(QUANT_IQ4_NL, quant_iq4_nl, QUANT_BLOCK, SCALED(iq4_values[nibble(b->qs, j)]))
BLOCK_ELEMENT(QUANT_MXFP4, quant_mxfp4, QUANT_BLOCK,
              __fmul_rn(quant_e8m0_half(b->e), (float)mxfp4_values[nibble(b->qs, j)]))

/* d * scale * q - dmin * min, each product rounded. */
static __device__ __forceinline__ float scaled_minus(uint16_t d, int scale, int q, uint16_t dmin,
                                                     int min)
{
    return __fsub_rn(__fmul_rn(__fmul_rn(half_bits(d), (float)scale), (float)q),
                     __fmul_rn(half_bits(dmin), (float)min));
}
static __device__ __forceinline__ float scaled_twice(uint16_t d, int scale, int q)
{
    return __fmul_rn(__fmul_rn(half_bits(d), (float)scale), (float)q);
}
/* Two bits of element j of a superblock, as q2_k and q3_k keep them. */
static __device__ __forceinline__ int two_bits(const uint8_t *qs, int j)
{
    return qs[j / 128 * 32 + j % 32] >> j % 128 / 32 * 2 & 3;
}
static __device__ __forceinline__ float q4_k_value(const struct quant_q4_k *b, int j)
{
    int scale, min;
    quant_scale_min(b->scales, j / 32, &scale, &min);
    return scaled_minus(b->d, scale, b->qs[j / 64 * 32 + j % 32] >> (j / 32 % 2) * 4 & 15, b->dmin,
                        min);
}
static __device__ __forceinline__ float q5_k_value(const struct quant_q5_k *b, int j)
{
    int scale, min;
    quant_scale_min(b->scales, j / 32, &scale, &min);
    const int low = b->qs[j / 64 * 32 + j % 32] >> (j / 32 % 2) * 4 & 15;
    return scaled_minus(b->d, scale, low | (b->qh[j % 32] >> j / 32 & 1) << 4, b->dmin, min);
}
static __device__ __forceinline__ int q6_k_quant(const struct quant_q6_k *b, int j)
{
    const int half = j / 128, l = j % 128;
    const int low = b->ql[64 * half + l % 64] >> l / 64 * 4 & 15;
    const int high = b->qh[32 * half + l % 32] >> l / 32 * 2 & 3;
    return (low | high << 4) - 32;
}

/* Digit k, from the top, of a byte that holds five in base 3. */
static __device__ __forceinline__ int base3_digit(uint8_t byte, int k)
{
    const int power = k == 0 ? 1 : k == 1 ? 3 : k == 2 ? 9 : k == 3 ? 27 : 81;
    return (uint8_t)(byte * power) * 3 >> 8;
}
static __device__ __forceinline__ int tq1_0_quant(const struct quant_tq1_0 *b, int j)
{
    if (j < 160)
        return base3_digit(b->qs[j % 32], j / 32);
    j -= 160;
    if (j < 80)
        return base3_digit(b->qs[32 + j % 16], j / 16);
    j -= 80;
    return base3_digit(b->qh[j % 4], j / 4);
}

BLOCK_ELEMENT(QUANT_Q2_K, quant_q2_k, QUANT_SUPER,
              scaled_minus(b->d, b->scales[j / 16] & 15, two_bits(b->qs, j), b->dmin,
                           b->scales[j / 16] >> 4))
BLOCK_ELEMENT(QUANT_Q3_K, quant_q3_k, QUANT_SUPER,
              scaled_twice(b->d, quant_q3_k_scale(b->scales, j / 16),
                           (two_bits(b->qs, j) | (b->hmask[j % 32] >> j / 32 & 1) << 2) - 4))
BLOCK_ELEMENT(QUANT_Q4_K, quant_q4_k, QUANT_SUPER, q4_k_value(b, j))
BLOCK_ELEMENT(QUANT_Q5_K, quant_q5_k, QUANT_SUPER, q5_k_value(b, j))
BLOCK_ELEMENT(QUANT_Q6_K, quant_q6_k, QUANT_SUPER,
              scaled_twice(b->d, b->scales[j / 16], q6_k_quant(b, j)))
BLOCK_ELEMENT(QUANT_IQ4_XS, quant_iq4_xs, QUANT_SUPER,
              scaled_twice(b->d, quant_iq4_xs_scale(b, j / 32),
                           iq4_values[nibble(b->qs + j / 32 * 16, j % 32)]))
BLOCK_ELEMENT(QUANT_TQ1_0, quant_tq1_0, QUANT_SUPER, SCALED(tq1_0_quant(b, j) - 1))
BLOCK_ELEMENT(QUANT_TQ2_0, quant_tq2_0, QUANT_SUPER, SCALED(two_bits(b->qs, j) - 1))

/* Element col of row `row` of plane `mat` of a weight. */
template <int TYPE>
static __device__ __forceinline__ float weight(const struct tensor &t, int mat, int row, int col)
{
    return element<TYPE>((const char *)t.data + mat * t.mat_bytes + row * t.row_bytes, col);
}

/* A placed q8_0 weight: quants, then scales. */
static __device__ __forceinline__ const int8_t *q8_quants(const struct tensor &t, int mat, int row)
{
    return (const int8_t *)t.data + ((int64_t)mat * t.n_rows + row) * t.n_cols;
}
static __device__ __forceinline__ const __half *q8_scales(const struct tensor &t, int mat, int row)
{
    const int64_t n_quants = (int64_t)t.n_mats * t.n_rows * t.n_cols;
    return (const __half *)((const int8_t *)t.data + n_quants) +
           ((int64_t)mat * t.n_rows + row) * (t.n_cols / QUANT_BLOCK);
}
template <>
__device__ __forceinline__ float weight<QUANT_Q8_0>(const struct tensor &t, int mat, int row,
                                                    int col)
{
    return __fmul_rn(__half2float(q8_scales(t, mat, row)[col / QUANT_BLOCK]),
                     (float)q8_quants(t, mat, row)[col]);
}

/* Row `row` of a weight that stands as in the file. */
template <class BLOCK>
static __device__ __forceinline__ const BLOCK *packed_row(const struct tensor &t, int mat, int row)
{
    return (const BLOCK *)((const char *)t.data + mat * t.mat_bytes + row * t.row_bytes);
}

/* Blocks of a weight of small blocks before a row. */
static __device__ __forceinline__ int64_t block_index(const struct tensor &t, int mat, int row)
{
    return ((int64_t)mat * t.n_rows + row) * (t.n_cols / QUANT_BLOCK);
}

/* A placed q4_0 weight: nibbles, then scales. */
static __device__ __forceinline__ const uint8_t *q4_quants(const struct tensor &t, int mat, int row)
{
    return (const uint8_t *)t.data + block_index(t, mat, row) * 16;
}
static __device__ __forceinline__ const __half *q4_scales(const struct tensor &t, int mat, int row)
{
    const int64_t n = (int64_t)t.n_mats * t.n_rows * (t.n_cols / QUANT_BLOCK);
    return (const __half *)((const uint8_t *)t.data + n * 16) + block_index(t, mat, row);
}
template <>
__device__ __forceinline__ float weight<QUANT_Q4_0>(const struct tensor &t, int mat, int row,
                                                    int col)
{
    return __fmul_rn(
        __half2float(q4_scales(t, mat, row)[col / QUANT_BLOCK]),
        (float)(nibble(q4_quants(t, mat, row) + col / QUANT_BLOCK * 16, col % QUANT_BLOCK) - 8));
}

/* A placed q6_k weight: each field of all superblocks by itself. */
struct q6_planes {
    const uint8_t *low, *high; /* (superblocks, 128), (superblocks, 64) */
    const int8_t *scales;      /* (superblocks, 16) */
    const __half *d;
};
static __host__ __device__ __forceinline__ struct q6_planes q6_planes_of(const struct tensor &t)
{
    const int64_t n = (int64_t)t.n_mats * t.n_rows * (t.n_cols / QUANT_SUPER);
    const uint8_t *at = (const uint8_t *)t.data;
    return {at, at + n * 128, (const int8_t *)at + n * 192, (const __half *)(at + n * 208)};
}
static __device__ __forceinline__ int64_t q6_block(const struct tensor &t, int mat, int row)
{
    return ((int64_t)mat * t.n_rows + row) * (t.n_cols / QUANT_SUPER);
}
template <>
__device__ __forceinline__ float weight<QUANT_Q6_K>(const struct tensor &t, int mat, int row,
                                                    int col)
{
    const struct q6_planes p = q6_planes_of(t);
    const int64_t b = q6_block(t, mat, row) + col / QUANT_SUPER;
    const int j = col % QUANT_SUPER, half = j / 128, l = j % 128;
    const int low = p.low[b * 128 + 64 * half + l % 64] >> l / 64 * 4 & 15;
    const int high = p.high[b * 64 + 32 * half + l % 32] >> l / 32 * 2 & 3;
    return __fmul_rn(__fmul_rn(__half2float(p.d[b]), (float)p.scales[b * 16 + j / 16]),
                     (float)((low | high << 4) - 32));
}

/* Run a statement with TYPE a constant, for every weight type. */
#define FOR_WEIGHT_TYPES(X)                                                                        \
    X(QUANT_F32)                                                                                   \
    X(QUANT_F16)                                                                                   \
    X(QUANT_BF16)                                                                                  \
    X(QUANT_Q8_0)                                                                                  \
    X(QUANT_Q4_0)                                                                                  \
    X(QUANT_Q4_1)                                                                                  \
    X(QUANT_Q5_0)                                                                                  \
    X(QUANT_Q5_1)                                                                                  \
    X(QUANT_Q2_K)                                                                                  \
    X(QUANT_Q3_K)                                                                                  \
    X(QUANT_Q4_K)                                                                                  \
    X(QUANT_Q5_K)                                                                                  \
    X(QUANT_Q6_K)                                                                                  \
    X(QUANT_IQ4_NL)                                                                                \
    X(QUANT_IQ4_XS)                                                                                \
    X(QUANT_MXFP4)                                                                                 \
    X(QUANT_TQ1_0)                                                                                 \
    X(QUANT_TQ2_0)

static inline cudaStream_t stream_of(const struct cuda_call *call)
{
    return (cudaStream_t)call->stream;
}

/* Kernels that follow one another may overlap: the next may start once every block of this one has
 * called next_may_start(), and has to wait_for_previous() before it touches what others write. A
 * kernel that is launched with launch() calls both. */
static __device__ __forceinline__ void next_may_start()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;");
#endif
}
static __device__ __forceinline__ void wait_for_previous()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <class... P, class... A>
static int launch(const struct cuda_call *call, void (*kernel)(P...), dim3 grid, dim3 block,
                  size_t shared_bytes, A... args)
{
    cudaLaunchAttribute overlap;
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t c = {};
    c.gridDim = grid;
    c.blockDim = block;
    c.dynamicSmemBytes = shared_bytes;
    c.stream = stream_of(call);
    c.attrs = &overlap;
    c.numAttrs = call->overlap ? 1 : 0;
    return cudaLaunchKernelEx(&c, kernel, P(args)...);
}

/* Workspace for the call at hand. */
#define CUDA_CALL_OFFSET (2 * CUDA_ROUND_BYTES + ((size_t)32 << 20))
static inline void *call_space(const struct cuda_call *call)
{
    return (char *)call->workspace + CUDA_CALL_OFFSET;
}
static inline size_t call_space_bytes()
{
    return CUDA_WORKSPACE_BYTES - CUDA_CALL_OFFSET;
}

/* Blocks of n_threads that cover n. */
static inline unsigned blocks_for(int64_t n, int n_threads)
{
    return (unsigned)((n + n_threads - 1) / n_threads);
}

#endif
