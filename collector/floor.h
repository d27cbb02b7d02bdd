/* The noise floor: how far two honest arms differ, and so how often they flip. It comes from a
 * control (a known-good pair), from a stored calibration of one, or from the prior of the class;
 * a report always says from which. Never a normal distribution: real contrasts reach 7 to 13 s.
 *
 * Scale s = 1.4826 median |y| over the control's rows that are not bit-equal (1.4826 makes it the
 * standard deviation of a normal; Rousseeuw and Croux 1993). Bit-equal rows are a group of their
 * own: they took the same path, say nothing about the noise of the other path, and would turn
 * every ratio infinite. Survival S(m) = P(|y| > m), empirical; beyond the largest |y| of N rows
 * (1/2N)(y_max / m)^4, the tail of a t distribution with 4 degrees of freedom. Where |y| goes with
 * the margin (|Spearman's rho| > 0.2), S is kept for three ranges of margins: what flips are rows
 * of small margin. */
#ifndef NEARTIE_COLLECTOR_FLOOR_H
#define NEARTIE_COLLECTOR_FLOOR_H

#include "collector/pairs.h"

/* How two arms may differ. */
enum floor_class {
    FLOOR_BITWISE,
    FLOOR_REASSOC_F32, /* another order of the same fp32 operations, no TF32 */
    FLOOR_REASSOC_F16,
    FLOOR_REASSOC_BF16,      /* bf16 activations, fp32 output head */
    FLOOR_REASSOC_BF16_HEAD, /* bf16 logits */
    FLOOR_PRECISION,         /* int8 activations, fp8 or q8 KV cache, TF32 */
    FLOOR_W4,                /* reassoc or precision on 4-bit weights */
    FLOOR_ENGINE,            /* another engine, same weights */
    FLOOR_WEIGHTS_Q8,        /* other weights: q8_0 against the original */
    FLOOR_WEIGHTS_Q6,
    FLOOR_WEIGHTS_Q4,
    FLOOR_N_CLASSES
};

enum floor_kind {
    FLOOR_PRIOR, /* no control: the prior of the class */
    FLOOR_OTHER, /* a known-good pair that differs in something else */
    FLOOR_SAME   /* a known-good pair that differs in the same thing: strict limits */
};

/* The prior of a class: judgement, for models of 1 to 100 billion parameters. */
struct floor_prior {
    const char *name;  /* as on the command line: "precision" */
    const char *words; /* for the report */
    double scale;      /* s of contrasts, in logits */
    double limit;      /* a scale above this is a defect */
    double ulps;       /* the limit is at least this many bf16 ulps; 0: none */
};

extern const struct floor_prior floor_priors[FLOOR_N_CLASSES];

/* One point of a stored survival curve: |y| is at most value with probability p. */
struct floor_point {
    double p, value;
};

enum { FLOOR_N_POINTS = 257, FLOOR_MAX_STRATA = 3 };

struct floor {
    enum floor_kind kind;
    enum floor_class cls;
    double scale;    /* s that the verdict uses, in logits */
    double measured; /* the control's own s, before any raising; NAN without a control */
    double stretch;  /* the control's |y| are taken this many times as large */
    bool raised;     /* the control lay below the prior (kind other) or below the rounding floor */
    bool zero;       /* the control is bit-equal, or has no scale: the floor is the prior */
    bool thin;       /* the control has too few rows or sequences to stand for its kind, whose
                        sequences may lie further apart: used as another kind */
    size_t n, n_equal, n_seqs; /* control: rows that differ, rows that are bit-equal, sequences */
    double rho;                /* the control's rank correlation of |y| and margin */
    int n_strata; /* 0: t4; else sorted holds this many runs, one per range of margins */
    float margin_from[FLOOR_MAX_STRATA];        /* the strata's lowest margins; the first is 0 */
    size_t stratum_start[FLOOR_MAX_STRATA + 1]; /* their runs in sorted */
    float *sorted;                              /* |y|, ascending within a stratum; owned */
};

/* Find a class by name; FLOOR_N_CLASSES when there is none. */
enum floor_class floor_class_find(const char *name);

/* The scale above which the class calls a defect; ulp as below. */
double floor_limit(enum floor_class cls, double ulp);

/* The prior alone. ulp is the unit in the last place of the logits on a grid, 0 off any grid: s is
 * at least 0.58 ulp, the standard deviation of a contrast of four rounded logits. */
void floor_from_prior(struct floor *out, enum floor_class cls, double ulp);

/* A control's rows. A control without a row that differs gives the prior, marked zero. */
void floor_from_pairs(struct floor *out, struct pairs *control, enum floor_kind kind,
                      enum floor_class cls, double ulp);

/* A stored calibration: its scale, the number of its rows that differ, of their sequences (0: not
 * known), and n points of its survival curve, ascending, the first at p = 0 and the last at p = 1;
 * n = 0: the shape is t4. */
int floor_from_points(struct floor *out, enum floor_kind kind, enum floor_class cls, double scale,
                      size_t n_rows, size_t n_seqs, const struct floor_point *points, int n,
                      double ulp, struct err *err);
void floor_fini(struct floor *floor);

/* The floor's own curve, to be stored: half of the points evenly spaced up to p = 0.9, half
 * geometrically from there to the largest |y|. Returns their number: 0 for a floor without rows. */
int floor_points(const struct floor *floor, struct floor_point out[FLOOR_N_POINTS]);

/* P(|y| > x) and P(|y| >= x) for a row of that margin. A floor of another kind sees x / 2. */
double floor_above(const struct floor *floor, double x, double margin);
double floor_reach(const struct floor *floor, double x, double margin);

/* Probability that the floor flips a row of margin m; lower: the runner-up has the lower id, so
 * that an equal contrast flips too. */
double floor_flip(const struct floor *floor, double m, bool lower);

#endif
