/* The seed's rule: its table of classes, its quantiles and blind spots on built-in cases, and the
 * founding tool's recorded runs, digit for digit. */
#include "config.h"

#include "collector/seed.h"
#include "tests/tap.h"

#include <math.h>

static const struct seed_names prefill_decode = {"prefill", "decode"};

/* A row whose ids and margins are given; flips use another id in arm B. */
static struct seed_row row_of(int64_t pos, float margin_a, float margin_b, float delta, bool flip)
{
    return (struct seed_row){pos,      1,        2,     flip ? 2 : 1, flip ? 1 : 2,
                             margin_a, margin_b, delta, false,        false};
}

static enum seed_class class_of(int n_flips, bool possible)
{
    struct seed_row rows[5];
    struct seed_summary sum;
    for (int i = 0; i < 5; i++)
        rows[i] = row_of(i, 1, 1, possible && i == 4 ? 1.5f : 0.5f, i < n_flips);
    return seed_summarize(rows, 5, &sum, NULL) ? (enum seed_class) - 1 : sum.cls;
}

static void test_classes(void)
{
    static const struct {
        int n_flips;
        bool possible;
        const char *want;
        bool defect;
    } cases[] = {
        {0, false, "STABLE", false},    {0, true, "NEAR-TIE-EXPOSED", false},
        {1, true, "NEAR-TIE", false},   {1, false, "UNEXPLAINED", true},
        {2, true, "SYSTEMATIC", true},  {2, false, "SYSTEMATIC", true},
        {5, false, "SYSTEMATIC", true},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        enum seed_class cls = class_of(cases[i].n_flips, cases[i].possible);
        is_str(seed_class_name(cls), cases[i].want, "%d flips, possible=%d", cases[i].n_flips,
               cases[i].possible);
        is_int(seed_is_defect(cls), cases[i].defect, "%s is a defect or not", cases[i].want);
    }
}

static void test_quantiles(void)
{
    /* n = 6: index round(5 q) = 1 (0.5 rounds up), 3 (2.5 rounds up), 5 (4.5 rounds up). */
    static const float margins[6] = {6, 1, 5, 2, 4, 3};
    struct seed_row rows[6];
    struct seed_summary sum;
    struct err err;
    for (int i = 0; i < 6; i++)
        rows[i] = row_of(100 + i, margins[i], margins[i], 0, false);
    if (!ok(!seed_summarize(rows, 6, &sum, &err), "six rows"))
        return;
    ok(sum.b_min == 1 && sum.b_p10 == 2 && sum.b_p50 == 4 && sum.b_p90 == 6 && sum.b_max == 6,
       "arm B's quantiles at round((n-1)q)");
    ok(sum.a_min == 1 && sum.a_p50 == 4 && sum.a_max == 6, "arm A's median at n/2");
    is_int(sum.n_below, 2, "rank counts the margins strictly below");
    is_int(sum.decision.pos, 105, "the decision position is the last");
    ok(!sum.possible, "no difference makes no flip possible");
    rows[5].delta = 3;
    ok(!seed_summarize(rows, 6, &sum, &err) && !sum.possible,
       "delta equal to the margin: not above");
    ok(!seed_summarize(rows, 1, &sum, &err) && sum.b_p90 == 6 && sum.n_below == 0, "one row");
    ok(seed_summarize(rows, 0, &sum, &err) == -1 && err.text[0], "no row: %s", err.text);
}

static void test_logits(void)
{
    /* A's tie goes to id 1; B prefers 3. The delta looks at ids 1, 3 and 0, not at id 4. */
    static const float a[5] = {1, 2.5f, 2.5f, 2.25f, -9}, b[5] = {2.5f, 2, 2.25f, 3, 9e9f};
    struct seed_row row;
    struct seed_gate gate;
    seed_row_set(&row, 7, a, b, 4);
    ok(row.a1 == 1 && row.a2 == 2 && row.b1 == 3 && row.b2 == 0, "top-2, ties to the lowest id");
    ok(row.margin_a == 0 && row.margin_b == 0.5f && row.delta == 1.5f, "margins and delta");
    ok(row.pos == 7 && !row.bad && !row.bounded, "the rest of the row");
    seed_gate_set(&gate, a, b, 5);
    ok(gate.a1 == 1 && gate.b1 == 4 && gate.max_diff == 9e9f && gate.n_ids == 5, "gate");
    seed_gate_set(&gate, a, b, 4);
    ok(gate.margin_a == 0.25f && gate.margin_b == 1 && gate.spread == 0.75f,
       "the gate's margins are between the two contenders");
}

static void test_nonfinite(void)
{
    static const float a[3] = {NAN, 1, 0}, all[3] = {NAN, NAN, NAN}, inf[3] = {0, INFINITY, 1};
    static const float masked[3] = {-INFINITY, 2, -INFINITY};
    struct seed_row row;
    struct seed_summary sum;
    seed_row_set(&row, 0, a, a, 3);
    ok(row.a1 == 1 && row.a2 == 2 && row.bad, "NaN never wins, and is noted");
    seed_row_set(&row, 0, inf, inf, 3);
    ok(row.a1 == 1 && row.bad && row.delta == 0, "+inf is noted");
    seed_row_set(&row, 0, all, all, 3);
    ok(row.a1 == -1 && row.a2 == -1 && isnan(row.margin_a) && row.delta == 0, "all NaN: no id");
    ok(!seed_summarize(&row, 1, &sum, NULL) && sum.cls == SEED_STABLE && sum.n_bad == 1,
       "the seed's rule calls all NaN on both sides STABLE; the note says otherwise");
    seed_row_set(&row, 0, masked, masked, 3);
    ok(row.a1 == 1 && row.a2 == -1 && !row.bad && row.delta == 0, "a masked id is no runner-up");
    seed_row_set(&row, 0, a + 1, a + 1, 1);
    ok(row.a1 == 0 && row.a2 == -1 && isnan(row.margin_a), "a vocabulary of one");
}

/* Text that a printer writes, to be freed. */
static char *summary_text(const struct seed_summary *sum)
{
    char *text = NULL;
    size_t size;
    FILE *out = open_memstream(&text, &size);
    seed_print_summary(out, &prefill_decode, sum);
    fclose(out);
    return text;
}

static void test_print(void)
{
    struct seed_row rows[2] = {row_of(8, 0.25f, 0.5f, 0.125f, false), row_of(9, 0.5f, 1, 2, true)};
    struct seed_summary sum;
    char *text = NULL;
    size_t size;
    rows[0].bounded = true;
    FILE *out = open_memstream(&text, &size);
    seed_print_rows(out, &prefill_decode, rows, 2);
    fclose(out);
    is_str(text,
           "pos      prefill_top1  prefill_top2  margin_p   decode_top1   decode_top2   margin_d   "
           "delta@ids  agree\n"
           "8        1             2             0.2500     1             2             0.5000     "
           ">=0.1250   yes\n"
           "9        1             2             0.5000     2             1             1.0000     "
           "2.0000     NO <-- FLIP\n",
           "rows");
    free(text);
    seed_summarize(rows, 2, &sum, NULL);
    text = summary_text(&sum);
    is_str(text,
           "margins of decode (2 positions): min 0.5000  p10 0.5000  p50 1.0000  p90 1.0000  max "
           "1.0000\n"
           "margins of prefill: min 0.2500  p50 0.5000  max 0.5000\n"
           "decision position 9: prefill_top1=1 decode_top1=2 margin_p=0.5000 margin_d=1.0000 "
           "delta@ids=2.0000\n"
           "  its margin is above 1/2 of decode's margins (rank 2 of 2)\n"
           "  a flip is possible if delta > smaller margin: 2.0000 > 0.5000 = true\n"
           "agreement: 1/2 (1 flip)\n"
           "note: delta is a lower bound at 1 of 2 positions\n"
           "verdict (rule seed): NEAR-TIE - one flip, and the difference exceeds the decision "
           "margin\n",
           "summary");
    free(text);
}

static void test_print_gate(void)
{
    /* The founding flip: four published logits give both margins and the spread. */
    struct seed_gate gate = {332,      485,      151936, 0.4659f, 12.8352f, 12.8045f,
                             12.6235f, 12.7234f, 0,      0,       0};
    char *text = NULL;
    size_t size;
    seed_gate_derive(&gate);
    FILE *out = open_memstream(&text, &size);
    seed_print_gate(out, &prefill_decode, &gate);
    gate.b1 = 332;
    seed_print_gate(out, &prefill_decode, &gate);
    fclose(out);
    is_str(text,
           "gate: prefill argmax 332, decode argmax 485, largest |difference| 0.4659 over 151936 "
           "ids: MISMATCH\n"
           "  prefill: 332=12.8352 485=12.8045 margin 0.0307\n"
           "  decode: 332=12.6235 485=12.7234 margin 0.0999\n"
           "  spread at these ids 0.2117\n"
           "gate: prefill argmax 332, decode argmax 332, largest |difference| 0.4659 over 151936 "
           "ids: MATCH\n",
           "gate");
    free(text);
}

/* A recorded log of the founding tool: its table, and its summary in this project's words. */
struct recorded {
    struct seed_row rows[64];
    int n;
    char want[2048]; /* every figure copied as text */
    char cls[32];    /* the class that was printed */
};

static void append(char *text, size_t size, const char *fmt, ...)
{
    va_list ap;
    size_t used = strlen(text);
    va_start(ap, fmt);
    vsnprintf(text + used, size - used, fmt, ap);
    va_end(ap);
}

static void read_table_line(struct recorded *rec, const char *line)
{
    struct seed_row *row = rec->rows + rec->n;
    long long pos;
    char agree[8];
    if (rec->n < 64 && sscanf(line, "%lld %d %f %d %f %f %7s", &pos, &row->a1, &row->margin_a,
                              &row->b1, &row->margin_b, &row->delta, agree) == 7) {
        row->pos = pos;
        rec->n++;
        ok((row->a1 == row->b1) == !strcmp(agree, "yes"), "position %lld agrees or flips", pos);
    }
}

static void read_summary_line(struct recorded *rec, const char *line)
{
    char v[6][32];
    char *want = rec->want;
    if (sscanf(line,
               "margin distribution (decode config, %31s positions): min %31s p10 %31s p50 %31s "
               "p90 %31s max %31s",
               v[0], v[1], v[2], v[3], v[4], v[5]) == 6)
        append(want, sizeof rec->want,
               "margins of decode (%s positions): min %s  p10 %s  p50 %s  p90 %s  max %s\n", v[0],
               v[1], v[2], v[3], v[4], v[5]);
    if (sscanf(line, "margin distribution (prefill config): min %31s p50 %31s max %31s", v[0], v[1],
               v[2]) == 3)
        append(want, sizeof rec->want, "margins of prefill: min %s  p50 %s  max %s\n", v[0], v[1],
               v[2]);
    if (!strncmp(line, "DECISION POSITION", 17))
        append(want, sizeof rec->want, "decision position %lld: %s",
               (long long)rec->rows[rec->n - 1].pos, strstr(line, "prefill_top1"));
    if (sscanf(
            line,
            " -> the decision margin is BELOW %31s sampled positions' margins (rank %31s of %31s",
            v[0], v[1], v[2]) == 3)
        append(want, sizeof rec->want,
               "  its margin is above %s of decode's margins (rank %s of %s\n", v[0], v[1], v[2]);
    if (sscanf(line,
               " -> flip is ARITHMETICALLY POSSIBLE iff config_delta > margin: %31s > %31s = %31s",
               v[0], v[1], v[2]) == 3)
        append(want, sizeof rec->want,
               "  a flip is possible if delta > smaller margin: %s > %s = %s\n", v[0], v[1], v[2]);
    if (sscanf(line, "agreement across sampled positions: %31s (%31s flip", v[0], v[1]) == 2)
        append(want, sizeof rec->want, "agreement: %s (%s flip%s)\n", v[0], v[1],
               strcmp(v[1], "1") ? "s" : "");
    sscanf(line, "VERDICT-INPUT: %31s", rec->cls);
}

static int read_log(const char *path, struct recorded *rec)
{
    char line[512];
    FILE *in = fopen(path, "r");
    memset(rec, 0, sizeof *rec);
    if (!in)
        return -1;
    while (fgets(line, sizeof line, in)) {
        read_table_line(rec, line);
        read_summary_line(rec, line);
    }
    fclose(in);
    char *name = strstr(rec->want, "config_delta_at_ids");
    if (name) { /* the one column whose name differs */
        size_t cut = strlen("config_delta_at_ids") - strlen("delta@ids");
        memmove(name, name + cut, strlen(name + cut) + 1);
        memcpy(name, "delta@ids", strlen("delta@ids"));
    }
    return 0;
}

static void test_log(const char *shared, const char *name, const char *printed, const char *cls)
{
    struct recorded rec;
    struct seed_summary sum;
    char path[4096];
    snprintf(path, sizeof path, "%s/cases/probe-logs/%s", shared, name);
    if (!ok(!read_log(path, &rec) && rec.n == 24, "%s: 24 positions", name))
        return;
    seed_summarize(rec.rows, rec.n, &sum, NULL);
    char *text = summary_text(&sum), *verdict = strstr(text, "verdict (rule seed)");
    *verdict = '\0';
    is_str(text, rec.want, "%s: every line of the summary", name);
    is_str(rec.cls, printed, "%s: class that was printed", name);
    is_str(seed_class_name(sum.cls), cls, "%s: class", name);
    free(text);
}

int main(void)
{
    test_classes();
    test_quantiles();
    test_logits();
    test_nonfinite();
    test_print();
    test_print_gate();
    if (!tap_shared()) {
        skip("recorded runs", "NEARTIE_SHARED is not set");
        return tap_done();
    }
    test_log(tap_shared(), "probe-q8-naked.log", "NEAR-TIE", "NEAR-TIE");
    test_log(tap_shared(), "probe-nv-naked.log", "UNEXPLAINED", "UNEXPLAINED");
    /* That tool's own line says UNEXPLAINED for a run without a flip, a fault of its first
     * version; the rule's table says STABLE. */
    test_log(tap_shared(), "margin-q27nv-board2048.log", "UNEXPLAINED", "STABLE");
    return tap_done();
}
