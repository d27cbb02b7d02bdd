/* What the tests of the calibrated rule share: the rows of the tested pair, its floor and its
 * control, and one function a test. Internal to the rule; calibrated.c calls, callers do not. */
#ifndef NEARTIE_COLLECTOR_STAT_RULE_H
#define NEARTIE_COLLECTOR_STAT_RULE_H

#include "collector/calibrated.h"
#include "collector/pairs_int.h"
#include "collector/stat_perm.h"

/* Sizes of contrasts are counted in bins of a sixteenth of an octave, from 2^-26 to 2^14. */
enum { STAT_BINS_PER_OCTAVE = 16, STAT_MIN_EXPONENT = -26, STAT_N_BINS = 40 * 16 };

/* Largest ratio to a floor of another kind, or to none, that is left to honest pairs. */
#define STAT_LOOSE_RATIO 4.0

struct stat_input {
    const struct pairs *test;
    const struct pairs *control; /* NULL: only the floor is at hand */
    struct floor floor;          /* its scale settled for this pair; sorted is borrowed */
    enum floor_class cls;
    double prior_scale, prior_limit; /* of the class, on the logits' grid */
    bool strict;          /* a control of the same kind and enough sequences on both sides */
    size_t n;             /* rows of the tested pair that are not bit-equal */
    size_t n_contexts;    /* of these, those that are no repeats */
    double scale;         /* their s */
    double largest;       /* their largest peak */
    double floor_largest; /* the control's, stretched; NAN: the floor has no rows */
    double
        loose_scale; /* what a group of few sequences is held against: the largest s of any sequence
                        of a strict control, since honest sequences reach that; else the floor's */
    float *q;        /* (test->n) probability that the floor flips the row; owned */
    float
        *q_most; /* (test->n) the most that is left to an honest pair: q, or the same at most_scale
                    for a prior that too few rows of the pair's own have settled; owned */
    double most_scale;        /* scale of the t4 floor behind q_most */
    float score[STAT_N_BINS]; /* size -> its rank in the floor, from -1/2 to 1/2 */
    size_t per_unit;          /* sequences joined into a unit, the same in test and control */
    size_t n_units, n_control_units;
    int chunk;
    uint64_t seed;
};

/* The bin of a size, and the size at a place between bins. */
int stat_bin(double size);
double stat_bin_edge(double bin);

/* Median of a histogram (STAT_N_BINS) of n sizes, interpolated within its bin. */
double stat_bin_median(const uint32_t *histogram, size_t n);

void stat_input_init(struct stat_input *input, struct pairs *test,
                     const struct verdict_options *options, double ulp);
void stat_input_fini(struct stat_input *input);

/* The tests. Each fills everything but p_adjusted and rejects. */
void stat_test_count(const struct stat_input *input, struct verdict_test *out);
void stat_test_worst(const struct stat_input *input, struct verdict_test *out);
void stat_test_scale(const struct stat_input *input, struct verdict_test *out);
void stat_test_max(const struct stat_input *input, struct verdict_test *out);
void stat_test_exceed(const struct stat_input *input, struct verdict_test *out);
void stat_test_sign(const struct stat_input *input, struct verdict_test *out);
void stat_test_slope(const struct stat_input *input, struct verdict_test *out);
void stat_test_id(const struct stat_input *input, struct verdict_test *out);

/* The tag test also gives every tag, strongest first; the array is the caller's to free. */
void stat_test_tag(const struct stat_input *input, struct verdict_test *out,
                   struct verdict_tag **out_tags, size_t *out_n);

#endif
