/* The groups of rows that tags name: every recorded place of a row (phase, batch row, width,
 * micro-batch, kernel), its distance to a boundary, and the residues of its position. Small faults
 * are found by enumerating these. Each figure of a row parts the rows into atoms, one of which
 * holds the row; a group is a set of atoms of one figure, so that a row is counted once a figure
 * however many groups overlap. Internal to the tag test. */
#ifndef NEARTIE_COLLECTOR_STAT_GROUP_H
#define NEARTIE_COLLECTOR_STAT_GROUP_H

#include "collector/pairs_int.h"

enum group_test {
    GROUP_EQUAL,   /* figure = value */
    GROUP_ABOVE,   /* figure > value */
    GROUP_AFTER,   /* the first `value` rows of a forward that is not the first */
    GROUP_BEFORE,  /* the last `value` rows of a forward of several */
    GROUP_PARTIAL, /* rows of the last tile of `value` of a forward, where they do not fill it */
    GROUP_RESIDUE, /* position mod modulus = value */
    GROUP_WINDOW,  /* position mod modulus < value */
    GROUP_TAIL,    /* position mod modulus >= modulus - value */
    GROUP_CONTAINS /* the side's kernel list contains launch configuration value */
};

struct group {
    const char *field; /* borrowed: a constant or a tag name of the pairs */
    int side;          /* 0, 1, or PAIR_UNKNOWN */
    enum group_test test;
    int32_t value, modulus;
    int slot;  /* number of the figure that it looks at */
    int n_kin; /* how many ways that figure has to part the rows: its atoms, or its groups */
    int n_atoms;
    const int *atoms; /* (n_atoms) borrowed from the groups */
};

struct groups;

/* Enumerate the groups that part the rows of `pairs`; chunk: positions of a prefill chunk, or 0. */
struct groups *groups_new(const struct pairs *pairs, int chunk);
void groups_free(struct groups *groups);
int groups_count(const struct groups *groups);
int groups_n_atoms(const struct groups *groups);
const struct group *groups_at(const struct groups *groups, int g);

/* Name as reports show it: "batch_row > 0", "a.n_tokens = 64", "pos mod 64 = 63". */
void group_name(const struct group *group, char *buf, size_t size);

/* Let rows of `pairs` be looked up: the set that the groups come from, or its control. */
void groups_bind(struct groups *groups, const struct pairs *pairs);

/* The atoms that row i of the bound set is in; returns their number. The array is borrowed until
 * the next call. */
int groups_of_row(struct groups *groups, size_t i, const int **out);

#endif
