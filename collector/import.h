/* The importers: each reads what another program left and writes a run of the record. Every input
 * is checked before the first record, as run_writer.h asks. */
#ifndef NEARTIE_COLLECTOR_IMPORT_H
#define NEARTIE_COLLECTOR_IMPORT_H

#include "collector/run_writer.h"

#include <stdint.h>

enum {
    IMPORT_FILES = 16, /* most files of one import */
    IMPORT_TOP = 32    /* entries of a list that is taken from a whole row */
};

/* What was asked for; all borrowed. */
struct import {
    const char *path;   /* database to write */
    const char *kind;   /* npy, ... */
    const char *cls;    /* "" = none given */
    const char *key;    /* NULL: not given */
    const char *tokens; /* npy; NULL: not given */
    const char *join;   /* logprobs; NULL: not given */
    const char *files[IMPORT_FILES];
    const char *labels[IMPORT_FILES]; /* names of the arms, in the order of the files */
    int n_files, n_labels;            /* labels that were given; the others are a, b, ... */
};

/* A row of whole logits. */
struct import_row {
    int arm;
    uint64_t forward_id;
    int64_t seq, pos;
    uint64_t context;
    int32_t input_token; /* -1 = unknown */
    int32_t n_vocab;
    uint8_t dtype; /* enum probe_dtype */
};

int import_npy(const struct import *import, struct err *err);
int import_logprobs(const struct import *import, struct err *err);
int import_kld(const struct import *import, struct err *err);
int import_seed_log(const struct import *import, struct err *err);

/* Where the tokens of a context are not known, this seeds its hash: from --key, so that what was
 * imported with the same key joins; otherwise random, so that it joins within this import alone. */
uint64_t import_seed(const struct import *import);

/* On a terminal, say now and then how far a long import is: n of what. */
void import_progress(const struct import *import, const char *what, int64_t n);

/* Settings that say where the run comes from. */
int import_put_source(struct run_writer *w, const struct import *import, struct err *err);

/* These, and an arm for each file; phase: enum probe_phase. */
int import_put_head(struct run_writer *w, const struct import *import, uint32_t phase,
                    struct err *err);

/* Put one row: its list, log-sum-exp, what is not finite; and where base is not NULL, exact
 * differences at its top ids. *out is the row as base for the next, until that is put. */
int import_put_row(struct run_writer *w, const struct import_row *at, const float *logits,
                   const struct record_row *base, const struct record_row **out, struct err *err);

#endif
