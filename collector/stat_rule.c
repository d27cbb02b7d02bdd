#include "config.h"

#include "collector/stat_rule.h"
#include "collector/stat_dist.h"
#include "collector/xalloc.h"

#include <math.h>

int stat_bin(double size)
{
    if (!(size > 0))
        return 0;
    int exponent;
    double fraction = frexp(size, &exponent); /* 1/2 ... 1 */
    int bin = (exponent - 1 - STAT_MIN_EXPONENT) * STAT_BINS_PER_OCTAVE +
              (int)((fraction * 2 - 1) * STAT_BINS_PER_OCTAVE);
    return bin < 0 ? 0 : bin >= STAT_N_BINS ? STAT_N_BINS - 1 : bin;
}

double stat_bin_edge(double bin)
{
    double octave = floor(bin / STAT_BINS_PER_OCTAVE);
    double part = bin / STAT_BINS_PER_OCTAVE - octave;
    return ldexp(1 + part, (int)octave + STAT_MIN_EXPONENT);
}

double stat_bin_median(const uint32_t *histogram, size_t n)
{
    double half = (double)n / 2, below = 0;
    for (int b = 0; b < STAT_N_BINS; b++) {
        if (histogram[b] && below + histogram[b] >= half)
            return b == 0 ? 0 : stat_bin_edge(b + (half - below) / histogram[b]);
        below += histogram[b];
    }
    return 0;
}

/* Fill score: the mean rank of the floor's rows in the bin, from -1/2 to 1/2, so that the mean over
 * the floor's own rows is 0. */
static void fill_score(struct stat_input *input)
{
    const struct floor *floor = &input->floor;
    size_t n = floor->n_strata ? floor->stratum_start[floor->n_strata] : 0;
    double below = 0, mass[STAT_N_BINS];
    memset(mass, 0, sizeof mass);
    for (size_t i = 0; i < n; i++)
        mass[stat_bin(floor->sorted[i] * floor->stretch)] += 1. / (double)n;
    for (int b = 0; b < STAT_N_BINS && !n; b++)
        mass[b] = stat_t4_upper(b ? stat_bin_edge(b) : 0, floor->scale) -
                  stat_t4_upper(stat_bin_edge(b + 1), floor->scale);
    for (int b = 0; b < STAT_N_BINS; b++) {
        input->score[b] = (float)(below + mass[b] / 2 - 0.5);
        below += mass[b];
    }
}

/* Scale and largest peak of the rows that are not bit-equal; the scale of those that did not flip
 * goes to *out_unflipped, and their number to *out_n: a flip is not tested against itself. */
static void measure(struct stat_input *input, double *out_unflipped, size_t *out_n)
{
    const struct pairs *test = input->test;
    float *sizes = xcalloc(test->n, sizeof *sizes);
    size_t n = 0;
    for (size_t i = 0; i < test->n; i++)
        if (!(test->flags[i] & (PAIR_EQUAL | PAIR_FLIPPED | PAIR_REPEAT)))
            sizes[n++] = fabsf(test->contrast[i]);
    *out_n = n;
    *out_unflipped = n ? 1.4826 * stat_median(sizes, n) : 0;
    input->n = input->n_contexts = 0;
    for (size_t i = 0; i < test->n; i++) {
        if (test->flags[i] & PAIR_EQUAL)
            continue;
        sizes[input->n++] = fabsf(test->contrast[i]);
        input->n_contexts += !(test->flags[i] & PAIR_REPEAT);
        input->largest = fmax(input->largest, test->peak[i]);
    }
    input->scale = input->n ? 1.4826 * stat_median(sizes, input->n) : 0;
    free(sizes);
}

/* Largest peak of the control, as the tested pair's kind sees it. */
static double largest_of_floor(const struct stat_input *input)
{
    const struct floor *floor = &input->floor;
    double largest = 0;
    if (!floor->n_strata)
        return NAN;
    for (int k = 0; k < floor->n_strata; k++)
        largest = fmax(largest, floor->sorted[floor->stratum_start[k + 1] - 1]);
    for (size_t i = 0; input->control && i < input->control->n; i++)
        if (!(input->control->flags[i] & PAIR_EQUAL))
            largest = fmax(largest, input->control->peak[i]);
    return largest * floor->stretch;
}

static double largest_sequence_scale(const struct pairs *control)
{
    enum { LEAST_ROWS = 8 };
    float *sizes = xcalloc(control->n, sizeof *sizes);
    double largest = 0;
    for (size_t s = 0; s < control->n_seqs; s++) {
        size_t n = 0;
        for (size_t i = control->seq_first[s]; i < pairs_seq_end(control, s); i++)
            if (!(control->flags[i] & PAIR_EQUAL))
                sizes[n++] = control->peak[i];
        if (n >= LEAST_ROWS)
            largest = fmax(largest, 1.4826 * stat_median(sizes, n));
    }
    free(sizes);
    return largest;
}

/* Join neighbouring sequences so that at most about STAT_MAX_UNITS units remain on either side: as
 * many sequences a unit in the test as in the control, or they could not be exchanged; but where
 * one side has few sequences, not so many that it has no units left. */
static void join_sequences(struct stat_input *input)
{
    enum { LEAST_UNITS = 32 };
    size_t n = input->test->n_seqs, m = input->control ? input->control->n_seqs : n;
    size_t most = n > m ? n : m, least = n < m ? n : m;
    size_t join = (most + STAT_MAX_UNITS - 1) / STAT_MAX_UNITS, allowed = least / LEAST_UNITS;
    input->per_unit = join < allowed ? join : allowed;
    if (!input->per_unit)
        input->per_unit = 1;
    input->n_units = (n + input->per_unit - 1) / input->per_unit;
    if (input->control)
        input->n_control_units = (m + input->per_unit - 1) / input->per_unit;
}

/* Sequences with a row that differs: a bit-equal one says nothing about the noise. */
static size_t differing_sequences(const struct pairs *pairs)
{
    size_t count = 0;
    for (size_t s = 0; s < pairs->n_seqs; s++) {
        size_t i = pairs->seq_first[s], end = pairs_seq_end(pairs, s);
        while (i < end && pairs->flags[i] & PAIR_EQUAL)
            i++;
        count += i < end;
    }
    return count;
}

/* The prior's scale is a guess about models of another size: the pair's own rows that did not flip
 * replace it between the prior and the limit above which the class calls a defect. Where there are
 * too few of them, every scale up to the limit is left to an honest pair. */
static void settle_prior(struct stat_input *input, double unflipped, size_t n_unflipped)
{
    enum { LEAST_ROWS = 20 };
    input->most_scale = input->floor.scale;
    if (input->floor.kind != FLOOR_PRIOR)
        return;
    input->most_scale = fmax(input->floor.scale, input->prior_limit);
    if (n_unflipped < LEAST_ROWS)
        return;
    input->floor.scale = fmax(input->floor.scale, fmin(unflipped, input->prior_limit));
    input->most_scale = input->floor.scale;
}

static float *flip_probabilities(const struct pairs *test, const struct floor *floor)
{
    float *q = xcalloc(test->n, sizeof *q);
    for (size_t i = 0; i < test->n; i++)
        if (!(test->flags[i] & PAIR_EQUAL))
            q[i] = (float)floor_flip(floor, test->margin[i], test->flags[i] & PAIR_LOWER);
    return q;
}

static void fill_q(struct stat_input *input)
{
    struct floor most = input->floor;
    most.scale = input->most_scale;
    input->q = input->q_most = flip_probabilities(input->test, &input->floor);
    if (most.scale != input->floor.scale)
        input->q_most = flip_probabilities(input->test, &most);
}

void stat_input_init(struct stat_input *input, struct pairs *test,
                     const struct verdict_options *options, double ulp)
{
    double unflipped;
    size_t n_unflipped;
    struct floor prior;
    floor_from_prior(&prior, options->cls, ulp);
    *input = (struct stat_input){
        .test = test,
        .control = options->floor->zero ? NULL : options->control,
        .floor = *options->floor,
        .cls = options->cls,
        .prior_scale = prior.scale,
        .prior_limit = floor_limit(options->cls, ulp),
        .chunk = options->chunk,
        .seed = options->seed,
    };
    measure(input, &unflipped, &n_unflipped);
    input->scale = input->n ? fmax(input->scale, 0.58 * ulp) : 0;
    settle_prior(input, unflipped, n_unflipped);
    input->floor_largest = largest_of_floor(input);
    input->strict = input->floor.kind == FLOOR_SAME && differing_sequences(test) >= STAT_MIN_SEQS &&
                    (!input->control || differing_sequences(input->control) >= STAT_MIN_SEQS);
    input->loose_scale = input->floor.scale;
    if (input->strict && input->control)
        input->loose_scale = fmax(input->floor.scale, largest_sequence_scale(input->control));
    join_sequences(input);
    fill_q(input);
    fill_score(input);
}

void stat_input_fini(struct stat_input *input)
{
    if (input->q_most != input->q)
        free(input->q_most);
    free(input->q);
    input->q = input->q_most = NULL;
}
