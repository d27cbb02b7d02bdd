#include "config.h"

#include "collector/cmd.h"
#include "collector/launch.h"
#include "collector/report.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <stdlib.h>

enum { KEY_PREFILL = 0x200, KEY_WINDOW, KEY_ARMS, MAX_ARGS = 16 };

struct options {
    const char *db, *model, *prompt;
    char *window, *prefill, *arms; /* passed on as they are */
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case 'o':
        o->db = arg;
        return 0;
    case KEY_WINDOW:
        o->window = arg;
        return 0;
    case KEY_PREFILL:
        o->prefill = arg;
        return 0;
    case KEY_ARMS:
        o->arms = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (state->arg_num > 1)
            argp_error(state, "%s: more than a model and a prompt", arg);
        *(state->arg_num ? &o->prompt : &o->model) = arg;
        return 0;
    case ARGP_KEY_END:
        if (state->arg_num < 2)
            argp_error(state, "which model and which prompt?");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"output", 'o', "FILE", 0,
     "database to record into (default run.db); one that exists gets another run", 0},
    {"window", KEY_WINDOW, "N", 0, "positions, the last N of the prompt (default 24)", 0},
    {"prefill", KEY_PREFILL, "HOW", 0,
     "truncated: one forward for every position; single: one forward for all", 0},
    {"arms", KEY_ARMS, "A,B", 0,
     "arms other than prefill,decode, as neartie-engine gate takes them", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "MODEL PROMPT-FILE",
    "Run a prompt through neartie-engine twice, prefilled in one go and decoded token by token, "
    "record "
    "both, and print the report with the verdict.\vExit status: 0 no defect, 3 a defect class, 4 "
    "nothing to compare, 1 failed, 2 wrong usage.",
    children,
    NULL,
    NULL,
};

static int run_engine(const struct options *o, struct err *err)
{
    char *argv[MAX_ARGS];
    int n = 0, status;
    char *engine = launch_find_engine(err);
    if (!engine)
        return -1;
    argv[n++] = engine;
    argv[n++] = "gate";
    if (o->window) {
        argv[n++] = "--window";
        argv[n++] = o->window;
    }
    if (o->prefill) {
        argv[n++] = "--prefill";
        argv[n++] = o->prefill;
    }
    if (o->arms) {
        argv[n++] = "--arms";
        argv[n++] = o->arms;
    }
    argv[n++] = "--";
    argv[n++] = (char *)o->model;
    argv[n++] = (char *)o->prompt;
    argv[n] = NULL;
    struct launch launch = {.db = o->db, .quiet = true, .argv = argv};
    int rc = launch_run(&launch, true, &status, err);
    if (!rc && status)
        rc = err_set(err, "neartie-engine gate: exit status %d", status);
    free(engine);
    return rc;
}

static int print_form(enum render_format format, const struct report *report, struct err *err)
{
    struct doc doc;
    if (format == RENDER_JSON)
        return report_print_json(stdout, report, err);
    if (format == RENDER_CSV) {
        report_print_rows(stdout, format, report->window);
        return 0;
    }
    doc_begin(&doc, stdout, DOC_TEXT, "");
    int rc = report_write(&doc, report, err);
    doc_end(&doc);
    return rc;
}

/* *status: that of the calibrated verdict. */
static int print_report(const struct options *o, int *status, struct err *err)
{
    static const struct judge_options by_default = {.cls = FLOOR_N_CLASSES, .seed = 1};
    struct select_options any = {.window = o->window ? atoi(o->window) : 0};
    struct selection sel;
    struct window window = {0};
    struct judgement j;
    struct db *db = NULL;
    int rc = db_open(&db, o->db, err);
    if (!rc)
        rc = select_resolve(db, &any, &sel, err);
    if (!rc)
        rc = window_load(db, &sel, &window, err);
    struct load_side a = {db, &sel.a}, b = {db, &sel.b};
    if (!rc)
        rc = judge(&j, &a, &b, &by_default, err);
    if (!rc) {
        rc = print_form(o->format, &(struct report){db, &sel, &window, &j}, err);
        *status = judge_status(&j);
        judge_free(&j);
    }
    window_free(&window);
    db_close(db);
    return rc;
}

int cmd_gate(int argc, char **argv)
{
    struct options o = {.db = "run.db"};
    struct err err;
    int status = CMD_OK;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = run_engine(&o, &err);
    if (!rc)
        rc = print_report(&o, &status, &err);
    if (rc)
        cmd_fail(&err);
    return rc < 0 ? CMD_ERROR : rc > 0 ? CMD_NOT_COMPARABLE : status;
}
