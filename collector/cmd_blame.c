#include "config.h"

#include "collector/cmd.h"
#include "collector/facts.h"
#include "collector/judge_args.h"

#include <stdlib.h>
#include <string.h>

enum { KEY_ALL = 0x200, MOST_TAGS = 30, N_RANGES = 16 };

struct options {
    struct judge_args judge;
    bool all;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    (void)arg;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->judge;
        return 0;
    case KEY_ALL:
        o->all = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"all", KEY_ALL, NULL, 0, "every tag, not only the 30 strongest", 1},
    {0},
};

static const struct argp_child children[] = {{&judge_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE [FILE2]",
    "Rank what goes with large differences between two arms: every recorded tag (phase, batch row, "
    "width, micro-batch, position and its residues, distance to a chunk boundary) and every kernel "
    "configuration, by the scale of its rows against the floor; then the kernels that only one arm "
    "launched, and the differences along the positions. CSV and JSON have the tags.",
    children,
    NULL,
    NULL,
};

static const char no_kernels[] = "none: all are shared, or none was recorded";

/* Two files have no numbers in common. */
static int print_kernels_of_two(const struct judgement *j, struct err *err)
{
    static const char *const names[] = {"", "kernel", "per_forward_a", "per_forward_b"};
    struct facts facts = {0};
    int rc = facts_add_kernels(&facts, 0, &j->a, err) || facts_add_kernels(&facts, 1, &j->b, err);
    if (!rc) {
        facts_keep_different(&facts);
        printf("\nkernel configurations that the arms do not share:\n");
        struct render *r = render_open(stdout, RENDER_TABLE, 4, 4, names);
        render_when_empty(r, no_kernels);
        facts_render(r, "", &facts);
        render_close(r);
    }
    facts_free(&facts);
    return rc ? -1 : 0;
}

static int print_kernels(const struct judgement *j, struct err *err)
{
    struct query *query;
    if (db_query(j->b.db, &query, "kernel_diff", err))
        return -1;
    query_bind_int(query, ":arm_a", j->a.arm->arm_id);
    query_bind_int(query, ":arm_b", j->b.arm->arm_id);
    printf("\nkernel configurations that the arms do not share:\n");
    int rc = render_query_or(stdout, RENDER_TABLE, -4, query, no_kernels, err);
    query_free(query);
    return rc;
}

static int print_drift(const struct judgement *j, struct err *err)
{
    struct query *query;
    int64_t a = j->a.arm->arm_id, b = j->b.arm->arm_id;
    int64_t step = 1,
            longest = (int64_t)(j->verdict.n / (j->verdict.n_seqs ? j->verdict.n_seqs : 1));
    while (step * N_RANGES < longest)
        step *= 2;
    if (db_query(j->b.db, &query, "drift", err))
        return -1;
    query_bind_int(query, ":arm_a", a < b ? a : b);
    query_bind_int(query, ":arm_b", a < b ? b : a);
    query_bind_int(query, ":step", step);
    printf("\nalong the positions:\n");
    int rc = render_query(stdout, RENDER_TABLE, 4, query, err);
    query_free(query);
    return rc;
}

static void print_head(const struct judgement *j)
{
    const struct verdict *v = &j->verdict;
    struct doc doc;
    size_t rejects = 0;
    for (size_t i = 0; i < v->n_tags; i++)
        rejects += v->tags[i].rejects;
    doc_begin(&doc, stdout, DOC_TEXT, "");
    judge_write_head(&doc, j);
    doc_end(&doc);
    printf(
        "\n%s (A) against %s (B): %zu of %zu tags reject; the strongest first.\n"
        "n: rows with the tag that differ; ratio: how far, in units of the floor; _rest: all other "
        "rows;\na. stands for arm A, a place without it is arm B's.\n",
        j->name_a, j->name_b, rejects, v->n_tags);
}

static int print_all(const struct judgement *j, const struct options *o, struct err *err)
{
    size_t most = o->all || o->judge.format != RENDER_TABLE ? j->verdict.n_tags : MOST_TAGS;
    if (o->judge.format != RENDER_TABLE)
        return judge_print_tags(stdout, o->judge.format, j, most, err);
    print_head(j);
    if (judge_print_tags(stdout, RENDER_TABLE, j, most, err))
        return -1;
    if (judge_print_boundaries(stdout, j, err))
        return -1;
    if (j->a.db != j->b.db)
        return print_kernels_of_two(j, err);
    return print_kernels(j, err) || print_drift(j, err) ? -1 : 0;
}

int cmd_blame(int argc, char **argv)
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
    int status = print_all(&j, &o, &err) ? cmd_fail(&err) : CMD_OK;
    judge_free(&j);
    judge_input_close(&in);
    return status;
}
