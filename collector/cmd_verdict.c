#include "config.h"

#include "collector/cmd.h"
#include "collector/report.h"

#include <errno.h>
#include <string.h>

enum { KEY_RULE = 0x200 };

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
    case KEY_RULE:
        if (strcmp(arg, "seed"))
            argp_error(state, "--rule %s: there is only the rule seed", arg);
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

static const struct argp_option options_table[] = {
    {"rule", KEY_RULE, "RULE", 0, "seed: two arms over one window of one sequence (the default)",
     0},
    {0},
};

static const struct argp_child children[] = {
    {&select_argp, 0, NULL, 0},
    {&render_argp, 0, NULL, 0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "FILE",
    "Say whether what differs between two arms of a recorded file is a near-tie or a defect.\vExit "
    "status: 0 no defect (STABLE, NEAR-TIE-EXPOSED, NEAR-TIE), 3 a defect class (UNEXPLAINED, "
    "SYSTEMATIC), 4 nothing to compare, 1 failed, 2 wrong usage.",
    children,
    NULL,
    NULL,
};

int cmd_verdict(int argc, char **argv)
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
        report_print_verdict(stdout, o.format, &sel, &window);
    bool defect = !rc && seed_is_defect(window.summary.cls);
    window_free(&window);
    db_close(db);
    if (rc)
        cmd_fail(&err);
    if (rc)
        return rc < 0 ? CMD_ERROR : CMD_NOT_COMPARABLE;
    return defect ? CMD_DEFECT : CMD_OK;
}
