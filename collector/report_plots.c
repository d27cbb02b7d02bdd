#include "config.h"

#include "collector/report_plots.h"
#include "collector/pairs_int.h"
#include "collector/plot.h"
#include "collector/stat_dist.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { N_BINS = 40, N_RANGES = 40, MOST_POINTS = 1500, N_CURVE = 60, N_ROWS_OF_FLOOR = 64 };

/* Whether this document shows plots; a page without gnuplot shows tables, and says so. */
static bool has_plots(const struct doc *doc)
{
    return doc->form == DOC_HTML && plot_available();
}

static int show(struct doc *doc, struct plot *plot, const char *caption, struct err *err)
{
    char *svg;
    if (plot_end(plot, &svg, err))
        return -1;
    doc_plot(doc, svg, caption);
    free(svg);
    return 0;
}

/* ---- margins ---- */

struct histogram {
    double step;
    double counts[N_BINS]; /* the last one holds everything above */
};

static void count_margins(struct histogram *out, const struct pairs *pairs)
{
    float *sorted = xcalloc(pairs->n, sizeof *sorted);
    memcpy(sorted, pairs->margin, pairs->n * sizeof *sorted);
    stat_sort(sorted, pairs->n);
    double top = sorted[(size_t)(0.99 * (double)(pairs->n - 1))];
    free(sorted);
    *out = (struct histogram){.step = top > 0 ? top / (N_BINS - 1) : 1};
    for (size_t i = 0; i < pairs->n; i++)
        out->counts[(int)fmin(pairs->margin[i] / out->step, N_BINS - 1)]++;
}

static void table_margins(struct doc *doc, const struct histogram *h)
{
    static const char *const names[] = {"margin_from", "margin_to", "positions"};
    struct render *r = render_open(doc->out, doc_table(doc), -4, 3, names);
    for (int i = 0; i < N_BINS; i++) {
        if (h->counts[i] == 0)
            continue;
        render_real(r, i * h->step);
        render_real(r, i + 1 < N_BINS ? (i + 1) * h->step : NAN);
        render_int(r, (int64_t)h->counts[i]);
    }
    render_close(r);
}

int report_plot_margins(struct doc *doc, const struct report *report, struct err *err)
{
    struct histogram h;
    struct plot plot;
    char to[64];
    double decision = report->window->summary.decision.margin_a, most = 0;
    count_margins(&h, report->judgement->load.pairs);
    if (!has_plots(doc)) {
        if (doc->form == DOC_HTML)
            table_margins(doc, &h);
        snprintf(to, sizeof to, "%.4g and more", (N_BINS - 1) * h.step);
        doc_bars(doc, "margins", h.counts, N_BINS, "0", to);
        return 0;
    }
    if (plot_begin(&plot, "margins", err))
        return -1;
    fprintf(plot.script, "$bins << EOD\n");
    for (int i = 0; i < N_BINS; i++) {
        fprintf(plot.script, "%.9g %.0f\n", (i + 0.5) * h.step, h.counts[i]);
        most = fmax(most, h.counts[i]);
    }
    fprintf(plot.script, "EOD\nset boxwidth %.9g\nset xrange [0:%.9g]\nset yrange [0:*]\n",
            0.9 * h.step, fmax(N_BINS * h.step, decision));
    fprintf(plot.script,
            "set xlabel 'margin of A, logits (the last bar: and more)'\n"
            "set ylabel 'positions'\nunset key\nset tmargin 2\n%s",
            most < 6 ? "set ytics 1\n" : "");
    if (decision >= 0)
        fprintf(plot.script,
                "set arrow from first %.9g, graph 0 to first %.9g, graph 1 nohead lw 2 lc rgb "
                "'" PLOT_MARK "'\n"
                "set label 'decision position' at first %.9g, graph 1.06 %s\n",
                decision, decision, decision, 2 * decision > N_BINS * h.step ? "right" : "");
    fprintf(plot.script, "plot $bins with boxes lc rgb '" PLOT_A "'\n");
    return show(doc, &plot, "Margins between the two best tokens of A.", err);
}

/* ---- margin against contrast ---- */

/* Every flip, and so many of the others, evenly chosen. */
static void put_points(FILE *out, const struct pairs *pairs, bool flips)
{
    size_t stride = flips ? 1 : pairs->n / MOST_POINTS + 1, n = 0;
    for (size_t i = 0; i < pairs->n && n < MOST_POINTS; i += stride)
        if (!!(pairs->flags[i] & PAIR_FLIPPED) == flips) {
            fprintf(out, "%.9g %.9g\n", fmax(pairs->margin[i], 1e-6), fmax(pairs->peak[i], 1e-6));
            n++;
        }
    if (!n)
        fputs("NaN NaN\n", out);
}

int report_plot_contrasts(struct doc *doc, const struct report *report, struct err *err)
{
    const struct pairs *pairs = report->judgement->load.pairs;
    struct plot plot;
    if (!has_plots(doc))
        return 0;
    if (plot_begin(&plot, "contrasts", err))
        return -1;
    fputs("$same << EOD\n", plot.script);
    put_points(plot.script, pairs, false);
    fputs("EOD\n$flips << EOD\n", plot.script);
    put_points(plot.script, pairs, true);
    fputs("EOD\nset logscale xy\nset format xy '%g'\nset key top left reverse Left\n"
          "set xlabel 'margin of A, logits'\nset ylabel 'largest contrast, logits'\n"
          "plot $same with points pt 7 ps 0.35 lc rgb '" PLOT_A "' title 'same token',"
          " $flips with points pt 7 ps 0.6 lc rgb '" PLOT_MARK "' title 'flip',"
          " x with lines lw 1.5 lc rgb '" PLOT_FLOOR "' title 'flip line: contrast = margin'\n",
          plot.script);
    return show(doc, &plot, "A token flips above the line, where the contrast exceeds the margin.",
                err);
}

/* ---- along the positions ---- */

struct range {
    int32_t from;
    size_t n, flips;
    double mean, most;
};

static int32_t last_position(const struct pairs *pairs)
{
    int32_t last = 0;
    for (size_t i = 0; i < pairs->n; i++)
        last = pairs->pos[i] > last ? pairs->pos[i] : last;
    return last;
}

static int32_t first_position(const struct pairs *pairs)
{
    int32_t first = pairs->pos[0];
    for (size_t i = 0; i < pairs->n; i++)
        first = pairs->pos[i] < first ? pairs->pos[i] : first;
    return first;
}

/* Fill at most N_RANGES ranges of equal length; returns their number. */
static int fill_ranges(struct range *ranges, const struct pairs *pairs)
{
    int32_t first = first_position(pairs), length = (last_position(pairs) - first) / N_RANGES + 1;
    int n = (last_position(pairs) - first) / length + 1;
    for (int k = 0; k < n; k++)
        ranges[k] = (struct range){.from = first + k * length};
    for (size_t i = 0; i < pairs->n; i++) {
        struct range *range = ranges + (pairs->pos[i] - first) / length;
        range->n++;
        range->flips += pairs->flags[i] & PAIR_FLIPPED ? 1 : 0;
        range->mean += pairs->peak[i];
        range->most = fmax(range->most, pairs->peak[i]);
    }
    for (int k = 0; k < n; k++)
        ranges[k].mean = ranges[k].n ? ranges[k].mean / (double)ranges[k].n : NAN;
    return n;
}

static void table_drift(struct doc *doc, const struct range *ranges, int n)
{
    static const char *const names[] = {"from_pos", "positions", "flips", "mean_contrast",
                                        "max_contrast"};
    struct render *r = render_open(doc->out, doc_table(doc), -4, 5, names);
    for (int k = 0; k < n; k++) {
        render_int(r, ranges[k].from);
        render_int(r, (int64_t)ranges[k].n);
        render_int(r, (int64_t)ranges[k].flips);
        render_real(r, ranges[k].mean);
        render_real(r, ranges[k].n ? ranges[k].most : NAN);
    }
    render_close(r);
}

static void bars_drift(struct doc *doc, const struct range *ranges, int n)
{
    double means[N_RANGES], mosts[N_RANGES];
    char from[32], to[96];
    double mean = 0, most = 0;
    for (int k = 0; k < n; k++) {
        means[k] = ranges[k].mean;
        mosts[k] = ranges[k].n ? ranges[k].most : NAN;
        mean = fmax(mean, means[k]);
        most = fmax(most, mosts[k]);
    }
    int32_t length = n > 1 ? ranges[1].from - ranges[0].from : 1;
    snprintf(from, sizeof from, "%d", ranges[0].from);
    snprintf(to, sizeof to, "%d, up to %.4g logits", ranges[n - 1].from + length - 1, mean);
    doc_bars(doc, "mean", means, n, from, to);
    snprintf(to, sizeof to, "%d, up to %.4g logits", ranges[n - 1].from + length - 1, most);
    doc_bars(doc, "largest", mosts, n, from, to);
}

int report_plot_drift(struct doc *doc, const struct report *report, struct err *err)
{
    struct range ranges[N_RANGES];
    struct plot plot;
    int n = fill_ranges(ranges, report->judgement->load.pairs);
    if (!has_plots(doc)) {
        if (doc->form == DOC_HTML)
            table_drift(doc, ranges, n);
        bars_drift(doc, ranges, n);
        return 0;
    }
    if (plot_begin(&plot, "drift", err))
        return -1;
    fputs("$ranges << EOD\n", plot.script);
    for (int k = 0; k < n; k++)
        if (ranges[k].n)
            fprintf(plot.script, "%d %.9g %.9g\n", ranges[k].from, ranges[k].mean, ranges[k].most);
    fprintf(plot.script,
            "EOD\nset yrange [0:*]\nset xlabel 'position (ranges of %d)'\nset ylabel 'contrast, "
            "logits'\n",
            n > 1 ? ranges[1].from - ranges[0].from : 1);
    fputs("plot $ranges using 1:3 with linespoints pt 7 ps 0.4 lc rgb '" PLOT_B "' title 'largest',"
          " $ranges using 1:2 with linespoints pt 7 ps 0.4 lw 2 lc rgb '" PLOT_A "' title 'mean'\n",
          plot.script);
    return show(doc, &plot, "Contrasts along the positions.", err);
}

/* ---- against the floor ---- */

struct point {
    double x, pair, floor;
};

/* Shares of positions with a contrast above x; the floor's goes with the margin, and is averaged
 * over some of the rows. */
static int fill_curve(struct point *curve, const struct judgement *j)
{
    const struct pairs *pairs = j->load.pairs;
    float *sizes = xcalloc(pairs->n, sizeof *sizes);
    size_t n = 0;
    for (size_t i = 0; i < pairs->n; i++)
        if (!(pairs->flags[i] & PAIR_EQUAL))
            sizes[n++] = pairs->peak[i];
    stat_sort(sizes, n);
    double low = n ? fmax(sizes[n / 20], sizes[n - 1] / 1e4) : 0;
    double high = n ? 1.5 * sizes[n - 1] : 0;
    for (int k = 0; k < N_CURVE && high > 0; k++) {
        double x = low * pow(high / low, (double)k / (N_CURVE - 1)), sum = 0;
        size_t at = 0, stride = pairs->n / N_ROWS_OF_FLOOR + 1, rows = 0;
        for (size_t step = n; step; step /= 2)
            while (at + step <= n && sizes[at + step - 1] <= x)
                at += step;
        for (size_t i = 0; i < pairs->n; i += stride, rows++)
            sum += floor_above(&j->control.floor, x, pairs->margin[i]);
        curve[k] = (struct point){x, (double)(n - at) / (double)n, sum / (double)rows};
    }
    free(sizes);
    return high > 0 ? N_CURVE : 0;
}

static void table_floor(struct doc *doc, const struct point *curve, int n)
{
    static const char *const names[] = {"contrast_above", "share_of_pair", "share_of_floor"};
    struct render *r = render_open(doc->out, doc_table(doc), -3, 3, names);
    for (int k = 0; k < n; k += 5) {
        render_real(r, curve[k].x);
        render_real(r, curve[k].pair);
        render_real(r, curve[k].floor);
    }
    render_close(r);
}

int report_plot_floor(struct doc *doc, const struct report *report, struct err *err)
{
    struct point curve[N_CURVE];
    struct plot plot;
    int n = doc->form == DOC_HTML ? fill_curve(curve, report->judgement) : 0;
    if (!n)
        return 0;
    if (!has_plots(doc)) {
        table_floor(doc, curve, n);
        return 0;
    }
    if (plot_begin(&plot, "floor", err))
        return -1;
    fputs("$curve << EOD\n", plot.script);
    for (int k = 0; k < n; k++)
        fprintf(plot.script, "%.9g %.9g %.9g\n", curve[k].x, curve[k].pair, curve[k].floor);
    fputs("EOD\nset logscale xy\nset format xy '%g'\nset key bottom left\n"
          "set xlabel 'contrast, logits'\nset ylabel 'share of positions above'\n"
          "plot $curve using 1:($3 > 1e-7 ? $3 : NaN) with lines lw 2 lc rgb '" PLOT_FLOOR
          "' title 'noise floor', $curve using 1:($2 > 0 ? $2 : NaN) with lines lw 2 lc rgb "
          "'" PLOT_B "' title 'this pair'\n",
          plot.script);
    return show(doc, &plot,
                "How often a contrast exceeds a size: this pair against the noise floor.", err);
}

/* ---- kernels ---- */

/* One block of data for each arm; returns how many stretches were written. */
static int put_stretches(FILE *out, struct db *db, const struct selection *sel, int64_t arm_id,
                         const char *name, struct err *err)
{
    struct query *query;
    int rc, n = 0;
    fprintf(out, "$%s << EOD\n", name);
    if (db_query(db, &query, "kernel_timeline", err))
        return -1;
    query_bind_int(query, ":arm_a", sel->a.arm_id);
    query_bind_int(query, ":arm_b", sel->b.arm_id);
    while ((rc = query_step(query, err)) > 0) {
        if (query_int(query, "arm_id") != arm_id)
            continue;
        fprintf(out, "%lld %lld\n%lld %lld\n\n", (long long)query_int(query, "first_forward"),
                (long long)query_int(query, "kernel_list_id"),
                (long long)query_int(query, "last_forward"),
                (long long)query_int(query, "kernel_list_id"));
        n++;
    }
    query_free(query);
    fputs(n ? "EOD\n" : "NaN NaN\nEOD\n", out);
    return rc < 0 ? -1 : n;
}

static int table_kernels(struct doc *doc, const struct report *report, struct err *err)
{
    struct query *query;
    if (db_query(report->db, &query, "kernel_timeline", err))
        return -1;
    query_bind_int(query, ":arm_a", report->sel->a.arm_id);
    query_bind_int(query, ":arm_b", report->sel->b.arm_id);
    int rc = render_query(doc->out, doc_table(doc), -4, query, err);
    query_free(query);
    return rc;
}

int report_plot_kernels(struct doc *doc, const struct report *report, struct err *err)
{
    const struct selection *sel = report->sel;
    struct plot plot;
    if (!has_plots(doc))
        return doc->form == DOC_HTML ? table_kernels(doc, report, err) : 0;
    if (plot_begin(&plot, "kernels", err))
        return -1;
    int n_a = put_stretches(plot.script, report->db, sel, sel->a.arm_id, "a", err);
    int n_b = n_a < 0 ? -1 : put_stretches(plot.script, report->db, sel, sel->b.arm_id, "b", err);
    if (n_b < 0 || n_a + n_b == 0) {
        fclose(plot.script);
        if (!n_b)
            doc_text(doc, "No kernel was recorded.");
        return n_b < 0 ? -1 : 0;
    }
    fputs("set xlabel 'forward'\nset ylabel 'kernel list'\nset ytics 1\nset offsets 1,1,0.5,0.5\n"
          "plot $a with linespoints pt 7 ps 0.4 lw 3 lc rgb '" PLOT_A "' title 'A',"
          " $b with linespoints pt 7 ps 0.4 lw 3 lc rgb '" PLOT_B "' title 'B'\n",
          plot.script);
    return show(doc, &plot, "Which kernel list each forward launched.", err);
}
