/* Every distribution and permutation of the verdict against small cases that can be worked out
 * exactly. */
#include "collector/stat_dist.h"
#include "collector/stat_perm.h"
#include "collector/stat_rule.h"
#include "tests/tap.h"

#include <math.h>

static void is_near(double got, double want, double tolerance, const char *name)
{
    if (!ok(fabs(got - want) <= tolerance, "%s", name))
        diag("got %.12g, want %.12g", got, want);
}

static void test_binomial(void)
{
    is_near(stat_binomial_upper(2, 3, .5), .5, 1e-12, "binomial: P(X >= 2) of 3 coins");
    is_near(stat_binomial_upper(3, 3, .1), .001, 1e-15, "binomial: all of 3");
    is_near(stat_binomial_upper(0, 3, .1), 1, 0, "binomial: at least none");
    is_near(stat_binomial_upper(4, 3, .1), 0, 0, "binomial: more than there are");
    is_near(stat_binomial_upper(2110070, 8428500, .250361), .53111, 1e-4,
            "binomial: near the mean of millions, where GSL gives up");
}

/* P(at least k of n) by summing over all subsets. */
static double by_subsets(size_t k, const float *q, int n)
{
    double sum = 0;
    for (unsigned set = 0; set < 1u << n; set++) {
        double p = 1;
        for (int i = 0; i < n; i++)
            p *= set >> i & 1 ? q[i] : 1 - (double)q[i];
        if ((size_t)__builtin_popcount(set) >= k)
            sum += p;
    }
    return sum;
}

static void test_poisson_binomial(void)
{
    const float q[] = {.1f, .5f, 0, .25f, .9f, .03f, .5f};
    for (size_t k = 0; k <= 7; k++)
        is_near(stat_poisson_binomial_upper(k, q, 7), by_subsets(k, q, 7), 1e-12,
                "Poisson-binomial: equals the sum over all subsets");
    enum { N = 200000 };
    static float many[N];
    for (int i = 0; i < N; i++)
        many[i] = (float)(i % 7 + 1) / 200;
    /* The mean is 4000 and the standard deviation about 62: the approximation against the exact
     * recursion, on both sides of the switch. */
    double exact = stat_poisson_binomial_upper(4100 / 20, many, N / 20);
    double mean = 0;
    for (int i = 0; i < N / 20; i++)
        mean += many[i];
    ok(exact > .2 && exact < .5 && mean < 205, "Poisson-binomial: a tail of a longer list");
    double large = stat_poisson_binomial_upper(4100, many, N);
    ok(large > .04 && large < .06,
       "Poisson-binomial: Hong's normal approximation where it is long");
}

static void test_intervals(void)
{
    double low, high;
    stat_clopper_pearson(66, 68, .05, &low, &high);
    is_near(low, .8978, 5e-5, "Clopper-Pearson: 66 of 68 from 89.8 %");
    is_near(high, .9964, 5e-5, "Clopper-Pearson: to 99.6 %");
    stat_clopper_pearson(0, 10, .05, &low, &high);
    is_near(high, 1 - pow(.025, .1), 1e-12, "Clopper-Pearson: none of 10");
    is_near(low, 0, 0, "Clopper-Pearson: from 0");
    stat_clopper_pearson(10, 10, .05, &low, &high);
    is_near(low, pow(.025, .1), 1e-12, "Clopper-Pearson: all of 10");
}

static void test_tails(void)
{
    is_near(stat_t4_upper(.6744898, 1), .5, 1e-6, "t4: the median of |y| is s / 1.4826");
    is_near(stat_t4_upper(2.776445 / STAT_T4_SCALE, 1), .05, 1e-7, "t4: the table's 5 % point");
    is_near(stat_t4_upper(100, 1) / (6 / pow(100 * STAT_T4_SCALE, 4)), 1, 1e-3,
            "t4: the tail falls with the fourth power");
    is_near(stat_student_two_sided(12.7062, 1), .05, 1e-6, "Student: the table's 5 % point");
}

static void test_order(void)
{
    float odd[] = {3, 1, 2}, even[] = {4, 1, 3, 2}, same[] = {5, 5, 5, 5};
    is_near(stat_median(odd, 3), 2, 0, "median of 3");
    is_near(stat_median(even, 4), 2.5, 0, "median of 4");
    is_near(stat_median(same, 4), 5, 0, "median of equals");
    float many[257];
    for (int i = 0; i < 257; i++)
        many[i] = (float)(i * 101 % 257);
    is_near(stat_median(many, 257), 128, 0, "median of 257 in disorder");
    stat_sort(many, 257);
    int in_order = 1;
    for (int i = 0; i < 257; i++)
        in_order &= many[i] == (float)i;
    ok(in_order, "sort of 257 in disorder");
    const float x[] = {1, 2, 3, 4}, y[] = {10, 20, 40, 30}, tied[] = {1, 1, 2, 2};
    is_near(stat_spearman(x, y, 4), .8, 1e-12, "Spearman: one exchange in four");
    is_near(stat_spearman(x, tied, 4), .894427191, 1e-9, "Spearman: ties share a rank");
}

static void test_corrections(void)
{
    const double p[] = {.01, .04, NAN, .03};
    double out[4];
    stat_holm(p, out, 4);
    is_near(out[0], .03, 1e-15, "Holm: the smallest times three");
    is_near(out[3], .06, 1e-15, "Holm: the next times two");
    is_near(out[1], .06, 1e-15, "Holm: never below the one before");
    ok(isnan(out[2]), "Holm: what was not tested does not count");
    stat_benjamini_hochberg(p, out, 4);
    is_near(out[0], .03, 1e-15, "Benjamini-Hochberg: the smallest");
    is_near(out[3], .04, 1e-15, "Benjamini-Hochberg: 3/2 of .03, but at most the next");
    is_near(out[1], .04, 1e-15, "Benjamini-Hochberg: the largest as it is");
}

static void test_random(void)
{
    struct stat_rng rng, again;
    stat_rng_seed(&rng, 7);
    stat_rng_seed(&again, 7);
    double sum = 0, squares = 0, fourth = 0;
    int same = 1, below = 1;
    enum { N = 200000 };
    for (int i = 0; i < N; i++) {
        double x = stat_rng_normal(&rng);
        same &= x == stat_rng_normal(&again);
        sum += x;
        squares += x * x;
        fourth += fabs(stat_rng_t4(&rng)) > 2.776445;
        stat_rng_t4(&again);
        below &= stat_rng_below(&rng, 3) < 3;
        stat_rng_below(&again, 3);
    }
    ok(same, "random: the same seed gives the same numbers");
    ok(below, "random: below n");
    is_near(sum / N, 0, .01, "random: normal, mean 0");
    is_near(squares / N, 1, .02, "random: normal, variance 1");
    is_near(fourth / N, .05, .003, "random: t4, the 5 % point");
}

static void test_permutations(void)
{
    /* Ten units each; the test's all above the control's: no other relabelling comes close. */
    struct stat_unit apart[20], alike[20];
    for (int i = 0; i < 20; i++) {
        apart[i] = (struct stat_unit){(i < 10 ? 5 : 0) + i % 10 * .1, 1};
        alike[i] = (struct stat_unit){i % 10, 1};
    }
    struct stat_outcome outcome, again;
    stat_permute_groups(apart, 1, 10, 10, 0, 1, &outcome);
    is_near(outcome.p, 1. / (STAT_PERMUTATIONS + 1), 1e-12, "permutation: the smallest p there is");
    stat_permute_groups(alike, 1, 10, 10, 0, 1, &outcome);
    ok(outcome.p > .3 && outcome.p < .7, "permutation: equal samples give a p near a half");
    stat_permute_groups(alike, 1, 10, 10, 0, 1, &again);
    ok(outcome.p == again.p, "permutation: the same seed gives the same p");
    /* Signs of 8 equal units: 1 of 256 has a sum as large, 2 of 256 in size. */
    struct stat_unit equal[8];
    for (int i = 0; i < 8; i++)
        equal[i] = (struct stat_unit){1 + .01 * i, 1};
    stat_flip_groups(equal, 1, 8, 0, 1, &outcome);
    is_near(outcome.p, 1. / 256, .003, "sign flips: 1 of 256 for 8 units");
    stat_flip_groups(equal, 1, 8, 1, 1, &outcome);
    is_near(outcome.p, 2. / 256, .004, "sign flips: 2 of 256 in size");
}

/* One strong group among twenty that are noise: its familywise p stays small, theirs do not. */
static void test_familywise(void)
{
    enum { GROUPS = 20, UNITS = 12 };
    struct stat_unit units[GROUPS * 2 * UNITS];
    struct stat_outcome outcomes[GROUPS];
    struct stat_rng rng;
    int small = 0;
    stat_rng_seed(&rng, 11);
    for (int g = 0; g < GROUPS; g++)
        for (int i = 0; i < 2 * UNITS; i++)
            units[g * 2 * UNITS + i] =
                (struct stat_unit){stat_rng_normal(&rng) + (g == 4 && i < UNITS ? 3 : 0), 1};
    stat_permute_groups(units, GROUPS, UNITS, UNITS, 0, 5, outcomes);
    for (int g = 0; g < GROUPS; g++)
        small += outcomes[g].p_max < .05;
    if (!ok(outcomes[4].p_max < .005 && small == 1,
            "largest statistic: one group of twenty rejects"))
        for (int g = 0; g < GROUPS; g++)
            diag("group %d: t %.3f p %.4f p_max %.4f", g, outcomes[g].t, outcomes[g].p,
                 outcomes[g].p_max);
    ok(outcomes[4].p <= outcomes[4].p_max, "largest statistic: never below the group's own p");
}

static void test_exceed(void)
{
    struct stat_top tops[16] = {{0, {0}}};
    double p;
    for (int u = 0; u < 16; u++)
        for (int k = 0; k < 3; k++)
            stat_top_add(&tops[u], (float)(u < 8 ? 10 + k : k + 1));
    is_int((long long)stat_permute_exceed(tops, 8, 8, 1, &p), 24, "exceed: every row of the test");
    ok(p < .002, "exceed: in all its sequences");
    struct stat_top one[16] = {{0, {0}}};
    for (int u = 0; u < 16; u++)
        for (int k = 0; k < 20; k++)
            stat_top_add(&one[u], u == 0 ? 10 : 1);
    is_int((long long)stat_permute_exceed(one, 8, 8, 1, &p), 20, "exceed: twenty rows of one");
    ok(p > .3, "exceed: one sequence proves nothing");
    struct stat_top many = {0, {0}};
    for (int i = 0; i < 200; i++)
        stat_top_add(&many, (float)(i * 37 % 200));
    ok(many.n == STAT_TOP && many.values[0] == 199 && many.values[STAT_TOP - 1] == 200 - STAT_TOP,
       "exceed: the largest values are kept, descending");
}

static void test_bins(void)
{
    uint32_t histogram[STAT_N_BINS] = {0};
    int inside = 1;
    for (int i = 1; i < 2000; i++) {
        double x = i * .001;
        int bin = stat_bin(x);
        inside &= stat_bin_edge(bin) <= x && x < stat_bin_edge(bin + 1);
        histogram[bin]++;
    }
    ok(inside, "bins: every size lies between its bin's edges");
    is_near(stat_bin_median(histogram, 1999), 1, .005, "bins: the median, interpolated");
    is_int(stat_bin(0), 0, "bins: 0 is the smallest");
    is_int(stat_bin(1e30), STAT_N_BINS - 1, "bins: a masked contrast is the largest");
}

int main(void)
{
    test_binomial();
    test_poisson_binomial();
    test_intervals();
    test_tails();
    test_order();
    test_corrections();
    test_random();
    test_permutations();
    test_familywise();
    test_exceed();
    test_bins();
    return tap_done();
}
