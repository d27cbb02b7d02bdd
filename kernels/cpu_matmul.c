/* The fast matrix products: activation rows rounded once, then the loops of cpu_dot.h over parts
 * of the matrix, one thread each. */
#include "config.h"
#include "kernels/cpu.h"

/* Results of one part: few enough to keep threads busy, many enough for the loops' tiles. */
enum { PART_ROWS = 16, PART_TOKENS = 256 };

size_t cpu_matmul_scratch_bytes(const struct tensor *x, const struct tensor *matrix)
{
    const struct cpu_dot *dot = cpu_dot_find(CPU_PORTABLE, matrix->type);
    return dot && dot->pack ? (size_t)x->n_rows * cpu_dot_pack_bytes(x->n_cols) : 0;
}

static const void *activation_row(const struct op_args *a, const struct cpu_dot *dot, int32_t row)
{
    const struct tensor *x = &a->in[0];
    return dot->pack ? (char *)a->scratch + (size_t)row * cpu_dot_pack_bytes(x->n_cols)
                     : tensor_row(x, 0, row);
}

static void part_run(const struct op_args *a, const struct cpu_dot *dot, bool many, int32_t row,
                     int32_t token)
{
    const struct tensor *m = &a->in[1];
    int32_t n_rows = m->n_rows - row, n_tokens = a->out.n_rows - token;
    const void *x[PART_TOKENS];
    float *out[PART_TOKENS];
    n_tokens = n_tokens < PART_TOKENS ? n_tokens : PART_TOKENS;
    for (int32_t t = 0; t < n_tokens; t++) {
        x[t] = activation_row(a, dot, token + t);
        out[t] = (float *)tensor_row(&a->out, 0, token + t) + row;
    }
    const struct cpu_dot_call call = {.w = tensor_row(m, 0, row),
                                      .row_bytes = m->row_bytes,
                                      .n_rows = n_rows < PART_ROWS ? n_rows : PART_ROWS,
                                      .n_cols = m->n_cols,
                                      .n_tokens = n_tokens,
                                      .x = x,
                                      .out = out,
                                      .two_groups = a->two_groups};
    (many ? dot->mm : dot->mv)(&call);
}

void cpu_matmul(const struct op_args *a, enum cpu_isa isa, bool many)
{
    const struct tensor *x = &a->in[0], *m = &a->in[1];
    const struct cpu_dot *dot = cpu_dot_find(isa, m->type);
#pragma omp parallel if ((int64_t)a->out.n_rows * m->n_rows * m->n_cols > cpu_worth_threads)
    {
        if (dot->pack) {
#pragma omp for schedule(static)
            for (int32_t row = 0; row < x->n_rows; row++)
                dot->pack(tensor_row(x, 0, row), x->n_cols, (void *)activation_row(a, dot, row));
        }
#pragma omp for schedule(static)
        for (int32_t row = 0; row < m->n_rows; row += PART_ROWS)
            for (int32_t t = 0; t < a->out.n_rows; t += PART_TOKENS)
                part_run(a, dot, many, row, t);
    }
}
