/* Attention on the tensor cores (cuda_flash.cu). */
#ifndef NEARTIE_KERNELS_CUDA_FLASH_CUH
#define NEARTIE_KERNELS_CUDA_FLASH_CUH

#include "kernels/cuda_round.cuh"

/* Does it have a form for this call's types and sizes? */
bool cuda_flash_takes(const struct op_args *a);

/* `many`: the queries are tokens of one sequence. Returns 0 or a cudaError_t. */
int cuda_flash(const struct op_args *a, const struct cuda_call *call, bool many);

#endif
