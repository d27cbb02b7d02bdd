#include "config.h"

#include "collector/floor.h"
#include "collector/pairs_int.h"
#include "collector/stat_dist.h"
#include "collector/stat_perm.h"
#include "collector/xalloc.h"

#include <assert.h>
#include <math.h>

enum {
    LEAST_ROWS = 20,      /* a control of fewer rows has a scale, but no shape */
    LEAST_STRATUM = 100,  /* rows of a stratum */
    MOST_RANKED = 100000, /* rows that a rank correlation is taken over */
    MOST_SAMPLE = 1 << 16 /* rows that a stored curve is turned back into */
};

/* Honest pairs of different kinds differ by 2 to 8 in scale. */
static const double OTHER_KIND = 2;

const struct floor_prior floor_priors[FLOOR_N_CLASSES] = {
    [FLOOR_BITWISE] = {"bitwise", "bit for bit equal", 0, 0, 0},
    [FLOOR_REASSOC_F32] = {"reassoc-f32", "fp32 in another order", 1e-4, 3e-3, 0},
    [FLOOR_REASSOC_F16] = {"reassoc-f16", "fp16 in another order", 0.007, 0.07, 0},
    [FLOOR_REASSOC_BF16] = {"reassoc-bf16", "bf16 in another order, fp32 head", 0.03, 0.2, 0},
    [FLOOR_REASSOC_BF16_HEAD] = {"reassoc-bf16-head", "bf16 in another order, bf16 head", 0.04, 0.3,
                                 3},
    [FLOOR_PRECISION] = {"precision", "int8 activations, fp8 or q8 KV cache, TF32", 0.08, 0.5, 0},
    [FLOOR_W4] = {"w4", "another order or precision on 4-bit weights", 0.12, 0.7, 0},
    [FLOOR_ENGINE] = {"engine", "another engine, same weights", 0.08, 0.5, 0},
    [FLOOR_WEIGHTS_Q8] = {"weights-q8", "q8_0 weights", 0.05, 0.20, 0},
    [FLOOR_WEIGHTS_Q6] = {"weights-q6", "q6_K weights", 0.10, 0.40, 0},
    [FLOOR_WEIGHTS_Q4] = {"weights-q4", "4-bit weights", 0.25, 1.0, 0},
};

enum floor_class floor_class_find(const char *name)
{
    int cls = 0;
    while (cls < FLOOR_N_CLASSES && strcmp(floor_priors[cls].name, name))
        cls++;
    return (enum floor_class)cls;
}

double floor_limit(enum floor_class cls, double ulp)
{
    return fmax(floor_priors[cls].limit, floor_priors[cls].ulps * ulp);
}

/* A contrast of four logits, each rounded: sqrt(4 / 12) units in the last place. */
static double rounding_scale(double ulp)
{
    return 0.58 * ulp;
}

void floor_from_prior(struct floor *out, enum floor_class cls, double ulp)
{
    *out = (struct floor){
        .kind = FLOOR_PRIOR,
        .cls = cls,
        .scale = fmax(floor_priors[cls].scale, rounding_scale(ulp)),
        .measured = NAN,
        .stretch = 1,
    };
}

/* Settle scale and stretch once measured and n are known. */
static void settle(struct floor *floor, double ulp)
{
    double least = rounding_scale(ulp);
    bool few = floor->n < LEAST_ROWS || (floor->n_seqs && floor->n_seqs < STAT_MIN_SEQS);
    floor->thin = floor->kind == FLOOR_SAME && few;
    if (floor->thin)
        floor->kind = FLOOR_OTHER;
    if (floor->kind == FLOOR_OTHER)
        least = fmax(least, floor_priors[floor->cls].scale);
    floor->scale = fmax(floor->measured, least);
    floor->raised = floor->scale > floor->measured;
    floor->stretch = 1;
    if (floor->kind != FLOOR_OTHER)
        return;
    floor->stretch = OTHER_KIND;
    if (floor->measured > 0)
        floor->stretch *= floor->scale / floor->measured;
    else
        floor->n_strata =
            0; /* more than half of the contrasts are 0 on a grid: no shape to stretch */
}

/* Sequences with a row that differs. */
static size_t differing_sequences(const struct pairs *control)
{
    size_t count = 0, last = SIZE_MAX;
    for (size_t i = 0; i < control->n; i++) {
        if (control->flags[i] & PAIR_EQUAL || control->seq[i] == last)
            continue;
        last = control->seq[i];
        count++;
    }
    return count;
}

/* |y| and margins of the rows that differ, in two arrays of the caller's to free. */
static size_t differing_rows(const struct pairs *control, float **out_size, float **out_margin)
{
    size_t n = 0;
    *out_size = xcalloc(control->n, sizeof **out_size);
    *out_margin = xcalloc(control->n, sizeof **out_margin);
    for (size_t i = 0; i < control->n; i++) {
        if (control->flags[i] & (PAIR_EQUAL | PAIR_REPEAT))
            continue;
        (*out_size)[n] = fabsf(control->contrast[i]);
        (*out_margin)[n++] = control->margin[i];
    }
    return n;
}

static double correlation(const float *size, const float *margin, size_t n)
{
    size_t step = n / MOST_RANKED + 1, m = 0;
    float *x = xcalloc(n / step + 1, sizeof *x), *y = xcalloc(n / step + 1, sizeof *y);
    for (size_t i = 0; i < n; i += step, m++) {
        x[m] = size[i];
        y[m] = margin[i];
    }
    double rho = stat_spearman(x, y, m);
    free(x);
    free(y);
    return rho;
}

/* Put |y| into floor->sorted, by ranges of margins where |y| goes with the margin. */
static void sort_strata(struct floor *floor, const float *size, const float *margin, size_t n)
{
    floor->rho = correlation(size, margin, n);
    floor->n_strata = 1;
    if (fabs(floor->rho) > 0.2 && n >= FLOOR_MAX_STRATA * LEAST_STRATUM) {
        float *ordered = xcalloc(n, sizeof *ordered);
        memcpy(ordered, margin, n * sizeof *ordered);
        stat_sort(ordered, n);
        floor->n_strata = FLOOR_MAX_STRATA;
        for (int k = 1; k < FLOOR_MAX_STRATA; k++)
            floor->margin_from[k] = ordered[n * (size_t)k / FLOOR_MAX_STRATA];
        free(ordered);
    }
    size_t filled = 0;
    floor->sorted = xcalloc(n, sizeof *floor->sorted);
    for (int k = 0; k < floor->n_strata; k++) {
        bool last = k + 1 == floor->n_strata;
        for (size_t i = 0; i < n; i++)
            if (margin[i] >= floor->margin_from[k] &&
                (last || margin[i] < floor->margin_from[k + 1]))
                floor->sorted[filled++] = size[i];
        floor->stratum_start[k + 1] = filled;
        stat_sort(floor->sorted + floor->stratum_start[k], filled - floor->stratum_start[k]);
    }
    assert(filled == n);
}

void floor_from_pairs(struct floor *out, struct pairs *control, enum floor_kind kind,
                      enum floor_class cls, double ulp)
{
    float *size, *margin;
    pairs_close(control);
    size_t n = differing_rows(control, &size, &margin);
    *out = (struct floor){.kind = kind, .cls = cls, .n = n};
    if (n >= LEAST_ROWS)
        sort_strata(out, size, margin, n);
    if (n > 0) {
        out->n_seqs = differing_sequences(control);
        out->measured = 1.4826 * stat_median(size, n);
        settle(out, ulp);
    }
    if (!(out->scale > 0)) { /* bit-equal, or every other contrast is 0, off a grid */
        floor_fini(out);
        floor_from_prior(out, cls, ulp);
        out->zero = control->n > 0;
    }
    out->n_equal = control->n_equal;
    free(size);
    free(margin);
}

static int check_points(const struct floor_point *points, int n, struct err *err)
{
    if (n == 1)
        return err_set(err, "calibration: 1 point of the survival curve, at least 2 needed");
    for (int i = 0; i < n; i++)
        if (!(points[i].p >= 0 && points[i].p <= 1 && points[i].value >= 0) ||
            (i > 0 && !(points[i].p > points[i - 1].p && points[i].value >= points[i - 1].value)))
            return err_set(err, "calibration: point %d (p %g, value %g) is out of order or range",
                           i, points[i].p, points[i].value);
    if (n > 0 && (points[0].p != 0 || points[n - 1].p != 1))
        return err_set(err, "calibration: points from p %g to p %g, needed from 0 to 1",
                       points[0].p, points[n - 1].p);
    return 0;
}

/* Turn a curve back into rows: |y| at evenly spaced p, the largest included. */
static void sample_points(struct floor *floor, const struct floor_point *points, int n)
{
    size_t size = floor->n < MOST_SAMPLE ? floor->n : MOST_SAMPLE;
    int at = 0;
    floor->sorted = xcalloc(size, sizeof *floor->sorted);
    for (size_t i = 0; i < size; i++) {
        double p = size > 1 ? (double)i / (double)(size - 1) : 1;
        while (at + 2 < n && points[at + 1].p < p)
            at++;
        double share = (p - points[at].p) / (points[at + 1].p - points[at].p);
        floor->sorted[i] =
            (float)(points[at].value + share * (points[at + 1].value - points[at].value));
    }
    floor->n_strata = 1;
    floor->stratum_start[1] = size;
}

int floor_from_points(struct floor *out, enum floor_kind kind, enum floor_class cls, double scale,
                      size_t n_rows, size_t n_seqs, const struct floor_point *points, int n,
                      double ulp, struct err *err)
{
    if (!(scale >= 0) || !isfinite(scale))
        return err_set(err, "calibration: scale %g is not a size", scale);
    if (check_points(points, n, err))
        return -1;
    if (n_rows == 0 || scale == 0) {
        floor_from_prior(out, cls, ulp);
        out->zero = true;
        return 0;
    }
    *out =
        (struct floor){.kind = kind, .cls = cls, .measured = scale, .n = n_rows, .n_seqs = n_seqs};
    if (n > 0)
        sample_points(out, points, n);
    settle(out, ulp);
    return 0;
}

void floor_fini(struct floor *floor)
{
    free(floor->sorted);
    floor->sorted = NULL;
    floor->n_strata = 0;
}

int floor_points(const struct floor *floor, struct floor_point out[FLOOR_N_POINTS])
{
    size_t n = floor->n_strata ? floor->stratum_start[floor->n_strata] : 0;
    if (n == 0)
        return 0;
    float *all = xcalloc(n, sizeof *all);
    memcpy(all, floor->sorted, n * sizeof *all);
    stat_sort(all, n);
    enum { HALF = FLOOR_N_POINTS / 2 };
    const double turn = 0.9;
    double last = 1 / fmax((double)n, 11); /* the tail that one row stands for, below 1 - turn */
    for (int k = 0; k < FLOOR_N_POINTS; k++) {
        double p = turn * k / HALF;
        if (k > HALF)
            p = 1 - (1 - turn) * pow(last / (1 - turn), (double)(k - HALF) / (HALF - 1));
        if (k == FLOOR_N_POINTS - 1)
            p = 1;
        out[k].p = p;
        double at = p * (double)(n - 1);
        size_t below = (size_t)at;
        double share = at - (double)below;
        out[k].value = all[below];
        if (below + 1 < n)
            out[k].value += share * ((double)all[below + 1] - all[below]);
    }
    free(all);
    return FLOOR_N_POINTS;
}

/* How many of n ascending values are below x, or at most x. */
static size_t count_below(const float *sorted, size_t n, double x, bool at_most)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (sorted[mid] < x || (at_most && sorted[mid] == x))
            low = mid + 1;
        else
            high = mid;
    }
    return low;
}

static double survival(const struct floor *floor, double x, double margin, bool reach)
{
    if (x < 0)
        return 1;
    if (!floor->n_strata)
        return stat_t4_upper(x / (floor->kind == FLOOR_OTHER ? OTHER_KIND : 1), floor->scale);
    int k = floor->n_strata - 1;
    while (k > 0 && margin < floor->margin_from[k])
        k--;
    const float *sorted = floor->sorted + floor->stratum_start[k];
    size_t n = floor->stratum_start[k + 1] - floor->stratum_start[k];
    double y = (float)(x / floor->stretch), largest = sorted[n - 1];
    if (y > largest || (y == largest && !reach))
        return largest > 0 ? pow(largest / y, 4) / (2 * (double)n) : 0;
    return (double)(n - count_below(sorted, n, y, !reach)) / (double)n;
}

double floor_above(const struct floor *floor, double x, double margin)
{
    return survival(floor, x, margin, false);
}

double floor_reach(const struct floor *floor, double x, double margin)
{
    return survival(floor, x, margin, true);
}

double floor_flip(const struct floor *floor, double m, bool lower)
{
    return (lower && m > 0 ? floor_reach(floor, m, m) : floor_above(floor, m, m)) / 2;
}
