#include "config.h"

#include "collector/intern.h"
#include "collector/xalloc.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

static char *item_at(const struct intern *intern, size_t number)
{
    return (char *)intern->items + number * intern->item_size;
}

static uint32_t *find_slot(const struct intern *intern, const void *item)
{
    size_t i = XXH3_64bits(item, intern->item_size);
    uint32_t *slot;
    while (*(slot = intern->slots + (i & (intern->n_slots - 1))) &&
           memcmp(item_at(intern, *slot - 1), item, intern->item_size))
        i++;
    return slot;
}

static void grow_slots(struct intern *intern)
{
    intern->n_slots = intern->n_slots ? 2 * intern->n_slots : 256;
    free(intern->slots);
    intern->slots = xcalloc(intern->n_slots, sizeof *intern->slots);
    for (size_t i = 0; i < intern->n; i++)
        *find_slot(intern, item_at(intern, i)) = (uint32_t)i + 1;
}

uint32_t intern_number(struct intern *intern, const void *item)
{
    if (2 * intern->n >= intern->n_slots)
        grow_slots(intern);
    uint32_t *slot = find_slot(intern, item);
    if (*slot)
        return *slot - 1;
    if (intern->n == intern->cap) {
        intern->cap = intern->cap ? 2 * intern->cap : 64;
        intern->items = xrealloc(intern->items, intern->cap, intern->item_size);
    }
    memcpy(item_at(intern, intern->n), item, intern->item_size);
    *slot = (uint32_t)++intern->n;
    return *slot - 1;
}

void intern_free(struct intern *intern)
{
    free(intern->items);
    free(intern->slots);
    *intern = (struct intern){.item_size = intern->item_size};
}
