#include "config.h"

#include "engine/cmd.h"
#include "engine/forward.h"
#include "engine/mem.h"
#include "engine/model.h"
#include "engine/record.h"
#include "err.h"

#include <stdlib.h>
#include <string.h>

#define N_REPEAT_MAX 1000

enum {
    OPT_PREFILL = 300,
    OPT_DECODE,
    OPT_CONTEXT,
    OPT_BATCH,
    OPT_REPEAT,
    OPT_ALL_ROWS,
    OPT_KERNELS,
    OPT_FORMAT
};

struct options {
    const char *model;
    int64_t n_prefill, n_decode; /* tokens; 0 = leave it out */
    int64_t n_context;           /* tokens in the cache before decode begins */
    int64_t n_batch;             /* sequences that decode together */
    int64_t n_repeat;
    bool all_rows; /* logits of every token of a prefill */
    bool kernels;  /* compare with and without the recording of kernels */
    enum table_format format;
};

struct work {
    const struct options *options;
    const struct session *session;
    struct forward *forward;
    struct record *record; /* NULL: no probe is loaded */
    int32_t arm_prefill, arm_decode;
    int32_t *tokens;  /* (prefill or context, whichever is longer), any ids */
    int32_t *seqs;    /* (the same), all 0; for decode (n_batch) 0 ... n_batch-1 */
    bool *wanted;     /* (the same), all true; NULL: the last */
    double bandwidth; /* bytes per second that this machine reads from memory */
    struct progress bar;
    struct table table;
};

/* ---- measuring ---- */

/* Best of a few parallel reads of a buffer beyond the caches. */
static double read_bandwidth(void)
{
    const size_t n = (size_t)256 << 20 >> 3;
    uint64_t *p = xreallocarray(NULL, n, sizeof *p), sum = 0;
    double best = 0;
#pragma omp parallel for
    for (size_t i = 0; i < n; i++)
        p[i] = i;
    for (int k = 0; k < 5; k++) {
        int64_t start = now_ns();
#pragma omp parallel for simd reduction(+ : sum)
        for (size_t i = 0; i < n; i++)
            sum += p[i];
        double rate = (double)(n * sizeof *p) / ((double)(now_ns() - start) * 1e-9);
        best = rate > best ? rate : best;
    }
    volatile uint64_t keep = sum; /* or the reads are optimised away */
    (void)keep;
    free(p);
    return best;
}

static int compare_doubles(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return x < y ? -1 : x > y;
}

/* One prefill of n tokens into an empty sequence; its seconds. */
static int time_prefill(struct work *w, struct record *r, int32_t seq, int64_t n, double *out,
                        struct err *err)
{
    struct forward_logits logits;
    struct forward_batch batch = {FORWARD_PREFILL, (int32_t)n, w->tokens, w->seqs, w->wanted};
    for (int64_t i = 0; i < n; i++)
        w->seqs[i] = seq;
    forward_seq_reset(w->forward, seq);
    record_sequence(r, seq, seq, NULL);
    int64_t start = now_ns();
    if (record_forward(r, w->arm_prefill, record_whole, w->forward, &batch, &logits, err))
        return -1;
    *out = (double)(now_ns() - start) * 1e-9;
    progress_add(&w->bar, n);
    return 0;
}

/* Decode steps of all sequences together, from a filled context; their seconds. */
static int time_decode(struct work *w, struct record *r, double *out, struct err *err)
{
    const struct options *o = w->options;
    struct forward_batch batch = {FORWARD_DECODE, (int32_t)o->n_batch, w->tokens, NULL, NULL};
    struct forward_logits logits;
    double unused;
    for (int32_t seq = 0; seq < o->n_batch; seq++) {
        forward_seq_reset(w->forward, seq);
        record_sequence(r, seq, seq, NULL);
        if (o->n_context && time_prefill(w, NULL, seq, o->n_context, &unused, err))
            return -1;
    }
    int64_t start = now_ns();
    for (int64_t i = 0; i < o->n_decode; i++) {
        if (record_forward(r, w->arm_decode, record_whole, w->forward, &batch, &logits, err))
            return -1;
        progress_add(&w->bar, o->n_batch);
    }
    *out = (double)(now_ns() - start) * 1e-9;
    return 0;
}

/* ---- output ---- */

static const struct column columns[] = {
    {"phase", 8, true}, {"tokens", 7, false}, {"context", 8, false}, {"batch", 6, false},
    {"probe", 8, true}, {"tok/s", 10, false}, {"min", 10, false},    {"max", 10, false},
    {"GB/s", 8, false}, {"share", 7, false},  {NULL, 0, false}};

/* Median, least and most of the repetitions; for decode, what it reads of the weights. */
static void print_row(struct work *w, enum forward_phase phase, const char *probe, double *seconds)
{
    const struct options *o = w->options;
    bool is_decode = phase == FORWARD_DECODE;
    int64_t n_tokens = is_decode ? o->n_decode : o->n_prefill, n_batch = is_decode ? o->n_batch : 1;
    size_t n = (size_t)o->n_repeat;
    qsort(seconds, n, sizeof *seconds, compare_doubles);
    double work = (double)(n_tokens * n_batch), median = seconds[n / 2];
    double bytes = (double)model_bytes_per_token(w->session->model) * (double)n_tokens / median;
    table_row(&w->table, "%s\t%lld\t%lld\t%lld\t%s\t%.2f\t%.2f\t%.2f\t%.2f\t%.3f",
              is_decode ? "decode" : "prefill", (long long)n_tokens,
              (long long)(is_decode ? o->n_context : 0), (long long)n_batch, probe, work / median,
              work / seconds[n - 1], work / seconds[0], is_decode ? bytes * 1e-9 : 0,
              is_decode ? bytes / w->bandwidth : 0);
}

/* What the probe costs: median and quartiles over the pairs of neighbouring repetitions. */
static void print_cost(const struct work *w, enum forward_phase phase, const double *idle,
                       const double *active)
{
    size_t n = (size_t)w->options->n_repeat;
    double *cost = xcalloc(n, sizeof *cost);
    for (size_t i = 0; i < n; i++)
        cost[i] = 100 * (active[i] / idle[i] - 1);
    qsort(cost, n, sizeof *cost, compare_doubles);
    fprintf(stderr, "%s: %s costs %+.2f %% (quartiles %+.2f ... %+.2f, %zu pairs)\n",
            phase == FORWARD_DECODE ? "decode" : "prefill",
            w->options->kernels ? "recording kernels" : "the probe", cost[n / 2], cost[n / 4],
            cost[n * 3 / 4], n);
    free(cost);
}

/* One phase: with a probe loaded, repetitions with and without it in turn, each first as often. */
static int run_phase(struct work *w, enum forward_phase phase, struct err *err)
{
    const struct options *o = w->options;
    double *idle = xcalloc((size_t)o->n_repeat, sizeof *idle);
    double *active = xcalloc((size_t)o->n_repeat, sizeof *active);
    int rc = 0;
    for (int64_t i = -1; rc == 0 && i < o->n_repeat; i++) /* the first time warms up */
        for (int k = 0; rc == 0 && k < (w->record ? 2 : 1); k++) {
            bool on = k ^ (i & 1);
            struct record *r = on || o->kernels ? w->record : NULL;
            double *out = (on && w->record ? active : idle) + (i < 0 ? 0 : i);
            record_kernels(w->record, on);
            rc = phase == FORWARD_DECODE ? time_decode(w, r, out, err)
                                         : time_prefill(w, r, 0, o->n_prefill, out, err);
        }
    progress_end(&w->bar);
    if (rc == 0 && w->record)
        print_cost(w, phase, idle, active);
    if (rc == 0)
        print_row(w, phase, w->record ? "idle" : "none", idle);
    if (rc == 0 && w->record)
        print_row(w, phase, "active", active);
    free(idle);
    free(active);
    return rc;
}

/* ---- work ---- */

static int check_range(const char *name, int64_t v, int64_t min, int64_t max, struct err *err)
{
    if (v < min || v > max)
        return err_set(err, "%s %lld: must be %lld to %lld", name, (long long)v, (long long)min,
                       (long long)max);
    return 0;
}

static int check_options(const struct options *o, struct err *err)
{
    if (check_range("--prefill", o->n_prefill, 0, 1 << 24, err) ||
        check_range("--decode", o->n_decode, 0, 1 << 24, err) ||
        check_range("--context", o->n_context, 0, 1 << 24, err) ||
        check_range("--batch", o->n_batch, 1, 4096, err))
        return -1;
    return check_range("--repeat", o->n_repeat, 1, N_REPEAT_MAX, err);
}

/* Ids all over the vocabulary, the same on every run. */
static void fill_tokens(int32_t *tokens, int64_t n, int32_t n_vocab)
{
    uint32_t state = 1;
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u; /* Knuth and Lewis, Numerical Recipes */
        tokens[i] = (int32_t)((uint64_t)state * (uint32_t)n_vocab >> 32);
    }
}

static int run_phases(struct work *w, struct err *err)
{
    const struct options *o = w->options;
    const struct session *s = w->session;
    int64_t n_filled = o->n_context + o->n_decode;
    int64_t n_ctx = n_filled > o->n_prefill ? n_filled : o->n_prefill;
    int64_t n_tokens = n_ctx > o->n_batch ? n_ctx : o->n_batch;
    struct record_run run = {s->model, s->tokenizer, s->backend, &s->knobs, (int32_t)o->n_batch};
    if (!o->n_prefill && !o->n_decode)
        return err_set(err, "--prefill 0 --decode 0: nothing to measure");
    if (session_forward(s, &s->knobs, (int32_t)n_ctx, (int32_t)o->n_batch, &w->forward, err))
        return -1;
    forward_fetch_logits(w->forward, false);
    w->tokens = xcalloc((size_t)n_tokens, sizeof *w->tokens);
    w->seqs = xcalloc((size_t)n_tokens, sizeof *w->seqs);
    w->wanted = o->all_rows ? xcalloc((size_t)n_tokens, sizeof *w->wanted) : NULL;
    for (int64_t i = 0; o->all_rows && i < n_tokens; i++)
        w->wanted[i] = true;
    fill_tokens(w->tokens, n_tokens, s->model->hp.n_vocab);
    w->record = record_open(&run);
    w->arm_prefill = record_arm(w->record, "prefill", FORWARD_PREFILL, w->forward);
    w->arm_decode = record_arm(w->record, "decode", FORWARD_DECODE, w->forward);
    w->bandwidth = read_bandwidth();
    fprintf(stderr, "%s; memory %.2f GB/s read\n", forward_describe(w->forward),
            w->bandwidth * 1e-9);
    table_start(&w->table, stdout, o->format, columns);
    int64_t passes = (o->n_repeat + 1) * (w->record ? 2 : 1);
    progress_start(&w->bar, "bench",
                   passes * (o->n_prefill + o->n_batch * (o->n_context + o->n_decode)));
    int rc = o->n_prefill ? run_phase(w, FORWARD_PREFILL, err) : 0;
    if (rc == 0 && o->n_decode)
        rc = run_phase(w, FORWARD_DECODE, err);
    if (rc == 0)
        table_end(&w->table);
    return rc;
}

/* ---- command line ---- */

static const struct argp_option option_table[] = {
    {"prefill", OPT_PREFILL, "N", 0, "Tokens of a prefill (512); 0: leave it out", 0},
    {"decode", OPT_DECODE, "N", 0, "Steps of decode (64); 0: leave it out", 0},
    {"context", OPT_CONTEXT, "N", 0, "Tokens in the cache before decode begins (0)", 0},
    {"batch", OPT_BATCH, "N", 0, "Sequences that decode together (1)", 0},
    {"repeat", OPT_REPEAT, "N", 0, "Repetitions after a first one that does not count (5)", 0},
    {"all-rows", OPT_ALL_ROWS, NULL, 0, "Logits of every token of a prefill, not the last alone",
     0},
    {"kernels", OPT_KERNELS, NULL, 0,
     "With a probe: in turn with and without the recording of kernels alone", 0},
    {"format", OPT_FORMAT, "FORMAT", 0, "table (the default), csv or json", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case OPT_PREFILL:
        o->n_prefill = option_int(state, "--prefill", arg);
        return 0;
    case OPT_DECODE:
        o->n_decode = option_int(state, "--decode", arg);
        return 0;
    case OPT_CONTEXT:
        o->n_context = option_int(state, "--context", arg);
        return 0;
    case OPT_BATCH:
        o->n_batch = option_int(state, "--batch", arg);
        return 0;
    case OPT_REPEAT:
        o->n_repeat = option_int(state, "--repeat", arg);
        return 0;
    case OPT_ALL_ROWS:
        o->all_rows = true;
        return 0;
    case OPT_KERNELS:
        o->kernels = true;
        return 0;
    case OPT_FORMAT:
        o->format = (enum table_format)option_word(state, "--format", arg, table_formats);
        return 0;
    case ARGP_KEY_ARG:
        if (o->model)
            return ARGP_ERR_UNKNOWN;
        o->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->model)
            argp_error(state, "no MODEL given");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv, struct err *err)
{
    static const struct argp argp = {
        option_table,
        parse_option,
        "MODEL",
        "Measure prefill and decode: the median, least and most tokens per second, and for decode "
        "the weights read per second beside what this machine reads from memory. With a probe "
        "loaded, repetitions with and without it in turn, and what it costs. A device keeps its "
        "logits.",
        NULL,
        session_help_filter,
        NULL};
    struct options o = {.n_prefill = 512, .n_decode = 64, .n_batch = 1, .n_repeat = 5};
    struct session s = {0};
    struct work w = {.options = &o, .session = &s};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = check_options(&o, err);
    if (rc == 0)
        rc = session_open(&s, o.model, true, err);
    if (rc == 0)
        rc = run_phases(&w, err);
    progress_end(&w.bar);
    record_close(w.record);
    forward_free(w.forward);
    free(w.tokens);
    free(w.seqs);
    free(w.wanted);
    session_close(&s);
    return rc;
}

const struct cmd cmd_bench = {"bench", "Measure tokens per second", run};
