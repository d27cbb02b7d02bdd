#include "config.h"

#include "shim/tags_int.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

static uint64_t address(const void *p)
{
    return (uint64_t)(uintptr_t)p;
}

void tags_node_begin(struct tags_thread *t, const struct tags_key *key)
{
    pthread_mutex_lock(&tags.lock);
    t->current = key ? tags_config_of(key, NULL) : TAGS_CONDITION;
    pthread_mutex_unlock(&tags.lock);
}

static void bind(const void *node, uint32_t config)
{
    map_set(&tags.node_config, address(node), config);
}

void tags_node_created(struct tags_thread *t, const void *node)
{
    t->captured = true;
    pthread_mutex_lock(&tags.lock);
    bind(node, t->current); /* 0 where it is no kernel, or a clone, which is told next */
    pthread_mutex_unlock(&tags.lock);
}

void tags_node_set(struct tags_thread *t, const void *node)
{
    pthread_mutex_lock(&tags.lock);
    bind(node, t->current);
    pthread_mutex_unlock(&tags.lock);
}

void tags_node_destroyed(const void *node)
{
    pthread_mutex_lock(&tags.lock);
    bind(node, 0);
    pthread_mutex_unlock(&tags.lock);
}

static void add_item(struct tags_exec *e, const void *node, const void *original, uint32_t config)
{
    struct tags_item *items = tags_grow(e->items, e->n, TAGS_PASS, sizeof *items);
    if (!items || map_set(&e->index, address(node), e->n + 1)) {
        e->lost = true;
        return;
    }
    e->items = items;
    items[e->n++] = (struct tags_item){original, config, false};
}

void tags_node_cloned(struct tags_thread *t, const void *node, const void *original)
{
    struct tags_exec *e = t->forming;
    pthread_mutex_lock(&tags.lock);
    uint32_t config = map_get(&tags.node_config, address(original));
    bind(node, config);
    if (e && config == TAGS_CONDITION)
        e->conditional = true;
    else if (e && config)
        add_item(e, node, original, config);
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_item(struct tags_thread *t, const void *node, const struct tags_key *key,
                    const char *symbol)
{
    struct tags_exec *e = t->forming;
    if (!e)
        return;
    pthread_mutex_lock(&tags.lock);
    uint32_t config = key ? tags_config_of(key, symbol) : 0;
    if (config)
        add_item(e, node, node, config);
    else if (key)
        e->lost = true;
    else
        e->conditional = true;
    pthread_mutex_unlock(&tags.lock);
}

static void free_exec(struct tags_exec *e)
{
    if (!e)
        return;
    free(e->items);
    free(e->index.slots);
    free(e);
}

void tags_exec_begin(struct tags_thread *t)
{
    free_exec(t->forming);
    t->forming = calloc(1, sizeof *t->forming);
}

void tags_exec_end(struct tags_thread *t)
{
    free_exec(t->forming);
    t->forming = NULL;
}

/* A free place for one more; -1 without memory. */
static int64_t free_place(void)
{
    for (uint32_t i = 0; i < tags.n_execs; i++)
        if (!tags.execs[i])
            return i;
    struct tags_exec **list = tags_grow(tags.execs, tags.n_execs, TAGS_KERNELS, sizeof *list);
    if (!list)
        return -1;
    tags.execs = list;
    list[tags.n_execs] = NULL;
    return tags.n_execs++;
}

/* The exec's entry, or NULL. */
static struct tags_exec *find(const void *exec)
{
    uint32_t at = map_get(&tags.exec_of, address(exec));
    return at ? tags.execs[at - 1] : NULL;
}

static void forget(const void *exec)
{
    uint32_t at = map_get(&tags.exec_of, address(exec));
    if (!at)
        return;
    free_exec(tags.execs[at - 1]);
    tags.execs[at - 1] = NULL;
    map_set(&tags.exec_of, address(exec), 0);
}

void tags_exec_created(struct tags_thread *t, void *exec)
{
    struct tags_exec *e = t->forming;
    pthread_mutex_lock(&tags.lock);
    if (e && !find(exec)) {
        int64_t at = free_place();
        if (at >= 0 && !map_set(&tags.exec_of, address(exec), (uint32_t)at + 1)) {
            tags.execs[at] = e;
            t->forming = NULL;
        }
    }
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_replaced(struct tags_thread *t, void *exec)
{
    struct tags_exec *e = t->forming;
    pthread_mutex_lock(&tags.lock);
    uint32_t at = map_get(&tags.exec_of, address(exec));
    struct tags_exec *old = at ? tags.execs[at - 1] : NULL;
    if (old && e && old->n == e->n && !e->lost) {
        /* An update keeps the nodes, which go on being named by those of the first graph. */
        for (uint32_t i = 0; i < e->n; i++)
            old->items[i].config = e->items[i].config;
        old->conditional = e->conditional;
        old->list = 0;
    } else if (old)
        old->lost = true;
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_destroyed(void *exec)
{
    pthread_mutex_lock(&tags.lock);
    forget(exec);
    pthread_mutex_unlock(&tags.lock);
}

static struct tags_item *find_item(struct tags_exec *e, const void *node)
{
    uint32_t at = e ? map_get(&e->index, address(node)) : 0;
    return at ? &e->items[at - 1] : NULL;
}

static void change(struct tags_exec *e, struct tags_item *item, uint32_t config)
{
    if (!item || item->config == config)
        return;
    item->config = config;
    e->list = 0;
    e->lost |= !config;
}

void tags_exec_node_from(void *exec, const void *node, const void *new_node)
{
    pthread_mutex_lock(&tags.lock);
    struct tags_exec *e = find(exec);
    change(e, find_item(e, node), map_get(&tags.node_config, address(new_node)));
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_node_set(struct tags_thread *t, void *exec, const void *node)
{
    if (!t->current)
        return; /* an update, which tags_exec_node_from has told */
    pthread_mutex_lock(&tags.lock);
    struct tags_exec *e = find(exec);
    change(e, find_item(e, node), t->current);
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_enable(void *exec, const void *original, bool enabled)
{
    pthread_mutex_lock(&tags.lock);
    struct tags_exec *e = find(exec);
    for (uint32_t i = 0; e && i < e->n; i++)
        if (e->items[i].original == original && e->items[i].off == enabled) {
            e->items[i].off = !enabled;
            e->list = 0;
        }
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_lost(void *exec)
{
    pthread_mutex_lock(&tags.lock);
    struct tags_exec *e = find(exec);
    if (e)
        e->lost = true;
    pthread_mutex_unlock(&tags.lock);
}

void tags_exec_label(void *exec, const char *label)
{
    pthread_mutex_lock(&tags.lock);
    struct tags_exec *e = find(exec);
    if (e)
        memcpy(e->label, label, strnlen(label, sizeof e->label - 1));
    pthread_mutex_unlock(&tags.lock);
}

static void note_version(struct tags_exec *e)
{
    struct tags_graph *list = tags_grow(tags.graphs, tags.n_graphs, TAGS_GRAPH_ROWS, sizeof *list);
    struct timespec t;
    if (!list)
        return;
    clock_gettime(CLOCK_REALTIME, &t);
    tags.graphs = list;
    list[tags.n_graphs] =
        (struct tags_graph){e->list, e->version++, t.tv_sec * INT64_C(1000000000) + t.tv_nsec, {0}};
    memcpy(list[tags.n_graphs++].label, e->label, sizeof e->label);
}

/* Number the list of an exec that is new or was changed. */
static void number(struct tags_exec *e)
{
    uint32_t *entries = malloc((e->n + 1) * sizeof *entries), n = 0;
    if (!entries)
        return;
    for (uint32_t i = 0; i < e->n; i++)
        if (!e->items[i].off)
            entries[n++] = e->items[i].config;
    e->list = tags_list_of(entries, n, true);
    free(entries);
    if (e->list)
        note_version(e);
}

uint32_t tags_exec_list(void *exec, bool *conditional)
{
    struct tags_exec *e = find(exec);
    if (!e || e->lost)
        return 0;
    *conditional = e->conditional;
    if (!e->list)
        number(e);
    return e->list;
}
