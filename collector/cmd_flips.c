#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/select.h"

#include <errno.h>

enum { KEY_A = 0x100, KEY_B };

struct options {
    const char *a, *b, *path;
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
    {"a", KEY_A, "ARM", 0, "only flips of this arm: its number, its label, or RUN:LABEL", 0},
    {"b", KEY_B, "ARM", 0, "and of this one", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE",
    "List the positions at which two arms chose different tokens after the same context: both "
    "tokens, "
    "both margins, the contrast (how far B moved its choice against A's) and the largest "
    "difference at the contending ids. bounded: logits that were not recorded and are replaced by "
    "their bound.",
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

int cmd_flips(int argc, char **argv)
{
    struct options o = {0};
    struct db *db = NULL;
    struct query *query = NULL;
    struct err err;
    int status = CMD_OK;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (db_open(&db, o.path, &err) || db_query(db, &query, "flips", &err) ||
        bind_arms(db, query, &o, &err) || render_query(stdout, o.format, 4, query, &err))
        status = cmd_fail(&err);
    query_free(query);
    db_close(db);
    return status;
}
