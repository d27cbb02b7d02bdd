/* What a context remembers of each sequence: keys and values of every attention layer, the
 * convolution window and matrix memory of every delta-net layer. Device memory, owned.
 * Written by the store, conv and delta_net operators; a sequence's number is its plane. */
#ifndef NEARTIE_ENGINE_KVCACHE_H
#define NEARTIE_ENGINE_KVCACHE_H

#include "engine/backend.h"
#include "kernels/kernels.h"

struct err;
struct model;

struct kv_layer {
    struct tensor keys, values; /* (n_seqs, n_ctx, n_kv_heads * head_dim), of the cache's type */
};

struct delta_layer {
    struct tensor window; /* (n_seqs, conv_width - 1, channels): the last inputs, oldest first */
    struct tensor memory; /* (n_seqs, n_value_heads * value_dim, key_dim) */
};

/* Which member is in use follows from the model's layer. */
struct cache_layer {
    struct kv_layer kv;
    struct delta_layer delta;
};

struct kvcache {
    struct cache_layer *layers; /* (n_layers) */
    int32_t n_layers, n_seqs;
    int32_t *n_past;  /* (n_seqs) positions filled */
    uint64_t n_bytes; /* device memory in all */
};

/* type is a number of kernels/quant.h: QUANT_F32, QUANT_F16 or QUANT_Q8_0. */
int kvcache_init(struct kvcache *c, struct backend *b, const struct model *m, int32_t type,
                 int32_t n_ctx, int32_t n_seqs, struct err *err);
void kvcache_fini(struct kvcache *c, struct backend *b); /* fine after a failed init */

void kvcache_reset(struct kvcache *c, struct backend *b, int32_t seq);
void kvcache_copy(struct kvcache *c, struct backend *b, int32_t dst, int32_t src);

#endif
