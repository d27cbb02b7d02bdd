/* Writing an element of a cache. */
#ifndef NEARTIE_KERNELS_CUDA_STORE_CUH
#define NEARTIE_KERNELS_CUDA_STORE_CUH

#include "kernels/cuda_common.cuh"

/* The q8_0 of quant.c: a warp packs one block of 32. */
static __device__ void store_q8_0(struct quant_q8_0 *b, float x)
{
    const uint32_t most = warp_max(__float_as_uint(x) & 0x7fffffff);
    const bool is_number = most < 0x7f800000 && most >= 0x04000000;
    const float amax = __uint_as_float(most);
    const float inverse = is_number ? __fdiv_rn(127.0f, amax) : 0.0f;
    const float shifted = __fadd_rn(__fmul_rn(is_number ? x : 0.0f, inverse), 12582912.0f);
    if (threadIdx.x % WARP == 0)
        b->d = quant_f32_to_f16(most < 0x7f800000 ? __fdiv_rn(amax, 127.0f)
                                                  : __uint_as_float(0x7fc00000));
    b->qs[threadIdx.x % WARP] = (int8_t)(__float_as_uint(shifted) - 0x4b400000u);
}

/* Column c of a position of a sequence; a warp has 32 columns from a multiple of 32 on. */
static __device__ __forceinline__ void cache_store(const struct tensor &cache, int32_t seq,
                                                   int32_t position, int32_t c, float x)
{
    char *row = (char *)cache.data + seq * cache.mat_bytes + position * cache.row_bytes;
    if (cache.type == QUANT_F32)
        ((float *)row)[c] = x;
    else if (cache.type == QUANT_F16)
        ((uint16_t *)row)[c] = quant_f32_to_f16(x);
    else
        store_q8_0((struct quant_q8_0 *)row + c / QUANT_BLOCK, x);
}

#endif
