#include "config.h"
#include "engine/kvcache.h"

#include <stdlib.h>

#include "engine/model.h"
#include "err.h"
#include "kernels/quant.h"

static int plane_alloc(struct kvcache *c, struct backend *b, struct tensor *t, int32_t type,
                       int64_t n_rows, int64_t n_cols, struct err *err)
{
    if (n_rows > INT32_MAX || n_cols > INT32_MAX)
        return err_set(err, "cache: %lld x %lld elements per sequence and layer are too many",
                       (long long)n_rows, (long long)n_cols);
    *t = tensor_packed(NULL, type, c->n_seqs, (int32_t)n_rows, (int32_t)n_cols);
    size_t bytes;
    if (__builtin_mul_overflow((size_t)t->mat_bytes, (size_t)c->n_seqs, &bytes))
        return err_set(err, "cache: %d sequences of %lld bytes are too many", c->n_seqs,
                       (long long)t->mat_bytes);
    c->n_bytes += bytes;
    return backend_alloc(b, bytes, &t->data, err);
}

static int layer_init(struct kvcache *c, struct backend *b, const struct model *m, int32_t i,
                      int32_t type, int32_t n_ctx, struct err *err)
{
    const struct hparams *hp = &m->hp;
    struct cache_layer *l = &c->layers[i];
    int64_t kv_width = (int64_t)hp->n_kv_heads * hp->head_dim;
    if (m->layers[i].mixer != MIXER_DELTA_NET)
        return plane_alloc(c, b, &l->kv.keys, type, n_ctx, kv_width, err) < 0 ||
                       plane_alloc(c, b, &l->kv.values, type, n_ctx, kv_width, err) < 0
                   ? -1
                   : 0;
    int64_t n_channels = m->layers[i].w_qkv.n_rows;
    return plane_alloc(c, b, &l->delta.window, QUANT_F32, hp->conv_width - 1, n_channels, err) <
                       0 ||
                   plane_alloc(c, b, &l->delta.memory, QUANT_F32,
                               (int64_t)hp->n_value_heads * hp->value_dim, hp->key_dim, err) < 0
               ? -1
               : 0;
}

int kvcache_init(struct kvcache *c, struct backend *b, const struct model *m, int32_t type,
                 int32_t n_ctx, int32_t n_seqs, struct err *err)
{
    *c = (struct kvcache){.n_layers = m->hp.n_layers, .n_seqs = n_seqs};
    c->layers = calloc((size_t)c->n_layers, sizeof *c->layers);
    c->n_past = calloc((size_t)n_seqs, sizeof *c->n_past);
    if (!c->layers || !c->n_past)
        return err_set(err, "cache: out of memory");
    for (int32_t i = 0; i < c->n_layers; i++)
        if (layer_init(c, b, m, i, type, n_ctx, err) < 0)
            return -1;
    return 0;
}

/* Every tensor of a layer, absent ones with data NULL. */
enum { N_LAYER_TENSORS = 4 };
static struct tensor *layer_tensor(struct cache_layer *l, int i)
{
    struct tensor *all[N_LAYER_TENSORS] = {&l->kv.keys, &l->kv.values, &l->delta.window,
                                           &l->delta.memory};
    return all[i];
}

void kvcache_fini(struct kvcache *c, struct backend *b)
{
    for (int32_t i = 0; c->layers && i < c->n_layers; i++)
        for (int j = 0; j < N_LAYER_TENSORS; j++)
            backend_free(b, layer_tensor(&c->layers[i], j)->data);
    free(c->layers);
    free(c->n_past);
    *c = (struct kvcache){0};
}

void kvcache_reset(struct kvcache *c, struct backend *b, int32_t seq)
{
    c->n_past[seq] = 0;
    for (int32_t i = 0; i < c->n_layers; i++) {
        struct delta_layer *d = &c->layers[i].delta;
        if (!d->memory.data)
            continue; /* keys and values at or after n_past are never read */
        backend_zero(b, tensor_row(&d->window, seq, 0), (size_t)d->window.mat_bytes);
        backend_zero(b, tensor_row(&d->memory, seq, 0), (size_t)d->memory.mat_bytes);
    }
}

void kvcache_copy(struct kvcache *c, struct backend *b, int32_t dst, int32_t src)
{
    if (dst == src)
        return;
    c->n_past[dst] = c->n_past[src];
    for (int32_t i = 0; i < c->n_layers; i++)
        for (int j = 0; j < N_LAYER_TENSORS; j++) {
            struct tensor *t = layer_tensor(&c->layers[i], j);
            if (!t->data)
                continue;
            bool grows = j < 2; /* keys and values: only what is filled */
            size_t bytes = (size_t)(grows ? t->row_bytes * c->n_past[src] : t->mat_bytes);
            backend_copy(b, tensor_row(t, dst, 0), tensor_row(t, src, 0), bytes);
        }
}
