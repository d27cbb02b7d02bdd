#include "config.h"

#include "shim/llama_cache.h"

#include <stdio.h>
#include <stdlib.h>

#include "sql/context_hash.h"

enum {
    CONTEXTS = 64,
    VERIFY_MAX = 64 /* tokens of a sequence in a batch that checks a draft; more are a prompt */
};

static struct cache caches[CONTEXTS];
static int64_t n_contexts;
static _Atomic int64_t n_sequences;
static pthread_mutex_t table =
    PTHREAD_MUTEX_INITIALIZER; /* of ctx, memory and number of them all */
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What another thread was changing at the fork is not freed. */
static void start_again_in_child(void)
{
    pthread_mutex_init(&table, NULL);
    for (int i = 0; i < CONTEXTS; i++) {
        caches[i] = (struct cache){0};
        pthread_mutex_init(&caches[i].lock, NULL);
    }
}

static void prepare_all(void)
{
    for (int i = 0; i < CONTEXTS; i++)
        pthread_mutex_init(&caches[i].lock, NULL);
    pthread_atfork(NULL, NULL, start_again_in_child);
}

static struct cache *find(const struct llama_context *ctx)
{
    for (int i = 0; i < CONTEXTS; i++)
        if (caches[i].ctx == ctx)
            return &caches[i];
    return NULL;
}

static struct cache *find_memory(const struct llama_memory *memory)
{
    for (int i = 0; memory && i < CONTEXTS; i++)
        if (caches[i].ctx && caches[i].memory == memory)
            return &caches[i];
    return NULL;
}

static void enter(void)
{
    pthread_once(&once, prepare_all);
    pthread_mutex_lock(&table);
}

/* Leave the table and lock what was found in it, unless it changes hands meanwhile. */
static struct cache *lock(struct cache *c)
{
    const struct llama_context *ctx = c ? c->ctx : NULL;
    pthread_mutex_unlock(&table);
    if (!c)
        return NULL;
    pthread_mutex_lock(&c->lock);
    pthread_mutex_lock(&table);
    bool same = c->ctx == ctx;
    pthread_mutex_unlock(&table);
    if (same)
        return c;
    pthread_mutex_unlock(&c->lock);
    return NULL;
}

struct cache *cache_lock(const struct llama_context *ctx)
{
    enter();
    return lock(ctx ? find(ctx) : NULL);
}

struct cache *cache_lock_new(const struct llama_context *ctx, const struct llama_memory *memory)
{
    enter();
    struct cache *c = find(ctx);
    if (!c && (c = find(NULL))) {
        c->ctx = ctx;
        c->memory = memory;
        c->number = ++n_contexts;
    }
    return lock(c);
}

struct cache *cache_lock_memory(const struct llama_memory *memory)
{
    enter();
    return lock(find_memory(memory));
}

void cache_unlock(struct cache *c)
{
    pthread_mutex_unlock(&c->lock);
}

void cache_forget(struct cache *c)
{
    cache_remove(c, -1, -1, -1);
    free(c->rows);
    c->rows = NULL;
    c->n_rows = c->room = c->name = c->model = c->adapters = 0;
    c->encoded = c->added[0] = c->added[1] = 0;
    c->made = (struct cache_made){0};
    c->is_unordered = c->is_warming_up = false;
    pthread_mutex_lock(&table);
    c->ctx = NULL;
    pthread_mutex_unlock(&table);
    pthread_mutex_unlock(&c->lock);
}

static int32_t count_ids(const struct llama_batch *b, int32_t i)
{
    return b->seq_id && b->n_seq_id ? b->n_seq_id[i] : 1;
}

static int32_t id_of(const struct llama_batch *b, int32_t i, int32_t k)
{
    return b->seq_id ? b->seq_id[i][k] : 0;
}

static bool is_output(const struct llama_batch *b, int32_t i)
{
    return b->logits ? b->logits[i] != 0 : i == b->n_tokens - 1;
}

int32_t cache_count_outputs(const struct llama_batch *b)
{
    int32_t n = 0;
    for (int32_t i = 0; i < b->n_tokens; i++)
        n += is_output(b, i);
    return n;
}

static bool ids_are_in_range(const struct llama_batch *b)
{
    for (int32_t i = 0; i < b->n_tokens; i++)
        for (int32_t k = 0; k < count_ids(b, i); k++)
            if (id_of(b, i, k) < 0 || id_of(b, i, k) >= CACHE_SEQS)
                return false;
    return true;
}

/* A token for each sequence is a step of decoding. A few for one, with an output for each of them,
 * behind others: a draft that is checked. */
static enum probe_phase phase_of(const struct llama_batch *b, int32_t widest, int64_t n_past)
{
    if (widest <= 1)
        return PROBE_DECODE;
    return widest <= VERIFY_MAX && n_past > 0 && cache_count_outputs(b) == b->n_tokens
               ? PROBE_VERIFY
               : PROBE_PREFILL;
}

bool cache_prepare(struct cache *c, cache_length_fn length, void *user, const struct llama_batch *b,
                   struct cache_batch *out)
{
    int32_t tokens[CACHE_SEQS] = {0}, widest = 0;
    if (!ids_are_in_range(b))
        return false;
    *out = (struct cache_batch){0};
    for (int32_t i = 0; i < b->n_tokens; i++)
        for (int32_t k = 0; k < count_ids(b, i); k++) {
            int32_t id = id_of(b, i, k);
            widest = ++tokens[id] > widest ? tokens[id] : widest;
            if (tokens[id] > 1)
                continue;
            lineage_agree(&c->seqs[id], length(user, id));
            if (out->n_seqs++ == 0)
                out->n_past = b->pos ? b->pos[i] : c->seqs[id].n;
        }
    out->phase = phase_of(b, widest, out->n_past);
    return true;
}

static bool make_room(struct cache *c, int32_t n)
{
    if (n <= c->room)
        return true;
    struct probe_row *more = realloc(c->rows, (size_t)n * sizeof *more);
    if (!more)
        return false;
    c->rows = more;
    c->room = n;
    return true;
}

static void name(const struct cache *c, int32_t id, struct lineage *l, const struct probe_ops *ops)
{
    char label[64];
    if (l->number)
        return;
    l->number = ++n_sequences;
    snprintf(label, sizeof label, "llama context %d, sequence %d", c->name, id);
    ops->sequence(l->number, label, l->parent ? l->parent : -1);
}

uint64_t cache_start(const struct cache *c)
{
    const int32_t facts[5] = {c->model > 1 ? c->model : 0, c->made.kind, c->adapters,
                              (int32_t)(c->encoded >> 32), (int32_t)c->encoded};
    bool plain = true;
    for (int i = 0; i < 5; i++)
        plain = plain && !facts[i];
    return plain ? 0 : context_hash(0, facts, 5);
}

const struct probe_row *cache_output(const struct cache *c, int32_t i)
{
    int32_t low = 0, high = c->n_rows - 1;
    if (i < 0)
        return i >= -c->n_rows ? &c->rows[c->n_rows + i] : NULL;
    while (low < high) {
        int32_t middle = low + (high - low) / 2;
        if (c->rows[middle].batch_row < i)
            low = middle + 1;
        else
            high = middle;
    }
    return low == high && c->rows[low].batch_row == i ? &c->rows[low] : NULL;
}

bool cache_advance(struct cache *c, const struct llama_batch *b, const struct probe_ops *ops)
{
    uint64_t start = cache_start(c);
    c->n_rows = 0;
    if (!make_room(c, cache_count_outputs(b))) {
        cache_spoil(c, -1, 0);
        return false;
    }
    for (int32_t i = 0; i < b->n_tokens; i++) {
        int32_t n_ids = count_ids(b, i), first = n_ids > 0 ? id_of(b, i, 0) : 0;
        int32_t token = b->token && !b->embd ? b->token[i] : PROBE_NO_TOKEN;
        int32_t pos = b->pos ? b->pos[i] : c->seqs[first].n;
        uint64_t hash = 0;
        for (int32_t k = 0; k < n_ids; k++) {
            uint64_t h = lineage_push(&c->seqs[id_of(b, i, k)], start, pos, token);
            hash = k == 0 ? h : hash;
        }
        if (!is_output(b, i))
            continue;
        if (c->is_unordered)
            hash = 0;
        name(c, first, &c->seqs[first], ops);
        c->rows[c->n_rows++] = (struct probe_row){hash, c->seqs[first].number, pos, token, i};
    }
    return true;
}

void cache_load(struct cache *c, int32_t seq, const int32_t *tokens, int32_t n)
{
    if (seq < 0 || seq >= CACHE_SEQS)
        return;
    lineage_clear(&c->seqs[seq]);
    for (int32_t i = 0; i < n; i++)
        lineage_push(&c->seqs[seq], cache_start(c), i, tokens[i]);
}

void cache_spoil(struct cache *c, int32_t seq, int32_t p0)
{
    for (int i = 0; i < CACHE_SEQS; i++)
        if (seq < 0 || seq == i)
            lineage_spoil(&c->seqs[i], p0);
}

void cache_shift(struct cache *c, int32_t seq, int32_t p0, int32_t delta)
{
    p0 = p0 < 0 ? 0 : p0;
    for (int i = 0; delta && i < CACHE_SEQS; i++)
        if ((seq < 0 || seq == i) && p0 < c->seqs[i].n)
            lineage_spoil(&c->seqs[i], delta < 0 ? p0 + delta : p0);
}

void cache_remove(struct cache *c, int32_t seq, int32_t p0, int32_t p1)
{
    for (int i = 0; i < CACHE_SEQS; i++)
        if (seq < 0 || seq == i)
            lineage_remove(&c->seqs[i], p0, p1);
}

void cache_copy(struct cache *c, int32_t from, int32_t to, int32_t p0, int32_t p1)
{
    if (from >= 0 && from < CACHE_SEQS && to >= 0 && to < CACHE_SEQS)
        lineage_copy(&c->seqs[from], &c->seqs[to], p0, p1);
}

void cache_keep(struct cache *c, int32_t seq)
{
    for (int i = 0; i < CACHE_SEQS; i++)
        if (i != seq)
            lineage_clear(&c->seqs[i]);
}
