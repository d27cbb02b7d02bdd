/* Matrix products on the tensor cores through cuBLASLt, which is loaded at run time. The algorithm
 * of a shape is chosen once, so that it is the same from call to call. */
#ifndef NEARTIE_KERNELS_CUDA_BLAS_H
#define NEARTIE_KERNELS_CUDA_BLAS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_blas;

enum { CUDA_BLAS_WORKSPACE = 32 << 20 }; /* bytes */

/* out[t][o] = sum over c of x[t][c] * w[o][c]; bf16 in, f32 sums and output. Device memory. */
struct cuda_blas_args {
    float *out;         /* (n_tokens, out_stride) */
    int64_t out_stride; /* elements, at least n_outputs */
    const void *w;      /* (n_outputs, k) */
    const void *x;      /* (n_tokens, k) */
    int32_t n_outputs, n_tokens, k;
    bool adds;       /* to what out holds */
    void *workspace; /* CUDA_BLAS_WORKSPACE bytes, aligned to 256 */
};

/* NULL where the library is not there or does not start. */
struct cuda_blas *cuda_blas_open(void);
void cuda_blas_close(struct cuda_blas *b); /* NULL is fine */

/* Enqueue a product. Returns 0, or -1 where there is no algorithm for the shape. */
int cuda_blas_matmul(struct cuda_blas *b, const struct cuda_blas_args *a, void *stream);

#ifdef __cplusplus
}
#endif

#endif
