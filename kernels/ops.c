#include "config.h"
#include "kernels/cpu.h"

struct tensor tensor_packed(void *data, int32_t type, int32_t n_mats, int32_t n_rows,
                            int32_t n_cols)
{
    int64_t row_bytes = quant_row_bytes((uint32_t)type, n_cols);
    return (struct tensor){data, type, n_cols, n_rows, n_mats, row_bytes, row_bytes * n_rows};
}

/* Vocabulary of the cost formulas in ops.def. */
static double span(const struct tensor *t)
{
    return (double)t->n_mats * t->n_rows * (double)quant_row_bytes((uint32_t)t->type, t->n_cols);
}
/* Matrices of the experts that a call can reach. */
static double experts_read(const struct op_args *a)
{
    double n = (double)a->in[1].n_mats;
    return (double)a->in[1].mat_bytes * (n < a->out.n_rows ? n : a->out.n_rows);
}
/* The matrices in[1], in[2], ... of a call. */
static double matrices_read(const struct op_args *a)
{
    double n = 0;
    for (int i = 1; i < OP_MAX_INPUTS && a->in[i].data; i++)
        n += span(&a->in[i]);
    return n;
}
static double products_flops(const struct op_args *a)
{
    double n = 0;
    for (int i = 1; i < OP_MAX_INPUTS && a->in[i].data; i++)
        n += 2.0 * a->in[0].n_rows * a->in[i].n_rows * a->in[i].n_cols;
    return n;
}
/* Scratch for the products of one x with them, one after another. */
static size_t rounded_most(const struct op_args *a)
{
    size_t most = 0;
    for (int i = 1; i < OP_MAX_INPUTS && a->in[i].data; i++) {
        size_t n = cpu_matmul_scratch_bytes(&a->in[0], &a->in[i]);
        most = n > most ? n : most;
    }
    return most;
}
#define OUT         span(&a->out)
#define N_OUT       ((double)a->out.n_rows * a->out.n_cols)
#define IN(i)       span(&a->in[i])
#define IN_COLS(i)  ((double)a->in[i].n_cols)
#define OUT_COLS    ((double)a->out.n_cols)
#define N_IN(i)     ((double)a->in[i].n_rows * a->in[i].n_cols)
#define MATMUL      (2 * N_OUT * IN_COLS(0))
#define EXPERTS     experts_read(a)
#define SLOTS       cpu_experts_slot_bytes(a)
#define MATRICES    matrices_read(a)
#define PRODUCTS    products_flops(a)
#define ROUNDED_ALL rounded_most(a)
#define FLOATS(n)   (((size_t)(n) + 63) / 64 * 64)
#define KEYS                                                                                       \
    ((double)a->n_pairs * (double)(quant_row_bytes((uint32_t)a->in[1].type, a->in[1].n_cols) +     \
                                   quant_row_bytes((uint32_t)a->in[2].type, a->in[2].n_cols)))
#define ATTENTION (4 * (double)a->n_pairs * IN_COLS(0))
#define ROUNDED_X cpu_matmul_scratch_bytes(&a->in[0], &a->in[1])

#define OP(id, name, inputs, invariance, bytes, flops, scratch)                                    \
    static double name##_bytes(const struct op_args *a)                                            \
    {                                                                                              \
        (void)a;                                                                                   \
        return bytes;                                                                              \
    }                                                                                              \
    static double name##_flops(const struct op_args *a)                                            \
    {                                                                                              \
        (void)a;                                                                                   \
        return flops;                                                                              \
    }                                                                                              \
    static size_t name##_scratch(const struct op_args *a)                                          \
    {                                                                                              \
        (void)a;                                                                                   \
        return scratch;                                                                            \
    }
#include "kernels/ops.def"
#undef OP

#define OP(id, name, inputs, invariance, bytes, flops, scratch)                                    \
    [OP_##id] = {                                                                                  \
        #name,                                                                                     \
        inputs,                                                                                    \
        invariance,                                                                                \
        name##_bytes,                                                                              \
        name##_flops,                                                                              \
        name##_scratch,                                                                            \
        {cpu_##name##_f32, cpu_##name##_f64, cpu_##name##_fast},                                   \
    },
const struct op_info ops[N_OPS] = {
#include "kernels/ops.def"
};

bool kernels_have_type(int32_t type)
{
    const struct quant_info *q = quant_find((uint32_t)type);
    return q && q->to_float;
}
