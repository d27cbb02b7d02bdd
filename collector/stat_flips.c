/* Tests on flips alone: how many, and how wide the margin of the widest. */
#include "config.h"

#include "collector/stat_dist.h"
#include "collector/stat_rule.h"
#include "collector/xalloc.h"

#include <math.h>

/* A context whose margin is narrow flips again whenever it comes back: it counts once. */
static bool is_flip(const struct pairs *pairs, size_t i)
{
    return (pairs->flags[i] & (PAIR_FLIPPED | PAIR_REPEAT)) == PAIR_FLIPPED;
}

static size_t count_flips(const struct pairs *pairs)
{
    size_t count = 0;
    for (size_t i = 0; i < pairs->n; i++)
        count += is_flip(pairs, i);
    return count;
}

/* q with 0 where a row repeats a context, to be freed; NULL: none does, and q is that already. */
static float *once_each(const struct pairs *pairs, const float *q)
{
    if (!pairs->n_repeats)
        return NULL;
    float *out = xcalloc(pairs->n, sizeof *out);
    for (size_t i = 0; i < pairs->n; i++)
        out[i] = pairs->flags[i] & PAIR_REPEAT ? 0 : q[i];
    return out;
}

/* Flips of the control and what its own floor expects of it. */
static void control_flips(const struct stat_input *input, size_t *out_flips, double *out_expected)
{
    const struct pairs *control = input->control;
    *out_flips = count_flips(control);
    *out_expected = 0;
    for (size_t i = 0; i < control->n; i++)
        if (!(control->flags[i] & (PAIR_EQUAL | PAIR_REPEAT)))
            *out_expected +=
                floor_flip(&input->floor, control->margin[i], control->flags[i] & PAIR_LOWER);
}

/* Per unit: flips minus expected flips, as score sums over expected flips. */
static void flip_units(const struct stat_input *input, const float *q, struct stat_unit *out)
{
    const struct pairs *test = input->test;
    for (size_t i = 0; i < test->n; i++) {
        struct stat_unit *unit = &out[test->seq[i] / input->per_unit];
        unit->sum += is_flip(test, i) - (double)q[i];
        unit->n += q[i];
    }
}

/* Sequences that share a scale flip together, more unevenly than independent rows: where there are
 * enough sequences the excess must also stand out from their spread. */
static double spread_p(const struct stat_input *input, const float *q)
{
    struct stat_unit *units = xcalloc(input->n_units, sizeof *units);
    struct stat_outcome outcome = {0, 1, 1};
    flip_units(input, q, units);
    stat_flip_groups(units, 1, input->n_units, 0, input->seed, &outcome);
    free(units);
    return outcome.p;
}

void stat_test_count(const struct stat_input *input, struct verdict_test *out)
{
    const struct pairs *test = input->test;
    size_t flips = count_flips(test);
    double expected = 0;
    float *own = once_each(test, input->q), *own_most = once_each(test, input->q_most);
    const float *q = own ? own : input->q, *q_most = own_most ? own_most : input->q_most;
    for (size_t i = 0; i < test->n; i++)
        expected += q[i];
    *out = (struct verdict_test){
        .statistic = NAN,
        .share = NAN,
        .applies = input->n > 0,
        .effect = expected > 0 ? (double)flips / expected
                  : flips      ? INFINITY
                               : 0,
        .limit = input->strict ? 1.25 : 2,
        .p = stat_poisson_binomial_upper(flips, q_most, test->n),
    };
    if (input->control && input->floor.kind == FLOOR_SAME) {
        /* The floor's own figure is an estimate: given the control's flips and the test's, the
         * test's are binomial. */
        size_t control_n;
        double control_expected;
        control_flips(input, &control_n, &control_expected);
        double share = expected / fmax(expected + control_expected, 1e-300);
        out->p = fmax(out->p, stat_binomial_upper(flips, flips + control_n, share));
    }
    if (out->p < 0.05 && input->n_units >= STAT_MIN_SEQS)
        out->p = fmax(out->p, spread_p(input, q));
    snprintf(out->detail, sizeof out->detail, "%zu flips, %.3g expected", flips, expected);
    free(own);
    free(own_most);
}

/* A tail is known worst where it matters here, and sequences that share a scale make it thicker
 * than one control shows: a flipped margin must also be this many times the control's largest
 * contrast. */
static const double WORST_RATIO = 2;

void stat_test_worst(const struct stat_input *input, struct verdict_test *out)
{
    const struct pairs *test = input->test;
    double widest = -1, expected = 0;
    size_t positions = 0;
    for (size_t i = 0; i < test->n; i++)
        if (is_flip(test, i))
            widest = fmax(widest, test->margin[i]);
    *out = (struct verdict_test){.statistic = NAN, .share = NAN, .limit = NAN, .p = NAN};
    if (widest < 0) {
        snprintf(out->detail, sizeof out->detail, "no flip");
        return;
    }
    for (size_t i = 0; i < test->n; i++)
        if (test->margin[i] >= widest && !(test->flags[i] & PAIR_REPEAT)) {
            expected += input->q_most[i];
            positions++;
        }
    bool rows = !isnan(input->floor_largest);
    out->applies = true;
    out->effect = widest / (rows ? input->floor_largest : input->most_scale);
    out->limit = rows ? WORST_RATIO : NAN;
    out->p = -expm1(-expected);
    snprintf(out->detail, sizeof out->detail,
             "widest flipped margin %.4g; %.3g flips expected in %zu positions as wide", widest,
             expected, positions);
}
