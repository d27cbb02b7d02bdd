/* The operators of a transformer's forward pass. One line of ops.def per operator expands to its
 * number, its prototypes and its row of ops[]; the engine's dispatcher, the tests and the bench
 * walk that table. No model knowledge, no allocation, no global state.
 *
 * Every operator has a reference form, written once and compiled twice (float, and double
 * accumulation), and may have a fast form. Forms of one operator agree up to rounding. */
#ifndef NEARTIE_KERNELS_KERNELS_H
#define NEARTIE_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A view of typed memory: n_mats planes of n_rows rows of n_cols contiguous elements. */
struct tensor {
    void *data;        /* borrowed; NULL = absent */
    int32_t type;      /* number of the element type, as in quant.h */
    int32_t n_cols;    /* elements of a row */
    int32_t n_rows;    /* rows of a plane */
    int32_t n_mats;    /* planes: experts or sequences; 1 elsewhere */
    int64_t row_bytes; /* from one row to the next */
    int64_t mat_bytes; /* from one plane to the next */
};

enum op {
#define OP(name, ...) OP_##name,
#include "kernels/ops.def"
#undef OP
    N_OPS
};

enum op_form {
    FORM_F32,  /* reference: float accumulation in a fixed order */
    FORM_F64,  /* the same source, double accumulation */
    FORM_FAST, /* vector instructions; 8-bit dot products where the matrix allows them */
    N_FORMS
};

enum { OP_MAX_INPUTS = 8 };

/* Arguments of one call. ops.def says which inputs an operator reads. */
struct op_args {
    enum op_form form;
    struct tensor out, out2, out3, out4;
    struct tensor in[OP_MAX_INPUTS];
    double eps;         /* norms: added under the root */
    double scale;       /* attention: of the scores; l2_norm: of the result */
    int32_t n_heads;    /* equal parts of a row that are worked on apart */
    int32_t n_kv_heads; /* attention: key and value heads; delta net: key heads */
    int32_t n_rot;      /* rotary: leading elements of a head that rotate */
    int32_t key_width;  /* delta_heads: leading columns that are q; k is as wide */
    bool adjacent;      /* rotary: pairs are (2i, 2i+1), not (i, i + n_rot/2) */
    int32_t n_split;    /* attention_mv: parts that a cache is read in; 0 = by its length */
    bool two_groups;    /* matmul_mv: two blocks of 32 per lane, so another summation order */
    bool normalise;     /* router: the chosen weights sum to 1 */
    bool many;          /* the call serves prefill: its result goes into MM forms */
    int64_t n_pairs;    /* attention: (query, key) pairs, for the cost only */
    void *scratch;      /* op_info.scratch_bytes() bytes, aligned to 64 */
};

typedef void (*op_fn)(const struct op_args *args);

/* Does a row of the output depend on how its batch was cut? */
enum op_invariance {
    ROW_INVARIANT,   /* never: a row alone and a row in a batch are bit-equal */
    CHUNK_DEPENDENT, /* yes: another chunk, another order of summation */
};

/* A row of the table. */
struct op_info {
    const char *name;
    const char *inputs; /* names of in[0], in[1], ... */
    enum op_invariance invariance;
    double (*bytes)(const struct op_args *args); /* memory read and written, at least */
    double (*flops)(const struct op_args *args);
    size_t (*scratch_bytes)(const struct op_args *args); /* what any form needs */
    op_fn fn[N_FORMS];                                   /* all set */
};
extern const struct op_info ops[N_OPS];

/* Bounds that a model is checked against, so that operators can keep small arrays on the stack. */
enum { MAX_HEAD_DIM = 512, MAX_EXPERTS = 512, MAX_EXPERTS_USED = 32 };

/* Is there a form of the matrix products for this element type? */
bool kernels_have_type(int32_t type);

/* What FORM_FAST uses on this machine: "avx512-vnni", "avx2" or "portable". */
const char *kernels_isa(void);

/* Use another one, by name, from now on; false where this machine lacks it. For tests: no
 * operator may be running. */
bool kernels_set_isa(const char *name);

/* Use threads for the smallest call, from now on. For tests. */
void kernels_always_thread(void);

/* A view of (n_mats, n_rows, n_cols) packed elements of a type. */
struct tensor tensor_packed(void *data, int32_t type, int32_t n_mats, int32_t n_rows,
                            int32_t n_cols);

static inline void *tensor_row(const struct tensor *t, int32_t mat, int32_t row)
{
    return (char *)t->data + mat * t->mat_bytes + row * t->row_bytes;
}

#endif
