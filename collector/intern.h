/* Numbers for things that repeat: equal items of one size get the same number, counted from 0 in
 * the order in which they came. */
#ifndef NEARTIE_COLLECTOR_INTERN_H
#define NEARTIE_COLLECTOR_INTERN_H

#include <stddef.h>
#include <stdint.h>

/* Zeroed, with item_size set, it is empty. Items have no padding: they are compared as bytes. */
struct intern {
    void *items; /* (n) */
    size_t item_size, n, cap;
    uint32_t *slots; /* hash table of 1 + number; 0 = free */
    size_t n_slots;
};

uint32_t intern_number(struct intern *intern, const void *item);
void intern_free(struct intern *intern);

#endif
