#include "config.h"

#include "shim/map.h"

#include <stdlib.h>

/* Where a key's search begins. */
static size_t home(const struct map *m, uint64_t key)
{
    return (size_t)((key * UINT64_C(0x9e3779b97f4a7c15)) >> 32) & (m->room - 1);
}

/* The slot of a key, or the free one where it would stand. */
static size_t find(const struct map *m, uint64_t key)
{
    size_t i = home(m, key);
    while (m->slots[i].value && m->slots[i].key != key)
        i = (i + 1) & (m->room - 1);
    return i;
}

uint32_t map_get(const struct map *m, uint64_t key)
{
    return m->room ? m->slots[find(m, key)].value : 0;
}

static int grow(struct map *m)
{
    struct map wider = {.room = m->room ? 2 * m->room : 64, .n = m->n};
    wider.slots = calloc(wider.room, sizeof *wider.slots);
    if (!wider.slots)
        return -1;
    for (size_t i = 0; i < m->room; i++)
        if (m->slots[i].value)
            wider.slots[find(&wider, m->slots[i].key)] = m->slots[i];
    free(m->slots);
    *m = wider;
    return 0;
}

/* Free slot i, and move what follows up so that no search ends too early. */
static void empty(struct map *m, size_t i)
{
    size_t mask = m->room - 1;
    for (size_t j = (i + 1) & mask; m->slots[j].value; j = (j + 1) & mask) {
        size_t h = home(m, m->slots[j].key);
        if (((j - h) & mask) < ((j - i) & mask))
            continue;
        m->slots[i] = m->slots[j];
        i = j;
    }
    m->slots[i].value = 0;
    m->n--;
}

int map_set(struct map *m, uint64_t key, uint32_t value)
{
    if (2 * (m->n + 1) > m->room && grow(m) && m->n + 1 >= m->room)
        return -1;
    size_t i = find(m, key);
    if (!value) {
        if (m->slots[i].value)
            empty(m, i);
        return 0;
    }
    m->n += !m->slots[i].value;
    m->slots[i] = (struct map_slot){key, value};
    return 0;
}

void map_keep(struct map *m, int (*keep)(uint64_t key, uint32_t value, void *user), void *user)
{
    for (size_t i = 0; i < m->room;) {
        if (m->slots[i].value && !keep(m->slots[i].key, m->slots[i].value, user))
            empty(m, i);
        else
            i++;
    }
}
