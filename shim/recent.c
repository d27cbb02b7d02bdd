#include "config.h"

#include "shim/recent.h"

#include <pthread.h>
#include <stdlib.h>

enum { SETS = 1 << 13, WAYS = 8, LOCKS = 64 };

struct entry {
    int64_t seq, pos;
    uint64_t row_id; /* 0 = empty */
};

struct recent {
    pthread_mutex_t locks[LOCKS]; /* one for every LOCKS-th set */
    struct entry sets[SETS][WAYS];
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

static size_t set_of(int64_t seq, int64_t pos)
{
    uint64_t x = ((uint64_t)seq * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)pos) *
                 UINT64_C(0xd6e8feb86659fd93);
    return (size_t)(x >> 51);
}

/* The entry of the position, or NULL. */
static struct entry *find(struct entry *set, int64_t seq, int64_t pos)
{
    for (int i = 0; i < WAYS; i++)
        if (set[i].row_id && set[i].seq == seq && set[i].pos == pos)
            return &set[i];
    return NULL;
}

static struct entry *oldest(struct entry *set)
{
    struct entry *e = set;
    for (int i = 1; i < WAYS; i++)
        if (set[i].row_id < e->row_id)
            e = &set[i];
    return e;
}

void recent_put(struct recent *r, int64_t seq, int64_t pos, uint64_t row_id)
{
    size_t at = set_of(seq, pos);
    struct entry *set = r->sets[at];
    pthread_mutex_lock(&r->locks[at % LOCKS]);
    struct entry *e = find(set, seq, pos);
    if (e || row_id)
        *(e ? e : oldest(set)) = (struct entry){seq, pos, row_id};
    pthread_mutex_unlock(&r->locks[at % LOCKS]);
}

uint64_t recent_find(struct recent *r, int64_t seq, int64_t pos)
{
    size_t at = set_of(seq, pos);
    pthread_mutex_lock(&r->locks[at % LOCKS]);
    const struct entry *e = find(r->sets[at], seq, pos);
    uint64_t id = e ? e->row_id : 0;
    pthread_mutex_unlock(&r->locks[at % LOCKS]);
    return id;
}
