#include "config.h"

#include "collector/cmd.h"
#include "collector/judge_args.h"
#include "collector/report.h"

#include <errno.h>
#include <string.h>

enum { KEY_RULE = 0x200, KEY_SEQ, KEY_WINDOW };

struct options {
    struct judge_args judge;
    struct select_options select; /* of the seed's rule */
    bool seed_rule;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->judge;
        state->child_inputs[1] = &o->select;
        return 0;
    case KEY_RULE:
        o->seed_rule = !strcmp(arg, "seed");
        if (!o->seed_rule && strcmp(arg, "calibrated"))
            argp_error(state, "--rule %s: not one of calibrated, seed", arg);
        return 0;
    case ARGP_KEY_END:
        if (o->seed_rule && o->judge.paths[1])
            argp_error(state, "--rule seed: takes one file");
        if (!o->seed_rule && (o->select.seq_id || o->select.window))
            argp_error(state, "--seq and --window belong to --rule seed");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"rule", KEY_RULE, "RULE", 0,
     "calibrated: all positions against a noise floor (the default); seed: one window of one "
     "sequence",
     1},
    {0},
};

static const struct argp_child children[] = {
    {&judge_argp, 0, NULL, 0},
    {&select_window_argp, 0, NULL, 0},
    {0},
};

static const struct argp argp = {
    options_table,
    parse,
    "FILE [FILE2]",
    "Say whether what differs between two arms, of one recorded file or of two, is a near-tie or a "
    "defect.\vThe first line is the verdict and its reason: NOT-ENGAGED, NOT-COMPARABLE, "
    "NONFINITE, "
    "SAMPLER-MISMATCH, CONTRACT-VIOLATION, SYSTEMATIC, UNEXPLAINED, EXACT-TIE, NEAR-TIE, "
    "NEAR-TIE-EXPOSED or STABLE. NEAR-TIE means consistent with the noise floor, not harmless. "
    "Exit "
    "status: 0 no defect, 3 a defect (NONFINITE to UNEXPLAINED), 4 no conclusion (NOT-ENGAGED, "
    "NOT-COMPARABLE), 1 failed, 2 wrong usage.",
    children,
    NULL,
    NULL,
};

static int fail(int rc, const struct err *err)
{
    cmd_fail(err);
    return rc < 0 ? CMD_ERROR : CMD_NOT_COMPARABLE;
}

static int by_seed(struct options *o)
{
    struct selection sel;
    struct window window = {0};
    struct db *db = NULL;
    struct err err;
    o->select.a = o->judge.a;
    o->select.b = o->judge.b;
    int rc = db_open(&db, o->judge.paths[0], &err);
    if (!rc)
        rc = select_resolve(db, &o->select, &sel, &err);
    if (!rc)
        rc = window_load(db, &sel, &window, &err);
    if (!rc)
        report_print_verdict(stdout, o->judge.format, &sel, &window);
    bool defect = !rc && seed_is_defect(window.summary.cls);
    window_free(&window);
    db_close(db);
    if (rc)
        return fail(rc, &err);
    return defect ? CMD_DEFECT : CMD_OK;
}

static int by_calibrated(const struct options *o)
{
    struct judgement j;
    struct judge_input in;
    struct err err;
    int rc = judge_from_args(&j, &in, &o->judge, &err);
    if (rc)
        return fail(rc, &err);
    int status = judge_status(&j);
    if (judge_print(stdout, o->judge.format, &j, &err))
        status = cmd_fail(&err);
    judge_free(&j);
    judge_input_close(&in);
    return status;
}

int cmd_verdict(int argc, char **argv)
{
    struct options o = {0};
    judge_args_init(&o.judge);
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    return o.seed_rule ? by_seed(&o) : by_calibrated(&o);
}
