/* The noise floor: how far two honest arms differ, and so how often they flip. It comes from a
 * control (a known-good pair), from a stored calibration of one, or from the prior of the class;
 * a report always says from which. Never a normal distribution: real contrasts reach 7 to 13 s.
 *
 * Scale s = 1.4826 median |y| over the control's rows that are not bit-equal (1.4826 makes it the
 * standard deviation of a normal; Rousseeuw and Croux 1993). Bit-equal rows are a group of their
 * own: they took the same path, say nothing about the noise of the other path, and would turn
 * every ratio infinite. Survival S(m) = P(|y| > m), empirical; beyond the largest |y| of N rows
 * (1/2N)(y_max / m)^4, the tail of a t distribution with 4 degrees of freedom. */
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

enum { FLOOR_N_QUANTILES = 257 };

struct floor {
    enum floor_kind kind;
    enum floor_class cls;
    double scale;    /* s that the verdict uses */
    double measured; /* the control's own s, before any raising; NAN without a control */
    bool raised;     /* the control lay below the prior (kind other) or below the rounding floor */
    bool zero; /* the control is bit-equal throughout: a path difference cannot be seen in it */
    size_t n;  /* control rows that are not bit-equal */
    size_t n_seqs;
    double largest;  /* largest |y| of the control */
    size_t n_sorted; /* |y|, ascending: the control's, or quantiles of it; 0: t4 */
    float *sorted;   /* owned */
};

/* Find a class by name; FLOOR_N_CLASSES when there is none. */
enum floor_class floor_class_find(const char *name);

/* The prior alone; ulp is the unit in the last place of the logits on a grid, 0 off any grid. */
void floor_from_prior(struct floor *out, enum floor_class cls, double ulp);

/* A control's rows. A control without a row that differs gives the prior, marked zero. */
void floor_from_pairs(struct floor *out, const struct pairs *control, enum floor_kind kind,
                      enum floor_class cls, double ulp);

/* A stored calibration: scale, number of rows, and |y| at n evenly spaced probabilities from 0
 * (smallest) to 1 (largest); n = 0: only the scale is known, the shape is t4. */
int floor_from_quantiles(struct floor *out, enum floor_kind kind, enum floor_class cls,
                         double scale, size_t n_rows, const double *quantiles, int n,
                         struct err *err);
void floor_fini(struct floor *floor);

/* |y| at FLOOR_N_QUANTILES evenly spaced probabilities, for a calibration. */
void floor_quantiles(const struct floor *floor, double out[FLOOR_N_QUANTILES]);

/* P(|y| > m), P(|y| >= m). A floor of another kind is asked at m / 2. */
double floor_survival(const struct floor *floor, double m);
double floor_survival_at(const struct floor *floor, double m);

#endif
