/* The sampler: greedy rules, what each cut keeps, and that draws follow the distribution. */
#include "config.h"

#include "engine/sampler.h"
#include "err.h"
#include "tap.h"

#include <math.h>
#include <stdbool.h>

enum { N = 8 };

static struct sampler *sampler_of(struct sampler_params params)
{
    struct sampler *s;
    struct err err;
    if (sampler_new(&params, N, &s, &err)) {
        printf("Bail out! %s\n", err.text);
        exit(99);
    }
    return s;
}

static int32_t pick(struct sampler *s, const float *logits)
{
    struct err err;
    int32_t id = -1;
    return sampler_pick(s, logits, &id, &err) ? -1 : id;
}

static void test_greedy(void)
{
    struct sampler *s = sampler_of(sampler_defaults);
    struct err err;
    int32_t id;
    is_int(pick(s, (float[N]){1, 3, 3, 2}), 1, "of equal logits the lowest id");
    is_int(pick(s, (float[N]){NAN, -1, NAN, -2, -3, -3, -3, -3}), 1, "NaN never wins");
    is_int(pick(s, (float[N]){1, INFINITY, NAN, 2}), 1, "+inf does");
    float none[N];
    for (int i = 0; i < N; i++)
        none[i] = i % 2 ? NAN : -INFINITY;
    ok(sampler_pick(s, none, &id, &err) && strstr(err.text, "none of 8 logits"),
       "NaN and -inf alone are an error");
    sampler_free(s);
}

/* Draw often; which ids occur, and do they occur as often as they should? */
static void test_draws(const char *name, struct sampler_params params, const float *logits,
                       const double *want)
{
    const int n = 200000;
    int count[N] = {0};
    struct sampler *s = sampler_of(params);
    for (int i = 0; i < n; i++)
        count[pick(s, logits)]++;
    sampler_free(s);
    bool fits = true;
    for (int i = 0; i < N; i++) {
        double sd = sqrt(n * want[i] * (1 - want[i]));
        fits &= want[i] > 0 ? fabs(count[i] - n * want[i]) < 4.5 * sd + 1 : count[i] == 0;
        if (!fits)
            diag("id %d: %d draws, want %.0f", i, count[i], n * want[i]);
    }
    ok(fits, "%s", name);
}

/* Scale to a sum of 1. */
static void normalise(double *p)
{
    double sum = 0;
    for (int i = 0; i < N; i++)
        sum += p[i];
    for (int i = 0; i < N; i++)
        p[i] /= sum;
}

static void test_cuts(void)
{
    /* Probabilities 0.4, 0.3, 0.2, 0.1 of ids 5, 2, 7, 0; the others cannot occur. */
    const float logits[N] = {logf(0.1f), -INFINITY,  logf(0.3f), NAN,
                             -INFINITY,  logf(0.4f), -INFINITY,  logf(0.2f)};
    double all[N] = {[5] = 0.4, [2] = 0.3, [7] = 0.2, [0] = 0.1};
    double hot[N] = {[5] = sqrt(0.4), [2] = sqrt(0.3), [7] = sqrt(0.2), [0] = sqrt(0.1)};
    double two[N] = {[5] = 4.0 / 7, [2] = 3.0 / 7},
           three[N] = {[5] = 4.0 / 9, [2] = 3.0 / 9, [7] = 2.0 / 9};
    double one[N] = {[5] = 1};
    normalise(hot);
    struct sampler_params p = {.temperature = 1, .top_p = 1, .seed = 1};
    test_draws("the softmax itself", p, logits, all);
    p.temperature = 2;
    test_draws("temperature 2", p, logits, hot);
    p.temperature = 1;
    p.top_k = 2;
    test_draws("top-k 2", p, logits, two);
    p.top_k = 100;
    test_draws("top-k beyond the vocabulary", p, logits, all);
    p.top_k = 0;
    p.top_p = 0.65;
    test_draws("top-p 0.65", p, logits, two);
    p.top_p = 0.75;
    test_draws("top-p 0.75", p, logits, three);
    p.top_p = 1e-9;
    test_draws("top-p near 0 keeps one", p, logits, one);
    p.top_p = 1;
    p.min_p = 0.45;
    test_draws("min-p 0.45", p, logits, three);
    p.min_p = 1;
    test_draws("min-p 1 keeps the most likely", p, logits, one);
    p.min_p = 0;
    p.top_k = 3;
    p.top_p = 0.7; /* of 4/9, 3/9, 2/9: two reach it; of the whole distribution they would too */
    test_draws("top-k, then top-p of what it left", p, logits, two);
    p.top_k = 2;
    p.top_p = 0.55; /* 4/7 reaches it; 0.4 of the whole would not */
    test_draws("top-p counts from what top-k left", p, logits, one);
    const float tie[N] = {0, 0, -INFINITY, -INFINITY, -INFINITY, -INFINITY, -INFINITY, 0};
    p.top_k = 2;
    p.top_p = 1;
    test_draws("a tie is cut at the lowest ids", p, tie, (double[N]){0.5, 0.5});
}

static void test_seeds(void)
{
    const float logits[N] = {0};
    struct sampler_params p = {.temperature = 1, .top_p = 1, .seed = 7};
    struct sampler *a = sampler_of(p), *b = sampler_of(p);
    p.seed = 8;
    struct sampler *c = sampler_of(p);
    int n_same = 0, n_other = 0;
    for (int i = 0; i < 100; i++) {
        int32_t id = pick(a, logits);
        n_same += id == pick(b, logits);
        n_other += id == pick(c, logits);
    }
    is_int(n_same, 100, "the same seed draws the same");
    ok(n_other < 50, "another seed draws something else");
    sampler_free(a);
    sampler_free(b);
    sampler_free(c);
}

int main(void)
{
    test_greedy();
    test_cuts();
    test_seeds();
    return tap_done();
}
