#include "config.h"

#include "collector/calibrated.h"
#include "collector/stat_dist.h"
#include "collector/stat_rule.h"
#include "collector/xalloc.h"

#include <math.h>

static const double LEVEL = 0.01;

const char *const verdict_names[VERDICT_N_CLASSES] = {
    [VERDICT_NOT_ENGAGED] = "NOT-ENGAGED",
    [VERDICT_NOT_COMPARABLE] = "NOT-COMPARABLE",
    [VERDICT_NONFINITE] = "NONFINITE",
    [VERDICT_SAMPLER_MISMATCH] = "SAMPLER-MISMATCH",
    [VERDICT_CONTRACT_VIOLATION] = "CONTRACT-VIOLATION",
    [VERDICT_SYSTEMATIC] = "SYSTEMATIC",
    [VERDICT_UNEXPLAINED] = "UNEXPLAINED",
    [VERDICT_EXACT_TIE] = "EXACT-TIE",
    [VERDICT_NEAR_TIE] = "NEAR-TIE",
    [VERDICT_EXPOSED] = "NEAR-TIE-EXPOSED",
    [VERDICT_STABLE] = "STABLE",
};

const char *const verdict_test_names[TEST_N] = {
    [TEST_TAG] = "tag",     [TEST_ID] = "id",       [TEST_SIGN] = "sign",
    [TEST_SLOPE] = "slope", [TEST_SCALE] = "scale", [TEST_WORST] = "worst",
    [TEST_COUNT] = "count", [TEST_MAX] = "max",     [TEST_EXCEED] = "exceed",
};

bool verdict_is_defect(enum verdict_class cls)
{
    return cls >= VERDICT_NONFINITE && cls <= VERDICT_UNEXPLAINED;
}

/* Name the grid that one side's logits lie on, and the unit in the last place of its best logits.
 * A narrow type shows in every logit; a step that is coarser than half precision, in the gaps
 * alone, as soon as three different ones are seen: any two numbers lie on the grid of their own
 * difference. */
static const char *find_grid(const struct pair_grid *grid, double *out_ulp)
{
    double ulp_bf16 = grid->n_rows ? grid->sum_ulp_bf16 / (double)grid->n_rows : 0;
    *out_ulp = 0;
    if (grid->n_logits < 2)
        return NULL;
    if (!grid->n_off_bf16) {
        *out_ulp = ulp_bf16;
        return "bf16";
    }
    if (!grid->n_off_f16) {
        *out_ulp = ulp_bf16 / 8; /* three more bits */
        return "f16";
    }
    if (grid->n_gaps >= 3 && grid->step >= pairs_ulp_f16(grid->max_abs)) {
        *out_ulp = grid->step;
        return "step";
    }
    return NULL;
}

/* The coarser grid decides: its rounding stands in every difference. */
double verdict_grid(const struct pairs *pairs)
{
    double a, b;
    find_grid(&pairs->grid[0], &a);
    find_grid(&pairs->grid[1], &b);
    return fmax(a, b);
}

/* Enough of a grid to call a margin of 0 a tie of the grid rather than a coincidence. */
static bool grid_established(const struct pair_grid *grid)
{
    double ulp;
    return grid->n_gaps >= 3 && find_grid(grid, &ulp) != NULL;
}

static void fill_counts(struct verdict *out, const struct pairs *test)
{
    size_t agree = test->n;
    out->n = test->n;
    out->n_seqs = test->n_seqs;
    out->n_equal = test->n_equal;
    out->n_refused = test->n_refused;
    out->n_flips = test->n_flips;
    for (size_t f = 0; f < test->n_flips; f++)
        agree -= !test->flips[f].emitted_only;
    out->agreement = test->n ? (double)agree / (double)test->n : NAN;
    out->agreement_low = 0;
    out->agreement_high = 1;
    if (test->n)
        stat_clopper_pearson(agree, test->n, 0.05, &out->agreement_low, &out->agreement_high);
    out->flip_rate_high = 1 - out->agreement_low;
    for (int side = 0; side < 2; side++)
        out->grid[side] = find_grid(&test->grid[side], &out->ulp[side]);
}

static void fill_sizes(struct verdict *out, const struct stat_input *input)
{
    const struct pairs *test = input->test;
    out->scale = input->scale;
    out->ratio = input->floor.scale > 0 ? input->scale / input->floor.scale : NAN;
    out->floor_scale = input->floor.scale;
    out->largest_contrast = input->largest;
    out->smallest_margin = INFINITY;
    for (size_t i = 0; i < test->n; i++) {
        out->expected += input->q[i];
        if (!(test->flags[i] & PAIR_EQUAL))
            out->smallest_margin = fmin(out->smallest_margin, test->margin[i]);
    }
    out->path_change = input->n > 0 && (input->floor.zero || test->n_equal > 0);
}

/* Rank of each flip's contrast among all rows, 1 the largest. */
static void rank_flips(struct verdict *out, const struct pairs *test)
{
    if (!out->n_flips)
        return;
    float *sorted = xcalloc(test->n, sizeof *sorted);
    memcpy(sorted, test->peak, test->n * sizeof *sorted);
    stat_sort(sorted, test->n);
    for (size_t f = 0; f < out->n_flips; f++) {
        float size = test->peak[out->flips[f].pair.row];
        size_t low = 0, high = test->n;
        while (low < high) {
            size_t mid = low + (high - low) / 2;
            if (sorted[mid] <= size)
                low = mid + 1;
            else
                high = mid;
        }
        out->flips[f].rank = test->n - low + 1;
    }
    free(sorted);
}

/* A flip's contrast in units of the last place: of the narrow type that the run's logits lie on,
 * or that the flip's own four lie on. */
static double flip_ulps(const struct pair_flip *flip, const struct verdict *verdict)
{
    const float logits[4] = {flip->a_i, flip->a_j, flip->b_i, flip->b_j};
    bool bf16 = true, f16 = true;
    double largest = 0;
    for (int k = 0; k < 4; k++) {
        if (!isfinite(logits[k]))
            return NAN;
        bf16 &= pairs_is_bf16(logits[k]);
        f16 &= pairs_is_f16(logits[k]);
        largest = fmax(largest, fabsf(logits[k]));
    }
    if (bf16)
        return flip->contrast / pairs_ulp_bf16(largest);
    if (f16)
        return flip->contrast / pairs_ulp_f16(largest);
    double step = fmax(verdict->ulp[0], verdict->ulp[1]);
    return step > 0 ? flip->contrast / step : NAN;
}

static void fill_flips(struct verdict *out, const struct stat_input *input)
{
    const struct pairs *test = input->test;
    out->flips = xcalloc(out->n_flips, sizeof *out->flips);
    for (size_t f = 0; f < out->n_flips; f++) {
        const struct pair_flip *pair = &test->flips[f];
        out->flips[f] = (struct verdict_flip){
            .pair = *pair,
            .z = pair->contrast / input->floor.scale,
            .z_margin = pair->margin_a / input->floor.scale,
            .q = input->q[pair->row],
            .ulps = flip_ulps(pair, out),
        };
    }
    rank_flips(out, test);
}

static void run_tests(struct verdict *out, const struct stat_input *input, double level)
{
    double p[TEST_N], adjusted[TEST_N];
    stat_test_tag(input, &out->tests[TEST_TAG], &out->tags, &out->n_tags);
    stat_test_id(input, &out->tests[TEST_ID]);
    stat_test_sign(input, &out->tests[TEST_SIGN]);
    stat_test_slope(input, &out->tests[TEST_SLOPE]);
    stat_test_scale(input, &out->tests[TEST_SCALE]);
    stat_test_worst(input, &out->tests[TEST_WORST]);
    stat_test_count(input, &out->tests[TEST_COUNT]);
    stat_test_max(input, &out->tests[TEST_MAX]);
    stat_test_exceed(input, &out->tests[TEST_EXCEED]);
    for (int t = 0; t < TEST_N; t++)
        p[t] = out->tests[t].applies ? out->tests[t].p : NAN;
    stat_holm(p, adjusted, TEST_N);
    for (int t = 0; t < TEST_N; t++) {
        struct verdict_test *test = &out->tests[t];
        test->p_adjusted = adjusted[t];
        test->rejects = test->applies && adjusted[t] < level &&
                        !(test->effect <= test->limit); /* a NAN limit asks for no effect */
    }
}

/* Sign and slope both answer to a change of temperature and to a common shift: the one that stands
 * out more from its standard error is named. */
static int stronger_shift(const struct verdict *verdict)
{
    const struct verdict_test *sign = &verdict->tests[TEST_SIGN];
    const struct verdict_test *slope = &verdict->tests[TEST_SLOPE];
    if (!sign->rejects && !slope->rejects)
        return -1;
    if (sign->rejects && slope->rejects)
        return fabs(slope->statistic) > fabs(sign->statistic) ? TEST_SLOPE : TEST_SIGN;
    return slope->rejects ? TEST_SLOPE : TEST_SIGN;
}

/* Whether a shift or slope explains most of what the scale has grown by. */
static bool explains_scale(const struct verdict *verdict, int shift)
{
    double grown = 1 - 1 / (verdict->ratio * verdict->ratio);
    return verdict->tests[shift].share > grown / 2;
}

/* Where the scale as a whole has grown, a tag is named only if it tells where: its other rows are
 * sound, or much better than its own. */
static bool tag_tells(const struct verdict *verdict)
{
    static const double much = 2;
    const struct verdict_tag *tag = &verdict->tags[0];
    return tag->ratio_rest <= verdict->tests[TEST_TAG].limit ||
           (tag->ratio > much * tag->ratio_rest && tag->scale > much * tag->scale_rest);
}

/* The test that says most about where a SYSTEMATIC difference sits; -1: none rejects. */
static int systematic_reason(const struct verdict *verdict)
{
    const struct verdict_test *tests = verdict->tests;
    bool grown = tests[TEST_SCALE].rejects;
    int shift = stronger_shift(verdict);
    if (tests[TEST_TAG].rejects && (!grown || tag_tells(verdict)))
        return TEST_TAG;
    if (tests[TEST_ID].rejects && !grown)
        return TEST_ID;
    if (shift >= 0 && (!grown || explains_scale(verdict, shift)))
        return shift;
    return grown ? TEST_SCALE : -1;
}

static int unexplained_reason(const struct verdict *verdict)
{
    static const enum verdict_test_id order[] = {TEST_WORST, TEST_COUNT, TEST_MAX, TEST_EXCEED};
    for (size_t k = 0; k < sizeof order / sizeof *order; k++)
        if (verdict->tests[order[k]].rejects)
            return (int)order[k];
    return -1;
}

static void append_reason(char *buf, size_t size, const struct verdict *verdict, int test)
{
    size_t used = strlen(buf);
    snprintf(buf + used, size - used, "%s%s", used ? ", " : "",
             test == TEST_TAG ? verdict->tags[0].name : verdict_test_names[test]);
}

/* SYSTEMATIC or UNEXPLAINED, where a test rejects; the reason is the first, all others go to
 * beside. Returns the class, or VERDICT_N_CLASSES. */
static enum verdict_class find_defect(struct verdict *out)
{
    int systematic = systematic_reason(out), unexplained = unexplained_reason(out);
    int first = systematic >= 0 ? systematic : unexplained;
    if (first < 0)
        return VERDICT_N_CLASSES;
    append_reason(out->reason, sizeof out->reason, out, first);
    for (int t = 0; t < TEST_N; t++)
        if (out->tests[t].rejects && t != first)
            append_reason(out->beside, sizeof out->beside, out, t);
    return systematic >= 0 ? VERDICT_SYSTEMATIC : VERDICT_UNEXPLAINED;
}

/* Every flip has a margin of 0: both arms tie and break the tie by another rule, or the base arm
 * ties on a grid that the record establishes. */
static bool all_exact_ties(const struct pairs *test)
{
    for (size_t f = 0; f < test->n_flips; f++) {
        const struct pair_flip *flip = &test->flips[f];
        if (flip->bounded || flip->gap_a != 0)
            return false;
        if (flip->gap_b != 0 && !grid_established(&test->grid[0]))
            return false;
    }
    return test->n_flips > 0 || test->n_tie_rule > 0;
}

static void tie_reason(struct verdict *out, const struct pairs *test)
{
    if (!test->n_flips || test->flips[0].emitted_only)
        snprintf(out->reason, sizeof out->reason, "equal logits, another rule for ties");
    else if (!(test->grid[0].step > 0) && !(out->ulp[0] > 0))
        snprintf(out->reason, sizeof out->reason, "equal logits");
    else
        snprintf(out->reason, sizeof out->reason, "equal logits on a grid of %g",
                 out->grid[0] && out->ulp[0] > 0 ? fmax(out->ulp[0], test->grid[0].step)
                                                 : test->grid[0].step);
}

static const char *floor_words(const struct floor *floor)
{
    return floor->zero                  ? "prior, control=bitwise"
           : floor->kind == FLOOR_SAME  ? "control of the same kind"
           : floor->kind == FLOOR_OTHER ? "control of another kind"
                                        : "prior";
}

/* Classes 7 to 10, where nothing is wrong. */
static void judge_honest(struct verdict *out, const struct stat_input *input)
{
    const struct pairs *test = input->test;
    const char *change = out->path_change ? ", path change" : "";
    if (all_exact_ties(test)) {
        out->cls = VERDICT_EXACT_TIE;
        tie_reason(out, test);
        return;
    }
    if (out->n_flips) {
        out->cls = VERDICT_NEAR_TIE;
        snprintf(out->reason, sizeof out->reason, "%zu flips, %.3g expected; floor=%s%s",
                 out->n_flips, out->expected, floor_words(&input->floor), change);
        return;
    }
    if (out->expected >= 0.5 || (input->n && out->smallest_margin < 3 * input->floor.scale)) {
        out->cls = VERDICT_EXPOSED;
        snprintf(out->reason, sizeof out->reason, "%.3g flips expected; floor=%s%s", out->expected,
                 floor_words(&input->floor), change);
        return;
    }
    out->cls = VERDICT_STABLE;
    if (!(out->expected < 0.05 && out->n >= 200 && out->n_seqs >= 5))
        snprintf(out->reason, sizeof out->reason, "n=%zu, upper bound %.2g flips per position",
                 out->n, out->flip_rate_high);
}

/* Every row bit-equal and nothing else different. */
static bool nothing_engaged(const struct pairs *test)
{
    if (!test->n || test->n_equal < test->n || test->n_flips || test->n_tie_rule ||
        test->n_nonfinite_rows)
        return false;
    for (size_t i = 0; i < test->n; i++)
        if (test->flags[i] & PAIR_KERNELS)
            return false;
    return true;
}

static bool lists_known(const struct pairs *test)
{
    for (size_t i = 0; i < test->n; i++)
        if (!(test->flags[i] & PAIR_SAME_LIST))
            return false;
    return true;
}

static void nonfinite_reason(struct verdict *out, const struct pairs *test)
{
    const struct pair_fault *fault = &test->nonfinite;
    static const char *const sides[] = {"A", "B", "A and B"};
    out->fault = *fault;
    out->n_fault = test->n_nonfinite_rows;
    snprintf(out->reason, sizeof out->reason,
             "%s: %zu rows, first at sequence %lld position %d, %lld NaN %lld +inf",
             sides[fault->side], out->n_fault, (long long)fault->seq, fault->pos,
             (long long)fault->n_nan, (long long)fault->n_posinf);
}

/* Classes 0 to 4, which need no statistics. Returns whether one of them holds; what the tests found
 * then stands beside it. */
static bool judge_plain(struct verdict *out, const struct pairs *test,
                        const struct verdict_options *options)
{
    if (options->cls != FLOOR_BITWISE && nothing_engaged(test) &&
        !(options->greedy == 1 && test->n_mismatch)) {
        out->cls = VERDICT_NOT_ENGAGED;
        snprintf(out->reason, sizeof out->reason, "%zu rows bit-equal, kernel lists %s", test->n,
                 lists_known(test) ? "equal" : "not recorded");
        return true;
    }
    if (!test->n && !test->n_nonfinite_rows) {
        out->cls = VERDICT_NOT_COMPARABLE;
        snprintf(out->reason, sizeof out->reason, "%zu rows, none of the same context",
                 test->n_refused);
        return true;
    }
    if (test->n_nonfinite_rows) {
        out->cls = VERDICT_NONFINITE;
        nonfinite_reason(out, test);
        return true;
    }
    if (options->greedy == 1 && test->n_mismatch) {
        out->cls = VERDICT_SAMPLER_MISMATCH;
        out->fault = test->mismatch;
        out->n_fault = test->n_mismatch;
        snprintf(out->reason, sizeof out->reason,
                 "%zu rows, first at sequence %lld position %d: emitted %d, best logit %d",
                 out->n_fault, (long long)out->fault.seq, out->fault.pos, out->fault.emitted,
                 out->fault.argmax);
        return true;
    }
    if (options->cls == FLOOR_BITWISE && test->n_equal < test->n) {
        out->cls = VERDICT_CONTRACT_VIOLATION;
        snprintf(out->reason, sizeof out->reason, "%zu of %zu rows differ, %zu flips",
                 test->n - test->n_equal, test->n, test->n_flips);
        return true;
    }
    return false;
}

/* What the tests say beside a plain class: "SYSTEMATIC(batch_row > 0)". */
static void name_beside(struct verdict *out, enum verdict_class found, const char *reason)
{
    if (found == VERDICT_N_CLASSES)
        out->beside[0] = '\0';
    else
        snprintf(out->beside, sizeof out->beside, "%s(%.100s)", verdict_names[found], reason);
}

int verdict_judge(struct verdict *out, struct pairs *test, const struct verdict_options *options,
                  struct err *err)
{
    *out = (struct verdict){.fault = {.first_bad = PAIR_UNKNOWN}};
    if (!options->floor)
        return err_set(err, "verdict: no noise floor, neither a control nor a prior");
    if (options->cls < 0 || options->cls >= FLOOR_N_CLASSES)
        return err_set(err, "verdict: class %d, known are 0 to %d", (int)options->cls,
                       FLOOR_N_CLASSES - 1);
    struct stat_input input;
    pairs_close(test);
    fill_counts(out, test);
    stat_input_init(&input, test, options, verdict_grid(test));
    fill_sizes(out, &input);
    fill_flips(out, &input);
    if (test->n)
        run_tests(out, &input, options->level > 0 ? options->level : LEVEL);
    enum verdict_class found = find_defect(out);
    char reason[sizeof out->reason];
    memcpy(reason, out->reason, sizeof reason);
    out->reason[0] = '\0';
    if (judge_plain(out, test, options)) {
        name_beside(out, found, reason);
    } else if (found != VERDICT_N_CLASSES) {
        out->cls = found;
        memcpy(out->reason, reason, sizeof reason);
    } else {
        judge_honest(out, &input);
    }
    stat_input_fini(&input);
    return 0;
}

void verdict_fini(struct verdict *verdict)
{
    free(verdict->tags);
    free(verdict->flips);
    verdict->tags = NULL;
    verdict->flips = NULL;
}

static double scale_of(const struct pairs *pairs)
{
    float *sizes = xcalloc(pairs->n, sizeof *sizes);
    size_t n = 0;
    for (size_t i = 0; i < pairs->n; i++)
        if (!(pairs->flags[i] & PAIR_EQUAL))
            sizes[n++] = fabsf(pairs->contrast[i]);
    double scale = n ? 1.4826 * stat_median(sizes, n) : 0;
    free(sizes);
    return scale;
}

void verdict_triangulate(struct verdict_reference *out, const struct pairs *ref_a,
                         const struct pairs *ref_b)
{
    *out = (struct verdict_reference){scale_of(ref_a), scale_of(ref_b), NAN, PAIR_UNKNOWN};
    double low = fmin(out->scale_a, out->scale_b), high = fmax(out->scale_a, out->scale_b);
    if (high > 0)
        out->ratio = low > 0 ? high / low : INFINITY;
    if (out->ratio > 2)
        out->worse = out->scale_a > out->scale_b ? 0 : 1;
}
