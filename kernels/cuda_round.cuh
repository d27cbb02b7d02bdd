/* Activations as the fast products read them: 8 bits with a scale for each 32, or bf16. Whoever
 * makes an activation rounds it on the way; a product rounds what nobody has. */
#ifndef NEARTIE_KERNELS_CUDA_ROUND_CUH
#define NEARTIE_KERNELS_CUDA_ROUND_CUH

#include "kernels/cuda_common.cuh"

/* Packed rows, element by element. kind 0: none, and rounding does nothing. */
struct rounded {
    int kind;
    int8_t *quants;
    float *scales, *sums; /* of each 32: the scale, and the sum of what they are worth */
    __nv_bfloat16 *halves;
};

static inline bool is_packed(const struct tensor &t)
{
    return t.n_rows == 1 || t.row_bytes == (int64_t)t.n_cols * (int64_t)sizeof(float);
}

static inline struct rounded rounded_at(const struct cuda_call *call, int slot, int kind,
                                        int64_t n_elements)
{
    char *at = (char *)call->workspace + slot * CUDA_ROUND_BYTES;
    const int64_t n = (n_elements + 255) / 256 * 256;
    float *scales = (float *)(at + n);
    return {kind, (int8_t *)at, scales, scales + n / QUANT_BLOCK, (__nv_bfloat16 *)at};
}

static inline int64_t n_elements_of(const struct tensor &x)
{
    return (int64_t)x.n_rows * x.n_cols;
}

/* The place for x, which the caller is about to round; kind 0 where it does not fit. */
static inline struct rounded rounded_new(const struct cuda_call *call, const struct tensor &x,
                                         int kind)
{
    struct cuda_rounded *r = call->rounded;
    r->x.data = NULL;
    if (kind == 0 || x.n_cols % QUANT_BLOCK ||
        (size_t)n_elements_of(x) * (kind == CUDA_BF16 ? 2 : 1) * 5 / 4 + 1024 > CUDA_ROUND_BYTES)
        return {0, NULL, NULL, NULL, NULL};
    r->x = x;
    r->kind = (enum cuda_rounding)kind;
    r->slot = !r->slot;
    return rounded_at(call, r->slot, kind, n_elements_of(x));
}

/* More rows than this go through wide products, which read bf16, even in decode. */
#define MV_MOST_ROWS 64

/* What the products after this call will want of its result; 0 = nothing that it could give. */
static inline int rounding_of(const struct op_args *a, const struct tensor &out, int32_t n_rows)
{
    if (a->form != FORM_FAST || !is_packed(out))
        return 0;
    return a->many || n_rows > MV_MOST_ROWS ? CUDA_BF16 : CUDA_INT8;
}

/* Eight lanes in a row round 32 elements: each the four at e. */
static __device__ __forceinline__ void round4(const struct rounded &r, int64_t e, float4 v)
{
    if (r.kind == CUDA_BF16) {
        __nv_bfloat162 two[2] = {__floats2bfloat162_rn(v.x, v.y), __floats2bfloat162_rn(v.z, v.w)};
        *(uint2 *)(r.halves + e) = *(const uint2 *)two;
    }
    if (r.kind != CUDA_INT8)
        return;
    /* Magnitudes compare as their bits do, and what is not finite is largest. */
    const unsigned group = 0xffu << (threadIdx.x % WARP / 8 * 8);
    const float element[4] = {v.x, v.y, v.z, v.w};
    uint32_t bits = 0;
    for (int i = 0; i < 4; i++)
        bits = max(bits, __float_as_uint(element[i]) & 0x7fffffff);
    for (int d = 4; d; d >>= 1)
        bits = max(bits, __shfl_xor_sync(group, bits, d));
    const float most = __uint_as_float(bits < 0x7f800000 ? bits : 0x7fc00000);
    const float inverse = most > 0 ? 127.0f / most : 0.0f, scale = most / 127.0f;
    char4 q;
    q.x = (signed char)__float2int_rn(v.x * inverse);
    q.y = (signed char)__float2int_rn(v.y * inverse);
    q.z = (signed char)__float2int_rn(v.z * inverse);
    q.w = (signed char)__float2int_rn(v.w * inverse);
    int sum = q.x + q.y + q.z + q.w;
    for (int d = 4; d; d >>= 1)
        sum += __shfl_xor_sync(group, sum, d);
    *(char4 *)(r.quants + e) = q;
    if (threadIdx.x % 8 == 0) {
        r.scales[e / QUANT_BLOCK] = scale;
        r.sums[e / QUANT_BLOCK] = scale * (float)sum;
    }
}

/* A warp rounds 32 elements: a lane the one at e. */
static __device__ __forceinline__ void round1(const struct rounded &r, int64_t e, float x)
{
    if (r.kind == CUDA_BF16)
        r.halves[e] = __float2bfloat16(x);
    if (r.kind != CUDA_INT8)
        return;
    const uint32_t bits = warp_max(__float_as_uint(x) & 0x7fffffff);
    const float most = __uint_as_float(bits < 0x7f800000 ? bits : 0x7fc00000);
    const float inverse = most > 0 ? 127.0f / most : 0.0f, scale = most / 127.0f;
    const int q = (int)(signed char)__float2int_rn(x * inverse), sum = warp_sum(q);
    r.quants[e] = (int8_t)q;
    if (e % QUANT_BLOCK == 0) {
        r.scales[e / QUANT_BLOCK] = scale;
        r.sums[e / QUANT_BLOCK] = scale * (float)sum;
    }
}

/* Where the parts of the workspace after the rounded rows stand. */
static inline void *blas_space(const struct cuda_call *call)
{
    return (char *)call->workspace + 2 * CUDA_ROUND_BYTES;
}

/* x as kind asks for, rounded now if nobody has; in cuda_mv.cu. Returns 0 or a cudaError_t. */
int cuda_round(struct rounded *out, const struct tensor &x, int kind, const struct cuda_call *call);

#endif
