#include "config.h"

#include "shim/llama_facts.h"

#include <inttypes.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "shim/gguf_hash.h"

enum {
    MODELS = 16,
    DESCRIBED = 4, /* contexts whose settings are recorded */
    FTYPE_F32 = 0,
    FTYPE_F16 = 1,
    FTYPE_BF16 = 32,
    FTYPE_GUESSED = 1024, /* a flag */
    TYPE_F32 = 0,
    TYPE_F16 = 1,
    TYPE_BF16 = 30,
    TYPES = 40 /* of tensors; those up to MXFP4 */
};

/* The models of the process; in the order of their first batches they are numbered from 1. */
static struct model {
    const struct llama_model *model; /* NULL: free */
    int32_t number;                  /* 0: it has not decoded yet */
    char path[1024];                 /* "" = unknown */
} models[MODELS];
static int32_t n_models;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static void unlock_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, unlock_in_child);
}

static void enter(void)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

static struct model *find(const struct llama_model *model)
{
    for (int i = 0; i < MODELS; i++)
        if (models[i].model == model)
            return &models[i];
    return NULL;
}

static void note_path(const struct llama_model *model, const char *path)
{
    if (!model)
        return;
    enter();
    struct model *m = find(model);
    if (!m)
        m = find(NULL);
    if (m) {
        m->model = model;
        snprintf(m->path, sizeof m->path, "%s", path ? path : "");
    }
    pthread_mutex_unlock(&lock);
}

/* The number of a model; where there are too many, one that no other has. */
static int32_t number_of(const struct llama_model *model, char path[1024], bool *out_new)
{
    path[0] = 0;
    enter();
    struct model *m = find(model);
    if (!m && (m = find(NULL)))
        m->model = model;
    *out_new = m && !m->number;
    int32_t number = m && m->number ? m->number : ++n_models;
    if (m) {
        m->number = number;
        memcpy(path, m->path, sizeof m->path);
    }
    pthread_mutex_unlock(&lock);
    return number;
}

struct llama_model *llama_model_load_from_file(const char *path, struct llama_params params)
{
    struct llama_lib *lib = LLAMA_LIB(NULL);
    if (!lib || !lib->llama_model_load_from_file)
        return NULL;
    struct llama_model *model = lib->llama_model_load_from_file(path, params);
    llama_lib_own(lib, model);
    note_path(model, path);
    return model;
}

struct llama_model *llama_model_load_from_splits(const char **paths, size_t n,
                                                 struct llama_params params)
{
    struct llama_lib *lib = LLAMA_LIB(NULL);
    if (!lib || !lib->llama_model_load_from_splits)
        return NULL;
    struct llama_model *model = lib->llama_model_load_from_splits(paths, n, params);
    llama_lib_own(lib, model);
    note_path(model, paths && n ? paths[0] : NULL);
    return model;
}

void llama_model_free(struct llama_model *model)
{
    const struct llama_lib *lib = LLAMA_LIB(model);
    llama_lib_disown(model);
    enter();
    struct model *m = model ? find(model) : NULL;
    if (m)
        *m = (struct model){0};
    pthread_mutex_unlock(&lock);
    if (lib && lib->llama_model_free)
        lib->llama_model_free(model);
}

/* Where a context's parameters hold how it attends, found by the defaults around it: four choices
 * left to libllama, then the factors of rotation, pointers, and two types that are f16. Returns the
 * index of the last choice, flash attention, and of the types; false: the layout is another. */
static bool find_attention(const struct llama_lib *lib, int *out_flash, int *out_types)
{
    const uint32_t left = UINT32_MAX, minus_one = 0xbf800000; /* the latter a float */
    const uint32_t around[13] = {0,         left,      left,      left,      left, 0,        0,
                                 minus_one, minus_one, minus_one, minus_one, 0,    minus_one};
    struct llama_params p;
    if (!lib->llama_context_default_params)
        return false;
    memset(&p, 0xa5, sizeof p);
    lib->llama_context_default_params(&p);
    for (int i = 0; i + 24 < 64; i++) {
        int at = i + 13;
        if (memcmp(&p.words[i], around, sizeof around) != 0)
            continue;
        while (at < i + 19 && !p.words[at])
            at++;
        *out_flash = i + 4;
        *out_types = at;
        return p.words[at] == TYPE_F16 && p.words[at + 1] == TYPE_F16;
    }
    return false;
}

struct llama_context *llama_init_from_model(struct llama_model *model, struct llama_params params)
{
    struct llama_lib *lib = LLAMA_LIB(model);
    int flash, types;
    if (!lib || !lib->llama_init_from_model)
        return NULL;
    struct llama_context *ctx = lib->llama_init_from_model(model, params);
    llama_lib_own(lib, ctx);
    if (ctx && lib->llama_get_memory)
        llama_lib_own(lib, lib->llama_get_memory(ctx));
    if (!ctx || lib->refused[0] || !find_attention(lib, &flash, &types))
        return ctx;
    struct cache *c = cache_lock_new(ctx, lib->llama_get_memory(ctx));
    if (!c)
        return ctx;
    c->made = (struct cache_made){
        .known = true,
        .kind = (int32_t)params.words[flash - 4],
        .flash_attention = (int32_t)params.words[flash],
        .type_k = (int32_t)params.words[types],
        .type_v = (int32_t)params.words[types + 1],
    };
    cache_unlock(c);
    return ctx;
}

/* The first context and the first model have the plain names. */
struct teller {
    const struct probe_ops *ops;
    char suffix[32];
};

__attribute__((format(printf, 3, 4))) static void tell(const struct teller *t, const char *name,
                                                       const char *format, ...)
{
    char full[60], value[2048];
    va_list ap;
    va_start(ap, format);
    vsnprintf(value, sizeof value, format, ap);
    va_end(ap);
    snprintf(full, sizeof full, "%s%s", name, t->suffix);
    t->ops->run_setting(full, value, "api");
}

#define TELL_NUMBER(t, lib, name, function, format, of)                                            \
    do {                                                                                           \
        if ((lib)->function)                                                                       \
            tell((t), (name), "%" format, (lib)->function(of));                                    \
    } while (0)

static void tell_context(const struct teller *t, const struct llama_lib *lib,
                         struct llama_context *ctx, const struct cache_made *made)
{
    static const char *const flash[] = {"auto", "off", "on"};
    TELL_NUMBER(t, lib, "n_ctx", llama_n_ctx, PRIu32, ctx);
    TELL_NUMBER(t, lib, "n_ctx_seq", llama_n_ctx_seq, PRIu32, ctx);
    TELL_NUMBER(t, lib, "n_batch", llama_n_batch, PRIu32, ctx);
    TELL_NUMBER(t, lib, "n_ubatch", llama_n_ubatch, PRIu32, ctx);
    TELL_NUMBER(t, lib, "n_seq_max", llama_n_seq_max, PRIu32, ctx);
    TELL_NUMBER(t, lib, "n_threads", llama_n_threads, PRId32, ctx);
    TELL_NUMBER(t, lib, "n_threads_batch", llama_n_threads_batch, PRId32, ctx);
    if (!made->known)
        return;
    if (made->flash_attention >= -1 && made->flash_attention <= 1)
        tell(t, "flash_attention", "%s", flash[made->flash_attention + 1]);
    if (lib->ggml_type_name && made->type_k >= 0 && made->type_k < 64 && made->type_v >= 0 &&
        made->type_v < 64) {
        tell(t, "cache_type_k", "%s", lib->ggml_type_name(made->type_k));
        tell(t, "cache_type_v", "%s", lib->ggml_type_name(made->type_v));
    }
}

static void tell_model(const struct teller *t, const struct llama_lib *lib,
                       const struct llama_model *model, const char *path)
{
    char text[256];
    if (path[0])
        tell(t, "model_path", "%s", path);
    struct gguf_types types = {lib->ggml_blck_size, lib->ggml_type_size, TYPES};
    uint64_t hash;
    if (path[0] && types.values && types.bytes && gguf_hash(path, &types, &hash))
        tell(t, "model_hash", "%016" PRIx64, hash);
    if (lib->llama_model_desc && lib->llama_model_desc(model, text, sizeof text) > 0)
        tell(t, "model", "%s", text);
    if (lib->llama_model_meta_val_str &&
        lib->llama_model_meta_val_str(model, "general.name", text, sizeof text) > 0)
        tell(t, "model_name", "%s", text);
    if (lib->llama_model_meta_val_str &&
        lib->llama_model_meta_val_str(model, "general.architecture", text, sizeof text) > 0)
        tell(t, "architecture", "%s", text);
    TELL_NUMBER(t, lib, "model_parameters", llama_model_n_params, PRIu64, model);
    TELL_NUMBER(t, lib, "model_bytes", llama_model_size, PRIu64, model);
}

struct words {
    const struct llama_lib *lib;
    const struct llama_vocab *vocab;
};

static int text_of(void *user, int32_t token, char *buf, size_t size)
{
    const struct words *w = user;
    return w->lib->llama_token_to_piece(w->vocab, token, buf, (int32_t)size, 0, true);
}

/* A model without a vocabulary must not be asked for texts: that ends the process. */
static void tell_vocabulary(const struct probe_ops *ops, const struct llama_lib *lib,
                            const struct llama_model *model)
{
    struct words w = {lib, lib->llama_model_get_vocab(model)};
    if (lib->llama_token_to_piece && lib->llama_vocab_type && lib->llama_vocab_type(w.vocab) > 0)
        ops->vocab(lib->llama_vocab_n_tokens(w.vocab), text_of, &w);
}

void llama_facts_describe(const struct llama_lib *lib, struct llama_context *ctx, struct cache *c,
                          const struct probe_ops *ops)
{
    static _Atomic int n_described;
    bool is_new;
    struct teller t = {.ops = ops};
    char path[1024];
    const struct llama_model *model = lib->llama_get_model(ctx);
    c->model = number_of(model, path, &is_new);
    if (is_new && c->model == 1) {
        const char *version = lib->llama_version ? lib->llama_version() : NULL;
        tell(&t, "engine", "llama.cpp%s%s", version ? " " : "", version ? version : "");
        if (lib->llama_print_system_info)
            tell(&t, "system", "%s", lib->llama_print_system_info());
        tell_vocabulary(ops, lib, model);
    }
    if (c->model > 1)
        snprintf(t.suffix, sizeof t.suffix, ", model %d", c->model);
    if (is_new)
        tell_model(&t, lib, model, path);
    c->name = atomic_fetch_add(&n_described, 1) + 1;
    t.suffix[0] = 0;
    if (c->name > 1)
        snprintf(t.suffix, sizeof t.suffix, ", context %d", c->name);
    if (c->name <= DESCRIBED)
        tell_context(&t, lib, ctx, &c->made);
}

/* Weights or a cache of fewer bits make a batch's width show as rounding, not only as another
 * order of sums. */
static bool is_coarse(const struct llama_lib *lib, const struct llama_context *ctx,
                      const struct cache *c)
{
    if (c->made.known && c->made.type_k > TYPE_F16 && c->made.type_k != TYPE_BF16)
        return true;
    if (!lib->llama_model_ftype)
        return false;
    int32_t type = lib->llama_model_ftype(lib->llama_get_model(ctx)) & ~FTYPE_GUESSED;
    return type != FTYPE_F32 && type != FTYPE_F16 && type != FTYPE_BF16;
}

int32_t llama_facts_arm(const struct llama_lib *lib, const struct llama_context *ctx,
                        const struct cache *c, enum probe_phase phase, const struct probe_ops *ops)
{
    static const char *const names[] = {"prefill", "decode", "verify"};
    char label[120], model[32] = "", kind[32] = "", adapters[32] = "";
    if (c->model > 1)
        snprintf(model, sizeof model, ", model %d", c->model);
    if (c->made.kind)
        snprintf(kind, sizeof kind, ", context type %d", c->made.kind);
    if (c->adapters)
        snprintf(adapters, sizeof adapters, ", adapters %d", c->adapters);
    snprintf(label, sizeof label, "%s%s%s%s", names[phase], model, kind, adapters);
    bool other = model[0] || kind[0] || adapters[0];
    return ops->arm(label, phase, other ? "weights" : is_coarse(lib, ctx, c) ? "precision" : NULL);
}
