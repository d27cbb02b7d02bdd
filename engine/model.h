/* A model: hyper-parameters read from a GGUF file's keys and every weight bound to a named,
 * shape-checked field. No arithmetic here; forward.c reads the fields, the info command prints
 * them. Opened once, never changed after, so any number of contexts and threads may share one.
 *
 * Ownership: a model borrows its gguf, which must stay open until model_close. */
#ifndef NEARTIE_ENGINE_MODEL_H
#define NEARTIE_ENGINE_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct err;
struct gguf;

/* What stands between two residual additions of a layer. */
enum mixer_kind {
    MIXER_ATTENTION,       /* softmax attention */
    MIXER_GATED_ATTENTION, /* the same; its output is multiplied by the sigmoid of a gate */
    MIXER_DELTA_NET,       /* gated delta net (linear attention with a matrix state) */
};
enum ffn_kind { FFN_DENSE, FFN_MOE };

/* Rotary embedding layouts: which two elements of a head form a pair. */
enum rope_kind {
    ROPE_ADJACENT, /* (2i, 2i+1): llama */
    ROPE_HALVES,   /* (i, i + n_rot/2): qwen */
};

struct hparams {
    int32_t n_vocab;     /* rows of the output matrix */
    int32_t n_ctx_train; /* positions the model was trained on */
    int32_t n_layers;    /* without multi-token-prediction layers */
    int32_t n_embd;      /* width of the residual stream */
    int32_t n_ffn;       /* hidden width of a dense feed-forward layer, 0 = none */

    int32_t n_heads;    /* query heads */
    int32_t n_kv_heads; /* key and value heads; divides n_heads */
    int32_t head_dim;   /* of query, key and value */

    enum rope_kind rope_kind;
    int32_t n_rot;            /* leading elements of a head that are rotated */
    double rope_base;         /* frequency base */
    double rope_scale;        /* factor of every position; 1 = none */
    int32_t rope_sections[4]; /* interleaved mRoPE: pairs per section; all 0 = plain */

    double rms_eps; /* added to the mean square before the root */

    int32_t n_experts;        /* 0 = dense */
    int32_t n_experts_used;   /* per token */
    int32_t n_ffn_expert;     /* hidden width of one expert */
    int32_t n_ffn_shared;     /* hidden width of the shared expert, 0 = none */
    bool norm_expert_weights; /* the chosen experts' weights are scaled to sum to 1 */

    int32_t conv_width;    /* delta net: taps of the causal convolution */
    int32_t n_key_heads;   /* delta net: heads of q and k */
    int32_t n_value_heads; /* delta net: heads of v; head j uses key head j mod n_key_heads */
    int32_t key_dim;       /* delta net: width of a q, k head */
    int32_t value_dim;     /* delta net: width of a v head */
};

/* The weights of one layer. A tensor whose data is NULL does not exist in this model. Matrices
 * are (n_rows outputs, n_cols inputs). */
struct layer {
    enum mixer_kind mixer;
    enum ffn_kind ffn;

    struct tensor mixer_norm; /* (n_embd) */
    struct tensor ffn_norm;   /* (n_embd) */

    /* attention; with a gate, wq yields query and gate per head, interleaved */
    struct tensor wq, wk, wv, wo;
    struct tensor bq, bk, bv;     /* qwen2 */
    struct tensor q_norm, k_norm; /* (head_dim): qwen3 and later */

    /* delta net */
    struct tensor w_qkv;    /* (2 n_key_heads key_dim + n_value_heads value_dim, n_embd) */
    struct tensor w_z;      /* (n_value_heads value_dim, n_embd): gate of the output norm */
    struct tensor w_alpha;  /* (n_value_heads, n_embd): decay */
    struct tensor w_beta;   /* (n_value_heads, n_embd): write strength */
    struct tensor conv;     /* (channels of w_qkv, conv_width) */
    struct tensor dt_bias;  /* (n_value_heads) */
    struct tensor a;        /* (n_value_heads): -exp(A), as the converter left it */
    struct tensor out_norm; /* (value_dim) */
    struct tensor w_out;    /* (n_embd, n_value_heads value_dim) */

    /* dense feed-forward */
    struct tensor w_gate, w_up, w_down;

    /* experts: (n_experts, rows, cols) */
    struct tensor router; /* (n_experts, n_embd) */
    struct tensor e_gate, e_up, e_down;
    struct tensor s_gate, s_up, s_down; /* shared expert */
    struct tensor s_router;             /* (n_embd): sigmoid gate of the shared expert */
};

struct model {
    const struct gguf *gguf; /* borrowed */
    const char *arch;        /* architecture key, e.g. "qwen35" */
    const char *path;        /* of the file, borrowed from gguf */
    struct hparams hp;
    struct tensor tok_embd;   /* (n_vocab, n_embd) */
    struct tensor out_norm;   /* (n_embd) */
    struct tensor output;     /* (n_vocab, n_embd); tok_embd itself where tied */
    struct tensor rope_freqs; /* (n_rot/2) divisors of the frequencies; optional */
    struct layer *layers;     /* (n_layers), owned */
    int32_t n_skipped;        /* tensors of multi-token prediction that were not bound */
    uint64_t n_params;        /* elements of the bound tensors */
    uint64_t weight_bytes;    /* bytes of the bound tensors */
};

/* Read the keys and bind the weights. Fails, with one line that names the file, the key or tensor
 * and both values, on: an unknown architecture; a missing key or one out of range; a missing
 * tensor, one of another shape than the keys say, or of a weight type without kernels; a tensor
 * that this architecture does not have (it would silently change nothing). */
int model_open(const struct gguf *g, struct model **out, struct err *err);
void model_close(struct model *m); /* NULL is fine */

/* Architectures that model_open knows, for messages and help; NULL after the last. */
const char *model_arch_at(size_t i);

/* Hash of the file's identity: names, types and shapes of all tensors and samples of their data.
 * Equal files are equal; a difference confined to bytes between the samples goes unseen. */
uint64_t model_hash(const struct model *m);

/* Bytes of weights that one decode step of one token reads (the experts used, not all). */
uint64_t model_bytes_per_token(const struct model *m);

bool model_has_mixer(const struct model *m, enum mixer_kind kind); /* in any layer */
bool model_has_type(const struct model *m, int32_t type);          /* any matrix of it */

/* Call fn for every tensor that is bound, in a fixed order; t may be changed in place where the
 * caller owns the model. */
void model_each_tensor(struct model *m, void (*fn)(struct tensor *t, void *user), void *user);

#endif
