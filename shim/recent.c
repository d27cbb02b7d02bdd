#include "config.h"

#include "shim/recent.h"

#include <pthread.h>
#include <stdlib.h>

enum { ENTRIES = 1 << 16, LOCKS = 64 };

struct entry {
    int64_t seq, pos;
    uint64_t row_id; /* 0 = empty */
};

struct recent {
    pthread_mutex_t locks[LOCKS]; /* one for every LOCKS-th entry */
    struct entry entries[ENTRIES];
};

struct recent *recent_new(void)
{
    struct recent *r = calloc(1, sizeof *r);
    for (int i = 0; r && i < LOCKS; i++)
        pthread_mutex_init(&r->locks[i], NULL);
    return r;
}

void recent_free(struct recent *r)
{
    free(r);
}

/* Neighbours in a sequence are neighbours here: a long prompt does not push itself out. */
static size_t index_of(int64_t seq, int64_t pos)
{
    return (size_t)((uint64_t)seq * UINT64_C(0x9e3779b97f4a7c15) / 65536 + (uint64_t)pos) % ENTRIES;
}

void recent_put(struct recent *r, int64_t seq, int64_t pos, uint64_t row_id)
{
    size_t i = index_of(seq, pos);
    pthread_mutex_lock(&r->locks[i % LOCKS]);
    const struct entry *e = &r->entries[i];
    if (row_id || (e->seq == seq && e->pos == pos))
        r->entries[i] = (struct entry){seq, pos, row_id};
    pthread_mutex_unlock(&r->locks[i % LOCKS]);
}

uint64_t recent_find(struct recent *r, int64_t seq, int64_t pos)
{
    size_t i = index_of(seq, pos);
    pthread_mutex_lock(&r->locks[i % LOCKS]);
    const struct entry *e = &r->entries[i];
    uint64_t id = e->row_id && e->seq == seq && e->pos == pos ? e->row_id : 0;
    pthread_mutex_unlock(&r->locks[i % LOCKS]);
    return id;
}
