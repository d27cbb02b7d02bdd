#include "config.h"

#include "collector/report.h"
#include "collector/facts.h"
#include "collector/plot.h"
#include "collector/report_plots.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FLIPS = 20, MOST_TAGS = 5 };

/* ---- what was compared ---- */

static int write_run(struct doc *doc, struct db *db, int64_t run_id, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "run", err))
        return -1;
    query_bind_int(query, ":run_id", run_id);
    int rc = query_step(query, err);
    if (rc > 0) {
        const char *state = query_text(query, "state"), *when = query_text(query, "started_utc");
        char how[48] = "still recording";
        if (state && !strcmp(state, "closed"))
            snprintf(how, sizeof how, "%.1f s", query_real(query, "seconds"));
        else if (state && !strcmp(state, "recovered"))
            snprintf(how, sizeof how, "died, and was recovered");
        doc_fact(doc, "run", "%lld, %s UTC, %s", (long long)run_id, when ? when : "?", how);
        if (query_text(query, "engine"))
            doc_fact(doc, "engine", "%s", query_text(query, "engine"));
        if (query_text(query, "model"))
            doc_fact(doc, "model", "%s", query_text(query, "model"));
        if (query_text(query, "gpu"))
            doc_fact(doc, "gpu", "%s", query_text(query, "gpu"));
    }
    query_free(query);
    return rc < 0 ? -1 : 0;
}

/* The run of arm A, then that of arm B where it is another. */
static int each_run(struct doc *doc, const struct report *report,
                    int (*write)(struct doc *, struct db *, int64_t, struct err *), struct err *err)
{
    const struct selection *sel = report->sel;
    if (write(doc, report->db, sel->a.run_id, err))
        return -1;
    return sel->a.run_id == sel->b.run_id ? 0 : write(doc, report->db, sel->b.run_id, err);
}

/* What differs between the arms' settings or kernels, or that nothing does. */
static int write_facts(struct doc *doc, const struct report *report, const char *kind,
                       int (*add)(struct facts *, int, const struct load_side *, struct err *),
                       struct err *err)
{
    static const char *const names[] = {"kind", "name", "a", "b"};
    const struct judgement *j = report->judgement;
    struct facts facts = {0};
    int rc = add(&facts, 0, &j->a, err) || add(&facts, 1, &j->b, err) ? -1 : 0;
    size_t had = facts.n;
    facts_keep_different(&facts);
    if (rc || !had) {
        if (!rc)
            doc_fact(doc, kind, "none recorded");
    } else if (!facts.n) {
        doc_fact(doc, kind, "all %zu are equal", had);
    } else {
        doc_fact(doc, kind, "%zu of %zu differ", facts.n, had);
        struct render *r = render_open(doc->out, doc_table(doc), 4, 4, names);
        facts_render(r, kind, &facts);
        render_close(r);
    }
    facts_free(&facts);
    return rc;
}

static int write_compared(struct doc *doc, const struct report *report, struct err *err)
{
    doc_section(doc, "What was compared");
    if (each_run(doc, report, write_run, err))
        return -1;
    doc_fact(doc, "arms", "%s (A) against %s (B)", report->window->name_a, report->window->name_b);
    return write_facts(doc, report, "settings", facts_add_settings, err) ||
                   write_facts(doc, report, "kernels", facts_add_kernels, err)
               ? -1
               : 0;
}

/* ---- the judgement ---- */

static void write_exposure(struct doc *doc, const struct judgement *j)
{
    const struct verdict *v = &j->verdict;
    doc_fact(doc, "exposure",
             "%.3g flips in 1,000 tokens by these margins and the floor, at most "
             "%.3g by what was seen (95 %%)",
             v->n ? 1000 * v->expected / (double)v->n : NAN, 1000 * v->flip_rate_high);
}

static int write_flips(struct doc *doc, const struct judgement *j, struct err *err)
{
    size_t n = j->verdict.n_flips;
    doc_section(doc, "Flips");
    if (!n) {
        doc_text(doc, "None.");
        return 0;
    }
    if (n > MOST_FLIPS)
        doc_text(doc, "The %d of the largest contrast, of %zu.", MOST_FLIPS, n);
    return judge_print_flips(doc->out, doc_table(doc), j, MOST_FLIPS, err);
}

static int write_tests(struct doc *doc, const struct judgement *j, struct err *err)
{
    doc_section(doc, "Tests");
    judge_print_tests(doc->out, doc_table(doc), j);
    if (!j->verdict.n_tags)
        return 0;
    doc_section(doc, "What goes with the differences");
    return judge_print_tags(doc->out, doc_table(doc), j, MOST_TAGS, err);
}

static int write_judgement(struct doc *doc, const struct report *report, struct err *err)
{
    const struct judgement *j = report->judgement;
    bool any = j->verdict.n > 0;
    doc_section(doc, "Agreement and noise");
    judge_write_figures(doc, j);
    write_exposure(doc, j);
    if (any) {
        if (report_plot_floor(doc, report, err))
            return -1;
        doc_section(doc, "Margins");
        if (report_plot_margins(doc, report, err) || report_plot_contrasts(doc, report, err))
            return -1;
    }
    if (write_flips(doc, j, err))
        return -1;
    if (any) {
        doc_section(doc, "Contrasts by position");
        if (report_plot_drift(doc, report, err))
            return -1;
    }
    if (write_tests(doc, j, err))
        return -1;
    return 0;
}

/* ---- the window, by the seed's rule ---- */

static int write_window(struct doc *doc, const struct report *report)
{
    const struct selection *sel = report->sel;
    const struct window *window = report->window;
    struct seed_names names = window_names(window);
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    if (!out) {
        perror("neartie: memory");
        exit(1);
    }
    seed_print_rows(out, &names, window->rows, window->n);
    putc('\n', out);
    seed_print_gate(out, &names, &window->gate);
    seed_print_summary(out, &names, &window->summary);
    fclose(out);
    doc_section(doc, "The last positions, by the seed's rule");
    doc_text(doc, "Kept as a yardstick: the verdict that counts is the one above.");
    doc_fact(doc, "rows", "seq_id %lld, the last %d of %lld comparable positions%s",
             (long long)sel->seq_id, window->n, (long long)sel->n,
             sel->n_seqs > 1 ? "; there are further sequences, --seq chooses" : "");
    if (doc->form == DOC_TEXT)
        putc('\n', doc->out);
    doc_lines(doc, "every position", text);
    free(text);
    return 0;
}

/* ---- what is missing ---- */

static int write_gaps(struct doc *doc, struct db *db, int64_t run_id, struct err *err)
{
    struct query *query;
    bool any = false;
    int rc;
    if (db_query(db, &query, "gaps", err))
        return -1;
    query_bind_int(query, ":run_id", run_id);
    while ((rc = query_step(query, err)) > 0) {
        const char *kind = query_text(query, "kind"), *detail = query_text(query, "detail");
        any = true;
        const char *how = kind && strstr(kind, "_pruned") ? "removed from" : "not recorded in";
        doc_text(doc, "%s run %lld: %s, %lld%s%s", how, (long long)run_id, kind ? kind : "",
                 (long long)query_int(query, "count"), detail ? ", " : "", detail ? detail : "");
    }
    query_free(query);
    if (!rc && !any)
        doc_text(doc, "run %lld has no gap", (long long)run_id);
    return rc;
}

/* ---- how to look further ---- */

/* The text with numbers for $A, $B and $R. */
static void fill_in(char *out, size_t size, const char *text, long long a, long long b,
                    long long run)
{
    size_t n = 0;
    for (; *text && n < size; text++)
        if (*text != '$')
            n += (size_t)snprintf(out + n, size - n, "%c", *text);
        else
            n += (size_t)snprintf(out + n, size - n, "%lld",
                                  *++text == 'A' ? a : (*text == 'B' ? b : run));
}

static void write_queries(struct doc *doc, const struct report *report)
{
    static const struct {
        const char *answers, *query; /* $A, $B: the arms; $R: arm B's run */
    } list[] = {
        {"all tests and tags", "neartie verdict FILE --a $A --b $B"},
        {"what goes with the differences", "neartie blame FILE --a $A --b $B"},
        {"agreement", "SELECT n, n_seqs, n_flips, agreement FROM agreement "
                      "WHERE arm_id_a = $A AND arm_id_b = $B;"},
        {"the narrowest margins", "SELECT pos, margin, percentile FROM margins "
                                  "WHERE arm_id = $A ORDER BY margin LIMIT 20;"},
        {"every flip", "SELECT seq_id, pos, text_a, text_b, margin_a, contrast FROM flips "
                       "WHERE arm_id_a = $A AND arm_id_b = $B ORDER BY contrast DESC;"},
        {"contrasts by position",
         "SELECT pos / 64 * 64 AS from_pos, count(*) AS n, sum(flip) AS n_flips, "
         "avg(abs(contrast)) AS mean_contrast FROM pairs "
         "WHERE arm_id_a = $A AND arm_id_b = $B GROUP BY from_pos;"},
        {"settings in effect", "SELECT name, value, source FROM settings WHERE run_id = $R;"},
        {"kernels of each arm", "SELECT arm, kernel, grid_x, grid_y, grid_z, n_launches "
                                "FROM kernel_usage WHERE run_id = $R;"},
        {"what is missing", "SELECT kind, count, detail FROM gaps WHERE run_id = $R;"},
    };
    long long a = select_view_a(report->sel), b = select_view_b(report->sel);
    doc_section(doc, "Look further");
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[512];
        fill_in(text, sizeof text, list[i].query, a, b, report->sel->b.run_id);
        doc_query(doc, list[i].answers, text);
    }
}

/* ---- the whole ---- */

static int write_missing(struct doc *doc, const struct report *report, struct err *err)
{
    doc_section(doc, "What is missing");
    return each_run(doc, report, write_gaps, err);
}

int report_write(struct doc *doc, const struct report *report, struct err *err)
{
    judge_write_head(doc, report->judgement);
    if (doc->form == DOC_HTML && !plot_available())
        doc_text(doc, "gnuplot is not installed: tables stand where plots would.");
    if (write_compared(doc, report, err) || write_judgement(doc, report, err))
        return -1;
    write_window(doc, report);
    if (doc->form == DOC_HTML) {
        doc_section(doc, "Kernels by forward");
        if (report_plot_kernels(doc, report, err))
            return -1;
    }
    if (write_missing(doc, report, err))
        return -1;
    write_queries(doc, report);
    return 0;
}

int report_write_contents(struct doc *doc, struct db *db, const char *why, struct err *err)
{
    static const char *const names[] = {"runs", "arms", "gaps"};
    doc_verdict(doc, DOC_NONE, verdict_names[VERDICT_NOT_COMPARABLE], "", why);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct query *query;
        if (db_query(db, &query, names[i], err))
            return -1;
        doc_section(doc, names[i]);
        int rc = render_query(doc->out, doc_table(doc), 4, query, err);
        query_free(query);
        if (rc)
            return -1;
    }
    return 0;
}

int report_print_json(FILE *out, const struct report *report, struct err *err)
{
    fputs("{\"positions\": ", out);
    report_print_rows(out, RENDER_JSON, report->window);
    fputs(", \"verdict\": ", out);
    report_print_record(out, RENDER_JSON, report->sel, report->window);
    fputs(", \"calibrated\": ", out);
    int rc = judge_print(out, RENDER_JSON, report->judgement, err);
    fputs("}\n", out);
    return rc;
}
