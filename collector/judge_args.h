/* The command line of everything that applies the calibrated rule: which files and arms, which
 * class and control. */
#ifndef NEARTIE_COLLECTOR_JUDGE_ARGS_H
#define NEARTIE_COLLECTOR_JUDGE_ARGS_H

#include "collector/judge.h"

struct judge_args {
    struct judge_options options;
    const char *a, *b;    /* arms, NULL = choose */
    const char *paths[2]; /* arm A's file and, where it is another, arm B's */
    enum render_format format;
};

/* The options with --format and the files, to be made a child of a command's argp with a pointer to
 * the arguments. judge_args_init first. */
extern const struct argp judge_argp;
void judge_args_init(struct judge_args *args);

/* The open files and the chosen arms. */
struct judge_input {
    struct db *dbs[2]; /* the same where there is one file */
    struct arm arms[2];
};

/* Returns 0; 1 with the reason in err where there is nothing to compare; -1 failed. */
int judge_input_open(struct judge_input *in, const struct judge_args *args, struct err *err);
void judge_input_close(struct judge_input *in);

/* Open, choose and judge; the same returns. Free both. */
int judge_from_args(struct judgement *out, struct judge_input *in, const struct judge_args *args,
                    struct err *err);

#endif
