/* A table from 64-bit keys (addresses, hashes) to numbers other than 0. It grows; where there is no
 * memory to grow, what is new is left out. Not for several threads at once. */
#ifndef NEARTIE_SHIM_MAP_H
#define NEARTIE_SHIM_MAP_H

#include <stddef.h>
#include <stdint.h>

struct map {
    struct map_slot {
        uint64_t key;
        uint32_t value; /* 0: free */
    } * slots;
    size_t room, n;
};

/* The number of a key, or 0. */
uint32_t map_get(const struct map *m, uint64_t key);

/* Set a key's number; 0 removes it. Returns 0, or -1 without memory. */
int map_set(struct map *m, uint64_t key, uint32_t value);

/* Remove every key whose number the function refuses. */
void map_keep(struct map *m, int (*keep)(uint64_t key, uint32_t value, void *user), void *user);

#endif
