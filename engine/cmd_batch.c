#include "config.h"

#include "engine/cmd_batch.h"
#include "engine/forward.h"
#include "engine/mem.h"
#include "engine/record.h"

/* The slots of the context, and the step that is being put together. */
struct slots {
    int32_t n;
    struct job **job;       /* (n) what runs in it, NULL = free */
    int32_t *tokens, *seqs; /* (n) of the step: token, slot */
};

/* Hand out the logits behind the newest token of a slot; frees the slot when that was all. */
static int give_logits(struct batch *b, struct slots *s, int32_t slot, const float *logits,
                       struct err *err)
{
    struct job *j = s->job[slot];
    if (b->on_logits(b->user, j, slot, forward_n_past(b->forward, slot) - 1, logits, err))
        return -1;
    if (j->is_done)
        s->job[slot] = NULL;
    return 0;
}

static int prefill(struct batch *b, struct slots *s, int32_t slot, struct err *err)
{
    const struct job *j = s->job[slot];
    int32_t *seqs = xreallocarray(NULL, (size_t)j->n_given, sizeof *seqs);
    struct forward_batch batch = {FORWARD_PREFILL, j->n_given, j->given, seqs, NULL};
    struct forward_logits logits;
    for (int32_t i = 0; i < j->n_given; i++)
        seqs[i] = slot;
    int rc =
        record_forward(b->record, b->arm_prefill, record_whole, b->forward, &batch, &logits, err);
    free(seqs);
    return rc ? rc : give_logits(b, s, slot, logits.data, err);
}

/* Put jobs into free slots, again where a prefill was already the end. */
static int fill_slots(struct batch *b, struct slots *s, int32_t *n_started, struct err *err)
{
    for (int32_t slot = 0; slot < s->n; slot++)
        while (!s->job[slot] && *n_started < b->n_jobs) {
            s->job[slot] = &b->jobs[*n_started];
            forward_seq_reset(b->forward, slot);
            record_sequence(b->record, slot, *n_started, s->job[slot]->label);
            ++*n_started;
            if (!b->steps_given && prefill(b, s, slot, err))
                return -1;
        }
    return 0;
}

/* The token that a slot computes next. */
static int32_t next_token(const struct batch *b, const struct slots *s, int32_t slot)
{
    const struct job *j = s->job[slot];
    int32_t pos = forward_n_past(b->forward, slot);
    return pos < j->n_given ? j->given[pos] : j->out.ids[pos - j->n_given];
}

/* One token of every job that runs; *out_n is their number. */
static int step(struct batch *b, struct slots *s, int32_t *out_n, struct err *err)
{
    struct forward_logits logits;
    int32_t n = 0;
    for (int32_t slot = 0; slot < s->n; slot++)
        if (s->job[slot]) {
            s->tokens[n] = next_token(b, s, slot);
            s->seqs[n++] = slot;
        }
    *out_n = n;
    if (!n)
        return 0;
    struct forward_batch batch = {FORWARD_DECODE, n, s->tokens, s->seqs, NULL};
    if (record_forward(b->record, b->arm_decode, record_whole, b->forward, &batch, &logits, err))
        return -1;
    for (int32_t i = 0; i < n; i++)
        if (give_logits(b, s, s->seqs[i], logits.data + (size_t)i * (size_t)logits.n_vocab, err))
            return -1;
    return 0;
}

int batch_run(struct batch *b, struct err *err)
{
    struct slots s = {.n = forward_params_of(b->forward)->n_seqs};
    int32_t n_started = 0, n_stepped = 1;
    int rc = 0;
    s.job = xcalloc((size_t)s.n, sizeof *s.job);
    s.tokens = xcalloc((size_t)s.n, sizeof *s.tokens);
    s.seqs = xcalloc((size_t)s.n, sizeof *s.seqs);
    while (rc == 0 && n_stepped) {
        rc = fill_slots(b, &s, &n_started, err);
        if (rc == 0)
            rc = step(b, &s, &n_stepped, err);
    }
    free(s.job);
    free(s.tokens);
    free(s.seqs);
    return rc;
}
