#include "config.h"

#include "collector/cmd.h"
#include "collector/report.h"

#include <errno.h>

struct options {
    struct select_options select;
    enum render_format format;
    const char *path;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->select;
        state->child_inputs[1] = &o->format;
        return 0;
    case ARGP_KEY_ARG:
        if (o->path)
            argp_error(state, "%s: more than one file", arg);
        o->path = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which file?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_child children[] = {
    {&select_argp, 0, NULL, 0},
    {&render_argp, 0, NULL, 0},
    {0},
};

static const struct argp argp = {
    NULL,
    parse,
    "FILE",
    "Show what a recorded file says of two arms: every position of a window, the distribution of "
    "the "
    "margins, the decision position, agreement, and the verdict of the seed's rule.",
    children,
    NULL,
    NULL,
};

int cmd_report(int argc, char **argv)
{
    struct options o = {0};
    struct selection sel;
    struct window window = {0};
    struct db *db = NULL;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = db_open(&db, o.path, &err);
    if (!rc)
        rc = select_resolve(db, &o.select, &sel, &err);
    if (!rc)
        rc = window_load(db, &sel, &window, &err);
    if (!rc)
        rc = report_print(stdout, o.format, db, &sel, &window, &err);
    window_free(&window);
    db_close(db);
    if (rc)
        cmd_fail(&err);
    return rc < 0 ? CMD_ERROR : rc > 0 ? CMD_NOT_COMPARABLE : CMD_OK;
}
