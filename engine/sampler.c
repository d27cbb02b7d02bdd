#include "config.h"

#include "engine/mem.h"
#include "engine/sampler.h"
#include "err.h"

#include <math.h>

/* A token that may be drawn. */
struct candidate {
    int32_t id;
    float logit;
    double weight; /* proportional to its probability; the largest is 1 */
};

struct sampler {
    struct sampler_params params;
    int32_t n_vocab;
    uint64_t state;
    struct candidate *candidates; /* (n_vocab), NULL where greedy */
};

const struct sampler_params sampler_defaults = {.top_p = 1};

static int params_check(const struct sampler_params *p, struct err *err)
{
    if (!(p->temperature >= 0 && p->temperature <= 1000))
        return err_set(err, "temperature %g: must be 0 to 1000", p->temperature);
    if (p->top_k < 0)
        return err_set(err, "top-k %d: must be at least 0 (all)", p->top_k);
    if (!(p->top_p > 0 && p->top_p <= 1))
        return err_set(err, "top-p %g: must be above 0 and at most 1", p->top_p);
    if (!(p->min_p >= 0 && p->min_p <= 1))
        return err_set(err, "min-p %g: must be 0 to 1", p->min_p);
    return 0;
}

int sampler_new(const struct sampler_params *params, int32_t n_vocab, struct sampler **out,
                struct err *err)
{
    if (params_check(params, err))
        return -1;
    struct sampler *s = xcalloc(1, sizeof *s);
    s->params = *params;
    s->n_vocab = n_vocab;
    s->state = params->seed;
    if (params->temperature > 0)
        s->candidates = xcalloc((size_t)n_vocab, sizeof *s->candidates);
    *out = s;
    return 0;
}

void sampler_free(struct sampler *s)
{
    if (!s)
        return;
    free(s->candidates);
    free(s);
}

/* SplitMix64 (Steele, Lea, Flood 2014), as a double in [0, 1). */
static double draw(struct sampler *s)
{
    uint64_t z = s->state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return (double)((z ^ z >> 31) >> 11) * 0x1p-53;
}

static int argmax(const float *logits, int32_t n, int32_t *out, struct err *err)
{
    int32_t best = -1;
    for (int32_t i = 0; i < n; i++)
        if (logits[i] > (best < 0 ? -INFINITY : logits[best]))
            best = i;
    if (best < 0)
        return err_set(err, "sampler: none of %d logits is a number above -inf", n);
    *out = best;
    return 0;
}

/* Weigh every token; returns how many have any weight. */
static int32_t weigh(struct sampler *s, const float *logits, float max, double *out_sum)
{
    int32_t n = 0;
    *out_sum = 0;
    for (int32_t i = 0; i < s->n_vocab; i++) {
        double w = logits[i] == max ? 1 : exp(((double)logits[i] - max) / s->params.temperature);
        if (!(w > 0)) /* also NaN */
            continue;
        s->candidates[n++] = (struct candidate){i, logits[i], w};
        *out_sum += w;
    }
    return n;
}

static int is_before(const struct candidate *a, const struct candidate *b)
{
    return a->logit != b->logit ? a->logit > b->logit : a->id < b->id;
}

static void sift_down(struct candidate *c, int32_t n, int32_t i)
{
    struct candidate moved = c[i];
    for (int32_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && is_before(&c[child + 1], &c[child]))
            child++;
        if (!is_before(&c[child], &moved))
            break;
        c[i] = c[child];
    }
    c[i] = moved;
}

/* Move the most likely of a heap of n to c[n-1]; it is the largest that was left. */
static void pop(struct candidate *c, int32_t n)
{
    struct candidate top = c[0];
    c[0] = c[n - 1];
    sift_down(c, n - 1, 0);
    c[n - 1] = top;
}

/* Apply top-k, top-p and min-p: the tokens that stay are moved to the end of the candidates, the
 * most likely last, so that only as many as stay are ever sorted. Returns their number. */
static int32_t cut(struct sampler *s, int32_t n, double *sum)
{
    const struct sampler_params *p = &s->params;
    struct candidate *c = s->candidates;
    int32_t n_max = p->top_k && p->top_k < n ? p->top_k : n, kept = 0;
    double target = p->top_p * *sum;
    for (int32_t i = n / 2 - 1; i >= 0; i--)
        sift_down(c, n, i);
    if (n_max < n) { /* top-p counts from what top-k leaves */
        double sum_k = 0;
        for (int32_t i = 0; i < n_max; i++) {
            pop(c, n - i);
            sum_k += c[n - 1 - i].weight;
        }
        target = p->top_p * sum_k;
    }
    *sum = 0;
    while (kept < n_max && (kept == 0 || *sum < target)) {
        if (n_max == n)
            pop(c, n - kept);
        if (c[n - 1 - kept].weight < p->min_p) /* the largest weighs 1 */
            break;
        *sum += c[n - 1 - kept++].weight;
    }
    return kept;
}

int sampler_pick(struct sampler *s, const float *logits, int32_t *out, struct err *err)
{
    int32_t best = 0;
    double sum;
    if (argmax(logits, s->n_vocab, &best, err))
        return -1;
    *out = best;
    if (s->params.temperature == 0)
        return 0;
    int32_t n = weigh(s, logits, logits[best], &sum), kept = n;
    if (s->params.top_k || s->params.top_p < 1 || s->params.min_p > 0)
        kept = cut(s, n, &sum);
    double left = draw(s) * sum;
    for (int32_t i = 0; i < kept; i++) {
        const struct candidate *c = &s->candidates[n - 1 - i];
        *out = c->id;
        left -= c->weight;
        if (left < 0)
            break;
    }
    return 0;
}
