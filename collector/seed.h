/* The seed's rule: a verdict from two arms over one window of positions of one prompt, and the
 * table that shows it. Pure functions over arrays; the engine's gate and the collector print the
 * same figures through this one file. The rule is kept exactly as it was found, blind spots
 * included (a flip at the last position always passes, NaN compares as no difference): it is the
 * yardstick that the calibrated rule is measured against.
 *
 * All figures are in float, as recorded: the same logits give the same digits on both sides. */
#ifndef NEARTIE_COLLECTOR_SEED_H
#define NEARTIE_COLLECTOR_SEED_H

#include "err.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum seed_class {
    SEED_STABLE,      /* no flip, and none possible at the decision position */
    SEED_EXPOSED,     /* no flip, but the arms differ by more than the margin there */
    SEED_NEAR_TIE,    /* one flip, at a margin that the difference covers */
    SEED_UNEXPLAINED, /* one flip, at a margin that the difference does not cover */
    SEED_SYSTEMATIC   /* two flips or more */
};

/* One position, arm A against arm B. */
struct seed_row {
    int64_t pos;    /* position of the input token, from 0 */
    int32_t a1, a2; /* arm A's top-2 ids, ties to the lowest id; -1 where there is none */
    int32_t b1, b2; /* arm B's */
    float margin_a; /* logit of a1 minus logit of a2; NAN where there is no a2 */
    float margin_b;
    float delta;  /* largest |a - b| over the contending ids a1, a2, b1, b2 */
    bool bounded; /* a contending id was missing from a recorded list: delta is at least this */
    bool bad;     /* a NaN or +inf in either arm's logits, which the rule does not look at */
};

/* What the rule says about a window; the decision position is its last row. */
struct seed_summary {
    int n;         /* positions */
    int n_flips;   /* rows with a1 != b1 */
    int n_bad;     /* rows with NaN or +inf */
    int n_bounded; /* rows whose delta is a lower bound */
    float b_min;   /* arm B's margins: quantiles at index round((n - 1) q) */
    float b_p10, b_p50, b_p90, b_max;
    float a_min; /* arm A's margins; the median at index n / 2 */
    float a_p50, a_max;
    struct seed_row decision;
    int n_below;      /* arm B's margins strictly below the decision position's; rank - 1 */
    float min_margin; /* smaller margin at the decision position */
    bool possible;    /* decision.delta > min_margin */
    enum seed_class cls;
};

/* The gate at one position: do the arms' argmaxes match? */
struct seed_gate {
    int32_t a1, b1; /* the two argmaxes */
    int64_t n_ids;  /* ids compared: the vocabulary, or those that a record has on both sides */
    float max_diff; /* largest |a - b| over them */
    float a_at_a1, a_at_b1, b_at_a1, b_at_b1;
    float margin_a; /* a_at_a1 - a_at_b1: margins between the two contenders only */
    float margin_b; /* b_at_b1 - b_at_a1 */
    float spread;   /* larger |a - b| at a1 and b1 */
};

/* Names of the arms in the printed tables, for instance {"prefill", "decode"}. */
struct seed_names {
    const char *a, *b;
};

/* Fill a row from two whole logits rows (n_vocab). NaN and -inf have no place in the top 2. */
void seed_row_set(struct seed_row *row, int64_t pos, const float *a, const float *b,
                  int32_t n_vocab);

/* Largest |a[i] - b[i]|; NaN differences count as none. */
float seed_max_diff(const float *a, const float *b, int64_t n);

/* Apply the rule to n rows in order of position. Fails for n < 1. */
int seed_summarize(const struct seed_row *rows, int n, struct seed_summary *out, struct err *err);

/* Compare two whole logits rows (n_vocab). */
void seed_gate_set(struct seed_gate *gate, const float *a, const float *b, int32_t n_vocab);

/* Derive margins and spread from the four logits that the caller has set. */
void seed_gate_derive(struct seed_gate *gate);

const char *seed_class_name(enum seed_class cls);   /* "NEAR-TIE" */
const char *seed_class_reason(enum seed_class cls); /* one clause, no full stop */
bool seed_is_defect(enum seed_class cls);           /* UNEXPLAINED, SYSTEMATIC */

/* Print the per-position table, the summary with the verdict as its last line, the gate. */
void seed_print_rows(FILE *out, const struct seed_names *names, const struct seed_row *rows, int n);
void seed_print_summary(FILE *out, const struct seed_names *names, const struct seed_summary *sum);
void seed_print_gate(FILE *out, const struct seed_names *names, const struct seed_gate *gate);

#endif
