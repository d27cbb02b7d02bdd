#include "config.h"

#include "collector/args.h"
#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/select.h"

enum { KEY_ARM = 0x100 };

struct options {
    const char *path, *arm;
    enum render_format format;
};

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case KEY_ARM:
        o->arm = arg;
        return 0;
    default:
        return args_one(&o->path, "file", key, arg, state);
    }
}

static const struct argp_option options_table[] = {
    {"arm", KEY_ARM, "ARM", 0, "one arm: its number, its label, or RUN:LABEL (default: all)", 0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table,
    parse,
    "FILE",
    "List the kernel configurations that each arm launched: grid, block, registers, shared memory, "
    "and "
    "how often.",
    children,
    NULL,
    NULL,
};

int cmd_kernels(int argc, char **argv)
{
    struct options o = {0};
    struct db *db = NULL;
    struct query *query = NULL;
    struct arm arm;
    struct err err;
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = db_open(&db, o.path, &err) || db_query(db, &query, "kernels", &err) ||
             (o.arm && select_arm(db, o.arm, &arm, &err));
    if (!rc && o.arm)
        query_bind_int(query, ":arm_id", arm.arm_id);
    if (!rc)
        rc = render_query_or(stdout, o.format, 4, query, "no kernels: none was recorded", &err);
    query_free(query);
    db_close(db);
    return rc ? cmd_fail(&err) : CMD_OK;
}
