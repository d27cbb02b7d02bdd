#include "config.h"

#include "collector/select.h"
#include "collector/args.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { WINDOW_DEFAULT = 24, KEY_A = 0x100, KEY_B, KEY_SEQ, KEY_WINDOW, N_ARM_OPTIONS = 2 };

static const struct argp_option options_table[] = {
    {"a", KEY_A, "ARM", 0, "arm A: its number, its label, or RUN:LABEL", 2},
    {"b", KEY_B, "ARM", 0, "arm B", 2},
    {"seq", KEY_SEQ, "ID", 0, "sequence, its seq_id in the file (default: the last)", 2},
    {"window", KEY_WINDOW, "N", 0, "positions, the last N of the sequence (default 24), or all", 2},
    {0},
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct select_options *o = state->input;
    switch (key) {
    case KEY_A:
        o->a = arg;
        return 0;
    case KEY_B:
        o->b = arg;
        return 0;
    case KEY_SEQ:
        o->seq_id = args_number(state, "--seq", arg, 1, INT64_MAX);
        return 0;
    case KEY_WINDOW:
        o->window = strcmp(arg, "all") ? (int)args_number(state, "--window", arg, 1, INT_MAX) : -1;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

const struct argp select_argp = {options_table, parse, NULL, NULL, NULL, NULL, NULL};
const struct argp select_window_argp = {
    options_table + N_ARM_OPTIONS, parse, NULL, NULL, NULL, NULL, NULL};

int64_t select_view_a(const struct selection *sel)
{
    return sel->swapped ? sel->b.arm_id : sel->a.arm_id;
}

int64_t select_view_b(const struct selection *sel)
{
    return sel->swapped ? sel->a.arm_id : sel->b.arm_id;
}

void select_read_arm(const struct query *query, struct arm *out)
{
    const char *label = query_text(query, "arm"), *phase = query_text(query, "phase");
    out->arm_id = query_int(query, "arm_id");
    out->run_id = query_int(query, "run");
    snprintf(out->label, sizeof out->label, "%s", label ? label : "");
    snprintf(out->phase, sizeof out->phase, "%s", phase ? phase : "");
}

int select_arm(struct db *db, const char *name, struct arm *out, struct err *err)
{
    struct query *query;
    char *colon;
    if (db_query(db, &query, "arm_named", err))
        return -1;
    long long run = strtoll(name, &colon, 10);
    if (colon != name && *colon == ':') {
        query_bind_int(query, ":run_id", run);
        query_bind_text(query, ":name", colon + 1);
    } else {
        query_bind_text(query, ":name", name);
    }
    int rc = query_step(query, err);
    if (rc > 0)
        select_read_arm(query, out);
    query_free(query);
    if (rc == 0)
        err_set(err, "%s: no arm is named %s", db_path(db), name);
    return rc > 0 ? 0 : -1;
}

static int arm_by_id(struct db *db, int64_t arm_id, struct arm *out, struct err *err)
{
    char name[32];
    snprintf(name, sizeof name, "%lld", (long long)arm_id);
    return select_arm(db, name, out, err);
}

/* Positions that two arms share, counted up to most; seq_id: 0 = any. */
static int count_comparable(struct db *db, int64_t a, int64_t b, int64_t seq_id, int most,
                            struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "comparable", err))
        return -1;
    query_bind_int(query, ":arm_a", a < b ? a : b);
    query_bind_int(query, ":arm_b", a < b ? b : a);
    query_bind_int(query, ":n", most);
    if (seq_id)
        query_bind_int(query, ":seq_id", seq_id);
    int rc = query_step(query, err);
    if (rc > 0)
        rc = (int)query_int(query, "n");
    query_free(query);
    return rc;
}

static int is_comparable(struct db *db, int64_t a, int64_t b, int64_t seq_id, struct err *err)
{
    return count_comparable(db, a, b, seq_id, 1, err);
}

/* A pair of arms and how much they share. */
struct candidate {
    int64_t arm_a, arm_b, run_a, run_b, choice;
    int n;
};

/* The pair that shares most positions, of the first two runs that share any; a, b: an end that was
 * given, or 0. Returns its n, or -1. */
static int best_pair(struct db *db, int64_t a, int64_t b, struct candidate *best, struct err *err)
{
    enum { ENOUGH = 10000 };
    struct query *query;
    int rc;
    *best = (struct candidate){0};
    if (db_query(db, &query, "arm_pairs", err))
        return -1;
    while ((rc = query_step(query, err)) > 0) {
        struct candidate pair = {query_int(query, "arm_a"),  query_int(query, "arm_b"),
                                 query_int(query, "run_a"),  query_int(query, "run_b"),
                                 query_int(query, "choice"), 0};
        if (best->n && (query_int(query, "choice") != best->choice || pair.run_a != best->run_a ||
                        pair.run_b != best->run_b))
            break;
        if ((a && a != pair.arm_a && a != pair.arm_b) || (b && b != pair.arm_a && b != pair.arm_b))
            continue;
        pair.n = count_comparable(db, pair.arm_a, pair.arm_b, 0, ENOUGH, err);
        if (pair.n < 0) {
            rc = -1;
            break;
        }
        if (pair.n > best->n)
            *best = pair;
    }
    query_free(query);
    return rc < 0 ? -1 : best->n;
}

/* The other end of a pair, or neither, was given. */
static int find_pair(struct db *db, int64_t a, int64_t b, struct selection *out, struct err *err)
{
    struct candidate best;
    int n = best_pair(db, a, b, &best, err);
    if (n < 0)
        return -1;
    if (!n) {
        err_set(err,
                "%s: no two arms have a position of the same context: record the same tokens in "
                "two settings",
                db_path(db));
        return 1;
    }
    bool swap = a == best.arm_b || b == best.arm_a;
    return arm_by_id(db, swap ? best.arm_b : best.arm_a, &out->a, err) ||
                   arm_by_id(db, swap ? best.arm_a : best.arm_b, &out->b, err)
               ? -1
               : 0;
}

static int find_arms(struct db *db, const char *a, const char *b, struct selection *out,
                     struct err *err)
{
    int rc;
    if (a && select_arm(db, a, &out->a, err))
        return -1;
    if (b && select_arm(db, b, &out->b, err))
        return -1;
    if (!a || !b)
        return find_pair(db, out->a.arm_id, out->b.arm_id, out, err);
    if (out->a.arm_id == out->b.arm_id)
        return err_set(err, "%s: --a and --b name the same arm, %s", db_path(db), out->a.label);
    rc = is_comparable(db, out->a.arm_id, out->b.arm_id, 0, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    err_set(err, "%s: arms %s and %s have no position of the same context", db_path(db),
            out->a.label, out->b.label);
    return 1;
}

int select_arms(struct db *db, const char *a, const char *b, struct selection *out, struct err *err)
{
    *out = (struct selection){.window = WINDOW_DEFAULT};
    int rc = find_arms(db, a, b, out, err);
    out->swapped = out->a.arm_id > out->b.arm_id;
    return rc;
}

/* The latest sequence of arm B in which the two arms meet; counts those of the run. */
static int latest_sequence(struct db *db, struct selection *out, struct err *err)
{
    struct query *query;
    int64_t a = select_view_a(out), b = select_view_b(out);
    int rc, met = 0;
    if (db_query(db, &query, "run_sequences", err))
        return -1;
    query_bind_int(query, ":arm_id", b);
    while ((rc = query_step(query, err)) > 0 && met >= 0) {
        out->n_seqs++;
        if (met)
            continue;
        out->seq_id = query_int(query, "seq_id");
        met = is_comparable(db, a, b, out->seq_id, err);
    }
    query_free(query);
    return rc < 0 || met < 0 ? -1 : 0;
}

static int read_sequence(struct db *db, struct selection *out, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "sequence", err))
        return -1;
    query_bind_int(query, ":arm_a", select_view_a(out));
    query_bind_int(query, ":arm_b", select_view_b(out));
    query_bind_int(query, ":seq_id", out->seq_id);
    int rc = query_step(query, err);
    if (rc > 0) {
        out->seq = query_int(query, "seq");
        out->n = query_int(query, "n");
    }
    query_free(query);
    return rc < 0 ? -1 : 0;
}

static int find_sequence(struct db *db, int64_t wanted, struct selection *out, struct err *err)
{
    if (latest_sequence(db, out, err))
        return -1;
    if (wanted)
        out->seq_id = wanted;
    if (read_sequence(db, out, err))
        return -1;
    if (!out->n)
        return err_set(err, "%s: arms %s and %s have nothing in common in sequence %lld",
                       db_path(db), out->a.label, out->b.label, (long long)out->seq_id);
    return 0;
}

int select_resolve(struct db *db, const struct select_options *options, struct selection *out,
                   struct err *err)
{
    int rc = select_arms(db, options->a, options->b, out, err);
    if (rc)
        return rc;
    out->window = options->window ? options->window : WINDOW_DEFAULT;
    return find_sequence(db, options->seq_id, out, err);
}
