/* Fast products of few rows (cuda_mv.cu). */
#ifndef NEARTIE_KERNELS_CUDA_MV_CUH
#define NEARTIE_KERNELS_CUDA_MV_CUH

#include "kernels/cuda_round.cuh"

/* Which plane of the matrices a row of the output takes, and which row of x. */
struct choice {
    const int32_t *ids; /* (rows of the output); NULL: plane 0 */
    int32_t rows_per_x; /* rows of the output that read the same row of x */
};

/* More rows than this go through the tensor cores' wide products even in decode. */
static inline int32_t cuda_mv_most_rows(const struct tensor &m)
{
    return m.type == QUANT_Q8_0 ? MV_MOST_ROWS : 8;
}

/* Is there a form for this call's x and this matrix? */
bool cuda_mv_takes(const struct op_args *a, const struct tensor &m);

/* out = x in[1]^T, plus *sum where it is not NULL; the operators project_mv and glu_mv, the latter
 * only where *out_done says so after. Return 0 or a cudaError_t. */
int cuda_mv(const struct op_args *a, struct choice choice, const struct tensor *sum,
            const struct cuda_call *call);
int cuda_mv_project(const struct op_args *a, const struct cuda_call *call);
int cuda_mv_glu(const struct op_args *a, bool *out_done, const struct cuda_call *call);

#endif
