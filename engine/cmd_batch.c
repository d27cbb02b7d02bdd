#include "config.h"

#include "engine/cmd_batch.h"
#include "engine/forward.h"
#include "engine/mem.h"
#include "engine/record.h"
#include "engine/sampler.h"

#define FREE (-1)

/* The sequences of the context, and the decode step that is being put together. */
struct slots {
    int32_t n;
    int32_t *job;           /* (n) which job runs in it, or FREE */
    int32_t *tokens, *seqs; /* (n) of the step */
};

/* Take the next token of a job from its logits; pos: of the token before it. */
static int choose(struct batch *b, struct slots *s, int32_t slot, const float *logits,
                  struct err *err)
{
    struct job *j = &b->jobs[s->job[slot]];
    int32_t id;
    if (sampler_pick(j->sampler, logits, &id, err))
        return -1;
    record_token(b->record, slot, forward_n_past(b->forward, slot) - 1, id);
    token_list_push(&j->out, id);
    j->is_ended = b->tokenizer && tokenizer_is_end(b->tokenizer, id);
    j->is_done = j->is_ended || j->out.n == j->n_new;
    if (j->is_done)
        s->job[slot] = FREE;
    b->on_token(b->user, j);
    return 0;
}

/* Put a job into a free sequence: its prompt, and its first token. */
static int start(struct batch *b, struct slots *s, int32_t slot, int32_t job, struct err *err)
{
    const struct token_list *prompt = b->jobs[job].prompt;
    int32_t n = (int32_t)prompt->n, *seqs = xreallocarray(NULL, prompt->n, sizeof *seqs);
    struct forward_batch batch = {FORWARD_PREFILL, n, prompt->ids, seqs, NULL};
    struct forward_logits logits;
    for (int32_t i = 0; i < n; i++)
        seqs[i] = slot;
    forward_seq_reset(b->forward, slot);
    record_sequence(b->record, slot, job, NULL);
    int rc =
        record_forward(b->record, b->arm_prefill, record_whole, b->forward, &batch, &logits, err);
    free(seqs);
    s->job[slot] = job;
    return rc ? rc : choose(b, s, slot, logits.data, err);
}

/* One token for every job that runs. */
static int step(struct batch *b, struct slots *s, struct err *err)
{
    struct forward_logits logits;
    int32_t n = 0;
    for (int32_t slot = 0; slot < s->n; slot++) {
        if (s->job[slot] == FREE)
            continue;
        const struct token_list *out = &b->jobs[s->job[slot]].out;
        s->tokens[n] = out->ids[out->n - 1];
        s->seqs[n++] = slot;
    }
    if (!n)
        return 0;
    struct forward_batch batch = {FORWARD_DECODE, n, s->tokens, s->seqs, NULL};
    if (record_forward(b->record, b->arm_decode, record_whole, b->forward, &batch, &logits, err))
        return -1;
    for (int32_t i = 0; i < n; i++)
        if (choose(b, s, s->seqs[i], logits.data + (size_t)i * (size_t)logits.n_vocab, err))
            return -1;
    return 0;
}

static int run_slots(struct batch *b, struct slots *s, struct err *err)
{
    int32_t n_started = 0, n_done;
    do {
        for (int32_t slot = 0; slot < s->n; slot++) /* again where the first token was the last */
            while (s->job[slot] == FREE && n_started < b->n_jobs)
                if (start(b, s, slot, n_started++, err))
                    return -1;
        if (step(b, s, err))
            return -1;
        n_done = 0;
        for (int32_t i = 0; i < b->n_jobs; i++)
            n_done += b->jobs[i].is_done;
    } while (n_done < b->n_jobs);
    return 0;
}

int batch_run(struct batch *b, struct err *err)
{
    struct slots s = {.n = forward_params_of(b->forward)->n_seqs};
    s.job = xreallocarray(NULL, (size_t)s.n, sizeof *s.job);
    s.tokens = xcalloc((size_t)s.n, sizeof *s.tokens);
    s.seqs = xcalloc((size_t)s.n, sizeof *s.seqs);
    for (int32_t slot = 0; slot < s.n; slot++)
        s.job[slot] = FREE;
    int rc = run_slots(b, &s, err);
    free(s.job);
    free(s.tokens);
    free(s.seqs);
    return rc;
}
