#include "config.h"

#include "shim/baseline.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    SHARDS_MAX = 64,
    SHARD_ROWS = 256 /* fewer rows than this do not get a lock of their own */
};

/* Links are slot numbers plus 1: 0 ends a list, so that zeroed memory is an empty table and its
 * pages are touched only as it fills. */
struct slot {
    uint64_t context_hash;
    int64_t pos;
    uint64_t row_id;
    int32_t arm, n_vocab, n_top;
    uint32_t chain;        /* next in the same bucket */
    uint32_t newer, older; /* by last use */
};

struct shard {
    pthread_mutex_t lock;
    uint32_t n_slots, n_used;
    uint32_t n_buckets; /* a power of two */
    uint32_t *buckets;
    struct slot *slots;
    struct record_top *tops; /* (n_slots, k) */
    uint32_t newest, oldest;
};

struct baseline {
    int32_t k;
    uint32_t n_shards; /* a power of two */
    struct shard shards[SHARDS_MAX];
};

static uint64_t mix(uint64_t context_hash, int64_t pos)
{
    uint64_t x = context_hash ^ (uint64_t)pos * UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 32) * UINT64_C(0xd6e8feb86659fd93);
    return x ^ x >> 32;
}

static int shard_init(struct shard *s, uint32_t n_slots, int32_t k)
{
    s->n_slots = n_slots;
    s->n_buckets = 1;
    while (s->n_buckets < n_slots)
        s->n_buckets *= 2;
    s->buckets = calloc(s->n_buckets, sizeof *s->buckets);
    s->slots = calloc(n_slots, sizeof *s->slots);
    s->tops = calloc((size_t)n_slots * (size_t)k, sizeof *s->tops);
    return s->buckets && s->slots && s->tops ? pthread_mutex_init(&s->lock, NULL) : -1;
}

struct baseline *baseline_new(int32_t n_rows, int32_t k)
{
    struct baseline *b = calloc(1, sizeof *b);
    if (!b)
        return NULL;
    b->k = k;
    b->n_shards = 1;
    while (b->n_shards < SHARDS_MAX && (uint32_t)n_rows / b->n_shards >= 2 * SHARD_ROWS)
        b->n_shards *= 2;
    for (uint32_t i = 0; i < b->n_shards; i++)
        if (shard_init(&b->shards[i], (uint32_t)n_rows / b->n_shards, k)) {
            baseline_free(b);
            return NULL;
        }
    return b;
}

void baseline_free(struct baseline *b)
{
    for (uint32_t i = 0; b && i < b->n_shards; i++) {
        free(b->shards[i].buckets);
        free(b->shards[i].slots);
        free(b->shards[i].tops);
    }
    free(b);
}

static void unlink_use(struct shard *s, uint32_t link)
{
    struct slot *e = &s->slots[link - 1];
    *(e->newer ? &s->slots[e->newer - 1].older : &s->newest) = e->older;
    *(e->older ? &s->slots[e->older - 1].newer : &s->oldest) = e->newer;
}

static void link_newest(struct shard *s, uint32_t link)
{
    struct slot *e = &s->slots[link - 1];
    e->newer = 0;
    e->older = s->newest;
    *(s->newest ? &s->slots[s->newest - 1].newer : &s->oldest) = link;
    s->newest = link;
}

static void touch(struct shard *s, uint32_t link)
{
    if (s->newest == link)
        return;
    unlink_use(s, link);
    link_newest(s, link);
}

static uint32_t *bucket_of(struct shard *s, uint64_t mixed)
{
    return &s->buckets[mixed >> 6 & (s->n_buckets - 1)];
}

static uint32_t find(struct shard *s, uint64_t mixed, uint64_t context_hash, int64_t pos)
{
    uint32_t link = *bucket_of(s, mixed);
    while (link &&
           (s->slots[link - 1].context_hash != context_hash || s->slots[link - 1].pos != pos))
        link = s->slots[link - 1].chain;
    return link;
}

static void unchain(struct shard *s, uint32_t link)
{
    const struct slot *e = &s->slots[link - 1];
    uint32_t *at = bucket_of(s, mix(e->context_hash, e->pos));
    while (*at != link)
        at = &s->slots[*at - 1].chain;
    *at = e->chain;
}

/* A slot for a new row: an unused one, or that of the least recently used row. */
static uint32_t take(struct shard *s)
{
    if (s->n_used < s->n_slots)
        return ++s->n_used;
    uint32_t link = s->oldest;
    unlink_use(s, link);
    unchain(s, link);
    return link;
}

bool baseline_find(struct baseline *b, uint64_t context_hash, int64_t pos, int32_t arm,
                   struct baseline_row *out, struct record_top *top)
{
    uint64_t mixed = mix(context_hash, pos);
    struct shard *s = &b->shards[mixed & (b->n_shards - 1)];
    bool found = false;
    pthread_mutex_lock(&s->lock);
    uint32_t link = find(s, mixed, context_hash, pos);
    if (link && s->slots[link - 1].arm != arm) {
        const struct slot *e = &s->slots[link - 1];
        touch(s, link);
        *out =
            (struct baseline_row){context_hash, pos, e->row_id, e->arm, e->n_vocab, e->n_top, top};
        memcpy(top, s->tops + (size_t)(link - 1) * (size_t)b->k, (size_t)e->n_top * sizeof *top);
        found = true;
    }
    pthread_mutex_unlock(&s->lock);
    return found;
}

void baseline_put(struct baseline *b, const struct baseline_row *row)
{
    uint64_t mixed = mix(row->context_hash, row->pos);
    struct shard *s = &b->shards[mixed & (b->n_shards - 1)];
    pthread_mutex_lock(&s->lock);
    uint32_t link = find(s, mixed, row->context_hash, row->pos);
    bool keep = link && s->slots[link - 1].arm != row->arm;
    if (link)
        touch(s, link);
    if (!link) {
        link = take(s);
        struct slot *e = &s->slots[link - 1];
        e->context_hash = row->context_hash;
        e->pos = row->pos;
        e->chain = *bucket_of(s, mixed);
        *bucket_of(s, mixed) = link;
        link_newest(s, link);
    }
    if (!keep) {
        struct slot *e = &s->slots[link - 1];
        e->row_id = row->row_id;
        e->arm = row->arm;
        e->n_vocab = row->n_vocab;
        e->n_top = row->n_top < b->k ? row->n_top : b->k;
        memcpy(s->tops + (size_t)(link - 1) * (size_t)b->k, row->top,
               (size_t)e->n_top * sizeof *row->top);
    }
    pthread_mutex_unlock(&s->lock);
}
