#include "config.h"

#include "collector/stat_perm.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdbool.h>

/* After this many permutations that reach a statistic its p is known well enough (Besag and
 * Clifford 1991). */
enum { ENOUGH = 25 };

void stat_rng_seed(struct stat_rng *rng, uint64_t seed)
{
    for (int i = 0; i < 4; i++) {
        uint64_t z = seed += 0x9e3779b97f4a7c15u;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
        z = (z ^ z >> 27) * 0x94d049bb133111ebu;
        rng->state[i] = z ^ z >> 31;
    }
}

static uint64_t rotate_left(uint64_t x, int k)
{
    return x << k | x >> (64 - k);
}

uint64_t stat_rng_next(struct stat_rng *rng)
{
    uint64_t *s = rng->state, result = rotate_left(s[1] * 5, 7) * 9, t = s[1] << 17;
    s[2] ^= s[0];
    s[3] ^= s[1];
    s[1] ^= s[2];
    s[0] ^= s[3];
    s[2] ^= t;
    s[3] = rotate_left(s[3], 45);
    return result;
}

double stat_rng_uniform(struct stat_rng *rng)
{
    return ((double)(stat_rng_next(rng) >> 11) + 0.5) * 0x1p-53;
}

uint64_t stat_rng_below(struct stat_rng *rng, uint64_t n)
{
    return (uint64_t)(((unsigned __int128)stat_rng_next(rng) * n) >> 64);
}

double stat_rng_normal(struct stat_rng *rng)
{
    double u = stat_rng_uniform(rng), v = stat_rng_uniform(rng);
    return sqrt(-2 * log(u)) * cos(2 * M_PI * v); /* Box and Muller 1958 */
}

double stat_rng_t4(struct stat_rng *rng)
{
    /* Bailey 1994: the polar form of Box and Muller, for t. */
    double u = stat_rng_uniform(rng), v = stat_rng_uniform(rng);
    return sqrt(4 * (pow(u, -0.5) - 1)) * cos(2 * M_PI * v);
}

/* Mean score of some units and the square of its cluster-robust standard error. */
struct mean {
    double sum, n, sum_sq, sum_n, n_sq, count;
};

static void mean_add(struct mean *mean, const struct stat_unit *unit, double sign)
{
    double sum = sign * unit->sum;
    mean->sum += sum;
    mean->n += unit->n;
    mean->sum_sq += sum * sum;
    mean->sum_n += sum * unit->n;
    mean->n_sq += unit->n * unit->n;
    mean->count += unit->n > 0;
}

/* With fewer units than this a spread over units is not known, and no statistic is formed: the
 * few that came close to each other by luck would otherwise dominate the largest of all groups. */
enum { LEAST_UNITS = 4 };

/* Variance of sum / n over units: sum of (sum_u - mean n_u)^2 over n^2, times count/(count - 1). */
static double mean_variance(const struct mean *mean)
{
    double m = mean->sum / mean->n;
    double squares = mean->sum_sq - 2 * m * mean->sum_n + m * m * mean->n_sq;
    return fmax(0, squares) / (mean->n * mean->n) * mean->count / (mean->count - 1);
}

/* Scores are ranks in -1/2 ... 1/2 or of that order: a standard error below this is no spread but
 * too few units to see one. */
static const double LEAST_ERROR = 1e-3;

static double two_sample(const struct stat_unit *units, size_t n, const unsigned char *in_test)
{
    struct mean test = {0}, control = {0};
    for (size_t i = 0; i < n; i++)
        mean_add(in_test[i] ? &test : &control, &units[i], 1);
    if (test.count < LEAST_UNITS || control.count < LEAST_UNITS)
        return 0;
    double error = sqrt(mean_variance(&test) + mean_variance(&control));
    return (test.sum / test.n - control.sum / control.n) / fmax(error, LEAST_ERROR);
}

static double one_sample(const struct stat_unit *units, size_t n, const unsigned char *negative)
{
    struct mean mean = {0};
    for (size_t i = 0; i < n; i++)
        mean_add(&mean, &units[i], negative[i] ? -1 : 1);
    if (mean.count < LEAST_UNITS)
        return 0;
    return mean.sum / mean.n / fmax(sqrt(mean_variance(&mean)), LEAST_ERROR);
}

static void shuffle(struct stat_rng *rng, unsigned char *labels, size_t n)
{
    for (size_t i = n; i > 1; i--) {
        size_t j = stat_rng_below(rng, i);
        unsigned char swap = labels[i - 1];
        labels[i - 1] = labels[j];
        labels[j] = swap;
    }
}

static void random_signs(struct stat_rng *rng, unsigned char *labels, size_t n)
{
    uint64_t bits = 0;
    for (size_t i = 0; i < n; i++, bits >>= 1) {
        if (i % 64 == 0)
            bits = stat_rng_next(rng);
        labels[i] = bits & 1;
    }
}

/* One family of relabellings: the two-sample and the sign-flip test differ only in these. */
struct scheme {
    double (*statistic)(const struct stat_unit *units, size_t n, const unsigned char *labels);
    void (*relabel)(struct stat_rng *rng, unsigned char *labels, size_t n);
    bool two_sided;
};

static void run_groups(const struct scheme *scheme, const struct stat_unit *units, int n_groups,
                       size_t n, unsigned char *labels, uint64_t seed, struct stat_outcome *out)
{
    struct stat_rng rng;
    struct counts {
        double size;      /* of the statistic seen */
        int own, largest; /* permutations that reach it */
    } *counts = xcalloc((size_t)n_groups, sizeof *counts);
    stat_rng_seed(&rng, seed);
    for (int g = 0; g < n_groups; g++) {
        out[g].t = scheme->statistic(units + (size_t)g * n, n, labels);
        counts[g].size = (scheme->two_sided ? fabs(out[g].t) : out[g].t) - 1e-12;
    }
    int done = 0;
    for (bool open = true; done < STAT_PERMUTATIONS && open; done++) {
        double largest = -INFINITY;
        scheme->relabel(&rng, labels, n);
        for (int g = 0; g < n_groups; g++) {
            double t = scheme->statistic(units + (size_t)g * n, n, labels);
            t = scheme->two_sided ? fabs(t) : t;
            counts[g].own += t >= counts[g].size;
            largest = fmax(largest, t);
        }
        open = false;
        for (int g = 0; g < n_groups; g++) {
            counts[g].largest += largest >= counts[g].size;
            open |= counts[g].largest < ENOUGH;
        }
    }
    for (int g = 0; g < n_groups; g++) {
        out[g].p = (counts[g].own + 1.) / (done + 1.);
        out[g].p_max = (counts[g].largest + 1.) / (done + 1.);
    }
    free(counts);
}

void stat_permute_groups(const struct stat_unit *units, int n_groups, size_t n_test,
                         size_t n_control, int two_sided, uint64_t seed, struct stat_outcome *out)
{
    const struct scheme scheme = {two_sample, shuffle, two_sided};
    unsigned char *labels = xcalloc(n_test + n_control, 1);
    memset(labels, 1, n_test);
    run_groups(&scheme, units, n_groups, n_test + n_control, labels, seed, out);
    free(labels);
}

void stat_flip_groups(const struct stat_unit *units, int n_groups, size_t n, int two_sided,
                      uint64_t seed, struct stat_outcome *out)
{
    const struct scheme scheme = {one_sample, random_signs, two_sided};
    unsigned char *labels = xcalloc(n, 1);
    run_groups(&scheme, units, n_groups, n, labels, seed, out);
    free(labels);
}

void stat_top_add(struct stat_top *top, float value)
{
    if (top->n == STAT_TOP && value <= top->values[STAT_TOP - 1])
        return;
    int i = top->n < STAT_TOP ? top->n++ : STAT_TOP - 1;
    for (; i > 0 && top->values[i - 1] < value; i--)
        top->values[i] = top->values[i - 1];
    top->values[i] = value;
}

static size_t count_exceeding(const struct stat_top *units, size_t n, const unsigned char *in_test)
{
    float largest = 0;
    for (size_t i = 0; i < n; i++)
        if (!in_test[i] && units[i].n && units[i].values[0] > largest)
            largest = units[i].values[0];
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        for (int k = 0; in_test[i] && k < units[i].n && units[i].values[k] > largest; k++)
            count++;
    return count;
}

size_t stat_permute_exceed(const struct stat_top *units, size_t n_test, size_t n_control,
                           uint64_t seed, double *out_p)
{
    size_t n = n_test + n_control;
    unsigned char *labels = xcalloc(n, 1);
    memset(labels, 1, n_test);
    size_t seen = count_exceeding(units, n, labels);
    struct stat_rng rng;
    stat_rng_seed(&rng, seed);
    int reached = 0, done = 0;
    for (; done < STAT_PERMUTATIONS && reached < ENOUGH; done++) {
        shuffle(&rng, labels, n);
        reached += count_exceeding(units, n, labels) >= seen;
    }
    free(labels);
    *out_p = (reached + 1.) / (done + 1.);
    return seen;
}
