#include "config.h"

#include "collector/seed.h"
#include "engine/cmd.h"
#include "engine/cmd_arm.h"
#include "engine/cmd_batch.h"
#include "engine/forward.h"
#include "engine/mem.h"
#include "engine/model.h"
#include "engine/record.h"
#include "err.h"

#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define WINDOW_DEFAULT 24
#define ENGAGED_MAX    192

enum { OPT_WINDOW = 300, OPT_PREFILL, OPT_ARMS };

/* How a prefill arm gets the logits of a position. */
enum prefill_form {
    PREFILL_TRUNCATED, /* one pass per position, over the prompt up to it */
    PREFILL_SINGLE,    /* one pass, all rows */
};
static const char *const prefill_forms[] = {"truncated", "single", NULL};

struct options {
    const char *model;
    struct prompts prompts;
    int64_t window;
    enum prefill_form form;
    const char *arms; /* "A,B" */
};

/* What the arms run on. */
struct gate {
    const struct session *session;
    struct record *record;
    const int32_t *tokens;
    int32_t n, window; /* tokens; positions that are compared, the last ones */
    enum prefill_form form;
    char engaged[2][ENGAGED_MAX]; /* what each arm's context engaged, for the report */
};

/* ---- arms ---- */

/* Keeps what falls into the window. */
struct window_rows {
    int32_t first;
    arm_row_fn row;
    void *user;
    struct progress *bar;
};

static void window_row(void *user, int32_t pos, const float *logits)
{
    const struct window_rows *w = user;
    if (pos >= w->first)
        w->row(w->user, pos, logits);
    progress_add(w->bar, 1);
}

static int step_row(void *user, struct job *job, int32_t slot, int32_t pos, const float *logits,
                    struct err *err)
{
    (void)slot, (void)err;
    window_row(user, pos, logits);
    job->is_done = pos == job->n_given - 1;
    return 0;
}

/* Step through the prompt; every position's logits come out. */
static int run_decode(const struct gate *g, struct forward *f, int32_t id, struct progress *bar,
                      arm_row_fn row, void *user, struct err *err)
{
    struct window_rows rows = {g->n - g->window, row, user, bar};
    struct job job = {.given = g->tokens, .n_given = g->n, .label = "prompt"};
    struct batch b = {.forward = f,
                      .record = g->record,
                      .arm_decode = id,
                      .steps_given = true,
                      .jobs = &job,
                      .n_jobs = 1,
                      .on_logits = step_row,
                      .user = &rows};
    return batch_run(&b, err);
}

/* One pass per position, each over a prompt of its own. */
static int run_truncated(const struct gate *g, struct forward *f, int32_t id, struct progress *bar,
                         arm_row_fn row, void *user, struct err *err)
{
    struct forward_logits logits;
    record_sequence(g->record, 0, 0, "prompt");
    for (int32_t pos = g->n - g->window; pos < g->n; pos++) {
        struct forward_batch batch = {FORWARD_PREFILL, pos + 1, g->tokens, NULL, NULL};
        forward_seq_reset(f, 0);
        record_rewind(g->record, 0);
        if (record_forward(g->record, id, record_whole, f, &batch, &logits, err))
            return -1;
        row(user, pos, logits.data);
        progress_add(bar, 1);
    }
    return 0;
}

/* One pass with the logits of every row. */
static int run_single(const struct gate *g, struct forward *f, int32_t id, struct progress *bar,
                      arm_row_fn row, void *user, struct err *err)
{
    struct arm_input in = {g->tokens, g->n, 0};
    struct window_rows rows = {g->n - g->window, row, user, bar};
    record_sequence(g->record, 0, 0, "prompt");
    return arm_prefill(f, g->record, id, &in, window_row, &rows, err);
}

static int arm_run(struct gate *g, const struct arm *a, char engaged[static ENGAGED_MAX],
                   arm_row_fn row, void *user, struct err *err)
{
    struct forward *f = NULL;
    struct progress bar;
    if (session_forward(g->session, &a->knobs, g->n, 1, &f, err))
        return -1;
    snprintf(engaged, ENGAGED_MAX, "%s", forward_describe(f));
    int32_t id = record_arm(g->record, a->label, a->phase, f);
    bool is_decode = a->phase == FORWARD_DECODE, is_single = g->form == PREFILL_SINGLE;
    progress_start(&bar, a->label, is_decode || is_single ? g->n : g->window);
    int rc = (is_decode   ? run_decode
              : is_single ? run_single
                          : run_truncated)(g, f, id, &bar, row, user, err);
    progress_end(&bar);
    forward_free(f);
    return rc;
}

/* ---- comparison ---- */

/* Arm A's logits, and what they give beside arm B's. */
struct comparison {
    int32_t first, n_vocab; /* first position of the window */
    float *a;               /* (window, n_vocab) */
    struct seed_row *rows;  /* (window) */
    struct seed_gate gate;  /* at the last position seen */
};

static float *row_of(const struct comparison *c, int32_t pos)
{
    return c->a + (size_t)(pos - c->first) * (size_t)c->n_vocab;
}

static void keep_row(void *user, int32_t pos, const float *logits)
{
    const struct comparison *c = user;
    memcpy(row_of(c, pos), logits, (size_t)c->n_vocab * sizeof *logits);
}

static void compare_row(void *user, int32_t pos, const float *logits)
{
    struct comparison *c = user;
    seed_row_set(&c->rows[pos - c->first], pos, row_of(c, pos), logits, c->n_vocab);
    seed_gate_set(&c->gate, row_of(c, pos), logits, c->n_vocab);
}

static int print_comparison(const struct gate *g, const struct arm arms[2],
                            const struct comparison *c, struct err *err)
{
    struct seed_names names = {arms[0].label, arms[1].label};
    struct seed_summary summary;
    if (seed_summarize(c->rows, g->window, &summary, err))
        return -1;
    printf("%s: %d tokens, the last %d positions%s\n", g->session->path, g->n, g->window,
           g->form == PREFILL_SINGLE ? ", one prefill pass for all" : "");
    for (int i = 0; i < 2; i++)
        printf("arm %s: %s\n", arms[i].label, g->engaged[i]);
    putchar('\n');
    seed_print_rows(stdout, &names, c->rows, g->window);
    putchar('\n');
    seed_print_gate(stdout, &names, &c->gate);
    seed_print_summary(stdout, &names, &summary);
    return 0;
}

static int compare(struct gate *g, const struct arm arms[2], struct err *err)
{
    int rc = -1;
    struct comparison c = {.first = g->n - g->window, .n_vocab = g->session->model->hp.n_vocab};
    c.a = calloc((size_t)g->window * (size_t)c.n_vocab, sizeof *c.a);
    c.rows = calloc((size_t)g->window, sizeof *c.rows);
    if (!c.a || !c.rows) {
        err_set(err, "window %d: out of memory", g->window);
        goto out;
    }
    if (arm_run(g, &arms[0], g->engaged[0], keep_row, &c, err) ||
        arm_run(g, &arms[1], g->engaged[1], compare_row, &c, err))
        goto out;
    rc = print_comparison(g, arms, &c, err);
out:
    free(c.rows);
    free(c.a);
    return rc;
}

/* ---- command line ---- */

static const struct argp_option option_table[] = {
    {"window", OPT_WINDOW, "N", 0, "Positions to compare, the last ones of the prompt (24)", 0},
    {"prefill", OPT_PREFILL, "FORM", 0,
     "truncated: each position as a prompt of its own (the default); single: one pass for all", 0},
    {"arms", OPT_ARMS, "A,B", 0,
     "What to compare, each prefill or decode and any knobs: decode,decode:FA_SPLIT=16 "
     "(prefill,decode)",
     0},
    {0},
};

/* A prompt as a bare argument: a file where one has that name. A single word is always meant as
 * a file, so that a mistyped name is an error and not a short text. */
static void add_bare_prompt(struct prompts *p, const char *arg)
{
    struct stat st;
    bool is_text = strpbrk(arg, " \t\n") && stat(arg, &st);
    prompts_add(p, is_text ? PROMPT_TEXT : PROMPT_FILE, arg);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
    struct options *o = state->input;
    switch (key) {
    case ARGP_KEY_INIT:
        state->child_inputs[0] = &o->prompts;
        return 0;
    case OPT_WINDOW:
        o->window = option_int(state, "--window", arg);
        return 0;
    case OPT_PREFILL:
        o->form = (enum prefill_form)option_word(state, "--prefill", arg, prefill_forms);
        return 0;
    case OPT_ARMS:
        o->arms = arg;
        return 0;
    case ARGP_KEY_ARG:
        if (!o->model)
            o->model = arg;
        else if (state->arg_num == 1)
            add_bare_prompt(&o->prompts, arg);
        else
            return ARGP_ERR_UNKNOWN;
        return 0;
    case ARGP_KEY_END:
        if (!o->model)
            argp_error(state, "no MODEL given");
        if (o->prompts.n != 1)
            argp_error(state, "give one PROMPT");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static int check_window(int64_t window, size_t n, struct err *err)
{
    if (window < 1)
        return err_set(err, "window %lld: must be at least 1", (long long)window);
    if ((uint64_t)window > n)
        return err_set(err, "window %lld: the prompt has only %zu tokens", (long long)window, n);
    return 0;
}

static int gate_session(const struct options *o, const struct session *s, struct err *err)
{
    int rc = -1;
    struct token_list ids = {0};
    struct arm arms[2];
    size_t n_arms;
    if (arms_parse(o->arms, &s->knobs, arms, 2, &n_arms, err))
        goto out;
    if (n_arms != 2) {
        err_set(err, "arms %s: must be two", o->arms);
        goto out;
    }
    if (prompt_tokens(&o->prompts, 0, s, &ids, err) || check_window(o->window, ids.n, err))
        goto out;
    struct record_run run = {s->model, s->tokenizer, s->backend, &s->knobs, 1};
    struct gate g = {s,   record_open(&run), ids.ids, (int32_t)ids.n, (int32_t)o->window, o->form,
                     {""}};
    rc = compare(&g, arms, err);
    record_close(g.record);
out:
    token_list_free(&ids);
    return rc;
}

static int run(int argc, char **argv, struct err *err)
{
    static const struct argp_child children[] = {{&prompt_argp, 0, NULL, 0}, {0}};
    static const struct argp argp = {
        option_table,
        parse_option,
        "MODEL PROMPT\nMODEL --prompt TEXT",
        "Compute a prompt's logits twice, by prefill and token by token, and judge the difference "
        "by the seed's rule: per-position table, margins, decision position, verdict. PROMPT is a "
        "file; an argument with spaces that names no file is the text itself.",
        children,
        session_help_filter,
        NULL};
    struct options o = {.window = WINDOW_DEFAULT, .arms = "prefill,decode"};
    struct session s = {0};
    argp_parse(&argp, argc, argv, 0, NULL, &o);
    int rc = session_open(&s, o.model, true, err);
    if (rc == 0)
        rc = gate_session(&o, &s, err);
    session_close(&s);
    prompts_free(&o.prompts);
    return rc;
}

const struct cmd cmd_gate = {"gate", "Compare prefill and decode on one prompt; print the verdict",
                             run};
