/* From a row of logits to the next token: the largest one, or a draw from the distribution that
 * temperature, top-k, top-p and min-p leave, in this order, each on what the one before left,
 * rescaled to sum to 1. The same seed and the same logits give the same tokens, on any machine
 * whose exp() rounds alike. NaN never wins; ties go to the lowest id. */
#ifndef NEARTIE_ENGINE_SAMPLER_H
#define NEARTIE_ENGINE_SAMPLER_H

#include <stdint.h>

struct err;
struct sampler;

struct sampler_params {
    double temperature; /* 0 = greedy, whatever the rest says */
    int32_t top_k;      /* keep the k most likely; 0 = all */
    double top_p;       /* keep the most likely that together reach this; 1 = all */
    double min_p;       /* keep those at least this times the most likely; 0 = all */
    uint64_t seed;
};

/* Greedy, nothing cut, seed 0. */
extern const struct sampler_params sampler_defaults;

/* Errors: a parameter out of range, with the range. */
int sampler_new(const struct sampler_params *params, int32_t n_vocab, struct sampler **out,
                struct err *err);
void sampler_free(struct sampler *s); /* NULL is fine */

/* The next token after a row of n_vocab logits. Fails where no logit is above -inf. */
int sampler_pick(struct sampler *s, const float *logits, int32_t *out, struct err *err);

#endif
