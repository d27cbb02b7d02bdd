/* The weight formats of the fast products of few rows: what a lane loads at a time, and what that
 * is worth with activations in 8 bits (or in float for weights of 16 bits). */
#ifndef NEARTIE_KERNELS_CUDA_FORMATS_CUH
#define NEARTIE_KERNELS_CUDA_FORMATS_CUH

#include "kernels/cuda_mv.cuh"

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

/* A format: UNIT = elements of a load; STEP = loads of a lane at a time, so that 2,048 elements are
 * whole steps of a warp; fetch a row's unit, and its dot product with x from element `at` on. */
struct format_q8_0 {
    enum { UNIT = 16, STEP = 4 };
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
    enum { UNIT = 32, STEP = 2 };
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
    enum { UNIT = 32, STEP = 2 };
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
    enum { UNIT = 32, STEP = 1 };
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
    enum { UNIT = 32, STEP = 2 };
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
    enum { UNIT = 8, STEP = 4 };
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
                                                 int32_t first, int unit)
{
    return f.dot(p.rounded, row * p.m[0].n_cols + first, unit);
}
template <class HALF>
static __device__ __forceinline__ float
unit_dot(const format_half<HALF> &f, const struct products &p, int64_t row, int32_t first, int unit)
{
    return f.dot(row_floats(p.x, row) + first, unit);
}

/* In cuda_pairs.cu, for weights that come in whole steps; with glu, out = silu(x m[0]^T) *
 * (x m[1]^T), which is rounded. Returns 0 or a cudaError_t. */
bool cuda_pairs_takes(const struct products &p, bool is_glu);
int cuda_pairs(const struct products &p, const struct rounded *glu, bool two_groups,
               const struct cuda_call *call);

/* In cuda_batch.cu, for a batch of rows and 8-bit weights. Returns 0 or a cudaError_t. */
bool cuda_batch_takes(const struct products &p);
int cuda_batch(const struct products &p, bool is_glu, bool two_groups,
               const struct cuda_call *call);

#endif
