/* States that are written to memory or files and read again. What is read into a cache replaces
 * tokens, and does not say by which. A file names them. A state in memory is known again by its
 * bytes: what the sequence held when they were written is kept beside them. */
#include "config.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "shim/llama_cache.h"
#include "shim/llama_lib.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

enum {
    PARTIAL = 1, /* flag: without what a sequence can go back in by itself */
    STATES = 256,
    POSITIONS_MAX = 1 << 22 /* of all states; 32 MiB */
};

/* In the order in which they came, oldest first. */
static struct state {
    XXH128_hash_t key; /* of its bytes */
    size_t size;
    uint32_t flags;
    uint64_t start; /* see cache_start */
    int32_t seq;
    int64_t number; /* of the sequence as recorded */
    int32_t n;
    uint64_t *hash; /* (n), as in struct lineage */
} states[STATES];
static int n_states;
static int64_t n_positions;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* What another thread was changing at the fork is not freed. */
static void start_again_in_child(void)
{
    pthread_mutex_init(&lock, NULL);
    n_states = 0;
    n_positions = 0;
}

static void watch_forks(void)
{
    pthread_atfork(NULL, NULL, start_again_in_child);
}

static void enter(void)
{
    pthread_once(&once, watch_forks);
    pthread_mutex_lock(&lock);
}

static void drop(int i)
{
    n_positions -= states[i].n;
    free(states[i].hash);
    memmove(&states[i], &states[i + 1], (size_t)(--n_states - i) * sizeof *states);
}

static int find(const struct state *like)
{
    for (int i = 0; i < n_states; i++)
        if (XXH128_isEqual(states[i].key, like->key) && states[i].size == like->size &&
            states[i].flags == like->flags && states[i].start == like->start)
            return i;
    return -1;
}

/* The sequence seq was written. Locked by the caller: c. */
static void keep(const struct cache *c, int32_t seq, struct state s)
{
    const struct lineage *l = &c->seqs[seq];
    s.start = cache_start(c);
    s.n = l->n;
    s.number = l->number;
    if (!s.n || l->known != l->n || s.n > POSITIONS_MAX ||
        !(s.hash = malloc((size_t)s.n * sizeof *s.hash)))
        return;
    memcpy(s.hash, l->hash, (size_t)s.n * sizeof *s.hash);
    enter();
    int same = find(&s);
    if (same >= 0)
        drop(same);
    while (n_states == STATES || (n_states && n_positions + s.n > POSITIONS_MAX))
        drop(0);
    states[n_states++] = s;
    n_positions += s.n;
    pthread_mutex_unlock(&lock);
}

/* The sequence seq was read. What a partial state leaves in the cache must be what it was then. */
static void restore(struct cache *c, int32_t seq, struct state s)
{
    struct lineage *l = &c->seqs[seq];
    s.start = cache_start(c);
    enter();
    int i = find(&s);
    const struct state *as = i >= 0 ? &states[i] : NULL;
    bool goes_back = as && l->known >= as->n && l->hash[as->n - 1] == as->hash[as->n - 1];
    if (goes_back)
        lineage_remove(l, as->n, -1);
    else if (as && !(as->flags & PARTIAL)) {
        lineage_replace(l, as->hash, as->n);
        *(as->seq == seq ? &l->number : &l->parent) = as->number;
    } else
        lineage_clear(l);
    pthread_mutex_unlock(&lock);
}

static void follow(const struct llama_context *ctx, const void *bytes, size_t size, int32_t seq,
                   uint32_t flags, bool was_read)
{
    struct state s = {.size = size, .flags = flags, .seq = seq};
    if (seq < 0 || seq >= CACHE_SEQS || (!was_read && (!size || flags > PARTIAL)))
        return;
    if (size && flags <= PARTIAL)
        s.key = XXH3_128bits(bytes, size);
    struct cache *c = cache_lock(ctx);
    if (c && was_read)
        restore(c, seq, s);
    else if (c)
        keep(c, seq, s);
    if (c)
        cache_unlock(c);
}

size_t llama_state_seq_get_data(struct llama_context *ctx, void *to, size_t size, int32_t seq)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    size_t n = lib && lib->llama_state_seq_get_data
                   ? lib->llama_state_seq_get_data(ctx, to, size, seq)
                   : 0;
    follow(ctx, to, n, seq, 0, false);
    return n;
}

size_t llama_state_seq_get_data_ext(struct llama_context *ctx, void *to, size_t size, int32_t seq,
                                    uint32_t flags)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    size_t n = lib && lib->llama_state_seq_get_data_ext
                   ? lib->llama_state_seq_get_data_ext(ctx, to, size, seq, flags)
                   : 0;
    follow(ctx, to, n, seq, flags, false);
    return n;
}

size_t llama_state_seq_set_data(struct llama_context *ctx, const void *from, size_t size,
                                int32_t seq)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    size_t n = lib && lib->llama_state_seq_set_data
                   ? lib->llama_state_seq_set_data(ctx, from, size, seq)
                   : 0;
    follow(ctx, from, n, seq, 0, true);
    return n;
}

size_t llama_state_seq_set_data_ext(struct llama_context *ctx, const void *from, size_t size,
                                    int32_t seq, uint32_t flags)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    size_t n = lib && lib->llama_state_seq_set_data_ext
                   ? lib->llama_state_seq_set_data_ext(ctx, from, size, seq, flags)
                   : 0;
    follow(ctx, from, n, seq, flags, true);
    return n;
}

size_t llama_state_set_data(struct llama_context *ctx, const void *from, size_t size)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    size_t n = lib && lib->llama_state_set_data ? lib->llama_state_set_data(ctx, from, size) : 0;
    struct cache *c = cache_lock(ctx);
    if (c) {
        cache_remove(c, -1, -1, -1);
        cache_unlock(c);
    }
    return n;
}

bool llama_state_load_file(struct llama_context *ctx, const char *path, int32_t *tokens,
                           size_t room, size_t *out_n)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    bool done = lib && lib->llama_state_load_file &&
                lib->llama_state_load_file(ctx, path, tokens, room, out_n);
    struct cache *c = cache_lock(ctx);
    if (c) {
        cache_remove(c, -1, -1, -1);
        cache_load(c, 0, tokens, done && tokens && out_n ? (int32_t)*out_n : 0);
        cache_unlock(c);
    }
    return done;
}

size_t llama_state_seq_load_file(struct llama_context *ctx, const char *path, int32_t seq,
                                 int32_t *tokens, size_t room, size_t *out_n)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    size_t size = lib && lib->llama_state_seq_load_file
                      ? lib->llama_state_seq_load_file(ctx, path, seq, tokens, room, out_n)
                      : 0;
    struct cache *c = cache_lock(ctx);
    if (c) {
        cache_load(c, seq, tokens, size && tokens && out_n ? (int32_t)*out_n : 0);
        cache_unlock(c);
    }
    return size;
}
