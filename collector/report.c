#include "config.h"

#include "collector/report.h"

#include <string.h>

enum { MOST_FLIPS = 20 };

static void print_labelled(FILE *out, const char *label, const char *text)
{
    if (!text)
        return;
    fprintf(out, "%-8s", label);
    render_safe(out, text, (int)strlen(text));
    putc('\n', out);
}

static int print_run(FILE *out, struct db *db, int64_t run_id, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "run", err))
        return -1;
    query_bind_int(query, ":run_id", run_id);
    int rc = query_step(query, err);
    if (rc > 0) {
        const char *state = query_text(query, "state"), *when = query_text(query, "started_utc");
        fprintf(out, "run     %lld, %s UTC, ", (long long)run_id, when ? when : "?");
        if (state && !strcmp(state, "closed"))
            fprintf(out, "%.1f s\n", query_real(query, "seconds"));
        else if (state && !strcmp(state, "recovered"))
            fprintf(out, "died, and was recovered\n");
        else
            fprintf(out, "still recording\n");
        print_labelled(out, "engine", query_text(query, "engine"));
        print_labelled(out, "model", query_text(query, "model"));
    }
    query_free(query);
    return rc < 0 ? -1 : 0;
}

static void print_compared(FILE *out, const struct selection *sel, const struct window *window)
{
    fprintf(out, "arms    %s (A) against %s (B)\n", window->name_a, window->name_b);
    fprintf(out, "rows    sequence %lld, the last %d of %lld comparable positions",
            (long long)sel->seq, window->n, (long long)sel->n);
    if (sel->n_seqs > 1)
        fprintf(out, "; the run has %d sequences, --seq chooses", sel->n_seqs);
    fputs("\n\n", out);
}

static int print_gaps(FILE *out, struct db *db, int64_t run_id, struct err *err)
{
    struct query *query;
    int rc;
    if (db_query(db, &query, "gaps", err))
        return -1;
    query_bind_int(query, ":run_id", run_id);
    while ((rc = query_step(query, err)) > 0) {
        const char *kind = query_text(query, "kind"), *detail = query_text(query, "detail");
        fprintf(out, "not recorded in run %lld: ", (long long)run_id);
        render_safe(out, kind ? kind : "", kind ? (int)strlen(kind) : 0);
        fprintf(out, ", %lld", (long long)query_int(query, "count"));
        if (detail) {
            fputs(", ", out);
            render_safe(out, detail, (int)strlen(detail));
        }
        putc('\n', out);
    }
    query_free(query);
    return rc;
}

/* The run of arm A, then that of arm B where it is another. */
static int each_run(FILE *out, struct db *db, const struct selection *sel,
                    int (*print)(FILE *, struct db *, int64_t, struct err *), struct err *err)
{
    if (print(out, db, sel->a.run_id, err))
        return -1;
    return sel->a.run_id == sel->b.run_id ? 0 : print(out, db, sel->b.run_id, err);
}

/* The judgement of all positions, with what a reader asks next. */
static int print_judgement(FILE *out, const struct report *report, struct err *err)
{
    const struct judgement *j = report->judgement;
    long long a = select_view_a(report->sel), b = select_view_b(report->sel);
    fprintf(out, "\nall positions, by the calibrated rule:\n");
    judge_print_figures(out, j);
    if (j->verdict.n_flips) {
        fprintf(out, "\nflips%s:\n",
                j->verdict.n_flips > MOST_FLIPS ? ", those of the largest contrast" : "");
        if (judge_print_flips(out, RENDER_TABLE, j, MOST_FLIPS, err))
            return -1;
    }
    fprintf(out, "\nlook further:\n");
    fprintf(out, "  neartie verdict FILE --a %lld --b %lld    tests and tags\n", a, b);
    fprintf(out, "  neartie blame FILE --a %lld --b %lld      what goes with the differences\n", a,
            b);
    fprintf(out, "  neartie compare FILE --a %lld --b %lld    settings and kernels\n", a, b);
    fprintf(out, "  sqlite3 FILE 'SELECT * FROM pairs WHERE arm_id_a = %lld AND arm_id_b = %lld'\n",
            a, b);
    return 0;
}

static int print_text(FILE *out, const struct report *report, struct err *err)
{
    const struct window *window = report->window;
    struct seed_names names = window_names(window);
    if (report->judgement) {
        judge_print_head(out, report->judgement);
        putc('\n', out);
    }
    if (each_run(out, report->db, report->sel, print_run, err))
        return -1;
    print_compared(out, report->sel, window);
    seed_print_rows(out, &names, window->rows, window->n);
    putc('\n', out);
    seed_print_gate(out, &names, &window->gate);
    seed_print_summary(out, &names, &window->summary);
    if (each_run(out, report->db, report->sel, print_gaps, err))
        return -1;
    return report->judgement ? print_judgement(out, report, err) : 0;
}

static void render_id(struct render *r, int32_t id)
{
    if (id < 0)
        render_null(r);
    else
        render_int(r, id);
}

static void print_rows(FILE *out, enum render_format format, const struct window *window)
{
    static const char *const names[] = {"pos",     "top1_a", "top2_a",   "margin_a",
                                        "top1_b",  "top2_b", "margin_b", "delta",
                                        "bounded", "bad",    "agree"};
    struct render *r = render_open(out, format, 4, sizeof names / sizeof *names, names);
    for (int i = 0; i < window->n; i++) {
        const struct seed_row *row = window->rows + i;
        render_int(r, row->pos);
        render_id(r, row->a1);
        render_id(r, row->a2);
        render_real(r, row->margin_a);
        render_id(r, row->b1);
        render_id(r, row->b2);
        render_real(r, row->margin_b);
        render_real(r, row->delta);
        render_int(r, row->bounded);
        render_int(r, row->bad);
        render_int(r, row->a1 == row->b1);
    }
    render_close(r);
}

static void print_figures(struct render *r, const struct seed_summary *sum)
{
    const double reals[] = {sum->a_min, sum->a_p50, sum->a_max, sum->b_min,
                            sum->b_p10, sum->b_p50, sum->b_p90, sum->b_max};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        render_real(r, reals[i]);
    render_int(r, sum->decision.pos);
    render_id(r, sum->decision.a1);
    render_id(r, sum->decision.b1);
    render_real(r, sum->decision.margin_a);
    render_real(r, sum->decision.margin_b);
    render_real(r, sum->decision.delta);
    render_int(r, sum->n_below + 1);
    render_int(r, sum->possible);
}

static void print_record(FILE *out, enum render_format format, const struct selection *sel,
                         const struct window *window)
{
    static const char *const names[] = {"rule",
                                        "class",
                                        "defect",
                                        "reason",
                                        "arm_a",
                                        "arm_b",
                                        "seq_id",
                                        "positions",
                                        "flips",
                                        "nonfinite",
                                        "margin_a_min",
                                        "margin_a_p50",
                                        "margin_a_max",
                                        "margin_b_min",
                                        "margin_b_p10",
                                        "margin_b_p50",
                                        "margin_b_p90",
                                        "margin_b_max",
                                        "decision_pos",
                                        "decision_a",
                                        "decision_b",
                                        "decision_margin_a",
                                        "decision_margin_b",
                                        "decision_delta",
                                        "rank",
                                        "flip_possible"};
    const struct seed_summary *sum = &window->summary;
    struct render *r = render_open(out, format, 4, sizeof names / sizeof *names, names);
    render_text(r, "seed", -1);
    render_text(r, seed_class_name(sum->cls), -1);
    render_int(r, seed_is_defect(sum->cls));
    render_text(r, seed_class_reason(sum->cls), -1);
    render_text(r, window->name_a, -1);
    render_text(r, window->name_b, -1);
    render_int(r, sel->seq_id);
    render_int(r, sum->n);
    render_int(r, sum->n_flips);
    render_int(r, sum->n_bad);
    print_figures(r, sum);
    render_close(r);
}

void report_print_verdict(FILE *out, enum render_format format, const struct selection *sel,
                          const struct window *window)
{
    struct seed_names names = window_names(window);
    if (format == RENDER_TABLE)
        seed_print_summary(out, &names, &window->summary);
    else
        print_record(out, format, sel, window);
}

static int print_json(FILE *out, const struct report *report, struct err *err)
{
    int rc = 0;
    fputs("{\"positions\": ", out);
    print_rows(out, RENDER_JSON, report->window);
    fputs(", \"verdict\": ", out);
    print_record(out, RENDER_JSON, report->sel, report->window);
    if (report->judgement) {
        fputs(", \"calibrated\": ", out);
        rc = judge_print(out, RENDER_JSON, report->judgement, err);
    }
    fputs("}\n", out);
    return rc;
}

int report_print(FILE *out, enum render_format format, const struct report *report, struct err *err)
{
    switch (format) {
    case RENDER_TABLE:
        return print_text(out, report, err);
    case RENDER_CSV:
        print_rows(out, format, report->window);
        return 0;
    case RENDER_JSON:
        return print_json(out, report, err);
    }
    return 0;
}
