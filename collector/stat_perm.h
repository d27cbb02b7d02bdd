/* Random numbers and permutation tests whose unit is a whole sequence: rows of one sequence share
 * errors, and a test that takes them as independent convicts clean data. Everything is seeded, so
 * that the same record gives the same figures on every machine. */
#ifndef NEARTIE_COLLECTOR_STAT_PERM_H
#define NEARTIE_COLLECTOR_STAT_PERM_H

#include <stddef.h>
#include <stdint.h>

/* xoshiro256** (Blackman and Vigna 2018), seeded by splitmix64. */
struct stat_rng {
    uint64_t state[4];
};

void stat_rng_seed(struct stat_rng *rng, uint64_t seed);
uint64_t stat_rng_next(struct stat_rng *rng);
double stat_rng_uniform(struct stat_rng *rng);             /* in (0, 1) */
uint64_t stat_rng_below(struct stat_rng *rng, uint64_t n); /* in 0 ... n - 1 */
double stat_rng_normal(struct stat_rng *rng);
double stat_rng_t4(struct stat_rng *rng); /* t with 4 degrees of freedom, variance 2 */

/* Sums over the rows of one unit (a sequence, or a block of neighbouring sequences where there
 * are very many). */
struct stat_unit {
    double sum; /* of the score */
    double n;   /* rows */
};

enum {
    STAT_MIN_SEQS = 8,       /* with fewer sequences a permutation cannot convict */
    STAT_MAX_UNITS = 256,    /* more sequences than this are joined into blocks */
    STAT_PERMUTATIONS = 4999 /* p down to 0.0002: far enough below 0.01 over nine tests */
};

/* What a run of permutations says of one group. */
struct stat_outcome {
    double t;     /* mean score, or difference of means, over its cluster-robust standard error */
    double p;     /* share of permutations in which this group's own statistic is reached */
    double p_max; /* share in which the largest statistic of any group reaches it: familywise
                     (Westfall and Young 1993), however the groups overlap */
};

/* Do the groups' scores lie higher (two_sided: elsewhere) in the test than in the control? units
 * holds n_groups rows of n_test + n_control units, the test's first; a group may be empty in
 * some. In each permutation all groups see the same relabelling of units. Studentised, so that
 * unequal numbers of rows or spreads do not matter in the limit (Janssen 1997). Stops early once
 * every p is known well enough to be large. */
void stat_permute_groups(const struct stat_unit *units, int n_groups, size_t n_test,
                         size_t n_control, int two_sided, uint64_t seed, struct stat_outcome *out);

/* The same against a known mean (scores are measured from it): signs of whole units are flipped. */
void stat_flip_groups(const struct stat_unit *units, int n_groups, size_t n, int two_sided,
                      uint64_t seed, struct stat_outcome *out);

/* Largest values of a unit, descending; (n) of them kept. */
enum { STAT_TOP = 64 };
struct stat_top {
    int n;
    float values[STAT_TOP];
};

/* Put a value among the largest. */
void stat_top_add(struct stat_top *top, float value);

/* How many of the test's values exceed the control's largest, and the share of relabellings of
 * units with as many. */
size_t stat_permute_exceed(const struct stat_top *units, size_t n_test, size_t n_control,
                           uint64_t seed, double *out_p);

#endif
