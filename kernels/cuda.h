/* The CUDA forms of the operators: one function per line of ops.def, with the arguments of the C
 * forms and every pointer in device memory. A call only enqueues work on the stream. Weights of
 * type q8_0 stand as cuda_place() left them: all quants, then all scales. */
#ifndef NEARTIE_KERNELS_CUDA_H
#define NEARTIE_KERNELS_CUDA_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_blas;

/* What calls share: one stream, so one call at a time uses the workspace. */
struct cuda_call {
    void *stream;    /* cudaStream_t */
    void *workspace; /* device memory, aligned to 256 */
    size_t workspace_bytes;
    struct cuda_blas *blas;
    struct tensor *rounded; /* the x that the workspace holds in 8 bits; data NULL = none. Whoever
                               calls anything but a product of few rows clears it. */
    int32_t sm_count;
};

/* Returns 0 or a cudaError_t. */
typedef int (*cuda_fn)(const struct op_args *a, const struct cuda_call *call);
extern const cuda_fn cuda_ops[N_OPS];

#define OP(id, name, ...) int cuda_##name(const struct op_args *a, const struct cuda_call *call);
#include "kernels/ops.def"
#undef OP

/* Bring a weight's bytes, already on the device at `raw`, into the order that the operators read,
 * at `placed` (as many bytes; the two do not overlap). Returns 0 or a cudaError_t. */
int cuda_place(const struct tensor *t, const void *raw, void *placed, const struct cuda_call *call);

#ifdef __cplusplus
}
#endif

#endif
