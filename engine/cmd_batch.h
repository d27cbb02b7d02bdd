/* Continuous batching: any number of prompts through the sequences of one context. A sequence that
 * ends makes room for the next prompt at once; all that run decode together, one token a step. */
#ifndef NEARTIE_ENGINE_CMD_BATCH_H
#define NEARTIE_ENGINE_CMD_BATCH_H

#include "engine/tokenizer.h"

struct err;
struct forward;
struct record;
struct sampler;

/* One continuation of one prompt. */
struct job {
    const struct token_list *prompt; /* at least one token; borrowed */
    size_t n_new;                    /* most tokens to generate, at least 1 */
    struct sampler *sampler;         /* borrowed */
    struct token_list out;           /* what was generated, an end token included; owned */
    bool is_ended;                   /* by an end token */
    bool is_done;                    /* nothing more will come */
};

struct batch {
    struct forward *forward;           /* every sequence of it is used */
    struct record *record;             /* NULL = none */
    int32_t arm_prefill, arm_decode;   /* of the record */
    const struct tokenizer *tokenizer; /* knows the end tokens; NULL = there are none */
    struct job *jobs;                  /* (n_jobs) */
    int32_t n_jobs;
    /* Called after each new token of a job, in the order in which they come. */
    void (*on_token)(void *user, const struct job *job);
    void *user;
};

/* Run all jobs to their ends. */
int batch_run(struct batch *b, struct err *err);

#endif
