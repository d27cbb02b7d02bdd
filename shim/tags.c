#include "config.h"

#include "shim/tags_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "shim/core.h"

struct tags tags = {.lock = PTHREAD_MUTEX_INITIALIZER, .images_end = &tags.images};

static __thread __attribute__((tls_model("initial-exec"))) struct tags_thread *self;
static pthread_key_t thread_end; /* gives a state back when its thread ends */
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;

void tags_count(enum tags_gap gap, uint64_t n)
{
    atomic_fetch_add_explicit(&tags.gaps[gap], n, memory_order_relaxed);
}

void tags_refused(const char *why)
{
    char *copy = strdup(why);
    const char *none = NULL;
    if (copy && !atomic_compare_exchange_strong(&tags.refused, &none, copy))
        free(copy); /* the first reason counts */
}

void tags_version(const char *version)
{
    char *copy = strdup(version);
    const char *none = NULL;
    if (copy && !atomic_compare_exchange_strong(&tags.version, &none, copy))
        free(copy);
}

void *tags_grow(void *list, uint32_t n, uint32_t most, size_t bytes)
{
    if (n >= most)
        return NULL;
    return n & (n - 1) ? list : realloc(list, (n ? 2 * (size_t)n : 1) * bytes);
}

/* Attributes by id: where their value's lowest bits stand in the packed word. Those that are wider
 * have a bit more that says that they are given. */
static const struct packed {
    uint32_t id;
    int at, bits;
    bool flagged;
    const char *name;
} packing[] = {
    {CU_COOPERATIVE, 0, 1, false, "cooperative"},
    {CU_CLUSTER_POLICY, 1, 3, false, "cluster_policy"},
    {CU_PROGRAMMATIC, 4, 1, false, "programmatic_serialization"},
    {CU_DEVICE_UPDATABLE, 5, 1, false, "device_updatable"},
    {CU_PRIORITY, 6, 8, true, "priority"},
    {CU_CARVEOUT, 15, 8, true, "shared_memory_carveout"},
    {CU_PREFERRED_CLUSTER, 24, 30, false, "preferred_cluster"},
};
enum { N_PACKED = sizeof packing / sizeof *packing };

static uint32_t pack_three(const uint32_t v[3])
{
    return (v[0] & 1023) | (v[1] & 1023) << 10 | (v[2] & 1023) << 20;
}

uint64_t tags_attributes(const struct cu_attribute *list, uint32_t n, uint32_t *cluster)
{
    uint64_t packed = 0;
    for (uint32_t i = 0; list && i < n; i++) {
        const struct cu_attribute *a = &list[i];
        if (a->id == CU_CLUSTER)
            *cluster = pack_three(a->value);
        for (int k = 0; k < N_PACKED; k++) {
            const struct packed *p = &packing[k];
            if (p->id != a->id)
                continue;
            uint64_t value = p->bits == 30 ? pack_three(a->value) : a->value[0];
            packed |= (value & ((UINT64_C(1) << p->bits) - 1)) << p->at;
            packed |= p->flagged ? UINT64_C(1) << (p->at + p->bits) : 0;
        }
    }
    return packed;
}

void tags_attributes_text(uint64_t packed, char out[120])
{
    size_t n = 0;
    out[0] = 0;
    for (int k = 0; k < N_PACKED; k++) {
        const struct packed *p = &packing[k];
        uint64_t value = packed >> p->at & ((UINT64_C(1) << p->bits) - 1);
        const char *space = n ? " " : "";
        if (p->bits == 30 && value)
            n += (size_t)snprintf(out + n, 120 - n, "%s%s=%ux%ux%u", space, p->name,
                                  (unsigned)value & 1023, (unsigned)(value >> 10) & 1023,
                                  (unsigned)(value >> 20) & 1023);
        else if (p->flagged ? packed >> (p->at + p->bits) & 1 : value)
            n += (size_t)snprintf(out + n, 120 - n, "%s%s=%d", space, p->name,
                                  p->flagged ? (int8_t)value : (int)value);
    }
}

void tags_pause(bool pause)
{
    uint32_t known = atomic_load(&tags.switches);
    if ((known & 1) != pause)
        atomic_compare_exchange_strong(&tags.switches, &known, known + 1);
}

bool tags_paused(void)
{
    return atomic_load_explicit(&tags.switches, memory_order_relaxed) & 1;
}

/* Whether launches of the thread's list may be missing in it. */
static bool was_paused(const struct tags_thread *t)
{
    uint32_t now = atomic_load(&tags.switches);
    return now & 1 || now != t->switches;
}

static void thread_ends(void *state)
{
    struct tags_thread *t = state;
    if (atomic_load(&tags.closed))
        return;
    if (t->n && !probe_inside())
        tags_read(t); /* what it launched is a forward of its own */
    t->n = 0;
    t->forward = 0;
    atomic_store(&t->taken, false);
}

static void make_key(void)
{
    pthread_key_create(&thread_end, thread_ends);
}

static struct tags_thread *take_thread(void)
{
    struct tags_thread *t;
    pthread_once(&thread_end_once, make_key);
    pthread_mutex_lock(&tags.lock);
    for (t = tags.threads; t; t = t->next)
        if (!atomic_load(&t->taken))
            break;
    if (!t && (t = calloc(1, sizeof *t)) != NULL) {
        t->next = tags.threads;
        tags.threads = t;
    }
    if (t)
        atomic_store(&t->taken, true);
    pthread_mutex_unlock(&tags.lock);
    if (t)
        pthread_setspecific(thread_end, t);
    return self = t;
}

struct tags_thread *tags_self(bool start)
{
    struct gate g;
    if (atomic_load_explicit(&tags.closed, memory_order_relaxed) || probe_inside())
        return NULL;
    if (start && atomic_load_explicit(&probe.state, memory_order_relaxed) != STATE_ON) {
        if (!probe_enter(&g))
            return NULL;
        probe_leave(&g);
    }
    return self ? self : take_thread();
}

uint32_t tags_config_of(const struct tags_key *key, const char *symbol)
{
    struct tags_config c = {.key = *key, .kernel = tags_kernel_of(key->f, symbol)};
    c.key.f = NULL;
    if (!c.kernel)
        return 0;
    for (uint64_t seed = c.kernel;; seed += UINT64_C(1) << 32) {
        uint64_t hash = XXH3_64bits_withSeed(&c.key, sizeof c.key, seed);
        uint32_t known = map_get(&tags.config_of, hash);
        if (known) {
            const struct tags_config *k = &tags.configs[known - 1];
            if (k->kernel == c.kernel && !memcmp(&k->key, &c.key, sizeof c.key))
                return known;
            continue;
        }
        struct tags_config *list =
            tags_grow(tags.configs, tags.n_configs, TAGS_CONFIGS, sizeof *list);
        if (!list)
            return 0;
        tags.configs = list;
        list[tags.n_configs] = c;
        return map_set(&tags.config_of, hash, tags.n_configs + 1) ? 0 : ++tags.n_configs;
    }
}

static uint32_t count_launches(const uint32_t *entries, uint32_t n)
{
    uint32_t sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += entries[i] & TAGS_GRAPH_BIT ? tags.lists[(entries[i] & ~TAGS_GRAPH_BIT) - 1].n_kernel
                                           : 1;
    return sum;
}

uint32_t tags_list_of(const uint32_t *entries, uint32_t n, bool is_graph)
{
    XXH128_hash_t h = XXH3_128bits_withSeed(entries, n * sizeof *entries, is_graph);
    uint32_t known = map_get(&tags.list_of, h.low64);
    if (known)
        return tags.lists[known - 1].check == h.high64 ? known : 0;
    struct tags_list *list = tags_grow(tags.lists, tags.n_lists, TAGS_NUMBERED, sizeof *list);
    if (!list)
        return 0;
    tags.lists = list;
    uint32_t *copy = malloc(n * sizeof *copy + 1);
    if (!copy)
        return 0;
    memcpy(copy, entries, n * sizeof *copy);
    list[tags.n_lists] =
        (struct tags_list){h.high64, n, count_launches(entries, n), is_graph, copy};
    if (map_set(&tags.list_of, h.low64, tags.n_lists + 1)) {
        free(copy);
        return 0;
    }
    return ++tags.n_lists;
}

/* The thread's own table. */
static uint32_t find_config(struct tags_thread *t, const struct tags_key *key, const char *symbol)
{
    uint32_t generation = atomic_load_explicit(&tags.generation, memory_order_acquire);
    uint64_t hash = XXH3_64bits(key, sizeof *key);
    struct tags_cached *at = NULL;
    if (t->generation != generation) {
        memset(t->cache, 0, sizeof t->cache);
        t->generation = generation;
    }
    for (int i = 0; i < 4; i++) {
        struct tags_cached *c = &t->cache[(hash + (uint64_t)i) % TAGS_CACHE];
        if (!c->config) {
            at = c;
            break;
        }
        if (!memcmp(&c->key, key, sizeof *key))
            return c->config;
    }
    pthread_mutex_lock(&tags.lock);
    uint32_t config = tags_config_of(key, symbol);
    pthread_mutex_unlock(&tags.lock);
    t->missed = key->f;
    if (!at)
        at = &t->cache[hash % TAGS_CACHE];
    if (config)
        *at = (struct tags_cached){*key, config};
    return config;
}

static bool append(struct tags_thread *t, uint32_t entry)
{
    if (tags_paused())
        return true;
    if (t->n == t->room) {
        uint32_t room = t->room ? 2 * t->room : 1024;
        uint32_t *more = room <= TAGS_PASS ? realloc(t->entries, room * sizeof *t->entries) : NULL;
        if (!more)
            return false;
        t->entries = more;
        t->room = room;
    }
    t->entries[t->n++] = entry;
    return true;
}

static void begin_launch(struct tags_thread *t)
{
    if (!t->forward && t->n >= TAGS_LOOSE)
        tags_read(t);
    if (!t->forward && !t->n && !t->unknown)
        t->switches = atomic_load_explicit(&tags.switches, memory_order_relaxed);
    t->launching = true;
    t->captured = false;
    t->missed = NULL;
    t->before = t->n;
}

void tags_launch(struct tags_thread *t, const struct tags_key *key, const char *symbol)
{
    begin_launch(t);
    t->current = find_config(t, key, symbol);
    if (!t->current || !append(t, t->current))
        t->unknown = true;
    tags_load_begin(t, key->f); /* a lazy image is loaded now */
}

void tags_launch_graph(struct tags_thread *t, void *exec)
{
    bool conditional = false;
    begin_launch(t);
    pthread_mutex_lock(&tags.lock);
    uint32_t list = tags_exec_list(exec, &conditional);
    pthread_mutex_unlock(&tags.lock);
    if (conditional)
        tags_count(TAGS_CONDITIONAL, 1);
    if (!list)
        tags_count(TAGS_GRAPH, 1);
    if (!list || !append(t, TAGS_GRAPH_BIT | list))
        t->unknown = true;
}

void tags_returned(struct tags_thread *t, bool failed)
{
    if (t->launching && (failed || t->captured))
        t->n = t->before;
    t->launching = false;
    t->current = 0;
    tags_load_end(t, NULL);
}

void *tags_new_kernel(const struct tags_thread *t)
{
    return t->missed;
}

void tags_captured(struct tags_thread *t)
{
    t->captured = true;
}

/* The number of what the thread has launched, which is taken; 0 = not known. */
static uint32_t take_list(struct tags_thread *t, uint64_t *n_launches)
{
    pthread_mutex_lock(&tags.lock);
    uint32_t list = t->unknown ? 0 : tags_list_of(t->entries, t->n, false);
    *n_launches = list ? tags.lists[list - 1].n_kernel : count_launches(t->entries, t->n);
    pthread_mutex_unlock(&tags.lock);
    if (!list && !t->unknown)
        tags_count(TAGS_LISTS, 1);
    t->n = 0;
    t->unknown = false;
    return list;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

/* Drop a list that is not whole because of a pause. Returns whether it is one. */
static bool drop_paused(struct tags_thread *t)
{
    if (!was_paused(t))
        return false;
    t->n = 0;
    t->unknown = false;
    tags_count(TAGS_PAUSED, 1);
    return true;
}

/* Record a forward that nobody has marked. Within the gate. */
static void record_unmarked(uint32_t list)
{
    struct record_forward f = {
        .forward_id = atomic_fetch_add(&probe.n_forwards, 1) + 1,
        .started_ns = now_ns(),
        .n_ubatch = 1,
        .thread = (uint32_t)syscall(SYS_gettid),
    };
    struct record_end e = {f.forward_id, f.started_ns, list};
    if (!probe_push(RECORD_FORWARD, &f, sizeof f))
        spool_lose(&probe.spool, LOST_FORWARDS, 1);
    else if (!probe_push(RECORD_END, &e, sizeof e))
        spool_lose(&probe.spool, LOST_RECORDS, 1);
    tags_count(TAGS_UNMARKED, 1);
    probe_nudge();
}

void tags_read(struct tags_thread *t)
{
    struct gate g;
    uint64_t n_launches;
    if (t->forward || (!t->n && !t->unknown) || drop_paused(t))
        return;
    uint32_t list = take_list(t, &n_launches);
    if (atomic_load(&probe.n_seen))
        tags_count(TAGS_OUTSIDE, n_launches);
    else if (probe_enter(&g)) {
        record_unmarked(list);
        probe_leave(&g);
    }
}

/* What was launched before the engine's first forward, or between two, or in one that was begun on
 * this thread and ended on another. */
static void drop_outside(struct tags_thread *t)
{
    uint64_t n_launches;
    if (t->n || t->unknown) {
        take_list(t, &n_launches);
        tags_count(TAGS_OUTSIDE, n_launches);
    }
    t->forward = 0;
}

/* Within a hook, so that tags_self would refuse. */
static struct tags_thread *hook_thread(void)
{
    if (!atomic_load(&tags.version) || atomic_load(&tags.closed))
        return NULL;
    return self ? self : take_thread();
}

void tags_begin(uint64_t forward)
{
    struct tags_thread *t = hook_thread();
    if (!t)
        return;
    drop_outside(t);
    t->forward = forward;
    t->switches = atomic_load(&tags.switches);
}

uint32_t tags_end(uint64_t forward)
{
    struct tags_thread *t = hook_thread();
    uint64_t n_launches;
    if (!t || t->forward != forward)
        return 0;
    t->forward = 0;
    return drop_paused(t) || (!t->n && !t->unknown) ? 0 : take_list(t, &n_launches);
}

void tags_stop(void)
{
    if (self && !atomic_load(&tags.closed) && !probe_inside())
        tags_read(self);
    atomic_store(&tags.closed, true);
}

void tags_forked(void)
{
    if (atomic_load(&tags.version)) {
        atomic_store(&tags.forked, true);
        atomic_store(&tags.closed, true);
    } else
        pthread_mutex_init(&tags.lock, NULL);
}
