/* What a generated model consists of: its shape, and from that its tensors with name, type, place
 * in the file and how to fill them. No file is touched here. Part of tests/mkgguf. */
#ifndef NEARTIE_TESTS_MKGGUF_PLAN_H
#define NEARTIE_TESTS_MKGGUF_PLAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;

/* Sizes of a model. Those that an architecture does not have are ignored. */
struct shape {
    const char *arch; /* "llama", "qwen2", "qwen3", "qwen3moe", "qwen35", "qwen35moe" */
    int32_t n_layers, n_embd, n_ffn;
    int32_t n_heads, n_kv_heads, head_dim;
    int32_t n_vocab, n_ctx;
    int32_t tied; /* 1: the output matrix is the token embedding */

    int32_t n_key_heads, n_value_heads, state_dim; /* delta net; state_dim of keys and values */
    int32_t conv_width;
    int32_t attention_interval; /* of hybrid layers, every n-th is attention */

    int32_t n_experts, n_experts_used, n_ffn_expert, n_ffn_shared;
    int32_t n_predict; /* layers of multi-token prediction after the last */
};

struct preset {
    const char *name, *help;
    struct shape shape;
};
extern const struct preset presets[]; /* ends with a NULL name */

/* Parts of an architecture, as bits. */
enum part {
    PART_ATTENTION = 1 << 0,
    PART_GATED = 1 << 1,
    PART_QKV_BIAS = 1 << 2,
    PART_QK_NORM = 1 << 3,
    PART_DELTA_NET = 1 << 4,
    PART_DENSE = 1 << 5,
    PART_EXPERTS = 1 << 6,
    PART_SHARED_EXPERT = 1 << 7,
    PART_HYBRID = 1 << 8,
    PART_FFN_NORM = 1 << 9,
    PART_POST_NORM = 1 << 10,
    PART_ROPE_FREQS = 1 << 11,
    PART_PREDICT = 1 << 12,
};

struct arch {
    const char *name;
    const char *pre; /* pre-tokenizer */
    double rope_base, rms_eps;
    int parts;
};
const struct arch *arch_find(const char *name); /* NULL = unknown */

/* How elements are made. */
enum fill {
    FILL_NORMAL,     /* mean, sd */
    FILL_NORM,       /* weight of a norm: exp(normal(0, sd)) * mean */
    FILL_CONV,       /* taps: normal, the last one moved by mean */
    FILL_DECAY,      /* -exp(A), A uniform in log(1 ... 16) */
    FILL_DT_BIAS,    /* softplus of it is log-uniform in 0.001 ... 0.1 */
    FILL_ROPE_FREQS, /* divisors that stretch long wavelengths, as Llama 3 has them */
};

struct plan_tensor {
    char name[64];
    uint32_t type;
    int n_dims;
    uint64_t dim[3];
    enum fill fill;
    float mean, sd;
    uint64_t offset, size_bytes; /* in the data part */
};

/* The types of matrices: one for all, then changes by part of the name. */
struct type_rule {
    const char *part; /* of the tensor's name */
    uint32_t type;
};
enum { MAX_TYPE_RULES = 16 };

struct plan {
    struct shape shape;
    const struct arch *arch;
    struct plan_tensor *tensors; /* owned */
    size_t n_tensors;
    size_t n_other_type; /* tensors whose rows are not whole blocks of the type asked for */
    uint64_t data_bytes;
    uint64_t n_params;
};

/* Check the shape and lay the tensors out. rules[0] is for all. */
int plan_make(const struct shape *shape, const struct type_rule *rules, size_t n_rules,
              struct plan *out, struct err *err);
void plan_free(struct plan *plan);

/* Elements of a head that are rotated. */
int32_t shape_n_rot(const struct shape *shape, const struct arch *arch);

#endif
