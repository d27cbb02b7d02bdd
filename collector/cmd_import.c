#include "config.h"

#include "collector/cmd.h"
#include "collector/import_npy.h"
#include "collector/run_writer.h"
#include "collector/xalloc.h"

#include <argp.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_CLASS = 0x200,
    KEY_ARM,
    TOPK = 32,         /* entries of a recorded list */
    N_ARMS = 2,        /* files, an arm each */
    CONTEXT_KIND = 'n' /* keys the contexts of rows that have no tokens */
};

struct options {
    const char *path, *kind, *cls;
    const char *files[N_ARMS], *labels[N_ARMS];
    int n_files, n_labels;
};

static error_t parse_file(struct options *o, char *arg, struct argp_state *state)
{
    if (!o->kind) {
        o->kind = arg;
        if (strcmp(arg, "npy") != 0)
            argp_error(state, "%s: no such kind; npy", arg);
        return 0;
    }
    if (o->n_files == N_ARMS)
        argp_error(state, "%s: more than two files", arg);
    o->files[o->n_files++] = arg;
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o':
        o->path = arg;
        return 0;
    case KEY_CLASS:
        o->cls = arg;
        return 0;
    case KEY_ARM:
        if (o->n_labels == N_ARMS)
            argp_error(state, "--arm %s: more than two arms", arg);
        o->labels[o->n_labels++] = arg;
        return 0;
    case ARGP_KEY_ARG:
        return parse_file(o, arg, state);
    case ARGP_KEY_END:
        if (!o->path)
            argp_error(state, "which file? -o FILE");
        if (o->n_files != N_ARMS)
            argp_error(state, "which two files? npy A.npy B.npy");
        if (!strcmp(o->labels[0], o->labels[1]))
            argp_error(state, "--arm %s: both arms have this name", o->labels[0]);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0, "database to write; one that exists gets another run", 0},
    {"arm", KEY_ARM, "NAME", 0, "name of the first arm, given again of the second (default a, b)",
     0},
    {"class", KEY_CLASS, "CLASS", 0,
     "how the arms may differ: bitwise, reassoc, precision, weights, engine", 0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "npy A.npy B.npy",
    "Write a record from what another program left: npy, the whole logits of two arms, a row for "
    "each position, as [rows, vocabulary] of f32 or f16. Row N of one file is compared with row N "
    "of the other: both must come from the same tokens.",
    NULL,
    NULL,
    NULL,
};

/* ---- one row ---- */

/* Put (token, logit) into the list, best first, ties by the lowest id; ids come ascending. */
static void list_add(struct record_row *row, int32_t token, float logit)
{
    int at = row->n_top;
    if (at == TOPK && !(logit > row->top[at - 1].logit))
        return;
    at -= at == TOPK;
    for (; at > 0 && logit > row->top[at - 1].logit; at--)
        row->top[at] = row->top[at - 1];
    row->top[at] = (struct record_top){token, logit};
    row->n_top += row->n_top < TOPK;
}

static void fill_row(struct record_row *row, const float *logits)
{
    for (int32_t i = 0; i < row->n_vocab; i++) {
        row->n_nan += isnan(logits[i]);
        row->n_posinf += logits[i] == INFINITY;
        row->n_neginf += logits[i] == -INFINITY;
        if (row->first_bad < 0 && (isnan(logits[i]) || logits[i] == INFINITY))
            row->first_bad = i;
        if (!isnan(logits[i]))
            list_add(row, i, logits[i]);
    }
    row->lse = row->n_top ? (double)row->top[0].logit : -INFINITY;
    if (!isfinite(row->lse))
        return;
    double sum = 0;
    for (int32_t i = 0; i < row->n_vocab; i++)
        if (!isnan(logits[i]))
            sum += exp((double)logits[i] - (double)row->top[0].logit);
    row->lse += log(sum);
}

/* Exact differences against the first arm's row, at its top ids. */
static void fill_base(struct record_row *row, const float *logits, const struct record_row *base)
{
    struct record_base *at = record_row_base(row);
    row->base_row_id = base->row_id;
    row->base_whole = base->n_top == base->n_vocab;
    row->base_last = base->n_top ? base->top[base->n_top - 1].logit : 0;
    for (int i = 0; i < base->n_top; i++)
        at[row->n_base++] = (struct record_base){base->top[i].token, logits[base->top[i].token],
                                                 base->top[i].logit};
}

static int put_row(struct run_writer *w, int arm, int64_t pos, const struct npy *npy,
                   const float *logits, const struct record_row **base, struct err *err)
{
    const uint64_t key[2] = {CONTEXT_KIND, (uint64_t)pos};
    if (run_put_forward(w,
                        &(struct record_forward){
                            .n_past = pos, .arm = arm, .n_tokens = 1, .n_seqs = 1, .n_ubatch = 1},
                        err))
        return -1;
    struct record_row *row = run_next_body(w);
    *row = (struct record_row){
        .row_id = ++w->n_rows,
        .forward_id = w->n_forwards,
        .context_hash = XXH3_64bits(key, sizeof key) | 1,
        .pos = pos,
        .input_token = -1,
        .n_vocab = npy->n_vocab,
        .first_bad = -1,
        .dtype = npy->item_bytes == 2,
    };
    fill_row(row, logits);
    if (*base)
        fill_base(row, logits, *base);
    *base = row;
    return run_put(w, RECORD_ROW, record_row_bytes(row->n_top, row->n_base), err);
}

/* ---- two files ---- */

struct input {
    const struct options *options;
    struct npy *files; /* (N_ARMS) */
    float *logits;     /* (n_vocab) */
};

static int put_rows(struct run_writer *w, const struct input *in, struct err *err)
{
    for (int64_t pos = 0; pos < in->files[0].n_rows; pos++) {
        const struct record_row *base = NULL;
        for (int i = 0; i < N_ARMS; i++)
            if (npy_row(in->files + i, in->logits, err) ||
                put_row(w, i + 1, pos, in->files + i, in->logits, &base, err))
                return -1;
    }
    return 0;
}

static int put_all(struct run_writer *w, const void *input, struct err *err)
{
    const struct input *in = input;
    const struct options *o = in->options;
    if (run_put_setting(w, "engine", "neartie import npy", err))
        return -1;
    for (int i = 0; i < N_ARMS; i++) {
        char name[16];
        snprintf(name, sizeof name, "import_%c", 'a' + i);
        if (run_put_setting(w, name, o->files[i], err) ||
            run_put_arm(w, i + 1, o->labels[i], 1, o->cls, err))
            return -1;
    }
    return run_put_gap(w, "import", (uint64_t)in->files[0].n_rows * N_ARMS,
                       "npy: rows are joined by their number; tokens, sequences, batches and "
                       "kernels are unknown",
                       err) ||
                   put_rows(w, in, err)
               ? -1
               : 0;
}

static int check_pair(const struct npy *a, const struct npy *b, struct err *err)
{
    if (a->n_rows != b->n_rows || a->n_vocab != b->n_vocab)
        return err_set(err,
                       "%s and %s: shapes [%" PRId64 ", %d] and [%" PRId64 ", %d] are not equal",
                       a->path, b->path, a->n_rows, a->n_vocab, b->n_rows, b->n_vocab);
    return 0;
}

static int import_npy(const struct options *o, struct err *err)
{
    struct npy files[N_ARMS] = {0};
    int rc = 0;
    for (int i = 0; i < N_ARMS && rc == 0; i++)
        rc = npy_open(files + i, o->files[i], err);
    if (rc == 0)
        rc = check_pair(files, files + 1, err);
    if (rc == 0) {
        struct input in = {o, files, xcalloc((size_t)files[0].n_vocab, sizeof(float))};
        rc = run_write_file(o->path, put_all, &in, err);
        free(in.logits);
    }
    for (int i = 0; i < N_ARMS; i++)
        npy_close(files + i);
    return rc;
}

int cmd_import(int argc, char **argv)
{
    struct options o = {.cls = "", .labels = {"a", "b"}};
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    return import_npy(&o, &err) ? cmd_fail(&err) : CMD_OK;
}
