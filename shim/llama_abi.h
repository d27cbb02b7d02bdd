/* What is known of libllama's interface: the layout of a batch, and functions. All else of it is
 * opaque here, so that its parameter structs may change. */
#ifndef NEARTIE_SHIM_LLAMA_ABI_H
#define NEARTIE_SHIM_LLAMA_ABI_H

#include <stdbool.h>
#include <stdint.h>

struct llama_context;
struct llama_model;
struct llama_vocab;
struct llama_memory;

struct llama_batch {
    int32_t n_tokens;
    int32_t *token; /* NULL: embeddings are given instead */
    float *embd;
    int32_t *pos;      /* NULL: they follow what the sequence holds */
    int32_t *n_seq_id; /* NULL: one each */
    int32_t **seq_id;  /* NULL: sequence 0 */
    int8_t *logits;    /* NULL: the last token's only */
};

/* As it is passed by value: a version that has more members finds them passed on. */
struct llama_passed {
    struct llama_batch batch;
    char beyond[64];
};

typedef uintptr_t llama_word; /* a pointer, or a number that fits one */

/* The functions that are wrapped: X(whether a library without it is unknown, type, name,
 * parameters). */
#define LLAMA_WRAPPED(X)                                                                           \
    X(true, int32_t, llama_decode, (struct llama_context *, struct llama_passed))                  \
    X(true, void, llama_free, (struct llama_context *))                                            \
    X(true, bool, llama_memory_seq_rm, (struct llama_memory *, int32_t, int32_t, int32_t))         \
    X(true, void, llama_memory_seq_cp,                                                             \
      (struct llama_memory *, int32_t, int32_t, int32_t, int32_t))                                 \
    X(true, void, llama_memory_seq_keep, (struct llama_memory *, int32_t))                         \
    X(true, void, llama_memory_seq_add,                                                            \
      (struct llama_memory *, int32_t, int32_t, int32_t, int32_t))                                 \
    X(true, void, llama_memory_seq_div, (struct llama_memory *, int32_t, int32_t, int32_t, int))   \
    X(true, void, llama_memory_clear, (struct llama_memory *, bool))                               \
    X(false, llama_word, llama_state_set_data, (struct llama_context *, llama_word, llama_word))   \
    X(false, llama_word, llama_state_seq_set_data,                                                 \
      (struct llama_context *, llama_word, llama_word, llama_word))                                \
    X(false, llama_word, llama_state_seq_set_data_ext,                                             \
      (struct llama_context *, llama_word, llama_word, llama_word, llama_word))                    \
    X(false, bool, llama_state_load_file,                                                          \
      (struct llama_context *, llama_word, llama_word, llama_word, llama_word))                    \
    X(false, llama_word, llama_state_seq_load_file,                                                \
      (struct llama_context *, llama_word, llama_word, llama_word, llama_word, llama_word))

/* Those that are only called. */
#define LLAMA_CALLED(X)                                                                            \
    X(true, float *, llama_get_logits, (struct llama_context *))                                   \
    X(true, float *, llama_get_logits_ith, (struct llama_context *, int32_t))                      \
    X(true, const struct llama_model *, llama_get_model, (const struct llama_context *))           \
    X(true, const struct llama_vocab *, llama_model_get_vocab, (const struct llama_model *))       \
    X(true, int32_t, llama_vocab_n_tokens, (const struct llama_vocab *))                           \
    X(true, struct llama_memory *, llama_get_memory, (const struct llama_context *))               \
    X(true, int32_t, llama_memory_seq_pos_max, (struct llama_memory *, int32_t))                   \
    X(true, void *, llama_batch_get_one, (void *, int32_t *, int32_t))                             \
    X(false, int32_t, llama_get_sampled_token_ith, (struct llama_context *, int32_t))              \
    X(false, float *, llama_get_sampled_logits_ith, (struct llama_context *, int32_t))             \
    X(false, float *, llama_get_sampled_probs_ith, (struct llama_context *, int32_t))

#endif
