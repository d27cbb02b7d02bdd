#include "config.h"

#include "kernels/cuda.h"

const cuda_fn cuda_ops[N_OPS] = {
#define OP(id, name, ...) [OP_##id] = cuda_##name,
#include "kernels/ops.def"
#undef OP
};
