/* Tests on the size of contrasts: the scale of all rows, the largest, and how many lie beyond the
 * control's largest. */
#include "config.h"

#include "collector/stat_dist.h"
#include "collector/stat_rule.h"
#include "collector/xalloc.h"

#include <math.h>

static const double STRICT_RATIO = 1.5;
/* A stored calibration does not say how its sequences spread. */
static const double STORED_RATIO = 2;

/* Add the scores of the rows that are not bit-equal to their units. */
static void add_scores(const struct stat_input *input, const struct pairs *pairs, size_t per_unit,
                       struct stat_unit *units)
{
    for (size_t i = 0; i < pairs->n; i++) {
        if (pairs->flags[i] & PAIR_EQUAL)
            continue;
        struct stat_unit *unit = &units[pairs->seq[i] / per_unit];
        unit->sum += input->score[stat_bin(pairs->peak[i])];
        unit->n++;
    }
}

static double scale_p(const struct stat_input *input)
{
    struct stat_outcome outcome;
    size_t n_control = input->control ? input->n_control_units : 0;
    struct stat_unit *units = xcalloc(input->n_units + n_control, sizeof *units);
    add_scores(input, input->test, input->per_unit, units);
    if (input->control) {
        add_scores(input, input->control, input->per_unit, units + input->n_units);
        stat_permute_groups(units, 1, input->n_units, n_control, 0, input->seed, &outcome);
    } else {
        stat_flip_groups(units, 1, input->n_units, 0, input->seed, &outcome);
    }
    free(units);
    return outcome.p;
}

/* P(the median of n rows is at least this large) where the scale is the largest that is left to an
 * honest pair. */
static double limit_p(const struct stat_input *input, double limit_scale)
{
    double p_row = stat_t4_upper(input->scale / 1.4826, limit_scale);
    return stat_binomial_upper((input->n_contexts + 1) / 2, input->n_contexts, p_row);
}

void stat_test_scale(const struct stat_input *input, struct verdict_test *out)
{
    bool prior = input->floor.kind == FLOOR_PRIOR;
    double base = prior ? input->prior_scale : input->floor.scale;
    double limit = input->strict ? input->control ? STRICT_RATIO : STORED_RATIO
                   : prior       ? input->prior_limit / base
                                 : STAT_LOOSE_RATIO;
    *out = (struct verdict_test){
        .statistic = NAN,
        .share = NAN,
        .applies = input->n > 0,
        .effect = base > 0 ? input->scale / base : INFINITY,
        .limit = limit,
        .p = 1,
    };
    if (out->applies && out->effect > out->limit)
        out->p = input->strict ? scale_p(input) : limit_p(input, limit * base);
    snprintf(out->detail, sizeof out->detail, "scale %.4g over %zu rows, %s %.4g", input->scale,
             input->n, prior ? "prior" : "floor", base);
}

void stat_test_max(const struct stat_input *input, struct verdict_test *out)
{
    *out = (struct verdict_test){
        .statistic = NAN, .share = NAN, .applies = input->n > 0, .limit = NAN, .p = NAN};
    if (!out->applies)
        return;
    if (input->floor.n_strata) {
        double largest = input->floor_largest, n = (double)input->n;
        out->effect = largest > 0 ? input->largest / largest : INFINITY;
        out->p = n / (n + (double)input->floor.n * pow(out->effect, 4));
        snprintf(out->detail, sizeof out->detail, "largest contrast %.4g, control's %.4g",
                 input->largest, largest);
        return;
    }
    struct floor most = input->floor;
    most.scale = input->most_scale;
    double one = floor_above(&most, input->largest, 0);
    out->effect = input->largest / input->floor.scale;
    out->p = -expm1((double)input->n * log1p(-fmin(one, 1 - 1e-12)));
    snprintf(out->detail, sizeof out->detail, "largest contrast %.4g, scale %.4g", input->largest,
             input->floor.scale);
}

static void add_tops(const struct pairs *pairs, size_t per_unit, struct stat_top *tops)
{
    for (size_t i = 0; i < pairs->n; i++)
        if (!(pairs->flags[i] & PAIR_EQUAL))
            stat_top_add(&tops[pairs->seq[i] / per_unit], pairs->peak[i]);
}

void stat_test_exceed(const struct stat_input *input, struct verdict_test *out)
{
    enum { LEAST_ROWS = 8 };
    *out = (struct verdict_test){.statistic = NAN, .share = NAN, .limit = LEAST_ROWS - 1, .p = NAN};
    if (!input->strict || !input->control) {
        snprintf(out->detail, sizeof out->detail, "needs the rows of a control of the same kind");
        return;
    }
    struct stat_top *tops = xcalloc(input->n_units + input->n_control_units, sizeof *tops);
    add_tops(input->test, input->per_unit, tops);
    add_tops(input->control, input->per_unit, tops + input->n_units);
    size_t count =
        stat_permute_exceed(tops, input->n_units, input->n_control_units, input->seed, &out->p);
    free(tops);
    out->applies = true;
    out->effect = (double)count;
    snprintf(out->detail, sizeof out->detail, "%zu rows beyond the control's largest", count);
}
