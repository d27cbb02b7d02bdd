/* The groups of rows that tags name: every recorded place of a row (phase, batch row, width,
 * micro-batch, kernel), its distance to a boundary, and the residues of its position. Small faults
 * are found by enumerating these. Internal to the tag test. */
#ifndef NEARTIE_COLLECTOR_STAT_GROUP_H
#define NEARTIE_COLLECTOR_STAT_GROUP_H

#include "collector/pairs_int.h"

enum group_test {
    GROUP_EQUAL,   /* figure = value */
    GROUP_ABOVE,   /* figure > value */
    GROUP_BELOW,   /* figure < value, and the row is past the first boundary */
    GROUP_RESIDUE, /* figure mod modulus = value */
    GROUP_WINDOW,  /* figure mod modulus < value, and figure >= modulus */
    GROUP_TAIL,    /* figure mod modulus >= modulus - value */
    GROUP_CONTAINS /* the side's kernel list contains launch configuration value */
};

struct group {
    const char *field; /* borrowed: a constant or a tag name of the pairs */
    int figure;        /* enum figure of stat_group.c */
    int side;          /* 0, 1, or PAIR_UNKNOWN */
    enum group_test test;
    int32_t value, modulus;
};

/* Groups of a set of pairs, with the lists that find a row's groups fast. Opaque. */
struct groups;

/* Enumerate the groups that split the rows of `pairs`; chunk: positions of a prefill chunk, or 0.
 */
struct groups *groups_new(const struct pairs *pairs, int chunk);
void groups_free(struct groups *groups);
int groups_count(const struct groups *groups);
const struct group *groups_at(const struct groups *groups, int g);

/* Name as reports show it: "batch_row > 0", "a.n_tokens = 64", "pos mod 64 = 63". */
void group_name(const struct group *group, char *buf, size_t size);

/* Let rows of `pairs` be looked up: the set that the groups come from, or its control. */
void groups_bind(struct groups *groups, const struct pairs *pairs);

/* The groups that row i of the bound set is in; returns their number. The array is borrowed until
 * the next call. */
int groups_of_row(struct groups *groups, size_t i, const int **out);

#endif
