/* What a command compares: two arms of a file, a sequence, and a window of positions; from the
 * command line, or the best that the file offers. */
#ifndef NEARTIE_COLLECTOR_SELECT_H
#define NEARTIE_COLLECTOR_SELECT_H

#include "collector/db.h"

#include <argp.h>

/* As given by the user: NULL and 0 where nothing was. */
struct select_options {
    const char *a, *b; /* arms: ID, LABEL or RUN:LABEL */
    int64_t seq_id;
    int window; /* positions; below 0: all */
};

/* The options --a, --b, --seq and --window, to be made a child of a command's argp with a pointer
 * to the options; and the last two alone. */
extern const struct argp select_argp, select_window_argp;

struct arm {
    int64_t arm_id, run_id;
    char label[201];
    char phase[16];
};

struct selection {
    struct arm a, b;
    bool swapped;   /* a was declared after b: the views have them the other way round */
    int64_t seq_id; /* of arm B's rows, or A's where swapped */
    int64_t seq;    /* the engine's number of it */
    int64_t n;      /* comparable positions in it */
    int n_seqs;     /* sequences of the run */
    int window;
};

/* Take an arm from a row with the columns arm_id, run, arm and phase. */
void select_read_arm(const struct query *query, struct arm *out);

/* Find one arm by the user's name for it. */
int select_arm(struct db *db, const char *name, struct arm *out, struct err *err);

/* Decide. Returns 0; 1 with the reason in err where there is nothing to compare; -1 failed. The
 * default: the two arms that share most positions, of the latest run or else of it and the latest
 * other run with any in common; their last sequence; 24 positions. */
int select_resolve(struct db *db, const struct select_options *options, struct selection *out,
                   struct err *err);

/* Decide on the arms alone; the same returns. */
int select_arms(struct db *db, const char *a, const char *b, struct selection *out,
                struct err *err);

/* Arm numbers in the order that the views have them. */
int64_t select_view_a(const struct selection *sel);
int64_t select_view_b(const struct selection *sel);

#endif
