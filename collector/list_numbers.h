/* Kernel lists of two files in one numbering: a list's number is its file's own, its hash is the
 * same everywhere. */
#ifndef NEARTIE_COLLECTOR_LIST_NUMBERS_H
#define NEARTIE_COLLECTOR_LIST_NUMBERS_H

#include <stddef.h>
#include <stdint.h>

#include "collector/load.h"

struct list_numbers {
    size_t n; /* lists of the one arm; 0: its numbers are the other's already */
    struct list_number {
        int32_t from, to;
    } * list; /* (n), by from */
};

/* Read what the lists of one arm are called in the file of the other; those that the other arm
 * never used get numbers beyond its own. */
int list_numbers_read(struct list_numbers *out, const struct load_side *from,
                      const struct load_side *to, struct err *err);
void list_numbers_free(struct list_numbers *numbers);

/* What list number, which may be PAIR_UNKNOWN, is called there. */
int32_t list_numbers_of(const struct list_numbers *numbers, int32_t number);

#endif
