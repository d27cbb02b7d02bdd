#include "config.h"

#include "collector/args.h"
#include "collector/cmd.h"
#include "collector/launch.h"
#include "collector/render.h"
#include "collector/select.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { KEY_ARM = 0x200, KEY_OF, KEY_MODEL, KEY_BATCH, MAX_ARGS = 16 };

struct options {
    const char *path, *of, *model;
    char *arms, *batch; /* passed on as they are; arms apart by commas, owned */
    enum render_format format;
};

/* The sequences of an arm, written to a file that neartie-engine reads. */
struct tokens {
    char path[64];
    FILE *file;
    int64_t n_seqs, n_left_out; /* written, and those of which the beginning is not recorded */
};

static void add_arm(struct options *o, const char *arm)
{
    size_t used = o->arms ? strlen(o->arms) : 0, size = used + strlen(arm) + 2;
    o->arms = xrealloc(o->arms, size, 1);
    snprintf(o->arms + used, size - used, "%s%s", used ? "," : "", arm);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case KEY_ARM:
        add_arm(o, arg);
        return 0;
    case KEY_OF:
        o->of = arg;
        return 0;
    case KEY_MODEL:
        o->model = arg;
        return 0;
    case KEY_BATCH:
        o->batch = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->arms)
            argp_error(state, "under which settings? --arm decode:FAST=0, for instance");
        return 0;
    default:
        return args_one(&o->path, "file", key, arg, state);
    }
}

static const struct argp_option options_table[] = {
    {"arm", KEY_ARM, "SETTINGS", 0,
     "how to compute: prefill or decode and any knobs, for instance decode:FAST=0:REF=1; may be "
     "given again",
     0},
    {"of", KEY_OF, "ARM", 0,
     "the arm whose contexts are run (default: the first of the latest run)", 0},
    {"model", KEY_MODEL, "FILE", 0, "the model (default: where the record says it was)", 0},
    {"batch", KEY_BATCH, "N", 0, "sequences that a decode arm computes together (default 1)", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE",
    "Run the recorded contexts again through neartie-engine under other settings, and record them "
    "into the same file: every position gets the recorded tokens before it, whatever the new arm "
    "would have chosen. verdict, flips and the others then compare the new arm with any other; "
    "with REF=1, the float64 reference, --reference tells which of two arms is further from it.",
    children,
    NULL,
    NULL,
};

/* ---- the contexts ---- */

static int write_sequence(struct tokens *tokens, const char *ids, bool is_whole, struct err *err)
{
    if (!is_whole) {
        tokens->n_left_out++;
        return 0;
    }
    tokens->n_seqs++;
    if (fprintf(tokens->file, "%s\n", ids) < 0)
        return err_set(err, "%s: %s", tokens->path, strerror(errno));
    return 0;
}

/* One line a sequence. A sequence with a token that was not recorded cannot be run again. */
static int write_tokens(struct tokens *tokens, struct query *query, struct err *err)
{
    char *ids = NULL;
    size_t size = 0;
    int64_t seq_id = -1, next = 0;
    bool is_whole = true;
    FILE *line = NULL;
    int rc, step;
    for (rc = 0, step = query_step(query, err); rc == 0 && step > 0;
         step = query_step(query, err)) {
        if (!line || query_int(query, "seq_id") != seq_id) {
            if (line && !fclose(line))
                rc = write_sequence(tokens, ids, is_whole, err);
            free(ids);
            ids = NULL;
            line = open_memstream(&ids, &size);
            if (!line)
                return err_set(err, "contexts: %s", strerror(errno));
            seq_id = query_int(query, "seq_id");
            next = 0;
            is_whole = true;
        }
        is_whole &= query_int(query, "pos") == next && !query_is_null(query, "token");
        fprintf(line, "%s%lld", next++ ? "," : "", (long long)query_int(query, "token"));
    }
    if (line && !fclose(line) && rc == 0)
        rc = write_sequence(tokens, ids, is_whole, err);
    free(ids);
    return rc || step < 0 ? -1 : 0;
}

static int find_contexts(struct db *db, const struct arm *arm, struct tokens *tokens,
                         struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "replay_tokens", err))
        return -1;
    query_bind_int(query, ":arm_id", arm->arm_id);
    int rc = write_tokens(tokens, query, err);
    query_free(query);
    if (!rc && fflush(tokens->file))
        rc = err_set(err, "%s: %s", tokens->path, strerror(errno));
    if (!rc && tokens->n_left_out)
        fprintf(stderr,
                "neartie: %s: %lld of %lld sequences left out: not all of their tokens "
                "are recorded\n",
                db_path(db), (long long)tokens->n_left_out,
                (long long)(tokens->n_left_out + tokens->n_seqs));
    if (!rc && !tokens->n_seqs)
        rc = err_set(err, "%s: arm %lld, %s: no sequence of which every token is recorded",
                     db_path(db), (long long)arm->arm_id, arm->label);
    return rc;
}

/* ---- the arm and its model ---- */

/* The arm given, or the first of the latest run. */
static int find_arm(struct db *db, const char *name, struct arm *out, struct err *err)
{
    struct query *query;
    int64_t run = -1;
    int step;
    if (name)
        return select_arm(db, name, out, err);
    if (db_query(db, &query, "arm_list", err))
        return -1;
    while ((step = query_step(query, err)) > 0)
        if (query_int(query, "run") > run) {
            run = query_int(query, "run");
            select_read_arm(query, out);
        }
    query_free(query);
    if (step == 0 && run < 0)
        return err_set(err, "%s: no arm is recorded", db_path(db));
    return step;
}

/* Where the run's model was, to be freed. */
static char *find_model(struct db *db, const struct arm *arm, struct err *err)
{
    struct query *query;
    char *model = NULL;
    if (db_query(db, &query, "run", err))
        return NULL;
    query_bind_int(query, ":run_id", arm->run_id);
    if (query_step(query, err) > 0 && query_text(query, "model"))
        model = xstrdup(query_text(query, "model"));
    query_free(query);
    if (!model)
        err_set(err, "%s: run %lld does not say which model it had; give --model", db_path(db),
                (long long)arm->run_id);
    else if (access(model, R_OK)) {
        err_set(err, "%s: %s; give --model", model, strerror(errno));
        free(model);
        model = NULL;
    }
    return model;
}

/* ---- running, and what came of it ---- */

static int run_engine(const struct options *o, const char *model, const struct tokens *tokens,
                      struct err *err)
{
    char *argv[MAX_ARGS], *engine = launch_find_engine(err);
    int n = 0, status;
    if (!engine)
        return -1;
    argv[n++] = engine;
    argv[n++] = "score";
    argv[n++] = "--arms";
    argv[n++] = o->arms;
    argv[n++] = "--batch";
    argv[n++] = o->batch ? o->batch : "1";
    argv[n++] = "--tokens";
    argv[n++] = (char *)tokens->path;
    argv[n++] = "--";
    argv[n++] = (char *)model;
    argv[n] = NULL;
    setenv("PROBE_ON_FULL", "block", 0); /* nobody waits for the engine: lose no row */
    struct launch launch = {.db = o->path, .quiet = true, .argv = argv};
    int rc = launch_run(&launch, true, &status, err);
    if (!rc && status)
        rc = err_set(err, "neartie-engine score: exit status %d", status);
    free(engine);
    return rc;
}

static int print_arms(const struct options *o, const struct arm *arm, struct err *err)
{
    struct db *db;
    struct query *query = NULL;
    if (db_open(&db, o->path, err))
        return -1;
    int rc = db_query(db, &query, "replayed", err);
    if (!rc)
        query_bind_int(query, ":arm_id", arm->arm_id);
    if (!rc && query_step(query, err) > 0 && !query_int(query, "same_model"))
        fprintf(stderr, "neartie: %s: run %lld has another model than run %lld\n", o->path,
                (long long)query_int(query, "run"), (long long)arm->run_id);
    if (!rc) {
        query_reset(query);
        rc = render_query(stdout, o->format, 4, query, err);
    }
    query_free(query);
    db_close(db);
    return rc;
}

static int replay(const struct options *o, struct tokens *tokens, struct err *err)
{
    struct db *db;
    struct arm arm;
    char *model = NULL;
    if (db_open(&db, o->path, err))
        return -1;
    int rc = find_arm(db, o->of, &arm, err);
    if (!rc)
        model = o->model ? xstrdup(o->model) : find_model(db, &arm, err);
    rc = rc || !model || find_contexts(db, &arm, tokens, err) ? -1 : 0;
    db_close(db); /* before the engine's probe writes into the file */
    if (!rc)
        rc = run_engine(o, model, tokens, err);
    if (!rc)
        rc = print_arms(o, &arm, err);
    free(model);
    return rc;
}

int cmd_replay(int argc, char **argv)
{
    struct options o = {0};
    struct tokens tokens = {.path = "/tmp/neartie-replay-XXXXXX"};
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int fd = mkstemp(tokens.path), rc;
    if (fd < 0 || !(tokens.file = fdopen(fd, "w"))) {
        err_set(&err, "%s: %s", tokens.path, strerror(errno));
        return cmd_fail(&err);
    }
    rc = replay(&o, &tokens, &err);
    fclose(tokens.file);
    unlink(tokens.path);
    free(o.arms);
    return rc ? cmd_fail(&err) : CMD_OK;
}
