#include "config.h"

#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/select.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ARM = 0x100, KEY_METHOD, MAX_PERCENTILES = 64 };
enum method { NEAREST, INTERPOLATED, SEED };

struct options {
    const char *path, *arm;
    double percentiles[MAX_PERCENTILES];
    int n_percentiles;
    enum method method;
    enum render_format format;
};

/* A margin with the row that it stands in. */
struct margin {
    double value;
    int64_t row_id;
};

static void parse_percentiles(struct options *o, const char *list, struct argp_state *state)
{
    char *end;
    o->n_percentiles = 0;
    for (const char *p = list;; p = end + 1) {
        double value = strtod(p, &end);
        if (end == p || !(value >= 0 && value <= 100) || (*end && *end != ','))
            argp_error(state, "--percentiles %s: not a list of numbers from 0 to 100", list);
        if (o->n_percentiles == MAX_PERCENTILES)
            argp_error(state, "--percentiles %s: more than %d numbers", list, MAX_PERCENTILES);
        o->percentiles[o->n_percentiles++] = value;
        if (!*end)
            return;
    }
}

static void parse_method(struct options *o, const char *arg, struct argp_state *state)
{
    static const char *const names[] = {"nearest", "interpolated", "seed"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(arg, names[i])) {
            o->method = (enum method)i;
            return;
        }
    argp_error(state, "--method %s: not one of nearest, interpolated, seed", arg);
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->format;
        return 0;
    case 'p':
        parse_percentiles(o, arg, state);
        return 0;
    case KEY_METHOD:
        parse_method(o, arg, state);
        return 0;
    case KEY_ARM:
        o->arm = arg;
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
    {"arm", KEY_ARM, "ARM", 0, "one arm: its number, its label, or RUN:LABEL (default: all)", 0},
    {"percentiles", 'p', "LIST", 0, "percents (default 0,1,5,10,25,50,75,90,95,99,100)", 0},
    {"method", KEY_METHOD, "HOW", 0,
     "nearest rank, always a recorded position (the default); interpolated; or the seed's index",
     0},
    {0},
};

static const struct argp_child children[] = {{&render_argp, 0, NULL, 0}, {0}};

static const struct argp argp = {
    options_table, parse,
    "FILE",        "Show percentiles of the margin between the two best logits, arm by arm.",
    children,      NULL,
    NULL,
};

static int margin_cmp(const void *x, const void *y)
{
    const struct margin *a = x, *b = y;
    if (a->value != b->value)
        return a->value > b->value ? 1 : -1;
    return (a->row_id > b->row_id) - (a->row_id < b->row_id);
}

/* The margins of an arm in ascending order; *out is owned by the caller. */
static int load_margins(struct db *db, int64_t arm_id, struct margin **out, size_t *n,
                        struct err *err)
{
    struct query *query;
    size_t size = 0;
    int rc;
    *n = 0;
    if (db_query(db, &query, "arm_margins", err))
        return -1;
    query_bind_int(query, ":arm_id", arm_id);
    while ((rc = query_step(query, err)) > 0) {
        if (*n == size) {
            size = size ? 2 * size : 1024;
            *out = xrealloc(*out, size, sizeof **out);
        }
        (*out)[(*n)++] = (struct margin){query_column_real(query, 1), query_column_int(query, 0)};
    }
    query_free(query);
    qsort(*out, *n, sizeof **out, margin_cmp);
    return rc;
}

/* Index of a percentile among n sorted margins, whole where it is a recorded one. The interpolated
 * one is type 7 of Hyndman and Fan, 1996. */
static double index_of(enum method method, double percentile, size_t n)
{
    double q = percentile / 100;
    if (method == NEAREST)
        return fmax(ceil(q * (double)n - 1e-9), 1) - 1;
    return method == SEED ? round((double)(n - 1) * q) : (double)(n - 1) * q;
}

static int render_place(struct render *r, struct db *db, int64_t row_id, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "row", err))
        return -1;
    query_bind_int(query, ":row_id", row_id);
    int rc = query_step(query, err);
    if (rc > 0) {
        render_int(r, query_int(query, "seq_id"));
        render_int(r, query_int(query, "pos"));
        render_int(r, row_id);
    }
    query_free(query);
    return rc > 0 ? 0 : -1;
}

static int render_arm(struct render *r, struct db *db, const struct arm *arm,
                      const struct options *o, struct err *err)
{
    struct margin *margins = NULL;
    size_t n;
    int rc = load_margins(db, arm->arm_id, &margins, &n, err);
    for (int i = 0; !rc && n && i < o->n_percentiles; i++) {
        double index = index_of(o->method, o->percentiles[i], n);
        size_t low = (size_t)index, high = low + 1 < n ? low + 1 : low;
        double part = index - (double)low;
        render_int(r, arm->run_id);
        render_text(r, arm->label, -1);
        if (o->percentiles[i] == floor(o->percentiles[i]))
            render_int(r, (int64_t)o->percentiles[i]);
        else
            render_real(r, o->percentiles[i]);
        render_real(r, margins[low].value + part * (margins[high].value - margins[low].value));
        if (part == 0) {
            rc = render_place(r, db, margins[low].row_id, err);
        } else {
            render_null(r);
            render_null(r);
            render_null(r);
        }
        render_int(r, (int64_t)n);
    }
    free(margins);
    return rc;
}

static int render_arms(struct render *r, struct db *db, const struct options *o, struct err *err)
{
    struct query *query;
    struct arm arm;
    int rc;
    if (o->arm)
        return select_arm(db, o->arm, &arm, err) ? -1 : render_arm(r, db, &arm, o, err);
    if (db_query(db, &query, "arm_list", err))
        return -1;
    while ((rc = query_step(query, err)) > 0) {
        select_read_arm(query, &arm);
        if (render_arm(r, db, &arm, o, err)) {
            rc = -1;
            break;
        }
    }
    query_free(query);
    return rc;
}

int cmd_percentiles(int argc, char **argv)
{
    static const double standard[] = {0, 1, 5, 10, 25, 50, 75, 90, 95, 99, 100};
    static const char *const names[] = {"run",    "arm", "percentile", "margin",
                                        "seq_id", "pos", "row_id",     "n"};
    struct options o = {.n_percentiles = sizeof standard / sizeof *standard};
    struct db *db = NULL;
    struct err err;
    memcpy(o.percentiles, standard, sizeof standard);
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    if (db_open(&db, o.path, &err))
        return cmd_fail(&err);
    struct render *r = render_open(stdout, o.format, 4, sizeof names / sizeof *names, names);
    int rc = render_arms(r, db, &o, &err);
    if (!rc)
        render_close(r);
    db_close(db);
    return rc ? cmd_fail(&err) : CMD_OK;
}
