/* What a program changes in a context besides its cache: adapters on the weights, how tokens see
 * each other, warming up. */
#include "config.h"

#include <string.h>

#include "shim/llama_cache.h"
#include "shim/llama_lib.h"
#include "sql/context_hash.h"

enum { LORA, VECTOR }; /* kinds of additions */

/* The number of what is added to the weights: the same for the same, from 1. */
static int32_t number_of(const uint64_t added[2])
{
    enum { SETS = 64 };
    static _Atomic uint64_t sets[SETS];
    const int32_t words[4] = {(int32_t)added[0], (int32_t)(added[0] >> 32), (int32_t)added[1],
                              (int32_t)(added[1] >> 32)};
    uint64_t hash = context_hash(0, words, 4);
    if (!added[0] && !added[1])
        return 0;
    for (int i = 0; i < SETS; i++) {
        uint64_t none = 0;
        if (atomic_compare_exchange_strong(&sets[i], &none, hash) || none == hash)
            return i + 1;
    }
    return SETS + 1 + (int32_t)(hash & 0xffffff);
}

/* What the cache holds was computed with other weights. */
static void add(const struct llama_lib *lib, struct llama_context *ctx, int kind, uint64_t hash)
{
    if (!lib || lib->refused[0] || !ctx)
        return;
    struct cache *c = cache_lock_new(ctx, lib->llama_get_memory(ctx));
    if (!c)
        return;
    if (c->added[kind] != hash)
        cache_spoil(c, -1, 0);
    c->added[kind] = hash;
    c->adapters = number_of(c->added);
    cache_unlock(c);
}

static uint64_t hash_lora(uint64_t hash, llama_word adapter, float scale)
{
    int32_t words[3] = {(int32_t)adapter, (int32_t)(adapter >> 32)};
    memcpy(&words[2], &scale, sizeof scale);
    return scale == 0 ? hash : context_hash(hash, words, 3);
}

static uint64_t lora_of(const struct llama_context *ctx)
{
    struct cache *c = cache_lock(ctx);
    uint64_t hash = c ? c->added[LORA] : 0;
    if (c)
        cache_unlock(c);
    return hash;
}

int32_t llama_set_adapters_lora(struct llama_context *ctx, llama_word *adapters, size_t n,
                                float *scales)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    uint64_t hash = 0;
    int32_t rc = lib && lib->llama_set_adapters_lora
                     ? lib->llama_set_adapters_lora(ctx, adapters, n, scales)
                     : -1;
    for (size_t i = 0; rc == 0 && adapters && scales && i < n; i++)
        hash = hash_lora(hash, adapters[i], scales[i]);
    if (rc == 0)
        add(lib, ctx, LORA, hash);
    return rc;
}

int32_t llama_set_adapter_lora(struct llama_context *ctx, llama_word adapter, float scale)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    int32_t rc =
        lib && lib->llama_set_adapter_lora ? lib->llama_set_adapter_lora(ctx, adapter, scale) : -1;
    if (rc == 0)
        add(lib, ctx, LORA, hash_lora(lora_of(ctx), adapter, scale));
    return rc;
}

int32_t llama_rm_adapter_lora(struct llama_context *ctx, llama_word adapter)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    int32_t rc = lib && lib->llama_rm_adapter_lora ? lib->llama_rm_adapter_lora(ctx, adapter) : -1;
    if (rc == 0)
        add(lib, ctx, LORA, hash_lora(lora_of(ctx), adapter, -1));
    return rc;
}

void llama_clear_adapter_lora(struct llama_context *ctx)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    if (lib && lib->llama_clear_adapter_lora)
        lib->llama_clear_adapter_lora(ctx);
    add(lib, ctx, LORA, 0);
}

static uint64_t hash_vector(const float *data, size_t n)
{
    uint64_t hash = 0;
    for (size_t i = 0; data && i < n; i++) {
        int32_t word;
        memcpy(&word, &data[i], sizeof word);
        hash = context_hash(hash, &word, 1);
    }
    return hash;
}

int32_t llama_set_adapter_cvec(struct llama_context *ctx, const float *data, size_t n,
                               int32_t n_embd, int32_t first, int32_t last)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    int32_t rc = lib && lib->llama_set_adapter_cvec
                     ? lib->llama_set_adapter_cvec(ctx, data, n, n_embd, first, last)
                     : -1;
    if (rc == 0)
        add(lib, ctx, VECTOR, hash_vector(data, n));
    return rc;
}

int32_t llama_apply_adapter_cvec(struct llama_context *ctx, const float *data, size_t n,
                                 int32_t n_embd, int32_t first, int32_t last)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    int32_t rc = lib && lib->llama_apply_adapter_cvec
                     ? lib->llama_apply_adapter_cvec(ctx, data, n, n_embd, first, last)
                     : -1;
    if (rc == 0)
        add(lib, ctx, VECTOR, hash_vector(data, n));
    return rc;
}

void llama_set_causal_attn(struct llama_context *ctx, bool causal)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    if (lib && lib->llama_set_causal_attn)
        lib->llama_set_causal_attn(ctx, causal);
    struct cache *c =
        lib && !lib->refused[0] ? cache_lock_new(ctx, lib->llama_get_memory(ctx)) : NULL;
    if (!c)
        return;
    if (c->is_unordered == causal)
        cache_spoil(c, -1, 0);
    c->is_unordered = !causal;
    cache_unlock(c);
}

void llama_set_warmup(struct llama_context *ctx, bool warmup)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    if (lib && lib->llama_set_warmup)
        lib->llama_set_warmup(ctx, warmup);
    struct cache *c =
        lib && !lib->refused[0] ? cache_lock_new(ctx, lib->llama_get_memory(ctx)) : NULL;
    if (!c)
        return;
    c->is_warming_up = warmup;
    cache_unlock(c);
}
