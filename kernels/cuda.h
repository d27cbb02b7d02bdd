/* The CUDA forms of the operators: one function per line of ops.def, with the arguments of the C
 * forms and every pointer in device memory. A call only enqueues work on the stream. Weights of
 * types q8_0, q4_0 and q6_k stand as cuda_place() left them: each field of all blocks by itself. */
#ifndef NEARTIE_KERNELS_CUDA_H
#define NEARTIE_KERNELS_CUDA_H

#include "kernels/kernels.h"

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_blas;

enum cuda_rounding { CUDA_NOT_ROUNDED, CUDA_INT8, CUDA_BF16 };

/* The x of the next products, as they read it; whoever writes x's memory forgets it. */
struct cuda_rounded {
    struct tensor x; /* data NULL = none */
    enum cuda_rounding kind;
    int slot; /* which of the workspace's two places */
};

/* The workspace: two places for rounded rows, cuBLAS's own, and the rest for the call at hand. */
#define CUDA_ROUND_BYTES     ((size_t)208 << 20)
#define CUDA_WORKSPACE_BYTES ((size_t)704 << 20)

/* What calls share: one stream, so one call at a time uses the workspace. */
struct cuda_call {
    void *stream;    /* cudaStream_t */
    void *workspace; /* device memory of CUDA_WORKSPACE_BYTES, aligned to 256 */
    struct cuda_blas *blas;
    struct cuda_rounded *rounded;
    int32_t sm_count;
    bool overlap; /* a kernel may start while the one before it ends */
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
