#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

struct options {
    const char *path, *statement;
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1)
            argp_error(state, "%s: more than one statement; quote it as one argument", arg);
        *(state->arg_num ? &o->statement : &o->path) = arg;
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
    "FILE [STATEMENT]",
    "Run statements, separated by semicolons, over a recorded file, from the argument or from "
    "standard "
    "input. Nothing can be changed. The views are those of this program: topk, margins, matches, "
    "pair_ids, pairs, flips, agreement, forward_kernels, kernel_usage.",
    children,
    NULL,
    NULL,
};

/* All of a stream, NUL-terminated, to be freed. */
static char *read_all(FILE *in)
{
    size_t n = 0, size = 4096, got;
    char *text = xcalloc(size, 1);
    while ((got = fread(text + n, 1, size - n - 1, in)) > 0) {
        n += got;
        if (n + 1 == size) {
            size *= 2;
            text = xrealloc(text, size, 1);
        }
    }
    text[n] = '\0';
    return text;
}

static int run_all(struct db *db, const char *sql, enum render_format format, struct err *err)
{
    int rc = 0;
    while (!rc && *sql) {
        struct query *query;
        if (db_statement(db, &query, sql, &sql, err))
            return -1;
        if (query && query_n_columns(query) > 0)
            rc = render_query(stdout, format, RENDER_ALL_DIGITS, query, err);
        else if (query)
            rc = query_step(query, err);
        query_free(query);
    }
    return rc;
}

int cmd_sql(int argc, char **argv)
{
    struct options o = {0};
    struct db *db = NULL;
    struct err err;
    char *input = NULL;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = db_open(&db, o.path, &err);
    if (!rc && !o.statement)
        input = read_all(stdin);
    if (!rc)
        rc = run_all(db, input ? input : o.statement, o.format, &err);
    free(input);
    db_close(db);
    return rc ? cmd_fail(&err) : CMD_OK;
}
