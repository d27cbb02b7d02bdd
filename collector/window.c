#include "config.h"

#include "collector/window.h"
#include "collector/render.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The recorded rows behind a window's last row, in the order of the views. */
struct last_pair {
    int64_t row_a, row_b;
};

static int32_t id_or_none(const struct query *query, const char *name)
{
    return query_is_null(query, name) ? -1 : (int32_t)query_int(query, name);
}

static struct seed_row read_row(const struct query *query, bool swapped)
{
    struct seed_row row = {
        .pos = query_int(query, "pos"),
        .a1 = id_or_none(query, swapped ? "top1_b" : "top1_a"),
        .a2 = id_or_none(query, swapped ? "top2_b" : "top2_a"),
        .b1 = id_or_none(query, swapped ? "top1_a" : "top1_b"),
        .b2 = id_or_none(query, swapped ? "top2_a" : "top2_b"),
        .margin_a = (float)query_real(query, swapped ? "margin_b" : "margin_a"),
        .margin_b = (float)query_real(query, swapped ? "margin_a" : "margin_b"),
        .delta = (float)query_real(query, "delta"),
        .bounded = query_int(query, "bounded") > 0,
        .bad = query_int(query, "bad") > 0,
    };
    return row;
}

static int load_rows(struct db *db, const struct selection *sel, struct window *out,
                     struct last_pair *last, struct err *err)
{
    struct query *query;
    int rc, size = 0;
    if (db_query(db, &query, "window", err))
        return -1;
    query_bind_int(query, ":arm_a", select_view_a(sel));
    query_bind_int(query, ":arm_b", select_view_b(sel));
    query_bind_int(query, ":seq_id", sel->seq_id);
    query_bind_int(query, ":n", sel->window);
    while ((rc = query_step(query, err)) > 0) {
        if (out->n == size) {
            size = size ? 2 * size : 64;
            out->rows = xrealloc(out->rows, size, sizeof *out->rows);
        }
        out->rows[out->n++] = read_row(query, sel->swapped);
        last->row_a = query_int(query, "row_a");
        last->row_b = query_int(query, "row_b");
    }
    query_free(query);
    return rc;
}

/* A logit that is only bounded is unknown here. */
static void gate_id(struct seed_gate *gate, int32_t token, float a, float b)
{
    if (!isnan(a) && !isnan(b)) {
        gate->n_ids++;
        gate->max_diff = fmaxf(gate->max_diff, fabsf(a - b));
    }
    if (token == gate->a1) {
        gate->a_at_a1 = a;
        gate->b_at_a1 = b;
    }
    if (token == gate->b1) {
        gate->a_at_b1 = a;
        gate->b_at_b1 = b;
    }
}

static int load_gate(struct db *db, const struct selection *sel, const struct last_pair *last,
                     struct window *out, struct err *err)
{
    struct query *query;
    int rc;
    if (db_query(db, &query, "pair_ids", err))
        return -1;
    query_bind_int(query, ":row_a", last->row_a);
    query_bind_int(query, ":row_b", last->row_b);
    out->gate = (struct seed_gate){
        .a1 = out->summary.decision.a1,
        .b1 = out->summary.decision.b1,
        .a_at_a1 = NAN,
        .a_at_b1 = NAN,
        .b_at_a1 = NAN,
        .b_at_b1 = NAN,
    };
    while ((rc = query_step(query, err)) > 0) {
        const char *bound = query_text(query, "bound");
        float a = (float)query_real(query, "logit_a"), b = (float)query_real(query, "logit_b");
        if (bound)
            *(bound[0] == 'a' ? &a : &b) = NAN;
        gate_id(&out->gate, (int32_t)query_int(query, "token"), sel->swapped ? b : a,
                sel->swapped ? a : b);
    }
    query_free(query);
    seed_gate_derive(&out->gate);
    return rc;
}

void window_name_arm(const struct arm *arm, bool with_run, char *out, size_t size)
{
    FILE *to = fmemopen(out, size, "w");
    if (!to) {
        snprintf(out, size, "%lld", (long long)arm->arm_id);
        return;
    }
    if (with_run)
        fprintf(to, "%lld:", (long long)arm->run_id);
    render_safe(to, arm->label, (int)strlen(arm->label));
    fclose(to);
    out[size - 1] = '\0';
}

int window_load(struct db *db, const struct selection *sel, struct window *out, struct err *err)
{
    struct last_pair last = {0, 0};
    *out = (struct window){0};
    bool runs = sel->a.run_id != sel->b.run_id;
    window_name_arm(&sel->a, runs, out->name_a, sizeof out->name_a);
    window_name_arm(&sel->b, runs, out->name_b, sizeof out->name_b);
    if (load_rows(db, sel, out, &last, err) ||
        seed_summarize(out->rows, out->n, &out->summary, err) ||
        load_gate(db, sel, &last, out, err)) {
        window_free(out);
        return -1;
    }
    return 0;
}

void window_free(struct window *window)
{
    free(window->rows);
    window->rows = NULL;
}

struct seed_names window_names(const struct window *window)
{
    return (struct seed_names){window->name_a, window->name_b};
}
