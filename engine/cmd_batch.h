/* Continuous batching: any number of sequences through the slots of one context. A sequence that
 * ends makes room for the next at once; all that run step together, one token each. What the
 * logits are for is the caller's: to choose the next token, or to score the one that follows. */
#ifndef NEARTIE_ENGINE_CMD_BATCH_H
#define NEARTIE_ENGINE_CMD_BATCH_H

#include "engine/tokenizer.h"

struct err;
struct forward;
struct record;

/* One sequence: tokens that are given, and those that come after them. */
struct job {
    const int32_t *given; /* (n_given), at least 1; borrowed */
    int32_t n_given;
    const char *label;     /* for the record; NULL = none */
    struct token_list out; /* appended to by on_logits; owned by whoever made the job */
    bool is_done;          /* set by on_logits */
};

struct batch {
    struct forward *forward;         /* every slot of it is used */
    struct record *record;           /* NULL = none */
    int32_t arm_prefill, arm_decode; /* of the record */
    bool steps_given;                /* given tokens go through decode one by one, not prefill */
    struct job *jobs;                /* (n_jobs) */
    int32_t n_jobs;

    /* The logits that follow position pos of a job: the last given one and each after it; with
     * steps_given every position. Behind the last given token it appends the next one to out, or
     * sets is_done, or both. Fails with err. */
    int (*on_logits)(void *user, struct job *job, int32_t slot, int32_t pos, const float *logits,
                     struct err *err);
    void *user;
};

/* Run all jobs to their ends. */
int batch_run(struct batch *b, struct err *err);

#endif
