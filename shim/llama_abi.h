/* What is known of libllama's interface: the layout of a batch, and functions. All else of it is
 * opaque here, so that its parameter structs may change: see llama_facts.h. */
#ifndef NEARTIE_SHIM_LLAMA_ABI_H
#define NEARTIE_SHIM_LLAMA_ABI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct llama_context;
struct llama_model;
struct llama_vocab;
struct llama_memory;
struct llama_sampler;

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

/* What samplers work on; a library is asked whether it is so, see llama_sample.c. */
struct llama_candidates {
    struct llama_candidate {
        int32_t id;
        float logit, p;
    } * list;
    size_t n;
    int64_t chosen; /* index in the list; -1: none yet */
    bool is_sorted;
};

/* Parameters of a model or a context by value, with room for those of any version. */
struct llama_params {
    uint32_t words[64];
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
    X(false, int32_t, llama_encode, (struct llama_context *, struct llama_passed))                 \
    X(false, struct llama_context *, llama_init_from_model,                                        \
      (struct llama_model *, struct llama_params))                                                 \
    X(false, struct llama_model *, llama_model_load_from_file,                                     \
      (const char *, struct llama_params))                                                         \
    X(false, struct llama_model *, llama_model_load_from_splits,                                   \
      (const char **, size_t, struct llama_params))                                                \
    X(false, void, llama_model_free, (struct llama_model *))                                       \
    X(false, void, llama_set_warmup, (struct llama_context *, bool))                               \
    X(false, void, llama_set_causal_attn, (struct llama_context *, bool))                          \
    X(false, int32_t, llama_set_adapters_lora,                                                     \
      (struct llama_context *, llama_word *, size_t, float *))                                     \
    X(false, int32_t, llama_set_adapter_lora, (struct llama_context *, llama_word, float))         \
    X(false, int32_t, llama_rm_adapter_lora, (struct llama_context *, llama_word))                 \
    X(false, void, llama_clear_adapter_lora, (struct llama_context *))                             \
    X(false, int32_t, llama_set_adapter_cvec,                                                      \
      (struct llama_context *, const float *, size_t, int32_t, int32_t, int32_t))                  \
    X(false, int32_t, llama_apply_adapter_cvec,                                                    \
      (struct llama_context *, const float *, size_t, int32_t, int32_t, int32_t))                  \
    X(true, float *, llama_get_logits, (struct llama_context *))                                   \
    X(true, float *, llama_get_logits_ith, (struct llama_context *, int32_t))                      \
    X(false, int32_t, llama_sampler_sample,                                                        \
      (struct llama_sampler *, struct llama_context *, int32_t))                                   \
    X(false, void, llama_sampler_apply, (struct llama_sampler *, struct llama_candidates *))       \
    X(false, void, llama_sampler_accept, (struct llama_sampler *, int32_t))                        \
    X(false, size_t, llama_state_set_data, (struct llama_context *, const void *, size_t))         \
    X(false, size_t, llama_state_seq_get_data, (struct llama_context *, void *, size_t, int32_t))  \
    X(false, size_t, llama_state_seq_get_data_ext,                                                 \
      (struct llama_context *, void *, size_t, int32_t, uint32_t))                                 \
    X(false, size_t, llama_state_seq_set_data,                                                     \
      (struct llama_context *, const void *, size_t, int32_t))                                     \
    X(false, size_t, llama_state_seq_set_data_ext,                                                 \
      (struct llama_context *, const void *, size_t, int32_t, uint32_t))                           \
    X(false, bool, llama_state_load_file,                                                          \
      (struct llama_context *, const char *, int32_t *, size_t, size_t *))                         \
    X(false, size_t, llama_state_seq_load_file,                                                    \
      (struct llama_context *, const char *, int32_t, int32_t *, size_t, size_t *))

/* Those that are only called. */
#define LLAMA_CALLED(X)                                                                            \
    X(true, const struct llama_model *, llama_get_model, (const struct llama_context *))           \
    X(true, const struct llama_vocab *, llama_model_get_vocab, (const struct llama_model *))       \
    X(true, int32_t, llama_vocab_n_tokens, (const struct llama_vocab *))                           \
    X(true, struct llama_memory *, llama_get_memory, (const struct llama_context *))               \
    X(true, int32_t, llama_memory_seq_pos_max, (struct llama_memory *, int32_t))                   \
    X(true, void *, llama_batch_get_one, (void *, int32_t *, int32_t))                             \
    X(false, int32_t, llama_get_sampled_token_ith, (struct llama_context *, int32_t))              \
    X(false, float *, llama_get_sampled_logits_ith, (struct llama_context *, int32_t))             \
    X(false, float *, llama_get_sampled_probs_ith, (struct llama_context *, int32_t))              \
    X(false, void *, llama_context_default_params, (void *))                                       \
    X(false, const char *, llama_version, (void))                                                  \
    X(false, const char *, llama_print_system_info, (void))                                        \
    X(false, uint32_t, llama_n_ctx, (const struct llama_context *))                                \
    X(false, uint32_t, llama_n_ctx_seq, (const struct llama_context *))                            \
    X(false, uint32_t, llama_n_batch, (const struct llama_context *))                              \
    X(false, uint32_t, llama_n_ubatch, (const struct llama_context *))                             \
    X(false, uint32_t, llama_n_seq_max, (const struct llama_context *))                            \
    X(false, int32_t, llama_n_threads, (struct llama_context *))                                   \
    X(false, int32_t, llama_n_threads_batch, (struct llama_context *))                             \
    X(false, int32_t, llama_model_desc, (const struct llama_model *, char *, size_t))              \
    X(false, uint64_t, llama_model_n_params, (const struct llama_model *))                         \
    X(false, uint64_t, llama_model_size, (const struct llama_model *))                             \
    X(false, int32_t, llama_model_meta_val_str,                                                    \
      (const struct llama_model *, const char *, char *, size_t))                                  \
    X(false, int32_t, llama_model_ftype, (const struct llama_model *))                             \
    X(false, bool, llama_model_has_encoder, (const struct llama_model *))                          \
    X(false, bool, llama_model_has_decoder, (const struct llama_model *))                          \
    X(false, int32_t, llama_vocab_type, (const struct llama_vocab *))                              \
    X(false, int32_t, llama_token_to_piece,                                                        \
      (const struct llama_vocab *, int32_t, char *, int32_t, int32_t, bool))                       \
    X(false, const char *, ggml_type_name, (int32_t))                                              \
    X(false, int64_t, ggml_blck_size, (int32_t))                                                   \
    X(false, size_t, ggml_type_size, (int32_t))                                                    \
    X(false, struct llama_sampler *, llama_sampler_init_greedy, (void))                            \
    X(false, void, llama_sampler_free, (struct llama_sampler *))

#endif
