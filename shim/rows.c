#include "config.h"

#include "shim/rows.h"

#include <string.h>

#include "shim/capture.h"
#include "shim/device.h"
#include "shim/ring.h"

static void fill_top(struct record_row *out, const struct capture *c)
{
    out->lse = c->lse;
    out->n_nan = c->n_nan;
    out->n_posinf = c->n_posinf;
    out->n_neginf = c->n_neginf;
    out->first_bad = c->first_bad;
    out->n_top = (uint8_t)c->n_top;
    memcpy(out->top, c->top, (size_t)c->n_top * sizeof *c->top);
}

struct record *rows_reserve(struct probe *p, uint64_t forward_id, const struct probe_logits *l,
                            int32_t i, bool may_wait, uint64_t *out_n)
{
    const struct probe_row *in = &l->rows[i];
    struct record *r = may_wait ? probe_reserve(out_n) : ring_reserve(&p->spool, out_n);
    if (!r) {
        spool_lose(&p->spool, LOST_ROWS, 1);
        return NULL;
    }
    struct record_row *out = (struct record_row *)r->body;
    *out = (struct record_row){
        .row_id = atomic_fetch_add_explicit(&p->n_rows, 1, memory_order_relaxed) + 1,
        .forward_id = forward_id,
        .context_hash = tokens_hide_context(&p->tokens, in->context_hash),
        .seq = in->seq,
        .pos = in->pos,
        .batch_row = in->batch_row,
        .input_token = tokens_hide(&p->tokens, in->input_token),
        .n_vocab = l->n_vocab,
        .dtype = (uint8_t)l->dtype,
    };
    recent_put(p->recent, out->seq, out->pos, out->row_id);
    return r;
}

/* Of the other run, or of another arm of this one. */
static bool find_base(struct probe *p, int32_t arm, const struct record_row *row, struct base *base)
{
    if (!row->context_hash)
        return false;
    if (p->compare.rows)
        return compare_find(&p->compare, row->context_hash, row->pos,
                            arm ? atomic_load(&p->facts.phases[arm]) : -1, &base->row, base->top);
    return p->baseline &&
           baseline_find(p->baseline, row->context_hash, row->pos, arm, &base->row, base->top);
}

bool rows_find_base(struct probe *p, int32_t arm, struct record_row *row, struct base *base)
{
    if (!find_base(p, arm, row, base))
        return false;
    row->base_row_id = base->row.row_id;
    row->base_whole = base->row.n_top == base->row.n_vocab;
    row->base_last = base->row.n_top ? base->top[base->row.n_top - 1].logit : 0;
    return true;
}

void rows_publish(struct probe *p, int32_t arm, struct record *r, uint64_t n)
{
    struct record_row *row = (struct record_row *)r->body;
    if (p->baseline && row->context_hash)
        baseline_put(p->baseline, &(struct baseline_row){row->context_hash, row->pos, row->row_id,
                                                         arm, row->n_vocab, row->n_top, row->top});
    for (int i = 0; p->tokens.hidden && i < row->n_top; i++)
        row->top[i].token = tokens_hide(&p->tokens, row->top[i].token);
    ring_publish(r, n, RECORD_ROW, record_row_bytes(row->n_top, row->n_base));
}

void rows_forget(struct probe *p, const struct probe_logits *l)
{
    for (int32_t i = 0; i < l->n_rows; i++)
        recent_put(p->recent, l->rows[i].seq, l->rows[i].pos, 0);
}

/* An id of the base row beyond this row's vocabulary has no logit here. */
static void fill_base(const struct probe *p, struct record_row *out, const struct base *base,
                      const void *data, enum probe_dtype dtype)
{
    struct record_base *at = record_row_base(out);
    for (int i = 0; i < base->row.n_top; i++) {
        int32_t token = base->top[i].token;
        if (token < out->n_vocab)
            at[out->n_base++] =
                (struct record_base){tokens_hide(&p->tokens, token),
                                     capture_value(data, dtype, token), base->top[i].logit};
    }
}

static void record_row(struct probe *p, uint64_t forward_id, int32_t arm,
                       const struct probe_logits *l, int32_t i)
{
    size_t bytes = l->dtype == PROBE_F32 ? 4 : 2;
    const void *data = (const char *)l->data + (size_t)i * (size_t)l->row_stride * bytes;
    enum probe_dtype dtype = (enum probe_dtype)l->dtype;
    struct capture c;
    struct base base;
    uint64_t n;
    struct record *r = rows_reserve(p, forward_id, l, i, true, &n);
    if (!r)
        return;
    struct record_row *out = (struct record_row *)r->body;
    capture_row(&c, data, dtype, l->n_vocab, p->options.topk);
    fill_top(out, &c);
    if (rows_find_base(p, arm, out, &base))
        fill_base(p, out, &base, data, dtype);
    rows_publish(p, arm, r, n);
}

void rows_lose_device(struct probe *p, int32_t n, const char *reason)
{
    static _Atomic(const char *) last;
    spool_lose(&p->spool, LOST_DEVICE_ROWS, (uint64_t)n);
    if (atomic_exchange(&last, reason) == reason)
        return;
    struct record_gap gap = {.count = 1, .kind = "device_capture"};
    memcpy(gap.detail, reason, strnlen(reason, sizeof gap.detail - 1));
    ring_push(&p->spool, RECORD_GAP, &gap, sizeof gap, NULL, 0);
}

void rows_record(struct probe *p, uint64_t forward_id, int32_t arm, const struct probe_logits *l)
{
    if (l->location == PROBE_HOST)
        for (int32_t i = 0; i < l->n_rows; i++)
            record_row(p, forward_id, arm, l, i);
    else
        device_record(p, forward_id, arm, l);
    probe_nudge();
}
