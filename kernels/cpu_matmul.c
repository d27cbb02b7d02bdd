/* The fast matrix products: activation rows rounded once, then the loops of cpu_dot.h over parts
 * of the matrix, one thread each. */
#include "config.h"
#include "kernels/cpu.h"

/* Results of one part: few enough to keep threads busy, many enough for the loops' tiles. */
enum { PART_ROWS = 16, PART_TOKENS = 256 };

/* One call as its threads see it. */
struct product {
    const struct op_args *a;
    const struct cpu_dot *dot;
    bool many;
    int32_t rows_per_x; /* rows of out that read the same row of x */
};

size_t cpu_matmul_scratch_bytes(const struct tensor *x, const struct tensor *matrix)
{
    const struct cpu_dot *dot = cpu_dot_find(CPU_PORTABLE, matrix->type);
    return dot && dot->pack ? (size_t)x->n_rows * cpu_dot_pack_bytes(x->n_cols) : 0;
}

static struct product product_of(const struct op_args *a, enum cpu_isa isa, bool many)
{
    return (struct product){a, cpu_dot_find(isa, a->in[1].type), many,
                            a->out.n_rows / a->in[0].n_rows};
}

static const void *activation_row(const struct product *p, int32_t row)
{
    const struct tensor *x = &p->a->in[0];
    return p->dot->pack ? (char *)p->a->scratch + (size_t)row * cpu_dot_pack_bytes(x->n_cols)
                        : tensor_row(x, 0, row);
}

static void activations_round(const struct product *p)
{
    const struct tensor *x = &p->a->in[0];
    if (!p->dot->pack)
        return;
    PARALLEL_FOR((int64_t)x->n_rows * x->n_cols)
    for (int32_t row = 0; row < x->n_rows; row++)
        p->dot->pack(tensor_row(x, 0, row), x->n_cols, (void *)activation_row(p, row));
}

/* Rows first ... of matrix mat with rows slots[0] ... of out. */
static void part_run(const struct product *p, int32_t mat, int32_t first, const int32_t *slots,
                     int32_t n_slots)
{
    const struct tensor *m = &p->a->in[1];
    int32_t n_rows = m->n_rows - first;
    const void *x[PART_TOKENS];
    float *out[PART_TOKENS];
    for (int32_t i = 0; i < n_slots; i++) {
        x[i] = activation_row(p, slots[i] / p->rows_per_x);
        out[i] = (float *)tensor_row(&p->a->out, 0, slots[i]) + first;
    }
    const struct cpu_dot_call call = {.w = tensor_row(m, mat, first),
                                      .row_bytes = m->row_bytes,
                                      .n_rows = n_rows < PART_ROWS ? n_rows : PART_ROWS,
                                      .n_cols = m->n_cols,
                                      .n_tokens = n_slots,
                                      .x = x,
                                      .out = out,
                                      .two_groups = p->a->two_groups};
    (p->many ? p->dot->mm : p->dot->mv)(&call);
}

void cpu_matmul(const struct op_args *a, enum cpu_isa isa, bool many)
{
    const struct product p = product_of(a, isa, many);
    activations_round(&p);
    PARALLEL_FOR((int64_t)a->out.n_rows * a->in[1].n_rows * a->in[1].n_cols)
    for (int32_t row = 0; row < a->in[1].n_rows; row += PART_ROWS)
        for (int32_t t = 0; t < a->out.n_rows; t += PART_TOKENS) {
            int32_t slots[PART_TOKENS], n = 0;
            while (n < PART_TOKENS && t + n < a->out.n_rows) {
                slots[n] = t + n;
                n++;
            }
            part_run(&p, 0, row, slots, n);
        }
}

/* Rows of out by expert: those of expert e are slots[start[e]] ... slots[start[e + 1] - 1]. */
struct slots {
    int32_t *start; /* (n_experts + 1) */
    int32_t *slots; /* (rows of out) */
};

size_t cpu_experts_slot_bytes(const struct op_args *a)
{
    return (size_t)(a->in[1].n_mats + 1 + a->out.n_rows) * sizeof(int32_t);
}

static struct slots slots_sort(const struct op_args *a)
{
    int32_t n_experts = a->in[1].n_mats, n = a->out.n_rows;
    const int32_t *ids = a->in[2].data;
    struct slots s;
    s.start = (int32_t *)((char *)a->scratch + cpu_matmul_scratch_bytes(&a->in[0], &a->in[1]));
    s.slots = s.start + n_experts + 1;
    memset(s.start, 0, (size_t)(n_experts + 1) * sizeof *s.start);
    for (int32_t i = 0; i < n; i++)
        s.start[ids[i] + 1]++;
    for (int32_t e = 0; e < n_experts; e++)
        s.start[e + 1] += s.start[e];
    for (int32_t i = 0; i < n; i++) /* start[e] runs to the end of expert e */
        s.slots[s.start[ids[i]]++] = i;
    memmove(s.start + 1, s.start, (size_t)n_experts * sizeof *s.start);
    s.start[0] = 0;
    return s;
}

void cpu_experts(const struct op_args *a, enum cpu_isa isa, bool many)
{
    const struct product p = product_of(a, isa, many);
    const struct slots s = slots_sort(a);
    int32_t n_parts = (a->in[1].n_rows + PART_ROWS - 1) / PART_ROWS;
    activations_round(&p);
    PARALLEL_FOR((int64_t)a->out.n_rows * a->in[1].n_rows * a->in[1].n_cols)
    for (int32_t i = 0; i < a->in[1].n_mats * n_parts; i++) {
        int32_t e = i % a->in[1].n_mats, first = i / a->in[1].n_mats * PART_ROWS;
        for (int32_t k = s.start[e]; k < s.start[e + 1]; k += PART_TOKENS) {
            int32_t left = s.start[e + 1] - k;
            part_run(&p, e, first, s.slots + k, left < PART_TOKENS ? left : PART_TOKENS);
        }
    }
}
