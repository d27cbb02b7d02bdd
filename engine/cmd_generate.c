#include "config.h"

#include "engine/cmd.h"
#include "engine/cmd_batch.h"
#include "engine/forward.h"
#include "engine/mem.h"
#include "engine/model.h"
#include "engine/record.h"
#include "engine/sampler.h"
#include "err.h"

#include <stdlib.h>
#include <string.h>

#define N_NEW_DEFAULT 128

enum {
    OPT_FORMAT = 300,
    OPT_IGNORE_END,
    OPT_TEMPERATURE,
    OPT_TOP_K,
    OPT_TOP_P,
    OPT_MIN_P,
    OPT_SEED,
    OPT_BATCH,
    OPT_SAMPLES
};
enum format { FORMAT_TEXT, FORMAT_JSON };
static const char *const formats[] = {"text", "json", NULL};

struct options {
    const char *model;
    struct prompts prompts;
    int64_t n_new, n_batch, n_samples; /* n_samples 0: not given */
    bool ignores_end;
    enum format format;
    struct sampler_params sampler;
};

/* What a job does not know of its text. */
struct text {
    struct sampler *sampler; /* from its first token to its last */
    bool is_ended;           /* by an end token */
};

/* A command line at work. */
struct work {
    const struct options *options;
    const struct session *session;
    struct token_list *prompts; /* (options->prompts.n) */
    struct job *jobs;           /* (n_jobs), by prompt, then sample */
    struct text *texts;         /* (n_jobs) */
    struct record *record;
    int32_t n_jobs;
    int32_t n_printed; /* jobs that are out, always the first ones */
    size_t n_streamed; /* tokens of the only job that are out */
    struct progress bar;
};

/* ---- output ---- */

/* The text of generated tokens; their numbers where there is no tokenizer. */
static void write_text(FILE *out, const struct tokenizer *t, const int32_t *ids, size_t n)
{
    char *buf = xcalloc(t ? tokenizer_piece_max(t) : 0, 1);
    for (size_t i = 0; i < n; i++) {
        int length = t ? tokenizer_piece(t, ids[i], false, buf, tokenizer_piece_max(t)) : 0;
        if (t)
            fwrite(buf, 1, length > 0 ? (size_t)length : 0, out);
        else
            fprintf(out, "%d ", ids[i]);
    }
    free(buf);
}

/* One object on one line. */
static void print_json(const struct work *w, int32_t i)
{
    const struct job *j = &w->jobs[i];
    char *text = NULL;
    size_t n = 0;
    FILE *f = open_memstream(&text, &n);
    printf("{\"prompt_ids\":");
    json_ids(stdout, j->given, (size_t)j->n_given);
    printf(",\"ids\":");
    json_ids(stdout, j->out.ids, j->out.n);
    if (f && w->session->tokenizer) {
        write_text(f, w->session->tokenizer, j->out.ids, j->out.n);
        fflush(f);
        printf(",\"text\":");
        json_string(stdout, text, n);
    }
    if (f)
        fclose(f);
    free(text);
    printf(",\"stop\":\"%s\"}\n", w->texts[i].is_ended ? "end" : "length");
}

static void print_text(const struct work *w, int32_t i)
{
    const struct job *j = &w->jobs[i];
    if (w->n_jobs > 1)
        printf("%s== %d of %d ==\n", i ? "\n" : "", i + 1, w->n_jobs);
    write_text(stdout, w->session->tokenizer, j->out.ids, j->out.n);
    putchar('\n');
}

/* A single text appears as it comes; several, each as a whole and in order. */
static void show(struct work *w, const struct job *job)
{
    bool streams = w->n_jobs == 1 && w->options->format == FORMAT_TEXT;
    progress_add(&w->bar, streams ? 0 : 1);
    if (streams) {
        write_text(stdout, w->session->tokenizer, job->out.ids + w->n_streamed,
                   job->out.n - w->n_streamed);
        w->n_streamed = job->out.n;
        if (job->is_done)
            putchar('\n');
        fflush(stdout);
        return;
    }
    if (w->n_printed < w->n_jobs && w->jobs[w->n_printed].is_done)
        progress_end(&w->bar);
    for (; w->n_printed < w->n_jobs && w->jobs[w->n_printed].is_done; w->n_printed++)
        if (w->options->format == FORMAT_JSON)
            print_json(w, w->n_printed);
        else
            print_text(w, w->n_printed);
}

/* ---- work ---- */

/* Every sample draws for itself. */
static int make_sampler(const struct work *w, struct text *text, struct err *err)
{
    struct sampler_params params = w->options->sampler;
    params.seed += (uint64_t)(text - w->texts);
    return sampler_new(&params, w->session->model->hp.n_vocab, &text->sampler, err);
}

/* Take the next token from the logits behind the last one. */
static int choose(void *user, struct job *job, int32_t slot, int32_t pos, const float *logits,
                  struct err *err)
{
    struct work *w = user;
    struct text *text = &w->texts[job - w->jobs];
    int32_t id;
    if (!text->sampler && make_sampler(w, text, err))
        return -1;
    if (sampler_pick(text->sampler, logits, &id, err))
        return -1;
    record_token(w->record, slot, pos, id);
    token_list_push(&job->out, id);
    const struct tokenizer *t = w->options->ignores_end ? NULL : w->session->tokenizer;
    text->is_ended = t && tokenizer_is_end(t, id);
    job->is_done = text->is_ended || (int64_t)job->out.n == w->options->n_new;
    if (job->is_done) {
        sampler_free(text->sampler);
        text->sampler = NULL;
    }
    show(w, job);
    return 0;
}

static int check_options(const struct options *o, struct err *err)
{
    if (o->n_new < 1 || o->n_new > INT32_MAX / 2)
        return err_set(err, "-n %lld: must be 1 to %d", (long long)o->n_new, INT32_MAX / 2);
    if (o->n_batch < 1 || o->n_batch > 4096)
        return err_set(err, "--batch %lld: must be 1 to 4096", (long long)o->n_batch);
    if (o->n_samples < 0 || o->n_samples > 1000000)
        return err_set(err, "--samples %lld: must be 1 to 1000000", (long long)o->n_samples);
    struct sampler *s;
    if (sampler_new(&o->sampler, 1, &s, err)) /* checks them before the model is opened */
        return -1;
    sampler_free(s);
    return 0;
}

static int make_jobs(struct work *w, struct err *err)
{
    const struct options *o = w->options;
    int64_t n_samples = o->n_samples ? o->n_samples : o->prompts.n == 1 ? o->n_batch : 1;
    if (n_samples * (int64_t)o->prompts.n > INT32_MAX / 2)
        return err_set(err, "--samples %lld: of %zu prompts, more than %d texts",
                       (long long)n_samples, o->prompts.n, INT32_MAX / 2);
    w->n_jobs = (int32_t)(n_samples * (int64_t)o->prompts.n);
    w->jobs = xcalloc((size_t)w->n_jobs, sizeof *w->jobs);
    w->texts = xcalloc((size_t)w->n_jobs, sizeof *w->texts);
    w->prompts = xcalloc(o->prompts.n, sizeof *w->prompts);
    for (size_t i = 0; i < o->prompts.n; i++)
        if (prompt_tokens(&o->prompts, i, w->session, &w->prompts[i], err))
            return -1;
    for (int32_t i = 0; i < w->n_jobs; i++) {
        const struct token_list *prompt = &w->prompts[i / n_samples];
        w->jobs[i] = (struct job){.given = prompt->ids, .n_given = (int32_t)prompt->n};
    }
    return 0;
}

static void free_jobs(struct work *w)
{
    for (int32_t i = 0; w->jobs && i < w->n_jobs; i++) {
        sampler_free(w->texts[i].sampler);
        token_list_free(&w->jobs[i].out);
    }
    for (size_t i = 0; w->prompts && i < w->options->prompts.n; i++)
        token_list_free(&w->prompts[i]);
    free(w->jobs);
    free(w->texts);
    free(w->prompts);
}

/* Positions that the longest job needs; its last token is not computed on. */
static int64_t context_size(const struct work *w)
{
    size_t n = 0;
    for (size_t i = 0; i < w->options->prompts.n; i++)
        n = w->prompts[i].n > n ? w->prompts[i].n : n;
    return (int64_t)n + w->options->n_new - 1;
}

static int run_jobs(struct work *w, struct err *err)
{
    const struct session *s = w->session;
    int32_t n_slots =
        (int32_t)w->options->n_batch < w->n_jobs ? (int32_t)w->options->n_batch : w->n_jobs;
    struct record_run run = {s->model, s->tokenizer, s->backend, &s->knobs, n_slots};
    struct batch b = {.jobs = w->jobs, .n_jobs = w->n_jobs, .on_logits = choose, .user = w};
    if (session_forward(s, &s->knobs, (int32_t)context_size(w), n_slots, &b.forward, err))
        return -1;
    w->record = b.record = record_open(&run);
    b.arm_prefill = record_arm(b.record, "prefill", FORWARD_PREFILL, b.forward);
    b.arm_decode = record_arm(b.record, "decode", FORWARD_DECODE, b.forward);
    progress_start(&w->bar, "generate", w->n_jobs * w->options->n_new);
    int rc = batch_run(&b, err);
    progress_end(&w->bar);
    record_close(b.record);
    forward_free(b.forward);
    return rc;
}

/* ---- command line ---- */

static const struct argp_option option_table[] = {
    {NULL, 0, NULL, 0, "Output:", 2},
    {NULL, 'n', "N", 0, "Generate at most N tokens (128)", 0},
    {"ignore-end", OPT_IGNORE_END, NULL, 0, "Go on behind an end token", 0},
    {"format", OPT_FORMAT, "FORMAT", 0,
     "text: only what was generated (the default); json: an object a line, with the ids", 0},
    {NULL, 0, NULL, 0, "Sampling, in this order:", 3},
    {"temperature", OPT_TEMPERATURE, "T", 0, "0: always the most likely token (the default)", 0},
    {"top-k", OPT_TOP_K, "K", 0, "Only the K most likely; 0: all (the default)", 0},
    {"top-p", OPT_TOP_P, "P", 0, "Only the most likely that together reach P; 1: all", 0},
    {"min-p", OPT_MIN_P, "P", 0, "Only those at least P times as likely as the most likely", 0},
    {"seed", OPT_SEED, "SEED", 0, "Sample i draws with SEED + i (0)", 0},
    {NULL, 0, NULL, 0, "Several at a time:", 4},
    {"batch", OPT_BATCH, "N", 0, "Decode N sequences together; prompts may be given again", 0},
    {"samples", OPT_SAMPLES, "N", 0,
     "Continuations of each prompt (1; as many as --batch where there is one prompt)", 0},
    {0},
};

static error_t parse_sampling(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    int64_t v;
    switch (key) {
    case OPT_TEMPERATURE:
        o->sampler.temperature = option_double(state, "--temperature", arg);
        return 0;
    case OPT_TOP_K:
        v = option_int(state, "--top-k", arg);
        o->sampler.top_k = v < 0 ? -1 : v > INT32_MAX ? INT32_MAX : (int32_t)v;
        return 0;
    case OPT_TOP_P:
        o->sampler.top_p = option_double(state, "--top-p", arg);
        return 0;
    case OPT_MIN_P:
        o->sampler.min_p = option_double(state, "--min-p", arg);
        return 0;
    case OPT_SEED:
        o->sampler.seed = (uint64_t)option_int(state, "--seed", arg);
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->prompts;
        return 0;
    case 'n':
        o->n_new = option_int(state, "-n", arg);
        return 0;
    case OPT_IGNORE_END:
        o->ignores_end = true;
        return 0;
    case OPT_FORMAT:
        o->format = (enum format)option_word(state, "--format", arg, formats);
        return 0;
    case OPT_BATCH:
        o->n_batch = option_int(state, "--batch", arg);
        return 0;
    case OPT_SAMPLES:
        o->n_samples = option_int(state, "--samples", arg);
        return 0;
    case ARGP_KEY_ARG:
        if (o->model)
            return ARGP_ERR_UNKNOWN;
        o->model = arg;
        return 0;
    case ARGP_KEY_END:
        if (!o->model)
            argp_error(state, "no MODEL given");
        if (!o->prompts.n)
            argp_error(state, "give --prompt, --prompt-file or --token-ids");
        return 0;
    default:
        return parse_sampling(key, arg, state);
    }
}

static int run(int argc, char **argv, struct err *err)
{
    static const struct argp_child children[] = {{&prompt_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {option_table, parse_option,        "MODEL", "Continue a text.",
                                     children,     session_help_filter, NULL};
    struct options o = {.n_new = N_NEW_DEFAULT, .n_batch = 1, .sampler = sampler_defaults};
    struct session s = {0};
    struct work w = {.options = &o, .session = &s};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = check_options(&o, err);
    if (rc == 0)
        rc = session_open(&s, o.model, true, err);
    if (rc == 0)
        rc = make_jobs(&w, err);
    if (rc == 0)
        rc = run_jobs(&w, err);
    free_jobs(&w);
    session_close(&s);
    prompts_free(&o.prompts);
    return rc;
}

const struct cmd cmd_generate = {"generate", "Continue a text", run};
