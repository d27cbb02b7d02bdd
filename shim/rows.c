#include "config.h"

#include "shim/rows.h"

#include <string.h>
#include <time.h>

#include "shim/capture.h"
#include "shim/ring.h"

/* What a row is compared with; its entries are the watch list. */
struct base {
    struct baseline_row row;
    struct record_top top[RECORD_TOP_MAX];
};

/* Reserve a slot, waiting for one where the user wants that and the writer gets on. */
static struct record *reserve(struct probe *p, uint64_t *n)
{
    struct record *r = ring_reserve(&p->spool, n);
    while (!r && p->options.on_full == ON_FULL_BLOCK && !atomic_load(&p->failing) &&
           atomic_load(&p->state) == STATE_ON) {
        probe_nudge();
        nanosleep(&(struct timespec){0, 100000}, NULL);
        r = ring_reserve(&p->spool, n);
    }
    return r;
}

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

/* An id of the base row beyond this row's vocabulary has no logit here. */
static void fill_base(struct record_row *out, const struct base *base, const void *data,
                      enum probe_dtype dtype)
{
    struct record_base *at = record_row_base(out);
    out->n_base = 0;
    out->base_row_id = base->row.row_id;
    out->base_whole = base->row.n_top == base->row.n_vocab;
    out->base_last = base->row.n_top ? base->top[base->row.n_top - 1].logit : 0;
    for (int i = 0; i < base->row.n_top; i++) {
        int32_t token = base->top[i].token;
        if (token < out->n_vocab)
            at[out->n_base++] =
                (struct record_base){token, capture_value(data, dtype, token), base->top[i].logit};
    }
}

static void keep_row(struct probe *p, int32_t arm, const struct record_row *row)
{
    recent_put(p->recent, row->seq, row->pos, row->row_id);
    if (p->baseline && row->context_hash)
        baseline_put(p->baseline, &(struct baseline_row){row->context_hash, row->pos, row->row_id,
                                                         arm, row->n_vocab, row->n_top, row->top});
}

static void record_row(struct probe *p, uint64_t forward_id, int32_t arm,
                       const struct probe_logits *l, int32_t i)
{
    const struct probe_row *in = &l->rows[i];
    size_t bytes = l->dtype == PROBE_F32 ? 4 : 2;
    const void *data = (const char *)l->data + (size_t)i * (size_t)l->row_stride * bytes;
    enum probe_dtype dtype = (enum probe_dtype)l->dtype;
    struct capture c;
    struct base base;
    uint64_t n;
    struct record *r = reserve(p, &n);
    if (!r) {
        spool_lose(&p->spool, LOST_ROWS, 1);
        return;
    }
    struct record_row *out = (struct record_row *)r->body;
    *out = (struct record_row){
        .row_id = atomic_fetch_add_explicit(&p->n_rows, 1, memory_order_relaxed) + 1,
        .forward_id = forward_id,
        .context_hash = in->context_hash,
        .seq = in->seq,
        .pos = in->pos,
        .batch_row = in->batch_row,
        .input_token = in->input_token,
        .n_vocab = l->n_vocab,
        .dtype = (uint8_t)dtype,
    };
    capture_row(&c, data, dtype, l->n_vocab, p->options.topk);
    fill_top(out, &c);
    if (p->baseline && in->context_hash &&
        baseline_find(p->baseline, in->context_hash, in->pos, arm, &base.row, base.top))
        fill_base(out, &base, data, dtype);
    keep_row(p, arm, out);
    ring_publish(r, n, RECORD_ROW, record_row_bytes(out->n_top, out->n_base));
}

void rows_record(struct probe *p, uint64_t forward_id, int32_t arm, const struct probe_logits *l)
{
    if (l->location != PROBE_HOST) {
        spool_lose(&p->spool, LOST_DEVICE_ROWS, (uint64_t)l->n_rows);
        return;
    }
    for (int32_t i = 0; i < l->n_rows; i++)
        record_row(p, forward_id, arm, l, i);
    probe_nudge();
}
