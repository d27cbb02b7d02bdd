/* Tests on the sign of contrasts: a common shift, a slope against the margin (temperature, scale,
 * softcap), an id that is always moved the same way. */
#include "config.h"

#include "collector/stat_dist.h"
#include "collector/stat_rule.h"
#include "collector/xalloc.h"

#include <math.h>

/* Large noise has a mean of its own: where margins grow rarer, the base arm's choice is more often
 * a lucky one, and its gap shrinks by about s^2 / 2 times the decay of their density. A shift or
 * slope that explains less than this share of the contrasts' squares is left to that. */
static const double LEAST_SHARE = 0.02;

/* A masked runner-up has no margin to speak of. */
static const float LARGEST_MARGIN = 1e3f;

/* One row's contribution to a regression through the origin: sum / n is the slope. scale is the
 * pair's own. */
typedef struct stat_unit (*row_fn)(double x, double margin, double scale);

static struct stat_unit sign_row(double x, double margin, double scale)
{
    if (margin <= 3 * scale)
        return (struct stat_unit){0, 0};
    return (struct stat_unit){x / scale, 1};
}

static struct stat_unit slope_row(double x, double margin, double scale)
{
    (void)scale;
    return (struct stat_unit){-x * margin, margin * margin};
}

/* One pair's rows, summed by unit. */
struct regression {
    double slope; /* over all units */
    double share; /* of the contrasts' squares that it explains */
};

/* Contrasts are cut at 5 s of the pair's own, so that no single row decides. */
static struct regression regress(const struct pairs *pairs, double scale, row_fn fn,
                                 size_t per_unit, struct stat_unit *units)
{
    double cut = 5 * scale, sum = 0, weight = 0, squares = 0;
    for (size_t i = 0; i < pairs->n; i++) {
        if (pairs->flags[i] & PAIR_EQUAL || pairs->margin[i] > LARGEST_MARGIN)
            continue;
        double x = fmax(-cut, fmin(cut, pairs->contrast[i]));
        struct stat_unit row = fn(x, pairs->margin[i], scale);
        struct stat_unit *unit = &units[pairs->seq[i] / per_unit];
        unit->sum += row.sum;
        unit->n += row.n;
        sum += row.sum;
        weight += row.n;
        if (row.n > 0)
            squares += row.sum * row.sum / row.n;
    }
    return (struct regression){weight > 0 ? sum / weight : 0,
                               squares > 0 ? sum * sum / weight / squares : 0};
}

/* Run one of the two: against the control where it is of the same kind and at hand (an honest pair
 * may have a shift of its own), else against 0. out->limit is the effect that counts as 1. */
static void test_regression(const struct stat_input *input, row_fn fn, struct verdict_test *out,
                            double *out_own, double *out_control)
{
    bool paired = input->strict && input->control;
    size_t n_control = paired ? input->n_control_units : 0;
    struct stat_unit *units = xcalloc(input->n_units + n_control, sizeof *units);
    struct regression own = regress(input->test, input->scale, fn, input->per_unit, units);
    struct regression control = {0, 0};
    struct stat_outcome outcome = {0, 1, 1};
    if (paired)
        control = regress(input->control, input->floor.measured, fn, input->per_unit,
                          units + input->n_units);
    for (size_t i = 0; i < input->n_units + n_control; i++)
        units[i].sum /= out->limit;
    out->applies = true;
    out->effect = fabs(own.slope - control.slope);
    bool beyond = out->effect > out->limit && own.share > LEAST_SHARE;
    if (beyond && paired)
        stat_permute_groups(units, 1, input->n_units, n_control, 1, input->seed, &outcome);
    else if (beyond)
        stat_flip_groups(units, 1, input->n_units, 1, input->seed, &outcome);
    free(units);
    out->statistic = outcome.t;
    out->share = own.share;
    out->p = outcome.p;
    *out_own = own.slope;
    *out_control = control.slope;
}

/* Fewer sequences than can convict. */
static bool too_few(const struct stat_input *input, struct verdict_test *out)
{
    if (input->n_units >= STAT_MIN_SEQS && input->n > 0)
        return false;
    snprintf(out->detail, sizeof out->detail, "%zu sequences, %d needed", input->n_units,
             STAT_MIN_SEQS);
    return true;
}

void stat_test_sign(const struct stat_input *input, struct verdict_test *out)
{
    double own, control;
    *out = (struct verdict_test){.statistic = NAN, .share = NAN, .limit = 0.2, .p = NAN};
    if (too_few(input, out))
        return;
    test_regression(input, sign_row, out, &own, &control);
    snprintf(out->detail, sizeof out->detail,
             "mean contrast %+.3g s where the margin is over 3 s, control's %+.3g s", own, control);
}

void stat_test_slope(const struct stat_input *input, struct verdict_test *out)
{
    double own, control;
    *out = (struct verdict_test){.statistic = NAN, .share = NAN, .limit = 0.002, .p = NAN};
    if (too_few(input, out))
        return;
    test_regression(input, slope_row, out, &own, &control);
    snprintf(out->detail, sizeof out->detail, "gaps shrink by %.3g %%, control's by %.3g %%",
             100 * own, 100 * control);
}

/* One id over its sequences. */
struct id_mean {
    int32_t token;
    size_t n;
    double mean, variance; /* of the mean */
};

static int compare_id(const void *a, const void *b)
{
    int32_t x = ((const struct id_mean *)a)->token, y = ((const struct id_mean *)b)->token;
    return (x > y) - (x < y);
}

/* The ids that stand in enough sequences, ascending; the caller frees. */
static struct id_mean *id_means(const struct pairs *pairs, size_t *out_n)
{
    struct id_mean *means = xcalloc(pairs->ids.n_used, sizeof *means);
    *out_n = 0;
    for (size_t i = 0; i < pairs->ids.n_slots; i++) {
        const struct pair_token *id = &pairs->ids.slots[i];
        if (id->n < STAT_MIN_SEQS)
            continue;
        double n = id->n, mean = id->sum / n, squares = fmax(0, id->squares - n * mean * mean);
        means[(*out_n)++] = (struct id_mean){id->token, id->n, mean, squares / n / (n - 1)};
    }
    qsort(means, *out_n, sizeof *means, compare_id);
    return means;
}

/* The control's mean of an id, 0 with a variance of 0 where it has none. */
static struct id_mean find_mean(const struct id_mean *means, size_t n, int32_t token)
{
    size_t low = 0, high = n;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (means[mid].token < token)
            low = mid + 1;
        else
            high = mid;
    }
    return low < n && means[low].token == token ? means[low] : (struct id_mean){token, 0, 0, 0};
}

/* Typical variance of an id's mean within one sequence; 0 without ids. */
static double typical_variance(const struct id_mean *means, size_t n)
{
    float *variances = xcalloc(n, sizeof *variances);
    for (size_t i = 0; i < n; i++)
        variances[i] = (float)(means[i].variance * (double)means[i].n);
    double typical = n ? stat_median(variances, n) : 0;
    free(variances);
    return typical;
}

/* P value of an id over its sequences: Student with a variance that borrows from the other ids
 * (Smyth 2004), as if PRIOR_SEQS more sequences had shown the typical one. Signs of 8 to 20
 * sequences can be flipped in too few ways to tell one id among hundreds; and without the typical
 * variance the ids whose few means agree by luck, on a grid exactly, would seem certain. */
static double id_p(const struct id_mean *test, const struct id_mean *control, double typical)
{
    static const double prior_seqs = 4;
    double n = (double)test->n, own = test->variance * n;
    double pooled = (prior_seqs * typical + (n - 1) * own) / (prior_seqs + n - 1);
    double error = sqrt(pooled / n + control->variance);
    double difference = test->mean - control->mean;
    return error > 0 ? stat_student_two_sided(difference / error, prior_seqs + n - 1) : 1;
}

void stat_test_id(const struct stat_input *input, struct verdict_test *out)
{
    size_t n, n_control = 0, best = 0;
    double best_p = 1;
    *out = (struct verdict_test){.statistic = NAN, .share = NAN, .limit = 0.5, .p = NAN};
    if (too_few(input, out))
        return;
    struct id_mean *means = id_means(input->test, &n), *control = NULL;
    if (input->strict && input->control)
        control = id_means(input->control, &n_control);
    double typical = typical_variance(means, n);
    for (size_t i = 0; i < n; i++) {
        struct id_mean base = find_mean(control, n_control, means[i].token);
        double effect = fabs(means[i].mean - base.mean) / input->scale;
        double p = effect > out->limit ? id_p(&means[i], &base, typical) : 1;
        if (p < best_p) {
            best_p = p;
            best = i;
            out->effect = effect;
        }
    }
    out->applies = n > 0;
    out->p = n > 0 ? fmin(1, best_p * (double)n) : NAN; /* Bonferroni */
    if (best_p < 1)
        snprintf(out->detail, sizeof out->detail, "id %d moved by %+.3g in %zu sequences",
                 means[best].token, means[best].mean, means[best].n);
    else
        snprintf(out->detail, sizeof out->detail, "%zu ids in %d sequences or more, none moved", n,
                 STAT_MIN_SEQS);
    free(means);
    free(control);
}
