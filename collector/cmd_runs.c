#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/xalloc.h"

#include <errno.h>

struct options {
    char **paths; /* (n_paths), borrowed from argv */
    int n_paths;
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case ARGP_KEY_ARGS:
        o->paths = state->argv + state->next;
        o->n_paths = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which file?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    NULL,
    parse,
    "FILE...",
    "List the runs of one or more files: when and what was recorded, how much, and what was lost. "
    "state: closed, recovered (its process died), or recording.",
    children,
    NULL,
    NULL,
};

static const char *const names[] = {"file",       "run",    "state", "started_utc",
                                    "seconds",    "engine", "model", "n_arms",
                                    "n_forwards", "n_rows", "n_lost"};

static void render_named(struct render *r, const struct query *query, const char *name)
{
    const char *text = query_text(query, name);
    if (text)
        render_text(r, text, -1);
    else
        render_null(r);
}

static int render_file(struct render *r, const char *path, struct err *err)
{
    struct db *db = NULL;
    struct query *query = NULL;
    int rc = -1;
    if (db_open(&db, path, err) || db_query(db, &query, "runs", err))
        goto out;
    while ((rc = query_step(query, err)) > 0) {
        render_text(r, path, -1);
        render_int(r, query_int(query, "run"));
        render_named(r, query, "state");
        render_named(r, query, "started_utc");
        render_real(r, query_real(query, "seconds"));
        render_named(r, query, "engine");
        render_named(r, query, "model");
        for (int i = 7; i < 11; i++)
            render_int(r, query_int(query, names[i]));
    }
out:
    query_free(query);
    db_close(db);
    return rc;
}

int cmd_runs(int argc, char **argv)
{
    struct options o = {0};
    struct err err;
    int status = CMD_OK;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    struct render *r = render_open(stdout, o.format, 1, sizeof names / sizeof *names, names);
    for (int i = 0; i < o.n_paths; i++)
        if (render_file(r, o.paths[i], &err))
            status = cmd_fail(&err);
    render_close(r);
    return status;
}
