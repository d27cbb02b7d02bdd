/* Distributions and corrections that the verdict rests on: pure functions, GNU Scientific Library
 * underneath where it has the distribution. Arrays are the caller's; what a function sorts in
 * place it says so. */
#ifndef NEARTIE_COLLECTOR_STAT_DIST_H
#define NEARTIE_COLLECTOR_STAT_DIST_H

#include <stddef.h>

/* 1.482602 times the median of |t|, 0.740697, for t with 4 degrees of freedom. */
#define STAT_T4_SCALE 1.098159

/* P(X >= k) for X binomial(n, p). */
double stat_binomial_upper(size_t k, size_t n, double p);

/* P(X >= k) for X Poisson-binomial, the number of successes of n independent trials of
 * probabilities q: exact by recursion over the trials (Hong 2013, section 2.1) as long as n * k
 * is below 5e7; beyond it Hong's refined normal approximation (section 3.1), which needs many
 * expected successes and has them there. */
double stat_poisson_binomial_upper(size_t k, const float *q, size_t n);

/* Clopper-Pearson interval (1934) of a proportion, k successes of n, at confidence 1 - alpha. */
void stat_clopper_pearson(size_t k, size_t n, double alpha, double *out_low, double *out_high);

/* P(|y| > x) where y follows a t distribution with 4 degrees of freedom, stretched so that
 * 1.4826 times the median of |y| is scale. */
double stat_t4_upper(double x, double scale);

/* P(|T| > t) for T Student with df degrees of freedom. */
double stat_student_two_sided(double t, double df);

/* Sort ascending; values are not negative and not NaN. */
void stat_sort(float *values, size_t n);

/* Median of n values, n > 0; reorders them. Mean of the middle two for an even n. */
double stat_median(float *values, size_t n);

/* Spearman's rank correlation of n pairs; ties share the mean rank. 0 for n < 3. */
double stat_spearman(const float *x, const float *y, size_t n);

/* Holm's step-down adjustment (1979): p values in, adjusted values out; NAN entries are left
 * alone and do not count. */
void stat_holm(const double *p, double *out, int n);

/* Benjamini-Hochberg's step-up adjustment (1995); NAN entries are left alone and do not count. */
void stat_benjamini_hochberg(const double *p, double *out, int n);

#endif
