#include "config.h"

#include "engine/cmd.h"
#include "engine/cmd_arm.h"
#include "engine/cmd_batch.h"
#include "engine/mem.h"
#include "engine/model.h"
#include "engine/record.h"
#include "err.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define N_ARMS_MAX 16

enum { OPT_TOKENS = 300, OPT_ARMS, OPT_BATCH, OPT_PER_TOKEN, OPT_FORMAT };

struct options {
    const char *model;
    struct prompts prompts;
    struct prompts files; /* of token ids, a sequence a line */
    const char *arms;
    int64_t n_batch;
    bool per_token;
    enum table_format format;
};

/* How well one position predicted the token after it. */
struct score {
    int32_t token, top1;
    double logprob; /* of token */
    float margin;   /* logit of top1 minus logit of token; 0 = it was the first choice */
};

/* One sequence; position i of n-1 scored ones predicts token i + 1. */
struct sequence {
    struct token_list ids;
    struct score *scores; /* (ids.n - 1), of the arm in hand */
};

struct work {
    const struct options *options;
    const struct session *session;
    struct sequence *seqs; /* (n_seqs) */
    int32_t n_seqs;
    int64_t n_tokens; /* of all */
    struct record *record;
    struct job *jobs; /* (n_seqs), of the decode arm in hand */
    struct progress bar;
    struct table table;
};

/* ---- scores ---- */

/* Log of the sum of exponentials, in double, and the first choice. */
static double log_sum_exp(const float *logits, int32_t n, int32_t *out_top1)
{
    int32_t top1 = 0;
    double sum = 0;
    for (int32_t i = 1; i < n; i++)
        if (logits[i] > logits[top1])
            top1 = i;
    for (int32_t i = 0; i < n; i++)
        sum += exp((double)logits[i] - logits[top1]);
    *out_top1 = top1;
    return log(sum) + logits[top1];
}

static void score_row(const struct work *w, struct sequence *s, int32_t pos, const float *logits)
{
    if ((size_t)pos + 1 >= s->ids.n)
        return;
    struct score *score = &s->scores[pos];
    score->token = s->ids.ids[pos + 1];
    double lse = log_sum_exp(logits, w->session->model->hp.n_vocab, &score->top1);
    score->logprob = logits[score->token] - lse;
    score->margin = logits[score->top1] - logits[score->token];
}

/* The sequence in hand of a prefill arm. */
struct prefill_user {
    struct work *work;
    struct sequence *seq;
};

static void prefill_row(void *user, int32_t pos, const float *logits)
{
    const struct prefill_user *u = user;
    score_row(u->work, u->seq, pos, logits);
    progress_add(&u->work->bar, 1);
}

static int run_prefill(struct work *w, struct forward *f, int32_t id, struct err *err)
{
    for (int32_t i = 0; i < w->n_seqs; i++) {
        struct prefill_user user = {w, &w->seqs[i]};
        struct arm_input in = {w->seqs[i].ids.ids, (int32_t)w->seqs[i].ids.n, 0};
        forward_seq_reset(f, 0);
        record_sequence(w->record, 0, i, NULL);
        if (arm_prefill(f, w->record, id, &in, prefill_row, &user, err))
            return -1;
    }
    return 0;
}

static int decode_row(void *user, struct job *job, int32_t slot, int32_t pos, const float *logits,
                      struct err *err)
{
    struct work *w = user;
    (void)slot, (void)err;
    score_row(w, &w->seqs[job - w->jobs], pos, logits);
    job->is_done = pos == job->n_given - 1;
    progress_add(&w->bar, 1);
    return 0;
}

static int run_decode(struct work *w, struct forward *f, int32_t id, struct err *err)
{
    struct batch b = {.forward = f,
                      .record = w->record,
                      .arm_decode = id,
                      .steps_given = true,
                      .n_jobs = w->n_seqs,
                      .on_logits = decode_row,
                      .user = w};
    w->jobs = b.jobs = xcalloc((size_t)w->n_seqs, sizeof *b.jobs);
    for (int32_t i = 0; i < w->n_seqs; i++)
        b.jobs[i] = (struct job){.given = w->seqs[i].ids.ids, .n_given = (int32_t)w->seqs[i].ids.n};
    int rc = batch_run(&b, err);
    free(w->jobs);
    return rc;
}

/* ---- output ---- */

static const struct column sum_columns[] = {
    {"arm", 24, true},  {"sequence", 9, true},     {"tokens", 8, false}, {"agree", 8, false},
    {"nll", 10, false}, {"perplexity", 12, false}, {NULL, 0, false}};
static const struct column token_columns[] = {
    {"arm", 24, true},      {"sequence", 9, false}, {"pos", 8, false},     {"token", 8, false},
    {"logprob", 12, false}, {"top1", 8, false},     {"margin", 10, false}, {NULL, 0, false}};

static void print_tokens(struct work *w, const struct arm *arm, int32_t i)
{
    const struct sequence *s = &w->seqs[i];
    for (size_t pos = 0; pos + 1 < s->ids.n; pos++) {
        const struct score *score = &s->scores[pos];
        table_row(&w->table, "%s\t%d\t%zu\t%d\t%.6f\t%d\t%.4f", arm->label, i, pos, score->token,
                  score->logprob, score->top1, score->margin);
    }
}

/* A row of sums: n scored tokens, agreed ones of them, their negative log-likelihood. */
static void print_sum(struct work *w, const char *arm, const char *name, size_t n, size_t n_agree,
                      double nll)
{
    table_row(&w->table, "%s\t%s\t%zu\t%zu\t%.6f\t%.4f", arm, name, n, n_agree, nll / (double)n,
              exp(nll / (double)n));
}

static void print_arm(struct work *w, const struct arm *arm)
{
    double nll_all = 0;
    size_t n_all = 0, agree_all = 0;
    for (int32_t i = 0; i < w->n_seqs; i++) {
        const struct sequence *s = &w->seqs[i];
        double nll = 0;
        size_t n_agree = 0;
        char name[16];
        for (size_t pos = 0; pos + 1 < s->ids.n; pos++) {
            nll -= s->scores[pos].logprob;
            n_agree += s->scores[pos].top1 == s->scores[pos].token;
        }
        nll_all += nll;
        n_all += s->ids.n - 1;
        agree_all += n_agree;
        snprintf(name, sizeof name, "%d", i);
        if (w->options->per_token)
            print_tokens(w, arm, i);
        else
            print_sum(w, arm->label, name, s->ids.n - 1, n_agree, nll);
    }
    if (!w->options->per_token && w->n_seqs > 1)
        print_sum(w, arm->label, "all", n_all, agree_all, nll_all);
}

/* ---- input ---- */

static int add_sequence(struct work *w, struct token_list *ids, const char *what, struct err *err)
{
    int32_t n_vocab = w->session->model->hp.n_vocab;
    if (ids->n < 2 || ids->n > INT32_MAX / 2)
        return err_set(err, "%s: sequence of %zu token%s, must be 2 to %d", what, ids->n,
                       ids->n == 1 ? "" : "s", INT32_MAX / 2);
    for (size_t i = 0; i < ids->n; i++)
        if (ids->ids[i] >= n_vocab)
            return err_set(err, "%s: token id %d, the vocabulary of %s has %d", what, ids->ids[i],
                           w->session->path, n_vocab);
    w->seqs = xreallocarray(w->seqs, (size_t)w->n_seqs + 1, sizeof *w->seqs);
    w->seqs[w->n_seqs++] = (struct sequence){*ids, xcalloc(ids->n, sizeof(struct score))};
    w->n_tokens += (int64_t)ids->n;
    *ids = (struct token_list){0};
    return 0;
}

/* The sequences of a token file: one a line, or, where there are brackets, one a pair of them. */
static int add_file(struct work *w, const char *path, struct err *err)
{
    int rc = 0;
    size_t n;
    int32_t n_before = w->n_seqs;
    char *text = read_input(path, &n, err);
    if (!text)
        return -1;
    char end = memchr(text, '[', n) ? ']' : '\n';
    for (size_t from = 0, to; rc == 0 && from < n; from = to + 1) {
        struct token_list ids = {0};
        const char *p = memchr(text + from, end, n - from);
        to = p ? (size_t)(p - text) : n;
        rc = parse_ids(text + from, to - from, path, &ids, err);
        if (rc == 0 && ids.n)
            rc = add_sequence(w, &ids, path, err);
        token_list_free(&ids);
    }
    free(text);
    if (rc == 0 && w->n_seqs == n_before)
        rc = err_set(err, "%s: no token ids", path);
    return rc;
}

static int read_sequences(struct work *w, struct err *err)
{
    const struct options *o = w->options;
    for (size_t i = 0; i < o->prompts.n; i++) {
        struct token_list ids = {0};
        int rc = prompt_tokens(&o->prompts, i, w->session, &ids, err);
        if (rc == 0)
            rc = add_sequence(w, &ids, "prompt", err);
        token_list_free(&ids);
        if (rc)
            return -1;
    }
    for (size_t i = 0; i < o->files.n; i++)
        if (add_file(w, o->files.list[i].value, err))
            return -1;
    return 0;
}

/* ---- work ---- */

static int run_arm(struct work *w, const struct arm *arm, struct err *err)
{
    struct forward *f;
    size_t n_ctx = 0;
    bool is_decode = arm->phase == FORWARD_DECODE;
    int32_t n_slots = (int32_t)w->options->n_batch;
    n_slots = !is_decode ? 1 : n_slots < w->n_seqs ? n_slots : w->n_seqs;
    for (int32_t i = 0; i < w->n_seqs; i++)
        n_ctx = w->seqs[i].ids.n > n_ctx ? w->seqs[i].ids.n : n_ctx;
    if (session_forward(w->session, &arm->knobs, (int32_t)n_ctx, n_slots, &f, err))
        return -1;
    int32_t id = record_arm(w->record, arm->label, arm->phase, f);
    progress_start(&w->bar, arm->label, w->n_tokens);
    int rc = (is_decode ? run_decode : run_prefill)(w, f, id, err);
    progress_end(&w->bar);
    forward_free(f);
    if (rc == 0)
        print_arm(w, arm);
    return rc;
}

static int run_arms(struct work *w, struct err *err)
{
    const struct session *s = w->session;
    struct arm arms[N_ARMS_MAX];
    size_t n_arms;
    int rc = 0;
    if (w->options->n_batch < 1 || w->options->n_batch > 4096)
        return err_set(err, "--batch %lld: must be 1 to 4096", (long long)w->options->n_batch);
    if (arms_parse(w->options->arms, &s->knobs, arms, N_ARMS_MAX, &n_arms, err) ||
        read_sequences(w, err))
        return -1;
    struct record_run run = {s->model, s->tokenizer, s->backend, &s->knobs,
                             (int32_t)w->options->n_batch};
    w->record = record_open(&run);
    table_start(&w->table, stdout, w->options->format,
                w->options->per_token ? token_columns : sum_columns);
    for (size_t i = 0; rc == 0 && i < n_arms; i++)
        rc = run_arm(w, &arms[i], err);
    if (rc == 0)
        table_end(&w->table);
    record_close(w->record);
    return rc;
}

static void free_sequences(struct work *w)
{
    for (int32_t i = 0; i < w->n_seqs; i++) {
        token_list_free(&w->seqs[i].ids);
        free(w->seqs[i].scores);
    }
    free(w->seqs);
}

/* ---- command line ---- */

static const struct argp_option option_table[] = {
    {"tokens", OPT_TOKENS, "FILE", 0,
     "Token ids from a file, a sequence a line or [...]; may be given again", 0},
    {"arms", OPT_ARMS, "LIST", 0,
     "How to compute: prefill or decode and any knobs, for instance prefill,decode:KV=f32 "
     "(prefill)",
     0},
    {"batch", OPT_BATCH, "N", 0, "Sequences that a decode arm computes together (1)", 0},
    {"per-token", OPT_PER_TOKEN, NULL, 0, "Print every token instead of sums", 0},
    {"format", OPT_FORMAT, "FORMAT", 0, "table (the default), csv or json", 0},
    {0},
};

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->prompts;
        return 0;
    case OPT_TOKENS:
        prompts_add(&o->files, PROMPT_FILE, arg);
        return 0;
    case OPT_ARMS:
        o->arms = arg;
        return 0;
    case OPT_BATCH:
        o->n_batch = option_int(state, "--batch", arg);
        return 0;
    case OPT_PER_TOKEN:
        o->per_token = true;
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
        if (!o->prompts.n && !o->files.n)
            argp_error(state, "give --tokens, --token-ids, --prompt or --prompt-file");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int run(int argc, char **argv, struct err *err)
{
    static const struct argp_child children[] = {{&prompt_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        option_table,
        parse_option,
        "MODEL",
        "Measure how well the model predicts given sequences: each token after the first, from "
        "those before it. nll is the mean negative log-likelihood, agree the tokens that were the "
        "first choice.",
        children,
        session_help_filter,
        NULL};
    struct options o = {.arms = "prefill", .n_batch = 1};
    struct session s = {0};
    struct work w = {.options = &o, .session = &s};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = session_open(&s, o.model, true, err);
    if (rc == 0)
        rc = run_arms(&w, err);
    free_sequences(&w);
    session_close(&s);
    prompts_free(&o.prompts);
    prompts_free(&o.files);
    return rc;
}

const struct cmd cmd_score = {"score", "Measure how well the model predicts given sequences", run};
