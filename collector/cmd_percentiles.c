#include "config.h"

#include "collector/args.h"
#include "collector/cmd.h"
#include "collector/render.h"
#include "collector/select.h"
#include "collector/stat_dist.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { KEY_ARM = 0x100, KEY_METHOD, MAX_PERCENTILES = 64 };
enum { ROW_ID, MARGIN }; /* columns of q_arm_margins */
enum method { NEAREST, INTERPOLATED, SEED };

struct options {
    const char *path, *arm;
    double percentiles[MAX_PERCENTILES];
    int n_percentiles;
    enum method method;
    enum render_format format;
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
    default:
        return args_one(&o->path, "file", key, arg, state);
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

/* The margins of an arm, in the order of its rows and sorted. */
struct margins {
    float *margin;   /* (n) */
    int64_t *row_id; /* (n) */
    float *sorted;   /* (n) */
    size_t n;
};

static void margins_free(struct margins *margins)
{
    free(margins->margin);
    free(margins->row_id);
    free(margins->sorted);
}

static int load_margins(struct db *db, int64_t arm_id, struct margins *out, struct err *err)
{
    struct query *query;
    size_t size = 0;
    int rc;
    *out = (struct margins){0};
    if (db_query(db, &query, "arm_margins", err))
        return -1;
    query_bind_int(query, ":arm_id", arm_id);
    while ((rc = query_step(query, err)) > 0) {
        if (out->n == size) {
            size = size ? 2 * size : 1024;
            out->margin = xrealloc(out->margin, size, sizeof *out->margin);
            out->row_id = xrealloc(out->row_id, size, sizeof *out->row_id);
        }
        out->row_id[out->n] = query_column_int(query, ROW_ID);
        out->margin[out->n++] = (float)query_column_real(query, MARGIN);
    }
    query_free(query);
    out->sorted = xcalloc(out->n, sizeof *out->sorted);
    if (out->n)
        memcpy(out->sorted, out->margin, out->n * sizeof *out->sorted);
    stat_sort(out->sorted, out->n);
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

/* What a percentile is: a margin, and where it is a recorded one the first row that has it. */
struct place {
    double margin;
    bool recorded;
    int64_t row_id;
};

/* Sorting the rows along would take four times as long as to look for a few of them. */
static void find_rows(const struct margins *margins, struct place *places, int n)
{
    for (int i = 0; i < n; i++)
        for (size_t k = 0; places[i].recorded && k < margins->n; k++)
            if (margins->margin[k] == (float)places[i].margin &&
                (!places[i].row_id || margins->row_id[k] < places[i].row_id))
                places[i].row_id = margins->row_id[k];
}

static int render_row(struct render *r, struct db *db, int64_t row_id, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "row", err))
        return -1;
    query_bind_int(query, ":row_id", row_id);
    int rc = query_step(query, err);
    bool found = rc > 0;
    for (int i = 0; i < 3; i++) {
        static const char *const names[] = {"seq_id", "pos", "row_id"};
        if (found)
            render_int(r, query_int(query, names[i]));
        else
            render_null(r);
    }
    query_free(query);
    return rc < 0 ? -1 : 0;
}

static int render_places(struct render *r, struct db *db, const struct arm *arm,
                         const struct options *o, const struct place *places, size_t n,
                         struct err *err)
{
    int rc = 0;
    for (int i = 0; i < o->n_percentiles; i++) {
        render_int(r, arm->run_id);
        render_text(r, arm->label, -1);
        if (o->percentiles[i] == floor(o->percentiles[i]))
            render_int(r, (int64_t)o->percentiles[i]);
        else
            render_real(r, o->percentiles[i]);
        render_real(r, places[i].margin);
        rc |= render_row(r, db, places[i].row_id, err);
        render_int(r, (int64_t)n);
    }
    return rc;
}

static int render_arm(struct render *r, struct db *db, const struct arm *arm,
                      const struct options *o, struct err *err)
{
    struct place places[MAX_PERCENTILES] = {{0}};
    struct margins margins;
    int rc = load_margins(db, arm->arm_id, &margins, err);
    for (int i = 0; !rc && margins.n && i < o->n_percentiles; i++) {
        double index = index_of(o->method, o->percentiles[i], margins.n);
        size_t low = (size_t)index, high = low + 1 < margins.n ? low + 1 : low;
        double part = index - (double)low;
        places[i].recorded = part == 0;
        places[i].margin = (double)margins.sorted[low];
        if (part > 0)
            places[i].margin += part * ((double)margins.sorted[high] - places[i].margin);
    }
    find_rows(&margins, places, rc ? 0 : o->n_percentiles);
    if (!rc && margins.n)
        rc = render_places(r, db, arm, o, places, margins.n, err);
    margins_free(&margins);
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
    render_when_empty(r, "no margins: no row was recorded");
    int rc = render_arms(r, db, &o, &err);
    render_close(r);
    db_close(db);
    return rc ? cmd_fail(&err) : CMD_OK;
}
