#include "config.h"

#include "collector/seed.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name, *reason;
    bool defect;
} classes[] = {
    [SEED_STABLE] = {"STABLE", "no flip, and the difference is below the decision margin", false},
    [SEED_EXPOSED] = {"NEAR-TIE-EXPOSED", "no flip, but the difference exceeds the decision margin",
                      false},
    [SEED_NEAR_TIE] = {"NEAR-TIE", "one flip, and the difference exceeds the decision margin",
                       false},
    [SEED_UNEXPLAINED] = {"UNEXPLAINED",
                          "one flip, and the difference is below the decision margin", true},
    [SEED_SYSTEMATIC] = {"SYSTEMATIC", "two flips or more", true},
};

const char *seed_class_name(enum seed_class cls)
{
    return classes[cls].name;
}

const char *seed_class_reason(enum seed_class cls)
{
    return classes[cls].reason;
}

bool seed_is_defect(enum seed_class cls)
{
    return classes[cls].defect;
}

struct top2 {
    int32_t id1, id2;
    float margin;
    bool bad;
};

/* Strict comparison in id order leaves a tie with the lowest id. */
static struct top2 top2_of(const float *row, int32_t n_vocab)
{
    struct top2 top = {-1, -1, NAN, false};
    for (int32_t id = 0; id < n_vocab; id++) {
        if (isnan(row[id]) || row[id] == INFINITY)
            top.bad = true;
        if (isnan(row[id]) || row[id] == -INFINITY)
            continue;
        if (top.id1 < 0 || row[id] > row[top.id1]) {
            top.id2 = top.id1;
            top.id1 = id;
        } else if (top.id2 < 0 || row[id] > row[top.id2]) {
            top.id2 = id;
        }
    }
    if (top.id2 >= 0)
        top.margin = row[top.id1] - row[top.id2];
    return top;
}

float seed_max_diff(const float *a, const float *b, int64_t n)
{
    float max = 0;
    for (int64_t i = 0; i < n; i++)
        max = fmaxf(max, fabsf(a[i] - b[i]));
    return max;
}

void seed_row_set(struct seed_row *row, int64_t pos, const float *a, const float *b,
                  int32_t n_vocab)
{
    struct top2 ta = top2_of(a, n_vocab), tb = top2_of(b, n_vocab);
    *row = (struct seed_row){
        .pos = pos,
        .a1 = ta.id1,
        .a2 = ta.id2,
        .b1 = tb.id1,
        .b2 = tb.id2,
        .margin_a = ta.margin,
        .margin_b = tb.margin,
        .bad = ta.bad || tb.bad,
    };
    int32_t ids[4] = {row->a1, row->a2, row->b1, row->b2};
    for (int i = 0; i < 4; i++)
        if (ids[i] >= 0)
            row->delta = fmaxf(row->delta, seed_max_diff(a + ids[i], b + ids[i], 1));
}

/* NaN sorts last, so that it never becomes a minimum. */
static int float_cmp(const void *x, const void *y)
{
    float a = *(const float *)x, b = *(const float *)y;
    if (isnan(a) || isnan(b))
        return isnan(a) - isnan(b);
    return (a > b) - (a < b);
}

static float quantile(const float *sorted, int n, double q)
{
    return sorted[lround((n - 1) * q)];
}

static void margin_quantiles(const struct seed_row *rows, int n, float *scratch,
                             struct seed_summary *out)
{
    for (int i = 0; i < n; i++)
        scratch[i] = rows[i].margin_b;
    qsort(scratch, n, sizeof *scratch, float_cmp);
    out->b_min = scratch[0];
    out->b_p10 = quantile(scratch, n, 0.1);
    out->b_p50 = quantile(scratch, n, 0.5);
    out->b_p90 = quantile(scratch, n, 0.9);
    out->b_max = scratch[n - 1];
    for (int i = 0; i < n; i++)
        scratch[i] = rows[i].margin_a;
    qsort(scratch, n, sizeof *scratch, float_cmp);
    out->a_min = scratch[0];
    out->a_p50 = scratch[n / 2];
    out->a_max = scratch[n - 1];
}

static enum seed_class classify(int n_flips, bool possible)
{
    if (n_flips == 0)
        return possible ? SEED_EXPOSED : SEED_STABLE;
    if (n_flips == 1)
        return possible ? SEED_NEAR_TIE : SEED_UNEXPLAINED;
    return SEED_SYSTEMATIC;
}

int seed_summarize(const struct seed_row *rows, int n, struct seed_summary *out, struct err *err)
{
    if (n < 1)
        return err_set(err, "verdict: no position is in the window");
    float *scratch = malloc(n * sizeof *scratch);
    if (!scratch)
        return err_set(err, "verdict: no memory for %d positions", n);
    *out = (struct seed_summary){.n = n, .decision = rows[n - 1]};
    margin_quantiles(rows, n, scratch, out);
    free(scratch);
    for (int i = 0; i < n; i++) {
        out->n_flips += rows[i].a1 != rows[i].b1;
        out->n_bad += rows[i].bad;
        out->n_bounded += rows[i].bounded;
        out->n_below += rows[i].margin_b < out->decision.margin_b;
    }
    out->min_margin = fminf(out->decision.margin_a, out->decision.margin_b);
    out->possible = out->decision.delta > out->min_margin;
    out->cls = classify(out->n_flips, out->possible);
    return 0;
}

void seed_gate_derive(struct seed_gate *gate)
{
    gate->margin_a = gate->a_at_a1 - gate->a_at_b1;
    gate->margin_b = gate->b_at_b1 - gate->b_at_a1;
    gate->spread =
        fmaxf(fabsf(gate->a_at_a1 - gate->b_at_a1), fabsf(gate->a_at_b1 - gate->b_at_b1));
}

void seed_gate_set(struct seed_gate *gate, const float *a, const float *b, int32_t n_vocab)
{
    *gate = (struct seed_gate){
        .a1 = top2_of(a, n_vocab).id1,
        .b1 = top2_of(b, n_vocab).id1,
        .n_ids = n_vocab,
        .max_diff = seed_max_diff(a, b, n_vocab),
        .a_at_a1 = NAN,
        .a_at_b1 = NAN,
        .b_at_a1 = NAN,
        .b_at_b1 = NAN,
    };
    if (gate->a1 >= 0) {
        gate->a_at_a1 = a[gate->a1];
        gate->b_at_a1 = b[gate->a1];
    }
    if (gate->b1 >= 0) {
        gate->a_at_b1 = a[gate->b1];
        gate->b_at_b1 = b[gate->b1];
    }
    seed_gate_derive(gate);
}

/* The column of an arm's margin carries its first letter, or a and b where these are the same. */
static void margin_names(const struct seed_names *names, char a[16], char b[16])
{
    bool same = names->a[0] == names->b[0];
    snprintf(a, 16, "margin_%c", same ? 'a' : names->a[0]);
    snprintf(b, 16, "margin_%c", same ? 'b' : names->b[0]);
}

/* Long names of arms widen their columns. */
static int id_width(const char *name)
{
    int width = (int)strlen(name) + 5;
    return width < 13 ? 13 : width;
}

static int id_pad(const char *name, int width)
{
    return width + 1 - (int)strlen(name) - 5;
}

void seed_print_rows(FILE *out, const struct seed_names *names, const struct seed_row *rows, int n)
{
    char margin_a[16], margin_b[16], delta[32];
    int wa = id_width(names->a), wb = id_width(names->b);
    margin_names(names, margin_a, margin_b);
    fprintf(out, "%-8s %s_top1%*s%s_top2%*s%-10s ", "pos", names->a, id_pad(names->a, wa), "",
            names->a, id_pad(names->a, wa), "", margin_a);
    fprintf(out, "%s_top1%*s%s_top2%*s%-10s %-10s %s\n", names->b, id_pad(names->b, wb), "",
            names->b, id_pad(names->b, wb), "", margin_b, "delta@ids", "agree");
    for (int i = 0; i < n; i++) {
        const struct seed_row *row = rows + i;
        snprintf(delta, sizeof delta, "%s%.4f", row->bounded ? ">=" : "", row->delta);
        fprintf(out, "%-8lld %-*d %-*d %-10.4f ", (long long)row->pos, wa, row->a1, wa, row->a2,
                row->margin_a);
        fprintf(out, "%-*d %-*d %-10.4f %-10s %s\n", wb, row->b1, wb, row->b2, row->margin_b, delta,
                row->a1 == row->b1 ? "yes" : "NO <-- FLIP");
    }
}

void seed_print_summary(FILE *out, const struct seed_names *names, const struct seed_summary *sum)
{
    char margin_a[16], margin_b[16];
    const struct seed_row *row = &sum->decision;
    margin_names(names, margin_a, margin_b);
    fprintf(out, "margins of %s (%d positions): min %.4f  p10 %.4f  p50 %.4f  p90 %.4f  max %.4f\n",
            names->b, sum->n, sum->b_min, sum->b_p10, sum->b_p50, sum->b_p90, sum->b_max);
    fprintf(out, "margins of %s: min %.4f  p50 %.4f  max %.4f\n", names->a, sum->a_min, sum->a_p50,
            sum->a_max);
    fprintf(out, "decision position %lld: %s_top1=%d %s_top1=%d %s=%.4f %s=%.4f delta@ids=%.4f\n",
            (long long)row->pos, names->a, row->a1, names->b, row->b1, margin_a, row->margin_a,
            margin_b, row->margin_b, row->delta);
    fprintf(out, "  its margin is above %d/%d of %s's margins (rank %d of %d)\n", sum->n_below,
            sum->n, names->b, sum->n_below + 1, sum->n);
    fprintf(out, "  a flip is possible if delta > smaller margin: %.4f > %.4f = %s\n", row->delta,
            sum->min_margin, sum->possible ? "true" : "false");
    fprintf(out, "agreement: %d/%d (%d flip%s)\n", sum->n - sum->n_flips, sum->n, sum->n_flips,
            sum->n_flips == 1 ? "" : "s");
    if (sum->n_bad)
        fprintf(out, "note: NaN or +inf at %d of %d positions, which this rule does not look at\n",
                sum->n_bad, sum->n);
    if (sum->n_bounded)
        fprintf(out, "note: delta is a lower bound at %d of %d positions\n", sum->n_bounded,
                sum->n);
    fprintf(out, "verdict (rule seed): %s - %s\n", seed_class_name(sum->cls),
            seed_class_reason(sum->cls));
}

void seed_print_gate(FILE *out, const struct seed_names *names, const struct seed_gate *gate)
{
    bool match = gate->a1 == gate->b1;
    fprintf(out, "gate: %s argmax %d, %s argmax %d, largest |difference| %.4f over %lld ids: %s\n",
            names->a, gate->a1, names->b, gate->b1, gate->max_diff, (long long)gate->n_ids,
            match ? "MATCH" : "MISMATCH");
    if (match)
        return;
    fprintf(out, "  %s: %d=%.4f %d=%.4f margin %.4f\n", names->a, gate->a1, gate->a_at_a1, gate->b1,
            gate->a_at_b1, gate->margin_a);
    fprintf(out, "  %s: %d=%.4f %d=%.4f margin %.4f\n", names->b, gate->a1, gate->b_at_a1, gate->b1,
            gate->b_at_b1, gate->margin_b);
    fprintf(out, "  spread at these ids %.4f\n", gate->spread);
}
