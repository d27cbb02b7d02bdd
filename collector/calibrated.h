/* The calibrated rule: is what two arms differ by consistent with the noise of an honest pair, or
 * a defect, and where? Pure functions over arrays. The verdict is the first of the classes below
 * that holds; every test prints an effect size beside its p, and the whole run of tests has one
 * familywise level (0.01, Holm). The sequence is the unit: rows of a sequence share errors. */
#ifndef NEARTIE_COLLECTOR_CALIBRATED_H
#define NEARTIE_COLLECTOR_CALIBRATED_H

#include "collector/floor.h"
#include "collector/pairs.h"

/* In the order in which they are tried. */
enum verdict_class {
    VERDICT_NOT_ENGAGED,        /* the knob changed nothing: no conclusion */
    VERDICT_NOT_COMPARABLE,     /* no two rows of the same context */
    VERDICT_NONFINITE,          /* NaN or +inf */
    VERDICT_SAMPLER_MISMATCH,   /* greedy, yet the emitted id is not the best recorded logit */
    VERDICT_CONTRACT_VIOLATION, /* bitwise class, yet a row differs */
    VERDICT_SYSTEMATIC,         /* tag, id, sign, slope or scale rejects */
    VERDICT_UNEXPLAINED,        /* worst, count, max or exceed rejects */
    VERDICT_EXACT_TIE,          /* every flip had a margin of exactly 0 */
    VERDICT_NEAR_TIE,           /* flips, consistent with the floor (not: harmless) */
    VERDICT_EXPOSED,            /* no flip, but flips were to be expected */
    VERDICT_STABLE,
    VERDICT_N_CLASSES
};

enum verdict_test_id {
    TEST_TAG,
    TEST_ID,
    TEST_SIGN,
    TEST_SLOPE,
    TEST_SCALE,
    TEST_WORST,
    TEST_COUNT,
    TEST_MAX,
    TEST_EXCEED,
    TEST_N
};

struct verdict_test {
    bool applies;      /* enough rows and sequences, and the floor allows it */
    bool rejects;      /* p_adjusted below the level, and effect beyond the limit */
    double effect;     /* in the unit of the test: ratio, share, logits */
    double limit;      /* the effect must exceed this; NAN: none */
    double statistic;  /* of a permutation: effect over its standard error; else NAN */
    double share;      /* sign and slope: of the contrasts' squares, explained; else NAN */
    double p;          /* NAN: the test has none, the effect alone decides */
    double p_adjusted; /* Holm over the tests that apply */
    char detail[160];  /* what was compared, in words; or why the test does not apply */
};

/* A group of rows that a tag names, against the floor. */
struct verdict_tag {
    char name[64];     /* "batch_row > 0" of arm B, "a.batch_row > 0", "pos mod 64 = 63" */
    const char *field; /* "batch_row", "kernel", "pos", or a tag of the caller's; borrowed */
    int side;          /* 0 A, 1 B, PAIR_UNKNOWN: both */
    int32_t value;     /* 0, 63, or the number of the launch configuration */
    size_t n, n_rest;  /* rows inside and outside, not counting bit-equal ones */
    size_t n_seqs;     /* sequences with such rows; of more than 256, blocks of sequences */
    size_t flips, flips_rest;
    double scale, scale_rest;
    double ratio;         /* to the floor's scale, or to the same group's in the control */
    double ratio_rest;    /* of the other rows, in the same way */
    double fit;           /* how well it tells bad rows from sound ones; the tags rank by it */
    double p, p_adjusted; /* p_adjusted: Benjamini-Hochberg over the tags; NAN: not tested, because
                             no tag of its kind stands out */
    bool rejects;
};

/* One flip with its place in the run. */
struct verdict_flip {
    struct pair_flip pair;
    double z;        /* contrast over the floor's scale */
    double z_margin; /* margin over the floor's scale */
    size_t rank;     /* rank of the contrast's size among all rows, from 1; 1 is the largest */
    double q;        /* probability that the floor gave to a flip here */
    double ulps; /* contrast in units of the last place of the arms' narrow type; NAN off a grid */
};

struct verdict_options {
    enum floor_class cls;
    const struct floor *floor;   /* never NULL: floor_from_* */
    const struct pairs *control; /* the control's rows where they are at hand, else NULL */
    int greedy;                  /* 1, 0, or PAIR_UNKNOWN: an emitted id says nothing */
    int chunk;                   /* positions of a prefill chunk where known, else 0 */
    double level;                /* 0: 0.01 */
    uint64_t seed;               /* of the permutations; the same seed gives the same figures */
};

struct verdict {
    enum verdict_class cls;
    char reason[128];   /* "scale", "batch_row > 0", "7.8125 ... on a grid of 0.125" */
    char beside[128];   /* a second finding of a later class, named beside the first; or empty */
    size_t n, n_seqs;   /* comparable rows and their sequences */
    size_t n_equal;     /* bit-equal rows */
    size_t n_refused;   /* rows that were not comparable */
    bool path_change;   /* the control, or a part of the rows, is bit-equal and the rest is not */
    double scale;       /* the tested pair's s, over rows that are not bit-equal */
    double floor_scale; /* the floor's s: for a prior, settled between prior and limit */
    double ratio;       /* scale over floor_scale */
    double expected;    /* flips */
    size_t n_flips;
    double smallest_margin, largest_contrast;
    double agreement, agreement_low, agreement_high; /* Clopper-Pearson, 95 % */
    double flip_rate_high;                           /* upper 95 % bound of flips per position */
    double ulp[2];           /* of A and B where their logits lie on a grid, else 0 */
    const char *grid[2];     /* "bf16", "f16", "step" or NULL */
    struct pair_fault fault; /* of NONFINITE and SAMPLER-MISMATCH */
    size_t n_fault;
    struct verdict_test tests[TEST_N];
    size_t n_tags;
    struct verdict_tag *tags;   /* owned; strongest first */
    struct verdict_flip *flips; /* (n_flips) owned; in order of position */
};

/* What two arms say of a third, the reference: scale of its contrasts against each. */
struct verdict_reference {
    double scale_a, scale_b;
    double ratio; /* larger over smaller */
    int worse;    /* 0 A, 1 B, PAIR_UNKNOWN: the ratio is at most 2 */
};

extern const char *const verdict_names[VERDICT_N_CLASSES];
extern const char *const verdict_test_names[TEST_N];

/* Whether a class says that something is wrong (NONFINITE to UNEXPLAINED). */
bool verdict_is_defect(enum verdict_class cls);

/* Unit in the last place of the pairs' best logits where they lie on a grid, else 0: what the
 * floor_from_* functions ask for. */
double verdict_grid(const struct pairs *pairs);

/* Judge a set of pairs. The same input and seed give the same verdict. */
int verdict_judge(struct verdict *out, struct pairs *test, const struct verdict_options *options,
                  struct err *err);
void verdict_fini(struct verdict *verdict);

/* Which side lies further from the reference: pairs (reference, A) and (reference, B). */
void verdict_triangulate(struct verdict_reference *out, const struct pairs *ref_a,
                         const struct pairs *ref_b);

#endif
