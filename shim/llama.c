/* libllama's functions, wrapped in programs that are preloaded with us: what it decodes goes
 * through the same hooks as an engine's own. They reach a program linked, by dlsym, and where it
 * loads libllama for itself alone. */
#include "config.h"

#include <errno.h>
#include <string.h>

#include "shim/core.h"
#include "shim/llama_cache.h"
#include "shim/llama_facts.h"
#include "shim/llama_lib.h"
#include "shim/llama_sample.h"
#include "shim/log.h"
#include "shim/probe.h"
#include "sql/context_hash.h"

const struct probe_ops *probe_abi_v1(uint32_t abi_version);

static const struct probe_ops *hooks(void)
{
    return probe_abi_v1(PROBE_ABI_VERSION);
}

/* Note what is not recorded. Kinds: llama, where libllama is not followed; no_logits, for rows. */
static void note(const char *kind, int32_t count, const char *why)
{
    struct gate g;
    if (count <= 0 || !probe_enter(&g))
        return;
    struct record_gap gap = {.count = (uint64_t)count};
    memcpy(gap.kind, kind, strnlen(kind, sizeof gap.kind - 1));
    memcpy(gap.detail, why, strnlen(why, sizeof gap.detail - 1));
    if (!probe_push(RECORD_GAP, &gap, sizeof gap))
        spool_lose(&probe.spool, LOST_RECORDS, 1);
    probe_leave(&g);
}

/* Whether this library is one that we know; where not, that is said once. */
static bool is_known(struct llama_lib *lib)
{
    char why[160] = "libllama is not recorded: ";
    if (!lib->refused[0])
        return true;
    if (!atomic_exchange(&lib->noted, true)) {
        strncat(why, lib->refused, sizeof why - strlen(why) - 1);
        note("llama", 1, why);
        log_line("%s", why);
    }
    return false;
}

struct memory {
    const struct llama_lib *lib;
    struct llama_memory *memory; /* NULL: nothing is kept */
};

static int32_t length_of(void *user, int32_t seq)
{
    const struct memory *m = user;
    return m->memory ? m->lib->llama_memory_seq_pos_max(m->memory, seq) + 1 : 0;
}

/* A batch that is being decoded. */
struct decoding {
    const struct llama_lib *lib;
    struct llama_context *ctx;
    const struct llama_batch *batch;
    uint64_t forward; /* 0: not recorded */
    int64_t number;   /* of the context's record; 0: the batch is not followed */
};

static uint64_t open_forward(const struct decoding *d, struct cache *c, const struct cache_batch *b)
{
    const struct probe_ops *ops = hooks();
    if (!c->model)
        llama_facts_describe(d->lib, d->ctx, c, ops);
    int32_t width = d->lib->llama_n_ubatch ? (int32_t)d->lib->llama_n_ubatch(d->ctx) : 0;
    struct probe_forward f = {
        .struct_size = sizeof f,
        .arm = llama_facts_arm(d->lib, d->ctx, c, b->phase, ops),
        .n_tokens = d->batch->n_tokens,
        .n_seqs = b->n_seqs,
        .n_past = b->n_past,
        .n_ubatch = width > 0 ? (d->batch->n_tokens - 1) / width + 1 : 1, /* at least */
    };
    return ops->forward_begin(&f);
}

static void begin(struct decoding *d)
{
    struct memory m = {d->lib, d->lib->llama_get_memory(d->ctx)};
    struct cache_batch info;
    struct cache *c = cache_lock_new(d->ctx, m.memory);
    if (!c) {
        note("llama", cache_count_outputs(d->batch), "more contexts than are followed");
        return;
    }
    if (c->is_warming_up)
        cache_spoil(c, -1, 0);
    else if (cache_prepare(c, length_of, &m, d->batch, &info)) {
        d->number = c->number;
        d->forward = open_forward(d, c, &info);
    } else
        note("llama", cache_count_outputs(d->batch), "a sequence id is out of range");
    cache_unlock(c);
}

/* A back end that samples leaves no logits of the row on the host, or a part of them. */
static bool is_sampled(const struct llama_lib *lib, struct llama_context *ctx, int32_t i)
{
    if (!lib->llama_get_sampled_token_ith || !lib->llama_get_sampled_logits_ith ||
        !lib->llama_get_sampled_probs_ith)
        return false;
    return lib->llama_get_sampled_token_ith(ctx, i) != PROBE_NO_TOKEN ||
           lib->llama_get_sampled_logits_ith(ctx, i) || lib->llama_get_sampled_probs_ith(ctx, i);
}

/* Record a row; returns why it is not. */
static const char *record_row(const struct decoding *d, int32_t n_vocab,
                              const struct probe_row *row)
{
    struct probe_logits l = {
        .struct_size = sizeof l,
        .location = PROBE_HOST,
        .dtype = PROBE_F32,
        .n_rows = 1,
        .n_vocab = n_vocab,
        .row_stride = n_vocab,
        .data = row, /* where the forward is not recorded nobody reads it */
        .rows = row,
    };
    if (d->forward && is_sampled(d->lib, d->ctx, row->batch_row))
        return "sampled by the back end";
    if (d->forward)
        l.data = d->lib->llama_get_logits_ith(d->ctx, row->batch_row);
    if (!l.data)
        return "libllama gives none for an output";
    hooks()->logits(d->forward, &l);
    return NULL;
}

/* Within the context's lock: it is not freed meanwhile. */
static void record_rows(const struct decoding *d, const struct cache *c)
{
    if (!c->n_rows)
        return;
    if (d->forward && !d->lib->llama_get_logits(d->ctx)) {
        note("no_logits", c->n_rows, "the context has none");
        return;
    }
    const struct llama_model *model = d->lib->llama_get_model(d->ctx);
    int32_t n_vocab = d->lib->llama_vocab_n_tokens(d->lib->llama_model_get_vocab(model));
    for (int32_t i = 0; i < c->n_rows; i++) {
        const char *why = record_row(d, n_vocab, &c->rows[i]);
        if (why)
            note("no_logits", 1, why);
    }
}

static void end(const struct decoding *d, int32_t rc)
{
    struct cache *c = rc == 0 ? cache_lock(d->ctx) : NULL;
    if (rc == 0 && (!c || c->number != d->number))
        note("no_logits", cache_count_outputs(d->batch), "the context was freed meanwhile");
    else if (rc == 0) {
        if (cache_advance(c, d->batch, hooks()))
            record_rows(d, c);
        else
            note("no_logits", cache_count_outputs(d->batch), "no memory");
    }
    if (c)
        cache_unlock(c);
    hooks()->forward_end(d->forward);
}

int32_t llama_decode(struct llama_context *ctx, struct llama_passed batch)
{
    int kept = errno;
    struct llama_lib *lib = LLAMA_LIB(ctx);
    struct decoding d = {.lib = lib, .ctx = ctx, .batch = &batch.batch};
    if (!lib)
        return -1;
    llama_sample_reset();
    if (llama_lib_missed())
        note("llama", 1, "a second libllama that was found by dlsym is not recorded");
    if (is_known(lib) && ctx && batch.batch.n_tokens > 0)
        begin(&d);
    errno = kept;
    int32_t rc = lib->llama_decode(ctx, batch);
    kept = errno;
    if (d.number)
        end(&d, rc);
    errno = kept;
    return rc;
}

void llama_free(struct llama_context *ctx)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    struct cache *c = cache_lock(ctx);
    if (c)
        cache_forget(c);
    llama_lib_disown(ctx);
    if (lib && lib->llama_get_memory && ctx)
        llama_lib_disown(lib->llama_get_memory(ctx));
    if (lib && lib->llama_free)
        lib->llama_free(ctx);
}

/* What follows a call, where the context is one that we know: c is its record. */
#define FOLLOW(found, ...)                                                                         \
    do {                                                                                           \
        struct cache *c = found;                                                                   \
        if (c) {                                                                                   \
            __VA_ARGS__;                                                                           \
            cache_unlock(c);                                                                       \
        }                                                                                          \
    } while (0)

static int32_t nothing(void *user, int32_t seq)
{
    (void)user, (void)seq;
    return 0;
}

/* What an encoder was given stands before every token that its decoder is given then. */
static void encoded(struct cache *c, const struct llama_batch *b)
{
    struct cache_batch info;
    cache_spoil(c, -1, 0);
    c->encoded = b->token && !b->embd ? context_hash(0, b->token, (size_t)b->n_tokens) : 0;
    c->is_unordered = !c->encoded || !cache_prepare(c, nothing, NULL, b, &info) || info.n_seqs > 1;
}

int32_t llama_encode(struct llama_context *ctx, struct llama_passed batch)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    if (!lib || !lib->llama_encode)
        return -1;
    int32_t rc = lib->llama_encode(ctx, batch);
    if (rc != 0 || lib->refused[0] || !lib->llama_model_has_decoder ||
        !lib->llama_model_has_encoder || batch.batch.n_tokens <= 0)
        return rc;
    const struct llama_model *model = lib->llama_get_model(ctx);
    if (lib->llama_model_has_encoder(model) && lib->llama_model_has_decoder(model))
        FOLLOW(cache_lock_new(ctx, lib->llama_get_memory(ctx)), encoded(c, &batch.batch));
    return rc;
}

bool llama_memory_seq_rm(struct llama_memory *m, int32_t seq, int32_t p0, int32_t p1)
{
    const struct llama_lib *lib = LLAMA_LIB(m);
    bool done = lib && lib->llama_memory_seq_rm && lib->llama_memory_seq_rm(m, seq, p0, p1);
    if (done)
        FOLLOW(cache_lock_memory(m), cache_remove(c, seq, p0, p1));
    return done;
}

void llama_memory_seq_cp(struct llama_memory *m, int32_t from, int32_t to, int32_t p0, int32_t p1)
{
    const struct llama_lib *lib = LLAMA_LIB(m);
    if (lib && lib->llama_memory_seq_cp)
        lib->llama_memory_seq_cp(m, from, to, p0, p1);
    FOLLOW(cache_lock_memory(m), cache_copy(c, from, to, p0, p1));
}

void llama_memory_seq_keep(struct llama_memory *m, int32_t seq)
{
    const struct llama_lib *lib = LLAMA_LIB(m);
    if (lib && lib->llama_memory_seq_keep)
        lib->llama_memory_seq_keep(m, seq);
    FOLLOW(cache_lock_memory(m), cache_keep(c, seq));
}

void llama_memory_seq_add(struct llama_memory *m, int32_t seq, int32_t p0, int32_t p1,
                          int32_t delta)
{
    const struct llama_lib *lib = LLAMA_LIB(m);
    if (lib && lib->llama_memory_seq_add)
        lib->llama_memory_seq_add(m, seq, p0, p1, delta);
    FOLLOW(cache_lock_memory(m), cache_shift(c, seq, p0, delta));
}

void llama_memory_seq_div(struct llama_memory *m, int32_t seq, int32_t p0, int32_t p1, int d)
{
    const struct llama_lib *lib = LLAMA_LIB(m);
    if (lib && lib->llama_memory_seq_div)
        lib->llama_memory_seq_div(m, seq, p0, p1, d);
    if (d != 1)
        FOLLOW(cache_lock_memory(m), cache_spoil(c, seq, p0));
}

void llama_memory_clear(struct llama_memory *m, bool data)
{
    const struct llama_lib *lib = LLAMA_LIB(m);
    if (lib && lib->llama_memory_clear)
        lib->llama_memory_clear(m, data);
    FOLLOW(cache_lock_memory(m), cache_remove(c, -1, -1, -1));
}
