#include "config.h"

#include "collector/judge_args.h"
#include "collector/args.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum {
    KEY_A = 0x300,
    KEY_B,
    KEY_CONTROL,
    KEY_KIND,
    KEY_CLASS,
    KEY_REFERENCE,
    KEY_GREEDY,
    KEY_CHUNK,
    KEY_SEED
};

void judge_args_init(struct judge_args *args)
{
    *args = (struct judge_args){.options = {.cls = FLOOR_N_CLASSES, .seed = 1}};
}

static void parse_class(struct judge_args *args, const char *name, struct argp_state *state)
{
    char known[256] = "";
    args->options.cls = floor_class_find(name);
    if (args->options.cls < FLOOR_N_CLASSES)
        return;
    for (int i = 0; i < FLOOR_N_CLASSES; i++) {
        size_t used = strlen(known);
        snprintf(known + used, sizeof known - used, "%s%s", i ? ", " : "", floor_priors[i].name);
    }
    argp_error(state, "--class %s: not one of %s", name, known);
}

static void parse_kind(struct judge_args *args, const char *name, struct argp_state *state)
{
    if (!strcmp(name, "same"))
        args->options.kind = CONTROL_SAME;
    else if (!strcmp(name, "other"))
        args->options.kind = CONTROL_OTHER;
    else
        argp_error(state, "--control-kind %s: not one of same, other", name);
}

static error_t parse_file(struct judge_args *args, char *arg, struct argp_state *state)
{
    if (state->arg_num > 1)
        argp_error(state, "%s: more than two files", arg);
    args->paths[state->arg_num] = arg;
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct judge_args *args = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &args->format;
        return 0;
    case KEY_A:
        args->a = arg;
        return 0;
    case KEY_B:
        args->b = arg;
        return 0;
    case KEY_CONTROL:
        args->options.control = arg;
        return 0;
    case KEY_KIND:
        parse_kind(args, arg, state);
        return 0;
    case KEY_CLASS:
        parse_class(args, arg, state);
        return 0;
    case KEY_REFERENCE:
        args->options.reference = arg;
        return 0;
    case KEY_GREEDY:
        args->options.greedy = true;
        return 0;
    case KEY_CHUNK:
        args->options.chunk = (int)args_number(state, "--chunk", arg, 0, INT_MAX);
        return 0;
    case KEY_SEED:
        args->options.seed = (uint64_t)args_number(state, "--seed", arg, 0, INT64_MAX);
        return 0;
    case ARGP_KEY_ARG:
        return parse_file(args, arg, state);
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which file?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"a", KEY_A, "ARM", 0, "arm A: its number, its label, or RUN:LABEL", 2},
    {"b", KEY_B, "ARM", 0, "arm B, of FILE2 where there are two", 2},
    {"class", KEY_CLASS, "CLASS", 0,
     "how the arms may differ (default: inferred): bitwise, reassoc-f32, reassoc-f16, "
     "reassoc-bf16, "
     "reassoc-bf16-head, precision, w4, engine, weights-q8, weights-q6, weights-q4",
     3},
    {"control", KEY_CONTROL, "WHAT", 0,
     "a known-good pair: ARM:ARM or ARM,ARM of the file, another file, or the label of a "
     "calibration; "
     "none: the class's prior (default: a calibration of the class, if the file has one)",
     3},
    {"control-kind", KEY_KIND, "KIND", 0,
     "same: the control differs in the same thing; other (default: the same two phases of the same "
     "model are the same kind)",
     3},
    {"reference", KEY_REFERENCE, "ARM", 0, "a third arm: which of the two lies further from it", 3},
    {"greedy", KEY_GREEDY, NULL, 0, "emitted tokens were chosen as the best logit: check that", 3},
    {"chunk", KEY_CHUNK, "N", 0, "positions of a prefill chunk (default: as recorded)", 3},
    {"seed", KEY_SEED, "N", 0, "of the permutations (default 1)", 3},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

const struct argp judge_argp = {options_table, parse, NULL, NULL, children, NULL, NULL};

/* Arms of two files: those named, or the latest label of the second that the first has too. */
static int choose_across(struct judge_input *in, const struct judge_args *args, struct err *err)
{
    struct query *query;
    struct err ignored;
    int rc, found = 0;
    if (args->a && select_arm(in->dbs[0], args->a, &in->arms[0], err))
        return -1;
    if (args->b && select_arm(in->dbs[1], args->b, &in->arms[1], err))
        return -1;
    if (args->a && args->b)
        return 0;
    if (args->a)
        return select_arm(in->dbs[1], in->arms[0].label, &in->arms[1], err);
    if (args->b)
        return select_arm(in->dbs[0], in->arms[1].label, &in->arms[0], err);
    if (db_query(in->dbs[1], &query, "arm_list", err))
        return -1;
    while ((rc = query_step(query, err)) > 0) {
        struct arm a, b;
        const char *cls = query_text(query, "class");
        if (found && cls && !strcmp(cls, "flips")) /* no sample: only where there is no other */
            continue;
        select_read_arm(query, &b);
        if (select_arm(in->dbs[0], b.label, &a, &ignored))
            continue;
        in->arms[0] = a;
        in->arms[1] = b;
        found = 1;
    }
    query_free(query);
    if (rc == 0 && !found) {
        err_set(err, "%s and %s: no arm has the same label in both", db_path(in->dbs[0]),
                db_path(in->dbs[1]));
        return 1;
    }
    return rc;
}

static int choose_within(struct judge_input *in, const struct judge_args *args, struct err *err)
{
    struct selection sel;
    int rc = select_arms(in->dbs[0], args->a, args->b, &sel, err);
    in->arms[0] = sel.a;
    in->arms[1] = sel.b;
    return rc;
}

int judge_input_open(struct judge_input *in, const struct judge_args *args, struct err *err)
{
    *in = (struct judge_input){0};
    int rc = db_open(&in->dbs[0], args->paths[0], err);
    if (!rc && args->paths[1])
        rc = db_open(&in->dbs[1], args->paths[1], err);
    else
        in->dbs[1] = in->dbs[0];
    if (!rc)
        rc = args->paths[1] ? choose_across(in, args, err) : choose_within(in, args, err);
    if (rc)
        judge_input_close(in);
    return rc;
}

void judge_input_close(struct judge_input *in)
{
    if (in->dbs[1] != in->dbs[0])
        db_close(in->dbs[1]);
    db_close(in->dbs[0]);
    *in = (struct judge_input){0};
}

int judge_from_args(struct judgement *out, struct judge_input *in, const struct judge_args *args,
                    struct err *err)
{
    int rc = judge_input_open(in, args, err);
    if (rc)
        return rc;
    struct load_side a = {in->dbs[0], &in->arms[0]}, b = {in->dbs[1], &in->arms[1]};
    rc = judge(out, &a, &b, &args->options, err);
    if (rc)
        judge_input_close(in);
    return rc;
}
