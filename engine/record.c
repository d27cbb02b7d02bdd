#include "config.h"

#include "engine/record.h"

#if defined(PROBE_HOOKS) && PROBE_HOOKS

#include "engine/backend.h"
#include "engine/mem.h"
#include "engine/model.h"
#include "engine/tokenizer.h"
#include "shim/probe.h"

#include <inttypes.h>
#include <stdio.h>

/* The sequence in a slot of the context. */
struct slot {
    int64_t seq;
    uint64_t hash; /* of its tokens so far; 0 = none */
};

struct record {
    const struct probe_ops *ops; /* never NULL */
    struct slot *slots;          /* (n_slots) */
    int32_t n_slots;
    struct probe_row *rows; /* (n_rows_max), of the forward in hand */
    int32_t n_rows_max;
};

static void setting(const struct record *r, const char *name, const char *value, const char *source)
{
    PROBE_HOOK(r->ops, run_setting, (name, value, source));
}

static void give_settings(const struct record *r, const struct record_run *run)
{
    char buf[64];
    setting(r, "engine", "neartie-engine " PACKAGE_VERSION, "api");
    setting(r, "model_path", run->model->path, "api");
    snprintf(buf, sizeof buf, "%016" PRIx64, model_hash(run->model));
    setting(r, "model_hash", buf, "api");
    snprintf(buf, sizeof buf, "%d", run->model->hp.n_vocab);
    setting(r, "n_vocab", buf, "api");
    setting(r, "architecture", run->model->arch, "api");
    setting(r, "backend", backend_describe(run->backend), "api");
    for (int id = 0; id < N_KNOBS; id++)
        setting(r, knob_table[id].name, knobs_text(run->knobs, id, buf, sizeof buf),
                knobs_source(run->knobs, id));
}

static int token_text(void *user, int32_t token, char *buf, size_t size)
{
    int n = tokenizer_piece(user, token, true, buf, size);
    return n > (int)size ? (int)size : n;
}

struct record *record_open(const struct record_run *run)
{
    const struct probe_ops *probe = probe_attach();
    if (!probe)
        return NULL;
    struct record *r = xcalloc(1, sizeof *r);
    r->ops = probe;
    r->n_slots = run->n_slots;
    r->slots = xcalloc((size_t)run->n_slots, sizeof *r->slots);
    give_settings(r, run);
    if (run->tokenizer)
        PROBE_HOOK(r->ops, vocab,
                   (tokenizer_n_vocab(run->tokenizer), token_text, (void *)run->tokenizer));
    return r;
}

void record_close(struct record *r)
{
    if (!r)
        return;
    free(r->slots);
    free(r->rows);
    free(r);
}

const char *record_describe(void)
{
    return probe_attach() ? "compiled in, a probe is loaded" : "compiled in, no probe is loaded";
}

/* The class of difference between the arms of one model: 8-bit activations and an 8-bit cache
 * round differently in either phase, everything else only sums in another order. */
static const char *arm_class(const struct knobs *k)
{
    return k->value[KNOB_FAST] || k->value[KNOB_KV] == KV_Q8_0 ? "precision" : "reassoc";
}

int32_t record_arm(struct record *r, const char *label, enum forward_phase phase,
                   const struct forward *f)
{
    char name[80];
    if (!r)
        return RECORD_NO_ARM;
    snprintf(name, sizeof name, "arm %s", label);
    setting(r, name, forward_describe(f), "api");
    PROBE_NOTE("arm");
    return r->ops->arm(label, phase == FORWARD_PREFILL ? PROBE_PREFILL : PROBE_DECODE,
                       arm_class(&forward_params_of(f)->knobs));
}

void record_sequence(struct record *r, int32_t slot, int64_t seq, const char *label)
{
    if (!r)
        return;
    r->slots[slot] = (struct slot){.seq = seq};
    PROBE_HOOK(r->ops, sequence, (seq, label, -1));
}

void record_rewind(struct record *r, int32_t slot)
{
    if (r)
        r->slots[slot].hash = 0;
}

static int32_t slot_of(const struct forward_batch *b, int32_t i)
{
    return b->seqs ? b->seqs[i] : b->phase == FORWARD_PREFILL ? 0 : i;
}

/* Advance the sequences over the batch, and describe the rows that came out. */
static void fill_rows(struct record *r, const struct forward *f, const struct forward_batch *b,
                      const struct forward_logits *logits)
{
    int32_t row = 0;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        int32_t slot = slot_of(b, i);
        int32_t n_after = b->phase == FORWARD_PREFILL ? b->n_tokens - 1 - i : 0;
        struct slot *s = &r->slots[slot];
        s->hash = r->ops->context_hash(s->hash, &b->tokens[i], 1);
        if (row < logits->n_rows && logits->tokens[row] == i)
            r->rows[row++] = (struct probe_row){
                .context_hash = s->hash,
                .seq = s->seq,
                .pos = forward_n_past(f, slot) - 1 - n_after,
                .input_token = b->tokens[i],
                .batch_row = i,
            };
    }
}

static void give_logits(struct record *r, uint64_t handle, const struct forward *f,
                        const struct forward_batch *b, const struct forward_logits *out)
{
    if (out->n_rows > r->n_rows_max) {
        r->n_rows_max = out->n_rows;
        r->rows = xreallocarray(r->rows, (size_t)out->n_rows, sizeof *r->rows);
    }
    fill_rows(r, f, b, out);
    struct probe_logits logits = {
        .struct_size = sizeof logits,
        .location = out->device ? PROBE_CUDA : PROBE_HOST,
        .dtype = PROBE_F32,
        .n_rows = out->n_rows,
        .n_vocab = out->n_vocab,
        .row_stride = out->n_vocab,
        .data = out->device ? out->device : out->data,
        .stream = out->stream,
        .rows = r->rows,
    };
    PROBE_HOOK(r->ops, logits, (handle, &logits));
}

static int32_t count_sequences(const struct forward_batch *b)
{
    return b->phase == FORWARD_PREFILL ? 1 : b->n_tokens;
}

int record_forward(struct record *r, int32_t arm, struct record_piece piece, struct forward *f,
                   const struct forward_batch *batch, struct forward_logits *out, struct err *err)
{
    if (!r)
        return forward_run(f, batch, out, err);
    struct probe_forward begin = {
        .struct_size = sizeof begin,
        .arm = arm,
        .n_tokens = batch->n_tokens,
        .n_seqs = count_sequences(batch),
        .n_past = forward_n_past(f, slot_of(batch, 0)),
        .ubatch_index = piece.index,
        .n_ubatch = piece.n,
    };
    PROBE_NOTE("forward_begin");
    uint64_t handle = r->ops->forward_begin(&begin);
    int rc = forward_start(f, batch, out, err);
    if (rc == 0) {
        /* While a device is still at work: its probe runs behind it, beside what the host does
         * from one step to the next. */
        give_logits(r, handle, f, batch, out);
        rc = forward_finish(f, out, err);
    }
    PROBE_HOOK(r->ops, forward_end, (handle));
    return rc;
}

void record_kernels(struct record *r, bool on)
{
    if (r && r->ops->struct_size > offsetof(struct probe_ops, kernels))
        PROBE_HOOK(r->ops, kernels, (on));
}

void record_token(struct record *r, int32_t slot, int64_t pos, int32_t token)
{
    if (r)
        PROBE_HOOK(r->ops, token, (r->slots[slot].seq, pos, token));
}

#else

typedef int record_is_not_compiled_in; /* ISO C wants a declaration in every file */

#endif
