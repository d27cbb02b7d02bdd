#include "config.h"

#include "collector/cmd.h"
#include "collector/judge_args.h"
#include "collector/render.h"
#include "collector/select.h"

#include <errno.h>

enum { KEY_A = 0x100, KEY_B };

struct options {
    const char *a, *b;
    const char *paths[2];
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case KEY_A:
        o->a = arg;
        return 0;
    case KEY_B:
        o->b = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (o->paths[1])
            argp_error(state, "%s: more than two files", arg);
        o->paths[o->paths[0] != NULL] = arg;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "which file?");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options_table[] = {
    {"a", KEY_A, "ARM", 0, "only flips of this arm: its number, its label, or RUN:LABEL", 0},
    {"b", KEY_B, "ARM", 0, "and of this one", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE [FILE2]",
    "List the positions at which two arms chose different tokens after the same context: both "
    "tokens, "
    "both margins, the contrast (how far B moved its choice against A's) and the largest "
    "difference at the contending ids. bounded: logits that were not recorded and are replaced by "
    "their bound.\vOf two files: an arm of the first against one of the second, by default the "
    "latest "
    "label that both have; the largest difference is not known then.",
    children,
    NULL,
    NULL,
};

/* The views have the arm that was declared first as A. */
static int bind_arms(struct db *db, struct query *query, const struct options *o, struct err *err)
{
    struct arm a = {0}, b = {0};
    if ((o->a && select_arm(db, o->a, &a, err)) || (o->b && select_arm(db, o->b, &b, err)))
        return -1;
    if (o->a && o->b && a.arm_id > b.arm_id) {
        query_bind_int(query, ":arm_a", b.arm_id);
        query_bind_int(query, ":arm_b", a.arm_id);
        return 0;
    }
    if (o->a)
        query_bind_int(query, ":arm_a", a.arm_id);
    if (o->b)
        query_bind_int(query, ":arm_b", b.arm_id);
    return 0;
}

/* Other weights choose other tokens: what is listed by default may be no difference of arithmetic.
 */
static int warn_of_models(struct db *db, const struct options *o, struct err *err)
{
    struct query *query;
    int rc, n = 0;
    if (o->a || o->b)
        return 0;
    if (db_query(db, &query, "models", err))
        return -1;
    while ((rc = query_step(query, err)) > 0)
        n++;
    query_free(query);
    if (n > 1)
        fprintf(stderr,
                "%s: has runs of %d models; flips between them are listed too (--a and --b choose "
                "the arms)\n",
                db_path(db), n);
    return rc;
}

/* Why there is no flip: nothing was compared, or all tokens agree. */
static int none_because(struct db *db, const struct options *o, char *out, size_t size,
                        struct err *err)
{
    struct selection sel;
    struct err why;
    int rc = select_arms(db, o->a, o->b, &sel, &why);
    if (rc < 0)
        *err = why;
    else if (rc)
        snprintf(out, size, "no flips: nothing was compared: %s", why.text);
    else
        snprintf(out, size, "no flips: wherever two arms saw the same tokens, they chose the same");
    return rc < 0 ? -1 : 0;
}

static int render_token(struct render *r, const struct load_side *side, int32_t token,
                        double margin, struct err *err)
{
    struct query *query;
    if (db_query(side->db, &query, "token", err))
        return -1;
    query_bind_int(query, ":arm_id", side->arm->arm_id);
    query_bind_int(query, ":token", token);
    int rc = query_step(query, err), n_bytes;
    render_int(r, token);
    if (rc > 0 && query_text(query, "text")) {
        const char *text = query_column_text(query, 0, &n_bytes);
        render_text(r, text, n_bytes);
    } else {
        render_null(r);
    }
    render_real(r, margin);
    query_free(query);
    return rc < 0 ? -1 : 0;
}

static void render_arm(struct render *r, const struct arm *arm)
{
    render_int(r, arm->run_id);
    render_text(r, arm->label, -1);
}

/* The rows of each flip stand in the order of the pairs, among those where only the sampler chose
 * otherwise. */
static int render_flips(struct render *r, const struct load_side *a, const struct load_side *b,
                        const struct load *load, struct err *err)
{
    const struct pair_flip *flips;
    size_t n = pairs_flips(load->pairs, &flips);
    const struct load_flip *rows = load->flips, *end = rows + load->n_flips;
    for (size_t i = 0; i < n; i++) {
        while (rows < end && (rows->seq != flips[i].seq || rows->pos != flips[i].pos))
            rows++;
        if (flips[i].emitted_only || rows == end)
            continue;
        render_arm(r, a->arm);
        render_arm(r, b->arm);
        render_int(r, flips[i].seq);
        render_int(r, flips[i].pos);
        if (render_token(r, a, flips[i].token_a, flips[i].margin_a, err) ||
            render_token(r, b, flips[i].token_b, flips[i].margin_b, err))
            return -1;
        render_real(r, flips[i].contrast);
        render_null(r);
        render_int(r, flips[i].bounded);
        render_int(r, rows->row_a);
        render_int(r, rows->row_b);
    }
    return 0;
}

/* The columns of q_flips. */
static int flips_of_two(const struct options *o)
{
    static const char *const names[] = {"run_a",  "arm_a",    "run_b",    "arm_b",    "seq_id",
                                        "pos",    "top1_a",   "text_a",   "margin_a", "top1_b",
                                        "text_b", "margin_b", "contrast", "delta",    "bounded",
                                        "row_a",  "row_b"};
    struct judge_args args = {.a = o->a, .b = o->b, .paths = {o->paths[0], o->paths[1]}};
    struct judge_input in;
    struct load load;
    struct err err;
    char none[80];
    int rc = judge_input_open(&in, &args, &err);
    if (rc)
        return cmd_fail(&err);
    struct load_side a = {in.dbs[0], &in.arms[0]}, b = {in.dbs[1], &in.arms[1]};
    rc = load_pairs(&a, &b, &load, &err);
    if (!rc) {
        struct render *r = render_open(stdout, o->format, 4, sizeof names / sizeof *names, names);
        snprintf(none, sizeof none, "no flips in %zu positions of the same context",
                 pairs_n_rows(load.pairs));
        render_when_empty(r, none);
        rc = render_flips(r, &a, &b, &load, &err);
        if (!rc)
            render_close(r);
        load_free(&load);
    }
    judge_input_close(&in);
    return rc ? cmd_fail(&err) : CMD_OK;
}

int cmd_flips(int argc, char **argv)
{
    struct options o = {0};
    struct db *db = NULL;
    struct query *query = NULL;
    struct err err;
    char none[640];
    int status = CMD_OK;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (o.paths[1])
        return flips_of_two(&o);
    if (db_open(&db, o.paths[0], &err) || db_query(db, &query, "flips", &err) ||
        bind_arms(db, query, &o, &err) || warn_of_models(db, &o, &err) ||
        none_because(db, &o, none, sizeof none, &err) ||
        render_query_or(stdout, o.format, 4, query, none, &err))
        status = cmd_fail(&err);
    query_free(query);
    db_close(db);
    return status;
}
