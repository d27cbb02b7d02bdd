/* The tag test: the rows that each recorded tag names, against the floor. The same figures, tag by
 * tag, are what `blame` ranks. */
#include "config.h"

#include "collector/stat_dist.h"
#include "collector/stat_group.h"
#include "collector/stat_rule.h"
#include "collector/xalloc.h"

#include <math.h>

enum {
    LEAST_ROWS = 3,         /* of a group that is looked at */
    LEAST_CONTROL_ROWS = 20 /* of the same group in the control, to be compared with that */
};

static const double STRICT_RATIO = 1.5;
/* The affected rows must stand out from the rest: else the whole pair is affected, and the scale
 * test says so. */
static const double LOCAL_RATIO = 1.5;
/* And not by luck: one of 300 groups of clean rows reaches this z in one run of a hundred. Where
 * all other rows are bit-equal the group is another path, however few these are. */
static const double LOCAL_Z = 4;

/* Rows by atom while they are read, by group afterwards; one more entry for all rows. */
struct table {
    size_t n_sets, n_units;
    struct stat_unit *units;   /* (n_sets + 1, n_units) */
    uint32_t *histogram;       /* (n_sets + 1, STAT_N_BINS) of rows that differ */
    size_t *n_all, *n, *flips; /* (n_sets + 1) all rows, rows that differ, flips */
    size_t *n_seqs;            /* (n_sets + 1) units with rows that differ; groups only */
};

static void table_init(struct table *table, int n_sets, size_t n_units)
{
    size_t n = (size_t)n_sets + 1;
    *table = (struct table){
        .n_sets = (size_t)n_sets,
        .n_units = n_units,
        .units = xcalloc(n * n_units, sizeof *table->units),
        .histogram = xcalloc(n * STAT_N_BINS, sizeof *table->histogram),
        .n_all = xcalloc(n, sizeof *table->n_all),
        .n = xcalloc(n, sizeof *table->n),
        .flips = xcalloc(n, sizeof *table->flips),
        .n_seqs = xcalloc(n, sizeof *table->n_seqs),
    };
}

static void table_fini(struct table *table)
{
    free(table->units);
    free(table->histogram);
    free(table->n_all);
    free(table->n);
    free(table->flips);
    free(table->n_seqs);
}

static void table_add(struct table *table, size_t atom, size_t unit, int bin, float score,
                      bool flip)
{
    struct stat_unit *at = &table->units[atom * table->n_units + unit];
    at->sum += score;
    at->n++;
    table->histogram[atom * STAT_N_BINS + (size_t)bin]++;
    table->n[atom]++;
    table->flips[atom] += flip;
}

/* Add one set of a table to one of another. */
static void table_join(struct table *to, size_t g, const struct table *from, size_t atom)
{
    for (size_t u = 0; u < to->n_units; u++) {
        to->units[g * to->n_units + u].sum += from->units[atom * from->n_units + u].sum;
        to->units[g * to->n_units + u].n += from->units[atom * from->n_units + u].n;
    }
    for (size_t b = 0; b < STAT_N_BINS; b++)
        to->histogram[g * STAT_N_BINS + b] += from->histogram[atom * STAT_N_BINS + b];
    to->n_all[g] += from->n_all[atom];
    to->n[g] += from->n[atom];
    to->flips[g] += from->flips[atom];
}

static void read_atoms(struct table *atoms, struct groups *groups, const struct stat_input *input,
                       const struct pairs *pairs, size_t per_unit)
{
    groups_bind(groups, pairs);
    for (size_t i = 0; i < pairs->n; i++) {
        const int *in;
        int n_in = groups_of_row(groups, i, &in);
        bool flip = pairs->flags[i] & PAIR_FLIPPED;
        size_t unit = pairs->seq[i] / per_unit;
        int bin = stat_bin(pairs->peak[i]);
        atoms->n_all[atoms->n_sets]++;
        for (int k = 0; k < n_in; k++)
            atoms->n_all[in[k]]++;
        if (pairs->flags[i] & PAIR_EQUAL)
            continue;
        for (int k = 0; k < n_in; k++)
            table_add(atoms, (size_t)in[k], unit, bin, input->score[bin], flip);
        table_add(atoms, atoms->n_sets, unit, bin, input->score[bin], flip);
    }
}

static void table_fill(struct table *table, struct groups *groups, const struct stat_input *input,
                       const struct pairs *pairs, size_t per_unit)
{
    struct table atoms;
    table_init(&atoms, groups_n_atoms(groups), table->n_units);
    read_atoms(&atoms, groups, input, pairs, per_unit);
    for (size_t g = 0; g < table->n_sets; g++) {
        const struct group *group = groups_at(groups, (int)g);
        for (int k = 0; k < group->n_atoms; k++)
            if (atoms.n_all[group->atoms[k]])
                table_join(table, g, &atoms, (size_t)group->atoms[k]);
    }
    table_join(table, table->n_sets, &atoms, atoms.n_sets);
    for (size_t g = 0; g <= table->n_sets; g++)
        for (size_t u = 0; u < table->n_units; u++)
            table->n_seqs[g] += table->units[g * table->n_units + u].n > 0;
    table_fini(&atoms);
}

static double table_scale(const struct table *table, size_t g, size_t n, const uint32_t *minus)
{
    const uint32_t *histogram = &table->histogram[g * STAT_N_BINS];
    if (!minus)
        return 1.4826 * stat_bin_median(histogram, n);
    uint32_t rest[STAT_N_BINS];
    for (int b = 0; b < STAT_N_BINS; b++)
        rest[b] = histogram[b] - minus[b];
    return 1.4826 * stat_bin_median(rest, n);
}

/* Where a group's contrasts rank among all rows, from 0 to 1, bit-equal ones being the smallest,
 * and the variance of that mean for rows ranked at random (Mann and Whitney). */
static double mean_rank(const struct table *table, size_t g, double *out_variance)
{
    size_t all = table->n_sets;
    double n_all = (double)table->n_all[all], n_in = (double)table->n_all[g];
    const uint32_t *in = &table->histogram[g * STAT_N_BINS];
    const uint32_t *total = &table->histogram[all * STAT_N_BINS];
    double n_equal = n_all - (double)table->n[all], below = n_equal;
    double ranks = (n_in - (double)table->n[g]) * n_equal / 2;
    for (int b = 0; b < STAT_N_BINS; b++) {
        ranks += in[b] * (below + total[b] / 2.);
        below += total[b];
    }
    *out_variance = (n_all - n_in) / (12 * n_in * n_all);
    return ranks / n_in / n_all;
}

/* How much better a group parts large contrasts from small ones than it does in the control, or
 * than chance, in standard errors: honest noise too grows with the position. */
static double separation(const struct table *test, const struct table *control, size_t g,
                         bool in_control)
{
    double variance, control_variance = 0, rank = mean_rank(test, g, &variance), base = 0.5;
    if (in_control)
        base = mean_rank(control, g, &control_variance);
    return variance + control_variance > 0 ? (rank - base) / sqrt(variance + control_variance) : 0;
}

/* One group's figures; the effect is the ratio. */
struct candidate {
    int group;
    bool strict;      /* p comes from permutations */
    bool own_control; /* the same group of the control stands against it */
    bool founded;     /* with a strict control: as above, or many sequences have rows outside */
    bool stands_out;  /* beyond the limit and apart from the other rows */
    double separation;
    struct verdict_tag tag;
};

/* Whether the control has enough rows of the group to be compared with, and others too. */
static bool control_has(const struct stat_input *input, const struct table *control, size_t g)
{
    size_t all = control->n_sets;
    return input->strict && input->control && control->n[g] >= LEAST_CONTROL_ROWS &&
           control->n_seqs[g] >= STAT_MIN_SEQS &&
           control->n[all] - control->n[g] >= LEAST_CONTROL_ROWS;
}

/* The largest ratio that an honest pair may have. */
static double ratio_limit(const struct stat_input *input, const struct candidate *candidate)
{
    if (candidate->strict)
        return STRICT_RATIO;
    return STAT_LOOSE_RATIO * input->loose_scale / input->floor.scale;
}

static bool stands_out(const struct stat_input *input, const struct candidate *candidate)
{
    const struct verdict_tag *tag = &candidate->tag;
    return tag->ratio > ratio_limit(input, candidate) &&
           tag->ratio > LOCAL_RATIO * tag->ratio_rest &&
           (candidate->separation > LOCAL_Z || tag->n_rest == 0);
}

/* Sequences with rows outside the group that differ. */
static size_t n_seqs_outside(const struct table *table, size_t g)
{
    const struct stat_unit *all = &table->units[table->n_sets * table->n_units];
    const struct stat_unit *in = &table->units[g * table->n_units];
    size_t n = 0;
    for (size_t u = 0; u < table->n_units; u++)
        n += all[u].n > in[u].n;
    return n;
}

/* How well a group fits the fault: how well it parts the rows, and where it stands out times what
 * its own rows are worse by. A set that holds the bad rows and as many clean ones parts them nearly
 * as well as the bad rows alone, but its scale is half theirs. Of many groups of one kind one parts
 * the rows well by luck: the square of a standard score is less by twice the logarithm of their
 * number, so that one position of 32 is named before one of 64 that holds half of its rows. */
static double fit(const struct candidate *candidate, const struct group *group)
{
    const struct verdict_tag *tag = &candidate->tag;
    double z = candidate->separation;
    if (!candidate->stands_out)
        return z;
    return sqrt(fmax(0, z * z - 2 * log(group->n_kin))) *
           log(tag->ratio / fmax(1, tag->ratio_rest));
}

static void fill_candidate(const struct stat_input *input, const struct table *test,
                           const struct table *control, const struct groups *groups, int g,
                           struct candidate *out)
{
    size_t all = test->n_sets, at = (size_t)g;
    const struct group *group = groups_at(groups, g);
    const uint32_t *in_test = &test->histogram[at * STAT_N_BINS];
    const uint32_t *in_control = &control->histogram[at * STAT_N_BINS];
    struct verdict_tag *tag = &out->tag;
    bool own = control_has(input, control, at);
    double floor = input->floor.scale, rest = floor;
    *out = (struct candidate){.group = g, .own_control = own};
    out->founded = own || !input->strict || n_seqs_outside(test, at) >= STAT_MIN_SEQS;
    group_name(group, tag->name, sizeof tag->name);
    tag->field = group->field;
    tag->side = group->side;
    tag->value = group->value;
    tag->n = test->n[at];
    tag->n_rest = test->n[all] - tag->n;
    tag->n_seqs = test->n_seqs[at];
    tag->flips = test->flips[at];
    tag->flips_rest = test->flips[all] - tag->flips;
    tag->scale = table_scale(test, at, tag->n, NULL);
    tag->scale_rest = table_scale(test, all, tag->n_rest, in_test);
    if (own) {
        size_t n_rest = control->n[all] - control->n[at];
        floor = fmax(floor / 8, table_scale(control, at, control->n[at], NULL));
        rest = fmax(rest / 8, table_scale(control, all, n_rest, in_control));
    }
    tag->ratio = tag->scale / floor;
    tag->ratio_rest = tag->scale_rest / rest;
    tag->p = tag->p_adjusted = NAN;
    out->separation = separation(test, control, at, own);
    out->strict = input->strict && tag->n_seqs >= STAT_MIN_SEQS;
    out->stands_out = stands_out(input, out);
    tag->fit = fit(out, group);
}

/* Units of the strict groups, the control's behind the test's: the same group's where the control
 * has it, else all its rows. */
static struct stat_unit *strict_units(const struct stat_input *input, const struct table *test,
                                      const struct table *control, const struct candidate *list,
                                      int n, int all, int *out_n)
{
    size_t n_test = test->n_units, n_control = input->control ? control->n_units : 0;
    struct stat_unit *units = xcalloc((size_t)n * (n_test + n_control), sizeof *units);
    *out_n = 0;
    for (int c = 0; c < n; c++) {
        if (!list[c].strict)
            continue;
        struct stat_unit *to = units + (size_t)(*out_n)++ * (n_test + n_control);
        size_t g = (size_t)list[c].group, h = list[c].own_control ? g : (size_t)all;
        memcpy(to, test->units + g * n_test, n_test * sizeof *to);
        if (n_control)
            memcpy(to + n_test, control->units + h * n_control, n_control * sizeof *to);
    }
    return units;
}

/* Permutation p of the strict groups: its own into tag.p, the familywise one into p_adjusted. */
static void strict_p(const struct stat_input *input, const struct table *test,
                     const struct table *control, struct candidate *list, int n, int all)
{
    bool any = false;
    int n_strict, k = 0;
    for (int c = 0; c < n; c++)
        any |= list[c].stands_out && list[c].strict;
    if (!any)
        return;
    struct stat_unit *units = strict_units(input, test, control, list, n, all, &n_strict);
    struct stat_outcome *outcomes = xcalloc((size_t)n_strict, sizeof *outcomes);
    if (input->control)
        stat_permute_groups(units, n_strict, test->n_units, control->n_units, 0, input->seed,
                            outcomes);
    else
        stat_flip_groups(units, n_strict, test->n_units, 0, input->seed, outcomes);
    for (int c = 0; c < n; c++)
        if (list[c].strict) {
            list[c].tag.p = outcomes[k].p;
            list[c].tag.p_adjusted = outcomes[k++].p_max;
        }
    free(outcomes);
    free(units);
}

/* Without a strict control: P(the group's median is this large) at the largest scale that is left
 * to an honest pair; Bonferroni over the groups. */
static void loose_p(const struct stat_input *input, struct candidate *list, int n)
{
    int n_loose = 0;
    for (int c = 0; c < n; c++)
        n_loose += !list[c].strict;
    for (int c = 0; c < n; c++) {
        struct verdict_tag *tag = &list[c].tag;
        if (list[c].strict)
            continue;
        double p = stat_t4_upper(tag->scale / 1.4826, STAT_LOOSE_RATIO * input->loose_scale);
        tag->p = stat_binomial_upper((tag->n + 1) / 2, tag->n, p);
        tag->p_adjusted = fmin(1, tag->p * n_loose);
    }
}

/* Strongest first: those that stand out, then the others. A group that only a few sequences have
 * rows outside of comes behind: what sets it apart may be these sequences. */
static int compare_candidates(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->stands_out != y->stands_out)
        return y->stands_out - x->stands_out;
    if (x->stands_out && x->founded != y->founded)
        return y->founded - x->founded;
    if (x->tag.fit != y->tag.fit)
        return (x->tag.fit < y->tag.fit) - (x->tag.fit > y->tag.fit);
    return x->group - y->group;
}

static int list_candidates(const struct stat_input *input, const struct table *test,
                           const struct table *control, const struct groups *groups,
                           struct candidate *list)
{
    int n = 0, n_groups = groups_count(groups);
    for (int g = 0; g < n_groups; g++)
        if (test->n[g] >= LEAST_ROWS && test->n_all[g] < test->n_all[n_groups])
            fill_candidate(input, test, control, groups, g, &list[n++]);
    return n;
}

/* Strict and loose groups are two families; the strict ones, whose p cannot become very small, get
 * most of the level. */
static void share_level(struct candidate *list, int n)
{
    static const double strict_share = 0.8;
    bool strict = false, loose = false;
    for (int c = 0; c < n; c++) {
        strict |= list[c].strict;
        loose |= !list[c].strict;
    }
    for (int c = 0; c < n && strict && loose; c++)
        list[c].tag.p_adjusted /= list[c].strict ? strict_share : 1 - strict_share;
}

/* The strongest candidate that stands out and whose own familywise p rejects; where none does, the
 * one with the smallest; -1: none stands out. The smallest p is the test's. The list comes
 * strongest first. */
static int find_best(const struct candidate *list, int n, double *out_p)
{
    static const double level = 0.01;
    int best = -1;
    *out_p = 1;
    for (int c = 0; c < n; c++) {
        double p = list[c].tag.p_adjusted;
        if (!list[c].stands_out)
            continue;
        if (best < 0 || (p < *out_p && !(list[best].tag.p_adjusted < level)))
            best = c;
        *out_p = fmin(*out_p, p);
    }
    return best;
}

/* Settle the test: the best candidate gives the effect, and comes first. */
static void settle(const struct stat_input *input, struct candidate *list, int n,
                   struct verdict_test *out)
{
    share_level(list, n);
    int best = find_best(list, n, &out->p);
    if (best > 0) {
        struct candidate first = list[best];
        memmove(list + 1, list, (size_t)best * sizeof *list);
        list[0] = first;
    }
    out->applies = n > 0;
    out->effect = n ? list[0].tag.ratio : 0;
    out->limit = n ? ratio_limit(input, &list[0]) : NAN;
    if (best < 0)
        snprintf(out->detail, sizeof out->detail, "%d tags, none stands out", n);
    else
        snprintf(out->detail, sizeof out->detail, "%s: %.3g times the floor, the rest %.3g",
                 list[0].tag.name, list[0].tag.ratio, list[0].tag.ratio_rest);
}

/* Benjamini and Hochberg's p for the listing, and which tags reject by it. */
static void adjust_listing(struct candidate *list, int n)
{
    double *p = xcalloc((size_t)n, sizeof *p), *adjusted = xcalloc((size_t)n, sizeof *adjusted);
    for (int c = 0; c < n; c++)
        p[c] = list[c].tag.p;
    stat_benjamini_hochberg(p, adjusted, n);
    for (int c = 0; c < n; c++) {
        list[c].tag.p_adjusted = adjusted[c];
        list[c].tag.rejects = list[c].stands_out && adjusted[c] < 0.05;
    }
    free(p);
    free(adjusted);
}

void stat_test_tag(const struct stat_input *input, struct verdict_test *out,
                   struct verdict_tag **out_tags, size_t *out_n)
{
    struct groups *groups = groups_new(input->test, input->chunk);
    int n_groups = groups_count(groups);
    struct table test, control;
    struct candidate *list = xcalloc((size_t)n_groups, sizeof *list);
    *out = (struct verdict_test){.statistic = NAN, .share = NAN, .limit = NAN, .p = NAN};
    table_init(&test, n_groups, input->n_units);
    table_init(&control, n_groups, input->control ? input->n_control_units : 1);
    table_fill(&test, groups, input, input->test, input->per_unit);
    if (input->control)
        table_fill(&control, groups, input, input->control, input->per_unit);
    int n = list_candidates(input, &test, &control, groups, list);
    strict_p(input, &test, &control, list, n, n_groups);
    loose_p(input, list, n);
    qsort(list, (size_t)n, sizeof *list, compare_candidates);
    settle(input, list, n, out);
    adjust_listing(list, n);
    *out_tags = xcalloc((size_t)n, sizeof **out_tags);
    *out_n = (size_t)n;
    for (int c = 0; c < n; c++)
        (*out_tags)[c] = list[c].tag;
    free(list);
    table_fini(&test);
    table_fini(&control);
    groups_free(groups);
}
