#include "config.h"

#include "collector/judge.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_FLIPS = 20, MOST_TAGS = 5, N_CONTEXT = 8 };

/* ---- what the database knows of a flip ---- */

/* The queries on flips, prepared once. */
struct flip_queries {
    struct query *context, *token[2];
};

static int open_queries(struct flip_queries *queries, const struct judgement *j, struct err *err)
{
    *queries = (struct flip_queries){NULL, {NULL, NULL}};
    return db_query(j->b.db, &queries->context, "context", err) ||
                   db_query(j->a.db, &queries->token[0], "token", err) ||
                   db_query(j->b.db, &queries->token[1], "token", err)
               ? -1
               : 0;
}

static void close_queries(struct flip_queries *queries)
{
    query_free(queries->context);
    query_free(queries->token[0]);
    query_free(queries->token[1]);
}

/* The row of arm B; both lists are in the order of the pairs: by sequence, then position. */
static int64_t row_of(const struct judgement *j, const struct pair_flip *flip)
{
    const struct load_flip *flips = j->load.flips;
    size_t low = 0, high = j->load.n_flips;
    while (low < high) {
        size_t mid = low + (high - low) / 2;
        if (flips[mid].seq < flip->seq ||
            (flips[mid].seq == flip->seq && flips[mid].pos < flip->pos))
            low = mid + 1;
        else
            high = mid;
    }
    bool found =
        low < j->load.n_flips && flips[low].seq == flip->seq && flips[low].pos == flip->pos;
    return found ? flips[low].row_b : 0;
}

/* A stream into memory; the text is to be freed. */
static FILE *open_text(char **text, size_t *size)
{
    FILE *out = open_memstream(text, size);
    if (!out) {
        perror("neartie: memory");
        exit(1);
    }
    return out;
}

/* The tokens up to the row, of the rows that are at most reach away: their number; -1 failed. */
static int read_context(struct query *query, int64_t row_id, int reach, FILE *out, struct err *err)
{
    int n = 0, rc;
    query_reset(query);
    query_bind_int(query, ":row_id", row_id);
    query_bind_int(query, ":n", N_CONTEXT);
    query_bind_int(query, ":reach", reach);
    for (; (rc = query_step(query, err)) > 0; n++) {
        const char *token = query_text(query, "text");
        if (token)
            fputs(token, out);
        else if (!query_is_null(query, "token"))
            fprintf(out, "<%lld>", (long long)query_int(query, "token"));
    }
    return rc ? -1 : n;
}

/* The tokens before a flip, as text where the vocabulary was recorded; to be freed. They mostly
 * stand close by: to look everywhere for each of ten thousand flips takes minutes. */
static int context_text(struct query *query, const struct judgement *j,
                        const struct pair_flip *flip, char **text, struct err *err)
{
    static const int reach[] = {64, 1024, 8192};
    int wanted = flip->pos + 1 < N_CONTEXT ? flip->pos + 1 : N_CONTEXT, n = 0;
    for (size_t i = 0; n >= 0 && n < wanted && i < sizeof reach / sizeof *reach; i++) {
        size_t size;
        free(*text);
        FILE *out = open_text(text, &size);
        n = read_context(query, row_of(j, flip), reach[i], out, err);
        fclose(out);
    }
    return n < 0 ? -1 : 0;
}

/* "485 ' the'", or the number alone; to be freed. */
static int token_text(struct query *query, const struct load_side *side, int32_t token, char **text,
                      struct err *err)
{
    size_t size;
    query_reset(query);
    query_bind_int(query, ":arm_id", side->arm->arm_id);
    query_bind_int(query, ":token", token);
    int rc = query_step(query, err);
    FILE *out = open_text(text, &size);
    fprintf(out, "%d", token);
    if (rc > 0 && query_text(query, "text"))
        fprintf(out, " '%s'", query_text(query, "text"));
    fclose(out);
    return rc < 0 ? -1 : 0;
}

/* ---- tables ---- */

static int by_contrast(const void *x, const void *y)
{
    const struct verdict_flip *const *a = x, *const *b = y;
    return ((*a)->rank > (*b)->rank) - ((*a)->rank < (*b)->rank);
}

static int render_flip(struct render *r, struct flip_queries *queries, const struct judgement *j,
                       const struct verdict_flip *f, struct err *err)
{
    char *a = NULL, *b = NULL, *context = NULL;
    int rc = token_text(queries->token[0], &j->a, f->pair.token_a, &a, err) ||
             token_text(queries->token[1], &j->b, f->pair.token_b, &b, err) ||
             context_text(queries->context, j, &f->pair, &context, err);
    render_int(r, f->pair.seq);
    render_int(r, f->pair.pos);
    render_text(r, a ? a : "", -1);
    render_text(r, b ? b : "", -1);
    render_real(r, f->pair.margin_a);
    render_real(r, f->pair.margin_b);
    render_real(r, f->pair.contrast);
    render_int(r, f->pair.bounded);
    render_real(r, f->z);
    render_int(r, (int64_t)f->rank);
    render_real(r, f->q);
    render_real(r, f->ulps);
    render_text(r, context ? context : "", -1);
    free(a);
    free(b);
    free(context);
    return rc ? -1 : 0;
}

int judge_print_flips(FILE *out, enum render_format format, const struct judgement *j, size_t most,
                      struct err *err)
{
    static const char *const names[] = {"seq_id",   "pos",      "token_a", "token_b", "margin_a",
                                        "margin_b", "contrast", "bounded", "z",       "rank",
                                        "q",        "ulps",     "context"};
    size_t n = j->verdict.n_flips;
    const struct verdict_flip **order = xcalloc(n, sizeof *order);
    struct flip_queries queries;
    int rc = open_queries(&queries, j, err);
    for (size_t i = 0; i < n; i++)
        order[i] = j->verdict.flips + i;
    if (n > most)
        qsort(order, n, sizeof *order, by_contrast);
    struct render *r = render_open(out, format, 4, sizeof names / sizeof *names, names);
    for (size_t i = 0; !rc && i < n && i < most; i++)
        rc = render_flip(r, &queries, j, order[i], err);
    render_close(r);
    close_queries(&queries);
    free(order);
    return rc;
}

void judge_print_tests(FILE *out, enum render_format format, const struct judgement *j)
{
    static const char *const names[] = {"test", "result", "effect", "limit",
                                        "p",    "p_holm", "detail"};
    struct render *r = render_open(out, format, -3, sizeof names / sizeof *names, names);
    for (int t = 0; t < TEST_N; t++) {
        const struct verdict_test *test = j->verdict.tests + t;
        render_text(r, verdict_test_names[t], -1);
        render_text(r, !test->applies ? "not tested" : test->rejects ? "REJECTS" : "passes", -1);
        render_real(r, test->applies ? test->effect : NAN);
        render_real(r, test->applies ? test->limit : NAN);
        render_real(r, test->applies ? test->p : NAN);
        render_real(r, test->applies ? test->p_adjusted : NAN);
        render_text(r, test->detail, -1);
    }
    render_close(r);
}

/* A launch configuration is a number to the rule, and a kernel to people; to be freed. */
static int tag_text(const struct judgement *j, const struct verdict_tag *tag, char **text,
                    struct err *err)
{
    struct query *query = NULL;
    size_t size;
    int rc = 0;
    FILE *out = open_text(text, &size);
    fputs(tag->name, out);
    if (!strcmp(tag->field, "kernel")) {
        rc = db_query(j->b.db, &query, "config", err);
        if (!rc)
            query_bind_int(query, ":config_id", tag->value);
        if (!rc && (rc = query_step(query, err)) > 0)
            fprintf(out, " (%s grid %s block %s)", query_text(query, "kernel"),
                    query_text(query, "grid"), query_text(query, "block"));
        query_free(query);
    }
    fclose(out);
    return rc < 0 ? -1 : 0;
}

static int render_tag(struct render *r, const struct judgement *j, const struct verdict_tag *tag,
                      struct err *err)
{
    char *text = NULL;
    int rc = tag_text(j, tag, &text, err);
    render_text(r, text, -1);
    render_text(r, tag->rejects ? "yes" : "", -1);
    render_int(r, (int64_t)tag->n);
    render_int(r, (int64_t)tag->n_rest);
    render_int(r, (int64_t)tag->n_seqs);
    render_int(r, (int64_t)tag->flips);
    render_int(r, (int64_t)tag->flips_rest);
    const double reals[] = {tag->scale, tag->scale_rest, tag->ratio,     tag->ratio_rest,
                            tag->fit,   tag->p,          tag->p_adjusted};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        render_real(r, reals[i]);
    free(text);
    return rc;
}

static bool at_boundary(const struct verdict_tag *tag)
{
    return !strncmp(tag->field, "rows ", 5);
}

static int print_tags(FILE *out, enum render_format format, const struct judgement *j, size_t most,
                      bool boundaries, struct err *err)
{
    static const char *const names[] = {
        "tag",   "rejects",    "n",     "n_rest",     "sequences", "flips", "flips_rest",
        "scale", "scale_rest", "ratio", "ratio_rest", "fit",       "p",     "p_bh"};
    struct render *r = render_open(out, format, -3, sizeof names / sizeof *names, names);
    int rc = 0;
    for (size_t i = 0; i < j->verdict.n_tags && i < most; i++)
        if (!boundaries || at_boundary(j->verdict.tags + i))
            rc |= render_tag(r, j, j->verdict.tags + i, err);
    render_close(r);
    return rc;
}

int judge_print_tags(FILE *out, enum render_format format, const struct judgement *j, size_t most,
                     struct err *err)
{
    return print_tags(out, format, j, most, false, err);
}

int judge_print_boundaries(FILE *out, const struct judgement *j, struct err *err)
{
    bool any = false;
    for (size_t i = 0; i < j->verdict.n_tags; i++)
        any |= at_boundary(j->verdict.tags + i);
    if (!any)
        return 0;
    fputs("\nat the boundaries of forward passes and tiles:\n", out);
    return print_tags(out, RENDER_TABLE, j, j->verdict.n_tags, true, err);
}

/* ---- the figures ---- */

static const char *kind_name(const struct control *control)
{
    return control->floor.kind == FLOOR_SAME    ? "same"
           : control->floor.kind == FLOOR_OTHER ? "other"
                                                : "prior";
}

/* Every verdict's one row: CSV, and the head of JSON. */
static void print_record(FILE *out, enum render_format format, const struct judgement *j)
{
    static const char *const names[] = {
        "rule",      "verdict",       "defect",         "reason",          "beside",
        "arm_a",     "arm_b",         "class",          "class_why",       "floor",
        "control",   "positions",     "sequences",      "bit_equal",       "flips",
        "expected",  "p_count",       "scale",          "floor_scale",     "ratio",
        "agreement", "agreement_low", "agreement_high", "smallest_margin", "largest_contrast",
        "alone",     "again"};
    const struct verdict *v = &j->verdict;
    struct render *r = render_open(out, format, 4, sizeof names / sizeof *names, names);
    render_text(r, "calibrated", -1);
    render_text(r, verdict_names[v->cls], -1);
    render_int(r, verdict_is_defect(v->cls));
    render_text(r, v->reason, -1);
    render_text(r, v->beside, -1);
    render_text(r, j->name_a, -1);
    render_text(r, j->name_b, -1);
    render_text(r, floor_priors[j->cls].name, -1);
    render_text(r, j->why, -1);
    render_text(r, kind_name(&j->control), -1);
    render_text(r, j->control.words, -1);
    render_int(r, (int64_t)v->n);
    render_int(r, (int64_t)v->n_seqs);
    render_int(r, (int64_t)v->n_equal);
    render_int(r, (int64_t)v->n_flips);
    const double reals[] = {
        v->expected,        v->tests[TEST_COUNT].applies ? v->tests[TEST_COUNT].p : NAN,
        v->scale,           v->floor_scale,
        v->ratio,           v->agreement,
        v->agreement_low,   v->agreement_high,
        v->smallest_margin, v->largest_contrast};
    for (size_t i = 0; i < sizeof reals / sizeof *reals; i++)
        render_real(r, reals[i]);
    render_int(r, j->load.n_alone);
    render_int(r, j->load.n_again);
    render_close(r);
}

static void write_floor(struct doc *doc, const struct judgement *j)
{
    const struct floor *floor = &j->control.floor;
    const struct floor_prior *prior = floor_priors + j->cls;
    doc_fact(doc, "class", "%s (%s): %s", prior->name, prior->words, j->why);
    if (floor->kind == FLOOR_PRIOR)
        doc_fact(doc, "floor", "s = %.4g logits, floor=prior%s", j->verdict.floor_scale,
                 floor->zero ? ": the control is bit-equal, what differs here is the path" : "");
    else
        doc_fact(doc, "floor", "s = %.4g logits, control of %s kind, %zu rows, measured %.4g%s%s",
                 j->verdict.floor_scale, floor->kind == FLOOR_SAME ? "the same" : "another",
                 floor->n + floor->n_equal, floor->measured, floor->raised ? ", raised" : "",
                 floor->thin ? ", too few for a kind of its own" : "");
    doc_fact(doc, "control", "%s", j->control.words);
}

static void write_counts(struct doc *doc, const struct judgement *j)
{
    const struct verdict *v = &j->verdict;
    char alone[80] = "", p[32] = "";
    if (j->load.n_alone)
        snprintf(alone, sizeof alone, "; %lld further rows of B stand where A recorded none",
                 (long long)j->load.n_alone);
    if (v->tests[TEST_COUNT].applies)
        snprintf(p, sizeof p, ", p = %.3g", v->tests[TEST_COUNT].p);
    doc_fact(doc, "compared",
             "%s (A) against %s (B): %zu positions of %zu sequence%s, %zu bit-equal%s", j->name_a,
             j->name_b, v->n, v->n_seqs, v->n_seqs == 1 ? "" : "s", v->n_equal, alone);
    if (j->load.n_again)
        doc_fact(doc, "left out", "rows of B that came out as before for the same tokens: %lld",
                 (long long)j->load.n_again);
    if (v->n)
        doc_fact(doc, "flips", "%zu, expected %.3g%s; smallest margin %.4g, largest contrast %.4g",
                 v->n_flips, v->expected, p, v->smallest_margin, v->largest_contrast);
}

/* What else was computed: the figures are of what the files hold. */
static void write_missing(struct doc *doc, const struct judgement *j)
{
    bool same = j->a.db == j->b.db && j->a.arm->run_id == j->b.arm->run_id;
    for (int side = 0; side < (same ? 1 : 2); side++)
        if (j->n_lost[side] || j->n_pruned[side])
            doc_fact(doc, "missing", "%s: %lld rows were not recorded, %lld were removed since",
                     same   ? "of the run"
                     : side ? "of B's run"
                            : "of A's run",
                     (long long)j->n_lost[side], (long long)j->n_pruned[side]);
}

void judge_write_figures(struct doc *doc, const struct judgement *j)
{
    const struct verdict *v = &j->verdict;
    char grids[160] = "";
    write_counts(doc, j);
    write_missing(doc, j);
    if (v->n)
        doc_fact(doc, "agreement", "%.2f %% (95 %%: %.2f to %.2f)", 100 * v->agreement,
                 100 * v->agreement_low, 100 * v->agreement_high);
    for (int side = 0; side < 2; side++)
        if (v->grid[side])
            snprintf(grids + strlen(grids), sizeof grids - strlen(grids), ", %s on a grid (%s, %g)",
                     side ? "B" : "A", v->grid[side], v->ulp[side]);
    doc_fact(doc, "noise", "s = %.4g logits, %.3g times the floor%s", v->scale, v->ratio, grids);
    write_floor(doc, j);
    if (j->has_reference)
        doc_fact(doc, "reference", "A is %.4g from it, B %.4g: %s", j->reference.scale_a,
                 j->reference.scale_b,
                 j->reference.worse == PAIR_UNKNOWN ? "neither is worse"
                 : j->reference.worse == 0          ? "A is worse"
                                                    : "B is worse");
}

static int print_text(FILE *out, const struct judgement *j, struct err *err)
{
    const struct verdict *v = &j->verdict;
    struct doc doc;
    doc_begin(&doc, out, DOC_TEXT, "");
    judge_write_head(&doc, j);
    putc('\n', out);
    judge_write_figures(&doc, j);
    doc_end(&doc);
    putc('\n', out);
    judge_print_tests(out, RENDER_TABLE, j);
    if (v->n_tags) {
        fprintf(out, "\ntags, the strongest of %zu (neartie blame lists all):\n", v->n_tags);
        if (judge_print_tags(out, RENDER_TABLE, j, MOST_TAGS, err))
            return -1;
    }
    if (!v->n_flips)
        return 0;
    fprintf(out, "\nflips%s:\n", v->n_flips > MOST_FLIPS ? ", those of the largest contrast" : "");
    return judge_print_flips(out, RENDER_TABLE, j, MOST_FLIPS, err);
}

static int print_json(FILE *out, const struct judgement *j, struct err *err)
{
    fputs("{\"verdict\": ", out);
    print_record(out, RENDER_JSON, j);
    fputs(", \"tests\": ", out);
    judge_print_tests(out, RENDER_JSON, j);
    fputs(", \"tags\": ", out);
    int rc = judge_print_tags(out, RENDER_JSON, j, j->verdict.n_tags, err);
    fputs(", \"flips\": ", out);
    rc |= judge_print_flips(out, RENDER_JSON, j, j->verdict.n_flips, err);
    if (j->has_reference) {
        fputs(", \"reference\": {\"scale_a\": ", out);
        render_json_real(out, j->reference.scale_a);
        fputs(", \"scale_b\": ", out);
        render_json_real(out, j->reference.scale_b);
        fprintf(out, ", \"worse\": %s}",
                j->reference.worse == PAIR_UNKNOWN ? "null"
                : j->reference.worse               ? "\"b\""
                                                   : "\"a\"");
    }
    fputs("}\n", out);
    return rc;
}

int judge_print(FILE *out, enum render_format format, const struct judgement *j, struct err *err)
{
    if (format == RENDER_JSON)
        return print_json(out, j, err);
    if (format != RENDER_CSV)
        return print_text(out, j, err);
    print_record(out, format, j);
    return 0;
}
