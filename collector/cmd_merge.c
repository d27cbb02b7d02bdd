#include "config.h"

#include "collector/cmd.h"
#include "collector/db.h"
#include "collector/merge.h"

#include <argp.h>
#include <errno.h>

struct options {
    const char *path;
    char **sources; /* (n), borrowed from argv */
    int n;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case 'o':
        o->path = arg;
        return 0;
    case ARGP_KEY_ARGS:
        o->sources = state->argv + state->next;
        o->n = state->argc - state->next;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which files?");
        return EINVAL;
    case ARGP_KEY_END:
        if (!o->path)
            argp_error(state, "into which file? -o FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0, "the file to write; one that exists is refused", 0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "FILE...",
    "Write all that some files hold into a new one: runs, arms, rows, kernels, texts, gaps and "
    "calibrations. Ids are numbered anew, in the order of the files; the files stay as they "
    "are.\vA run that two of the files have is refused. Nothing is left behind where it fails.",
    NULL,
    NULL,
    NULL,
};

static int print_merged(const char *path, int n_files, struct err *err)
{
    struct db *db;
    struct query *query = NULL;
    if (db_open(&db, path, err))
        return -1;
    int rc = db_query(db, &query, "merged", err);
    if (!rc && query_step(query, err) > 0)
        printf("%s: files %d, runs %lld, arms %lld, rows %lld\n", path, n_files,
               (long long)query_int(query, "n_runs"), (long long)query_int(query, "n_arms"),
               (long long)query_int(query, "n_rows"));
    else
        rc = -1;
    query_free(query);
    db_close(db);
    return rc;
}

int cmd_merge(int argc, char **argv)
{
    struct options o = {0};
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    return merge_files(o.path, o.sources, o.n, &err) || print_merged(o.path, o.n, &err)
               ? cmd_fail(&err)
               : CMD_OK;
}
