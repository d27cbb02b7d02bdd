/* Rows of real arithmetic for the calibrated rule: a model run over prompts in one arm, its logits
 * kept as top-k lists with their places, two arms paired. Everything that cannot work ends the
 * program with a line that says why. */
#ifndef NEARTIE_TESTS_REAL_H
#define NEARTIE_TESTS_REAL_H

#include "collector/calibrated.h"
#include "tests/faults.h"

enum { REAL_TOPK = 20, REAL_LENGTH = 150, REAL_CHUNK = 32, REAL_BATCH = 4 };

/* Prompts of REAL_LENGTH ids. */
struct real_prompts {
    int n;
    int32_t (*ids)[REAL_LENGTH]; /* owned */
    int32_t common;              /* the most frequent id */
};

/* One numeric configuration. */
struct real_arm {
    const char *name;
    const char *knobs; /* "FAST=0 KV=f32" */
    enum forward_phase phase;
};

/* One row of a run. */
struct real_row {
    struct pair_logit topk[REAL_TOPK];
    int n_topk;
    int64_t n_nan;
    uint64_t hash; /* of the whole row's bits */
    struct pair_place place;
};

/* All rows of an arm: (n_prompts, REAL_LENGTH); owned. */
struct real_run {
    int n_prompts;
    struct real_row *rows;
};

struct real_model {
    struct gguf *gguf;
    struct model *model;
    struct backend *backend;
};

void real_open(struct real_model *out, const char *path);
void real_close(struct real_model *model);

/* Cut the texts of the files (NULL-terminated) into prompts, stride ids from one to the next. */
void real_prompts(struct real_prompts *out, const struct real_model *model,
                  const char *const *files, int stride, int most);

/* Run an arm over the prompts: prefill in chunks of REAL_CHUNK, decode REAL_BATCH sequences at a
 * time. */
void real_run(struct real_run *out, const struct real_model *model,
              const struct real_prompts *prompts, const struct real_arm *arm,
              const struct fault *fault);

/* Pair two runs over every other batch of prompts (0: the first, third; 1: the second, fourth), or
 * over all (-1). */
struct pairs *real_pairs(const struct real_run *a, const struct real_run *b, int half);

#endif
