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
    "Show what a recorded file says of two arms: the verdict and its reason; every position of a "
    "window with the distribution of the margins, the decision position, agreement and the verdict "
    "of the seed's rule; what could not be recorded; then all positions against the noise floor, "
    "the "
    "flips with what stands before them, and how to look further.",
    children,
    NULL,
    NULL,
};

/* Where there is nothing to compare: what the file holds instead. */
static int print_contents(struct db *db, struct err *err)
{
    static const char *const names[] = {"runs", "arms", "gaps"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct query *query;
        if (db_query(db, &query, names[i], err))
            return -1;
        printf("%s%s:\n", i ? "\n" : "", names[i]);
        int rc = render_query(stdout, RENDER_TABLE, 4, query, err);
        query_free(query);
        if (rc)
            return -1;
    }
    return 0;
}

static int report(struct db *db, const struct options *o, struct err *err)
{
    static const struct judge_options by_default = {.cls = FLOOR_N_CLASSES, .seed = 1};
    struct selection sel;
    struct window window = {0};
    struct judgement j;
    struct err ignored;
    int rc = select_resolve(db, &o->select, &sel, err);
    if (rc > 0 && o->format == RENDER_TABLE)
        print_contents(db, &ignored);
    if (rc)
        return rc;
    struct load_side a = {db, &sel.a}, b = {db, &sel.b};
    rc = window_load(db, &sel, &window, err);
    if (rc)
        return rc;
    rc = judge(&j, &a, &b, &by_default, err);
    if (!rc) {
        rc = report_print(stdout, o->format, &(struct report){db, &sel, &window, &j}, err);
        judge_free(&j);
    }
    window_free(&window);
    return rc;
}

int cmd_report(int argc, char **argv)
{
    struct options o = {0};
    struct db *db = NULL;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = db_open(&db, o.path, &err);
    if (!rc)
        rc = report(db, &o, &err);
    db_close(db);
    if (rc)
        cmd_fail(&err);
    return rc < 0 ? CMD_ERROR : rc > 0 ? CMD_NOT_COMPARABLE : CMD_OK;
}
