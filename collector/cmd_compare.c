#include "config.h"

#include "collector/cmd.h"
#include "collector/facts.h"
#include "collector/judge_args.h"

#include <string.h>

static error_t parse(int key, char *arg, struct argp_state *state)
{
    (void)arg;
    if (key != ARGP_KEY_INIT)
        return ARGP_ERR_UNKNOWN;
    state->child_inputs[0] = state->input;
    return 0;
}

static const struct argp_child children[] = {{&judge_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    NULL,
    parse,
    "FILE [FILE2]",
    "Show what differs between two arms, of one file or of two: engine, model and machine; "
    "settings; "
    "kernel configurations with their launches in a forward; and then whether their rows do. CSV "
    "and "
    "JSON have what differs.\vEqual kernels and bit-equal rows are NOT-ENGAGED: what was changed "
    "did "
    "not act. Exit status as of verdict.",
    children,
    NULL,
    NULL,
};

enum { N_KINDS = 3 };

static const struct {
    const char *name;
    int (*add)(struct facts *, int, const struct load_side *, struct err *);
} kinds[N_KINDS] = {
    {"run", facts_add_run},
    {"setting", facts_add_settings},
    {"kernel", facts_add_kernels},
};

/* Collect each kind; had: how many facts there were before equal ones went. */
static int collect(const struct judgement *j, struct facts facts[N_KINDS], size_t had[N_KINDS],
                   struct err *err)
{
    for (int i = 0; i < N_KINDS; i++) {
        if (kinds[i].add(&facts[i], 0, &j->a, err) || kinds[i].add(&facts[i], 1, &j->b, err))
            return -1;
        had[i] = facts[i].n;
        facts_keep_different(&facts[i]);
    }
    return 0;
}

static void print_different(const struct facts facts[N_KINDS], enum render_format format)
{
    static const char *const names[] = {"kind", "name", "a", "b"};
    struct render *r = render_open(stdout, format, 4, 4, names);
    for (int i = 0; i < N_KINDS; i++)
        facts_render(r, kinds[i].name, &facts[i]);
    render_close(r);
}

static void print_text(const struct judgement *j, const struct facts facts[N_KINDS],
                       const size_t had[N_KINDS])
{
    size_t n = 0;
    printf("%s (A) against %s (B)\n", j->name_a, j->name_b);
    for (int i = 0; i < N_KINDS; i++) {
        n += facts[i].n;
        if (!had[i])
            printf("no %s was recorded\n", kinds[i].name);
        else if (!facts[i].n)
            printf("%ss: all %zu are equal\n", kinds[i].name, had[i]);
    }
    if (n) {
        putchar('\n');
        print_different(facts, RENDER_TABLE);
    }
    const struct verdict *v = &j->verdict;
    printf("\nrows: %zu positions, %zu bit-equal, %zu flips\n%s%s%s\n", v->n, v->n_equal,
           v->n_flips, verdict_names[v->cls], v->reason[0] ? ": " : "", v->reason);
}

static int compare(const struct judgement *j, enum render_format format, struct err *err)
{
    struct facts facts[N_KINDS] = {{0}};
    size_t had[N_KINDS];
    int rc = collect(j, facts, had, err);
    if (!rc && format == RENDER_TABLE)
        print_text(j, facts, had);
    else if (!rc)
        print_different(facts, format);
    for (int i = 0; i < N_KINDS; i++)
        facts_free(&facts[i]);
    return rc;
}

int cmd_compare(int argc, char **argv)
{
    struct judge_args args;
    struct judgement j;
    struct judge_input in;
    struct err err;
    judge_args_init(&args);
    argp_parse(&argp, argc, argv, 0, NULL, &args);
    int rc = judge_from_args(&j, &in, &args, &err);
    if (rc) {
        cmd_fail(&err);
        return rc < 0 ? CMD_ERROR : CMD_NOT_COMPARABLE;
    }
    int status = compare(&j, args.format, &err) ? cmd_fail(&err) : judge_status(&j);
    judge_free(&j);
    judge_input_close(&in);
    return status;
}
