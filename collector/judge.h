/* The calibrated verdict on two arms: load, find the floor, judge, and say it. */
#ifndef NEARTIE_COLLECTOR_JUDGE_H
#define NEARTIE_COLLECTOR_JUDGE_H

#include "collector/calibrated.h"
#include "collector/control.h"
#include "collector/doc.h"

#include <stdio.h>

struct judge_options {
    const char *control; /* see control_open */
    enum control_kind kind;
    const char *reference; /* a third arm, of arm B's file; NULL = none */
    enum floor_class cls;  /* FLOOR_N_CLASSES: infer */
    bool greedy;           /* emitted tokens were chosen as the best logit */
    int chunk;             /* prefill chunk; 0: as recorded */
    uint64_t seed;         /* of the permutations */
};

struct judgement {
    struct load_side a, b;         /* borrowed */
    char name_a[224], name_b[224]; /* safe to print, with the run where these differ */
    struct load load;
    int64_t n_lost[2], n_pruned[2]; /* rows of each side's run that are not in its file */
    enum floor_class cls;
    char why[160]; /* of the class */
    struct control control;
    struct verdict verdict;
    bool has_reference;
    struct verdict_reference reference;
};

int judge(struct judgement *out, const struct load_side *a, const struct load_side *b,
          const struct judge_options *options, struct err *err);
void judge_free(struct judgement *judgement);

/* The exit status that the verdict stands for. */
int judge_status(const struct judgement *j);

/* The whole verdict, as text, CSV (one row of its figures) or JSON. */
int judge_print(FILE *out, enum render_format format, const struct judgement *j, struct err *err);

/* The verdict and what it means: the class and its reason, a sentence for people who have not read
 * the rule, and a fact for every test that rejects. */
void judge_write_head(struct doc *doc, const struct judgement *j);

/* Parts of it: the figures below the verdict; every test; the flips of the largest contrasts, at
 * most as many as most. */
void judge_write_figures(struct doc *doc, const struct judgement *j);
void judge_print_tests(FILE *out, enum render_format format, const struct judgement *j);
int judge_print_flips(FILE *out, enum render_format format, const struct judgement *j, size_t most,
                      struct err *err);

/* Every tag, strongest first, as a table of its own; and those of the boundaries of forward passes
 * and tiles alone, under a title of their own, where there are any. */
int judge_print_tags(FILE *out, enum render_format format, const struct judgement *j, size_t most,
                     struct err *err);
int judge_print_boundaries(FILE *out, const struct judgement *j, struct err *err);

#endif
