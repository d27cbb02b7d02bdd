/* Operators that work on each row by itself: look-up, norms, gates, rotary positions, the cache. */
#include "kernels/cuda_common.cuh"

#define THREADS 256

template <int TYPE>
static __global__ void rows_kernel(struct tensor out, struct tensor table, struct tensor ids)
{
    const int32_t r = blockIdx.x, c = blockIdx.y * THREADS + threadIdx.x;
    if (c < table.n_cols)
        row_floats(out, r)[c] = weight<TYPE>(table, 0, ints(ids)[r], c);
}

int cuda_rows(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, THREADS));
#define LAUNCH(TYPE)                                                                               \
    case TYPE:                                                                                     \
        rows_kernel<TYPE><<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);      \
        break;
    switch (a->in[0].type) {
        FOR_WEIGHT_TYPES(LAUNCH)
    }
#undef LAUNCH
    return cudaGetLastError();
}

/* One block for each head of each row. */
template <class REAL, bool IS_RMS>
static __global__ void norm_kernel(struct tensor out, struct tensor x, const float *weights,
                                   int32_t n, double eps, double factor)
{
    const float *in = row_floats(x, blockIdx.x) + blockIdx.y * n;
    float *to = row_floats(out, blockIdx.x) + blockIdx.y * n;
    REAL sum = 0;
    for (int32_t i = threadIdx.x; i < n; i += blockDim.x)
        sum += (REAL)in[i] * (REAL)in[i];
    sum = block_sum(sum);
    const REAL scale =
        IS_RMS ? 1 / real_sqrt(sum / n + (REAL)eps) : (REAL)factor / real_sqrt(sum + (REAL)eps);
    for (int32_t i = threadIdx.x; i < n; i += blockDim.x)
        to[i] = (float)(in[i] * scale * (IS_RMS ? (REAL)weights[i] : (REAL)1));
}

template <bool IS_RMS> static int norm(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->out.n_cols / a->n_heads;
    const int threads = n >= 1024 ? 512 : n >= 256 ? 128 : 32;
    const dim3 grid(a->out.n_rows, a->n_heads);
    const float *weights = (const float *)a->in[1].data;
    if (a->form == FORM_F64)
        norm_kernel<double, IS_RMS>
            <<<grid, threads, 0, stream_of(call)>>>(a->out, a->in[0], weights, n, a->eps, a->scale);
    else
        norm_kernel<float, IS_RMS>
            <<<grid, threads, 0, stream_of(call)>>>(a->out, a->in[0], weights, n, a->eps, a->scale);
    return cudaGetLastError();
}

int cuda_rms_norm(const struct op_args *a, const struct cuda_call *call)
{
    return norm<true>(a, call);
}

int cuda_l2_norm(const struct op_args *a, const struct cuda_call *call)
{
    return norm<false>(a, call);
}

/* out[r][c] = f(in0[r][c], in1[r or 0][c or 0]) */
struct add_of {
    template <class REAL> static __device__ REAL of(float x, float y)
    {
        return (REAL)(x + y);
    }
};
struct swiglu_of {
    template <class REAL> static __device__ REAL of(float gate, float up)
    {
        return gate * real_sigmoid((REAL)gate) * up;
    }
};
struct gate_of {
    template <class REAL> static __device__ REAL of(float x, float gate)
    {
        return x * real_sigmoid((REAL)gate);
    }
};

template <class REAL, class F>
static __global__ void pairwise_kernel(struct tensor out, struct tensor x, struct tensor y)
{
    const int32_t r = blockIdx.x, c = blockIdx.y * THREADS + threadIdx.x;
    if (c < out.n_cols)
        row_floats(out, r)[c] = (float)F::template of<REAL>(
            row_floats(x, r)[c], row_floats(y, y.n_rows == 1 ? 0 : r)[y.n_cols == 1 ? 0 : c]);
}

template <class F> static int pairwise(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->out.n_rows, blocks_for(a->out.n_cols, THREADS));
    if (a->form == FORM_F64)
        pairwise_kernel<double, F>
            <<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);
    else
        pairwise_kernel<float, F>
            <<<grid, THREADS, 0, stream_of(call)>>>(a->out, a->in[0], a->in[1]);
    return cudaGetLastError();
}

int cuda_add(const struct op_args *a, const struct cuda_call *call)
{
    return pairwise<add_of>(a, call);
}

int cuda_swiglu(const struct op_args *a, const struct cuda_call *call)
{
    return pairwise<swiglu_of>(a, call);
}

int cuda_gate(const struct op_args *a, const struct cuda_call *call)
{
    return pairwise<gate_of>(a, call);
}

/* A thread turns one pair, or copies one element that does not turn. */
template <class REAL>
static __global__ void rope_kernel(struct tensor out, struct tensor x, const int32_t *positions,
                                   const double *frequency, int32_t n, int32_t n_rot, bool adjacent)
{
    const int32_t r = blockIdx.x, half = n_rot / 2, i = blockIdx.z * blockDim.x + threadIdx.x;
    const float *in = row_floats(x, r) + blockIdx.y * n;
    float *to = row_floats(out, r) + blockIdx.y * n;
    if (i < half) {
        double sine, cosine; /* in double: at position 32,768 a float angle is off by 2e-3 */
        sincos(positions[r] * frequency[i], &sine, &cosine);
        const int32_t at = adjacent ? 2 * i : i, other = adjacent ? at + 1 : i + half;
        const REAL c = (REAL)cosine, s = (REAL)sine, x0 = in[at], y0 = in[other];
        to[at] = (float)(x0 * c - y0 * s);
        to[other] = (float)(x0 * s + y0 * c);
    } else if (i + half < n) {
        to[i + half] = in[i + half];
    }
}

int cuda_rope(const struct op_args *a, const struct cuda_call *call)
{
    const int32_t n = a->out.n_cols / a->n_heads;
    const dim3 grid(a->out.n_rows, a->n_heads, blocks_for(n - a->n_rot / 2, 64));
    const int32_t *positions = (const int32_t *)a->in[1].data;
    const double *frequency = (const double *)a->in[2].data;
    if (a->form == FORM_F64)
        rope_kernel<double><<<grid, 64, 0, stream_of(call)>>>(a->out, a->in[0], positions,
                                                              frequency, n, a->n_rot, a->adjacent);
    else
        rope_kernel<float><<<grid, 64, 0, stream_of(call)>>>(a->out, a->in[0], positions, frequency,
                                                             n, a->n_rot, a->adjacent);
    return cudaGetLastError();
}

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

static __global__ void store_kernel(struct tensor cache, struct tensor x, const int32_t *seqs,
                                    const int32_t *positions)
{
    const int32_t r = blockIdx.x, c = blockIdx.y * THREADS + threadIdx.x;
    char *row = (char *)cache.data + seqs[r] * cache.mat_bytes + positions[r] * cache.row_bytes;
    if (c >= x.n_cols)
        return;
    const float value = row_floats(x, r)[c];
    if (cache.type == QUANT_F32)
        ((float *)row)[c] = value;
    else if (cache.type == QUANT_F16)
        ((uint16_t *)row)[c] = quant_f32_to_f16(value);
    else
        store_q8_0((struct quant_q8_0 *)row + c / QUANT_BLOCK, value);
}

int cuda_store(const struct op_args *a, const struct cuda_call *call)
{
    const dim3 grid(a->in[0].n_rows, blocks_for(a->in[0].n_cols, THREADS));
    store_kernel<<<grid, THREADS, 0, stream_of(call)>>>(
        a->out, a->in[0], (const int32_t *)a->in[1].data, (const int32_t *)a->in[2].data);
    return cudaGetLastError();
}
