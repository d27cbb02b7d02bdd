#include "config.h"

#include "collector/cmd.h"
#include "collector/judge_args.h"
#include "collector/xalloc.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_LABEL = 0x200 };

struct options {
    struct judge_args judge;
    const char *label;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->judge;
        return 0;
    case KEY_LABEL:
        o->label = arg;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"label", KEY_LABEL, "NAME", 0,
     "name of the calibration; one of that name is replaced (default: "
     "the phases of the arms)",
     1},
    {0},
};

static const struct argp_child children[] = {{&judge_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE [FILE2]",
    "Measure the noise floor of a pair of arms that is known to be good, and store it in FILE: "
    "later "
    "verdicts on other pairs of the file use it, and say so.\vA pair that is a defect itself is "
    "refused.",
    children,
    NULL,
    NULL,
};

/* [[p,value],...]; to be freed. */
static char *points_text(const struct floor *floor)
{
    struct floor_point points[FLOOR_N_POINTS];
    int n = floor_points(floor, points);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        perror("neartie: memory");
        exit(1);
    }
    for (int i = 0; i < n; i++)
        fprintf(out, "%s[%.9g,%.9g]", i ? "," : "[", points[i].p, points[i].value);
    fputs(n ? "]" : "[]", out);
    fclose(out);
    return text;
}

static void print_stored(const struct judgement *j, const struct floor *floor, const char *label)
{
    printf("calibration %s: s = %.4g logits over %zu rows of %zu sequences, class %s (%s)\n", label,
           floor->measured, floor->n, floor->n_seqs, floor_priors[j->cls].name, j->why);
    if (floor->n_equal)
        printf("%zu rows are bit-equal and say nothing about the noise\n", floor->n_equal);
    if (floor->thin)
        printf(
            "too little for a floor of its own kind, which takes 20 rows of 8 sequences: verdicts "
            "use it as one of another kind\n");
}

static int store(const struct judgement *j, const struct floor *floor, const char *label,
                 struct err *err)
{
    struct arm_facts a, b;
    char words[600], pair[INFER_PAIR_SIZE];
    if (infer_facts(&j->a, &a, err) || infer_facts(&j->b, &b, err))
        return -1;
    infer_name_pair(&j->a, &a, &j->b, &b, pair);
    snprintf(words, sizeof words, "%.15s against %.15s, %.120s, %.200s, %zu sequences, %s", a.phase,
             b.phase, b.engine, b.model, floor->n_seqs, pair);
    char *points = points_text(floor);
    const struct db_value values[] = {
        {":label", DB_TEXT, .text = label},
        {":class", DB_TEXT, .text = floor_priors[j->cls].name},
        {":control", DB_TEXT, .text = words},
        {":n", DB_INT, .integer = (int64_t)floor->n},
        {":scale", DB_REAL, .real = floor->measured},
        {":quantiles", DB_TEXT, .text = points},
    };
    int rc = db_put(j->a.db, "put_calibration", values, sizeof values / sizeof *values, err);
    free(points);
    return rc;
}

static int calibrate(const struct judgement *j, const char *wanted, struct err *err)
{
    struct floor floor;
    char label[64];
    if (verdict_is_defect(j->verdict.cls))
        return err_set(err, "%s against %s: is a defect itself, %s (%s): no floor to measure",
                       j->name_a, j->name_b, verdict_names[j->verdict.cls], j->verdict.reason);
    floor_from_pairs(&floor, j->load.pairs, FLOOR_SAME, j->cls, 0);
    int rc = -1;
    snprintf(label, sizeof label, "%.20s-%.20s", j->a.arm->phase, j->b.arm->phase);
    if (!(floor.measured > 0))
        err_set(err, "%s against %s: every %s: no floor to measure", j->name_a, j->name_b,
                j->verdict.n_equal == j->verdict.n ? "row is bit-equal" : "other contrast is 0");
    else
        rc = store(j, &floor, wanted ? wanted : label, err);
    if (!rc)
        print_stored(j, &floor, wanted ? wanted : label);
    floor_fini(&floor);
    return rc;
}

int cmd_calibrate(int argc, char **argv)
{
    struct options o = {0};
    struct judgement j;
    struct judge_input in;
    struct err err;
    judge_args_init(&o.judge);
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = judge_from_args(&j, &in, &o.judge, &err);
    if (rc) {
        cmd_fail(&err);
        return rc < 0 ? CMD_ERROR : CMD_NOT_COMPARABLE;
    }
    int status = calibrate(&j, o.label, &err) ? cmd_fail(&err) : CMD_OK;
    judge_free(&j);
    judge_input_close(&in);
    return status;
}
