#include "config.h"

#include "collector/stat_dist.h"
#include "collector/xalloc.h"

#include <gsl/gsl_cdf.h>
#include <math.h>
#include <stdint.h>

double stat_binomial_upper(size_t k, size_t n, double p)
{
    if (k == 0)
        return 1;
    if (k > n || p <= 0)
        return 0;
    if (p >= 1)
        return 1;
    /* P(X >= k) is the beta distribution's P(Y <= p) for Y ~ Beta(k, n - k + 1). */
    double upper = gsl_cdf_beta_P(p, (double)k, (double)(n - k) + 1);
    if (!isnan(upper))
        return upper;
    /* GSL's continued fraction gives up near the mean of a million trials and more, where the
     * normal is good to three digits. */
    double mean = (double)n * p;
    return gsl_cdf_ugaussian_Q(((double)k - 0.5 - mean) / sqrt(mean * (1 - p)));
}

/* Exact: after each trial, at[j] = P(j successes so far) for j < k; the rest of the mass has
 * reached k and stays there. */
static double poisson_binomial_exact(size_t k, const float *q, size_t n)
{
    double *at = xcalloc(k, sizeof *at), reached = 0;
    at[0] = 1;
    size_t top = 0; /* highest count with mass */
    for (size_t i = 0; i < n; i++) {
        double yes = q[i], no = 1 - yes;
        if (yes == 0)
            continue;
        reached += at[k - 1] * yes;
        if (top < k - 1)
            top++;
        for (size_t j = top; j > 0; j--)
            at[j] = at[j] * no + at[j - 1] * yes;
        at[0] *= no;
    }
    free(at);
    return fmin(1, reached);
}

static double poisson_binomial_normal(size_t k, const float *q, size_t n)
{
    double mean = 0, variance = 0, third = 0;
    for (size_t i = 0; i < n; i++) {
        double p = q[i];
        mean += p;
        variance += p * (1 - p);
        third += p * (1 - p) * (1 - 2 * p);
    }
    if (variance == 0)
        return (double)k <= mean ? 1 : 0;
    double sd = sqrt(variance), z = ((double)k - 0.5 - mean) / sd;
    double skew = third / (sd * sd * sd);
    double density = exp(-z * z / 2) / sqrt(2 * M_PI);
    double upper = gsl_cdf_ugaussian_Q(z) - skew * (1 - z * z) * density / 6;
    return fmin(1, fmax(0, upper));
}

double stat_poisson_binomial_upper(size_t k, const float *q, size_t n)
{
    if (k == 0)
        return 1;
    if (k > n)
        return 0;
    if ((double)n * (double)k <= 5e7)
        return poisson_binomial_exact(k, q, n);
    return poisson_binomial_normal(k, q, n);
}

/* The p at which P(X >= k) is alpha, by halving: GSL's inverse of the beta distribution does not
 * converge for some long runs. */
static double invert_upper(size_t k, size_t n, double alpha)
{
    double low = 0, high = 1;
    for (int i = 0; i < 100 && high > low; i++) {
        double mid = (low + high) / 2;
        if (stat_binomial_upper(k, n, mid) < alpha)
            low = mid;
        else
            high = mid;
    }
    return (low + high) / 2;
}

void stat_clopper_pearson(size_t k, size_t n, double alpha, double *out_low, double *out_high)
{
    *out_low = k == 0 ? 0 : invert_upper(k, n, alpha / 2);
    *out_high = k == n ? 1 : 1 - invert_upper(n - k, n, alpha / 2);
}

double stat_t4_upper(double x, double scale)
{
    if (scale <= 0)
        return x < 0 ? 1 : 0;
    double t = x * STAT_T4_SCALE / scale;
    /* The closed form of 2 Q(t) for 4 degrees of freedom, without cancellation in the tail. */
    double u = t / sqrt(4 + t * t);
    double w = 4 / (4 + t * t); /* 1 - u^2 */
    double one_minus_u = w / (1 + u);
    return t <= 0 ? 1 : one_minus_u * one_minus_u * (1 + u / 2);
}

double stat_student_two_sided(double t, double df)
{
    return fmin(1, 2 * gsl_cdf_tdist_Q(fabs(t), df));
}

/* Floats that are not negative order as their bits do: three passes of 11 bits. */
void stat_sort(float *values, size_t n)
{
    enum { BITS = 11, BUCKETS = 1 << BITS };
    float *from = values, *other = xcalloc(n, sizeof *other), *to = other;
    for (int shift = 0; shift < 3 * BITS; shift += BITS) {
        size_t start[BUCKETS + 1] = {0};
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &from[i], sizeof bits);
            start[(bits >> shift & (BUCKETS - 1)) + 1]++;
        }
        for (int b = 0; b < BUCKETS; b++)
            start[b + 1] += start[b];
        for (size_t i = 0; i < n; i++) {
            uint32_t bits;
            memcpy(&bits, &from[i], sizeof bits);
            to[start[bits >> shift & (BUCKETS - 1)]++] = from[i];
        }
        float *swap = from;
        from = to;
        to = swap;
    }
    memcpy(values, from, n * sizeof *values);
    free(other);
}

/* Hoare's selection: afterwards values[k] is the k-th smallest, smaller ones before it. */
static void select_kth(float *values, size_t n, size_t k)
{
    size_t low = 0, high = n - 1;
    while (low < high) {
        float pivot = values[low + (high - low) / 2];
        size_t i = low, j = high;
        for (;;) {
            while (values[i] < pivot)
                i++;
            while (values[j] > pivot)
                j--;
            if (i >= j)
                break;
            float swap = values[i];
            values[i++] = values[j];
            values[j--] = swap;
        }
        if (k <= j)
            high = j;
        else
            low = j + 1;
    }
}

double stat_median(float *values, size_t n)
{
    size_t half = n / 2;
    select_kth(values, n, half);
    if (n % 2)
        return values[half];
    float below = values[0];
    for (size_t i = 1; i < half; i++)
        below = values[i] > below ? values[i] : below;
    return ((double)below + values[half]) / 2;
}

struct ranked {
    float value;
    size_t index;
};

static int compare_ranked(const void *a, const void *b)
{
    float x = ((const struct ranked *)a)->value, y = ((const struct ranked *)b)->value;
    return (x > y) - (x < y);
}

/* Ranks from 0, ties share the mean. */
static void rank_values(const float *values, size_t n, double *out)
{
    struct ranked *order = xcalloc(n, sizeof *order);
    for (size_t i = 0; i < n; i++)
        order[i] = (struct ranked){values[i], i};
    qsort(order, n, sizeof *order, compare_ranked);
    for (size_t i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && order[end].value == order[i].value; end++)
            ;
        for (size_t j = i; j < end; j++)
            out[order[j].index] = (double)(i + end - 1) / 2;
    }
    free(order);
}

double stat_spearman(const float *x, const float *y, size_t n)
{
    if (n < 3)
        return 0;
    double *rank_x = xcalloc(n, sizeof *rank_x), *rank_y = xcalloc(n, sizeof *rank_y);
    rank_values(x, n, rank_x);
    rank_values(y, n, rank_y);
    double mean = (double)(n - 1) / 2, xy = 0, xx = 0, yy = 0;
    for (size_t i = 0; i < n; i++) {
        xy += (rank_x[i] - mean) * (rank_y[i] - mean);
        xx += (rank_x[i] - mean) * (rank_x[i] - mean);
        yy += (rank_y[i] - mean) * (rank_y[i] - mean);
    }
    free(rank_x);
    free(rank_y);
    return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : 0;
}

struct indexed_p {
    double p;
    int index;
};

static int compare_p(const void *a, const void *b)
{
    double x = ((const struct indexed_p *)a)->p, y = ((const struct indexed_p *)b)->p;
    return (x > y) - (x < y);
}

/* The p values that are not NAN, ascending, in an array of the caller's to free. */
static struct indexed_p *order_p(const double *p, int n, int *out_n)
{
    struct indexed_p *order = xcalloc((size_t)n, sizeof *order);
    *out_n = 0;
    for (int i = 0; i < n; i++)
        if (!isnan(p[i]))
            order[(*out_n)++] = (struct indexed_p){p[i], i};
    qsort(order, (size_t)*out_n, sizeof *order, compare_p);
    return order;
}

void stat_holm(const double *p, double *out, int n)
{
    int m;
    struct indexed_p *order = order_p(p, n, &m);
    double running = 0;
    for (int i = 0; i < n; i++)
        out[i] = NAN;
    for (int i = 0; i < m; i++) {
        running = fmax(running, fmin(1, order[i].p * (m - i)));
        out[order[i].index] = running;
    }
    free(order);
}

void stat_benjamini_hochberg(const double *p, double *out, int n)
{
    int m;
    struct indexed_p *order = order_p(p, n, &m);
    double running = 1;
    for (int i = 0; i < n; i++)
        out[i] = NAN;
    for (int i = m - 1; i >= 0; i--) {
        running = fmin(running, order[i].p * m / (i + 1));
        out[order[i].index] = running;
    }
    free(order);
}
