#include "config.h"

#include "sql/print.h"
#include "sql/store_internal.h"

#include <inttypes.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const dtype_names[] = {"f32", "f16", "bf16"};
static const char *const phase_names[] = {"prefill", "decode", "verify"};

/* Run the statement; a record that the schema refuses must not hold up those behind it. Bindings
 * stay: who does not bind all of them calls fresh first. */
static int put(struct store *s, enum store_statement which, struct err *err)
{
    int rc = sqlite3_step(s->st[which]);
    sqlite3_reset(s->st[which]);
    if (rc == SQLITE_DONE)
        return 0;
    if ((rc & 0xff) == SQLITE_CONSTRAINT || (rc & 0xff) == SQLITE_MISMATCH) {
        s->n_refused++;
        return 0;
    }
    return store_fail(s, err);
}

/* The statement with nothing bound. */
static sqlite3_stmt *fresh(struct store *s, enum store_statement which)
{
    sqlite3_clear_bindings(s->st[which]);
    return s->st[which];
}

static void bind_text(sqlite3_stmt *st, int i, const char *text, size_t size)
{
    size_t n = strnlen(text, size);
    if (n)
        sqlite3_bind_text(st, i, text, (int)n, SQLITE_STATIC);
}

/* Id of the engine's sequence in this file, made when it is new; 0 = failed. */
static int64_t sequence_id(struct store *s, int64_t seq, struct err *err)
{
    size_t slot = (uint64_t)seq % SEQUENCE_CACHE;
    if (s->sequences[slot].seq_id && s->sequences[slot].seq == seq)
        return s->sequences[slot].seq_id;
    sqlite3_stmt *new = s->st[ST_SEQUENCE_NEW], *get = s->st[ST_SEQUENCE_GET];
    sqlite3_bind_int64(new, 1, s->run_id);
    sqlite3_bind_int64(new, 2, seq);
    if (store_step(s, ST_SEQUENCE_NEW, err))
        return 0;
    sqlite3_bind_int64(get, 1, s->run_id);
    sqlite3_bind_int64(get, 2, seq);
    int64_t id = 0;
    if (sqlite3_step(get) == SQLITE_ROW)
        id = sqlite3_column_int64(get, 0);
    else
        store_fail(s, err);
    sqlite3_reset(get);
    if (id) {
        s->sequences[slot].seq = seq;
        s->sequences[slot].seq_id = id;
    }
    return id;
}

static int put_text_of(struct store *s, int32_t token, struct err *err)
{
    if (!s->vocab.n || token < 0 || token >= s->vocab.n ||
        s->vocab_done[token / 8] & 1 << token % 8)
        return 0;
    s->vocab_done[token / 8] |= (unsigned char)(1 << token % 8);
    uint32_t from = s->vocab.offset[token], to = s->vocab.offset[token + 1];
    if (from == to)
        return 0;
    sqlite3_bind_int64(s->st[ST_VOCAB], 1, s->run_id);
    sqlite3_bind_int(s->st[ST_VOCAB], 2, token);
    sqlite3_bind_blob(s->st[ST_VOCAB], 3, s->vocab.text + from, (int)(to - from), SQLITE_STATIC);
    return put(s, ST_VOCAB, err);
}

static int put_texts(struct store *s, const struct record_row *row, struct err *err)
{
    if (!s->vocab.n)
        return 0;
    for (int i = 0; i < row->n_top; i++)
        if (put_text_of(s, row->top[i].token, err))
            return -1;
    return put_text_of(s, row->input_token, err);
}

/* [[id,logit],...] */
static int print_top(char *out, const struct record_row *row)
{
    char *p = out;
    *p++ = '[';
    for (int i = 0; i < row->n_top; i++) {
        if (i)
            *p++ = ',';
        *p++ = '[';
        p = print_int(p, row->top[i].token);
        *p++ = ',';
        p = print_float(p, row->top[i].logit);
        *p++ = ']';
    }
    *p++ = ']';
    return (int)(p - out);
}

/* The two best, where they are more than masked-out ids. */
static void bind_best(sqlite3_stmt *st, const struct record_row *row)
{
    const struct record_top *top = row->top;
    bool has1 = row->n_top > 0 && top[0].logit > -INFINITY;
    bool has2 = row->n_top > 1 && top[1].logit > -INFINITY;
    if (has1) {
        sqlite3_bind_int(st, 9, top[0].token);
        sqlite3_bind_double(st, 10, (double)top[0].logit);
    }
    if (has2) {
        float margin = top[0].logit - top[1].logit;
        sqlite3_bind_int(st, 11, top[1].token);
        sqlite3_bind_double(st, 12, (double)top[1].logit);
        sqlite3_bind_double(st, 13, (double)margin);
    }
}

struct delta {
    struct record_base at;
    int bound;
};

/* Exact at the base row's top ids; at this row's own the base value is at most its last. By
 * id. */
static int collect_deltas(const struct record_row *row, struct delta out[2 * RECORD_TOP_MAX])
{
    const struct record_base *base = record_row_base(row);
    int n = 0;
    for (int i = 0; i < row->n_base + (row->base_whole ? 0 : row->n_top); i++) {
        int own = i - row->n_base, at = n;
        struct delta d = {own < 0 ? base[i]
                                  : (struct record_base){row->top[own].token, row->top[own].logit,
                                                         row->base_last},
                          own >= 0};
        while (at > 0 && out[at - 1].at.token > d.at.token)
            at--;
        if (at > 0 && out[at - 1].at.token == d.at.token)
            continue;
        memmove(out + at + 1, out + at, (size_t)(n - at) * sizeof *out);
        out[at] = d;
        n++;
    }
    return n;
}

/* The power of two by which all logits of the list are whole numbers of at most 62 bits; or -1. */
static int whole_bits(const struct delta *deltas, int n)
{
    int bits = 0, top = 0;
    for (int i = 0; i < 2 * n; i++) {
        float x = i % 2 ? deltas[i / 2].at.base_logit : deltas[i / 2].at.logit;
        uint32_t u, mantissa;
        memcpy(&u, &x, sizeof u);
        int exponent = (int)(u >> 23 & 255); /* IEEE 754: x = mantissa 2^(exponent - 150) */
        if (exponent == 255 || !(u << 1))
            continue;
        mantissa = (u & 0x7fffff) | (exponent ? 0x800000 : 0);
        exponent += !exponent;
        int needs = 150 - exponent - __builtin_ctz(mantissa);
        bits = needs > bits ? needs : bits;
        top = exponent - 126 > top ? exponent - 126 : top;
    }
    return bits + top <= 62 ? bits : -1;
}

static char *print_scaled(char *p, float x, int bits)
{
    if (isnan(x)) {
        memcpy(p, "null", 4);
        return p + 4;
    }
    if (bits < 0 || isinf(x))
        return print_float(p, x);
    return print_long(p, (int64_t)((double)x * (double)(INT64_C(1) << bits)));
}

enum { DELTA_BYTES = 60 }; /* most of one in text: two of 20, an id of 11, the rest */

/* [[id,logit,base logit],...] */
static int print_deltas(char *out, const struct delta *deltas, int n, int bits)
{
    char *p = out;
    *p++ = '[';
    for (int i = 0; i < n; i++) {
        if (i)
            *p++ = ',';
        *p++ = '[';
        p = print_int(p, deltas[i].at.token);
        *p++ = ',';
        p = print_scaled(p, deltas[i].at.logit, bits);
        *p++ = ',';
        p = print_scaled(p, deltas[i].at.base_logit, bits);
        if (deltas[i].bound) {
            *p++ = ',';
            *p++ = '1';
        }
        *p++ = ']';
    }
    *p++ = ']';
    return (int)(p - out);
}

static int put_deltas(struct store *s, const struct record_row *row, struct err *err)
{
    struct delta deltas[2 * RECORD_TOP_MAX];
    char text[2 * RECORD_TOP_MAX * DELTA_BYTES + 2];
    sqlite3_stmt *st = s->st[ST_DELTAS];
    int n = collect_deltas(row, deltas), bits = whole_bits(deltas, n);
    sqlite3_bind_int64(st, 1, (int64_t)row->row_id + s->row_offset);
    sqlite3_bind_int64(st, 2,
                       (int64_t)row->base_row_id + (s->base_run_uuid[0] ? 0 : s->row_offset));
    sqlite3_bind_double(st, 3, bits < 0 ? 1 : (double)(INT64_C(1) << bits));
    sqlite3_bind_text(st, 4, text, print_deltas(text, deltas, n, bits), SQLITE_STATIC);
    return put(s, ST_DELTAS, err);
}

static int put_n_vocab(struct store *s, int32_t n_vocab, struct err *err)
{
    if (s->n_vocab_known || n_vocab <= 0)
        return 0;
    s->n_vocab_known = true;
    sqlite3_bind_int64(s->st[ST_N_VOCAB], 1, s->run_id);
    sqlite3_bind_int(s->st[ST_N_VOCAB], 2, n_vocab);
    return put(s, ST_N_VOCAB, err);
}

/* The held record of that id, or NULL. */
static struct held_item *find_held(struct held *h, uint64_t id)
{
    int i = h->at[id % HELD_INDEX];
    return i < h->n && h->items[i].id == id ? &h->items[i] : NULL;
}

/* The file's arm of a row's forward, which is held or in the file; 0 = unknown. */
static int64_t arm_of(struct store *s, uint64_t forward_id)
{
    const struct held_item *item = find_held(&s->forwards, forward_id);
    int64_t id = (int64_t)forward_id + s->forward_offset;
    if (item) {
        int32_t arm = ((const struct record_forward *)item->record)->arm;
        return arm > 0 ? arm + s->arm_offset : 0;
    }
    if (s->arm_of_forward != id) {
        sqlite3_stmt *st = s->st[ST_ARM_OF];
        sqlite3_bind_int64(st, 1, id);
        s->arm_id = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
        sqlite3_reset(st);
        s->arm_of_forward = id;
    }
    return s->arm_id;
}

static int put_row(struct store *s, const struct held_item *item, struct err *err)
{
    const struct record_row *row = item->record;
    sqlite3_stmt *st = fresh(s, ST_ROW);
    char hash[16], topk[RECORD_TOP_MAX * 30 + 2];
    int64_t seq_id = sequence_id(s, row->seq, err);
    if (!seq_id)
        return -1;
    sqlite3_bind_int64(st, 1, (int64_t)row->row_id + s->row_offset);
    sqlite3_bind_int64(st, 2, (int64_t)row->forward_id + s->forward_offset);
    sqlite3_bind_int64(st, 3, seq_id);
    sqlite3_bind_int64(st, 4, row->pos);
    sqlite3_bind_int(st, 5, row->batch_row);
    if (row->context_hash) {
        print_hash(hash, row->context_hash);
        sqlite3_bind_text(st, 6, hash, sizeof hash, SQLITE_STATIC);
    }
    if (row->input_token >= 0)
        sqlite3_bind_int(st, 7, row->input_token);
    sqlite3_bind_text(st, 8, dtype_names[row->dtype % 3], -1, SQLITE_STATIC);
    bind_best(st, row);
    sqlite3_bind_double(st, 14, row->lse);
    sqlite3_bind_int64(st, 15, row->n_nan);
    sqlite3_bind_int64(st, 16, row->n_posinf);
    sqlite3_bind_int64(st, 17, row->n_neginf);
    if (row->first_bad >= 0)
        sqlite3_bind_int(st, 18, row->first_bad);
    sqlite3_bind_text(st, 19, topk, print_top(topk, row), SQLITE_STATIC);
    if (item->late != HELD_NONE)
        sqlite3_bind_int64(st, 20, item->late);
    int64_t arm_id = arm_of(s, row->forward_id);
    if (arm_id)
        sqlite3_bind_int64(st, 21, arm_id);
    if (put(s, ST_ROW, err) || put_n_vocab(s, row->n_vocab, err) || put_texts(s, row, err) ||
        (item->late != HELD_NONE && put_text_of(s, (int32_t)item->late, err)))
        return -1;
    return row->base_row_id ? put_deltas(s, row, err) : 0;
}

static int put_forward(struct store *s, const struct held_item *item, struct err *err)
{
    const struct record_forward *f = item->record;
    sqlite3_stmt *st = fresh(s, ST_FORWARD);
    sqlite3_bind_int64(st, 1, (int64_t)f->forward_id + s->forward_offset);
    sqlite3_bind_int64(st, 2, s->run_id);
    if (f->arm > 0)
        sqlite3_bind_int64(st, 3, f->arm + s->arm_offset);
    sqlite3_bind_int64(st, 4, f->started_ns);
    sqlite3_bind_int(st, 5, f->n_tokens);
    sqlite3_bind_int(st, 6, f->n_seqs);
    sqlite3_bind_int64(st, 7, f->n_past);
    sqlite3_bind_int(st, 8, f->ubatch_index);
    sqlite3_bind_int(st, 9, f->n_ubatch);
    sqlite3_bind_int64(st, 10, f->thread);
    if (item->late != HELD_NONE)
        sqlite3_bind_int64(st, 11, item->late - f->started_ns);
    bind_text(st, 12, s->base_run_uuid, sizeof s->base_run_uuid);
    if (item->list)
        sqlite3_bind_int64(st, 13, item->list);
    return put(s, ST_FORWARD, err);
}

int store_flush(struct store *s, struct err *err)
{
    for (int i = 0; i < s->forwards.n; i++)
        if (put_forward(s, &s->forwards.items[i], err))
            return -1;
    for (int i = 0; i < s->rows.n; i++)
        if (put_row(s, &s->rows.items[i], err))
            return -1;
    s->forwards.n = s->rows.n = 0;
    return 0;
}

static int hold(struct store *s, struct held *h, uint64_t id, const void *record, struct err *err)
{
    if (h->n == HELD_MAX && store_flush(s, err))
        return -1;
    h->at[id % HELD_INDEX] = (uint16_t)h->n;
    h->items[h->n++] = (struct held_item){id, record, HELD_NONE, 0};
    return 0;
}

/* Update the gap's row, or insert it. */
static int put_gap(struct store *s, enum store_statement update, const char *kind, uint64_t count,
                   const char *detail, struct err *err)
{
    for (int i = 0; i < 2; i++) {
        enum store_statement which = i ? ST_GAP_NEW : update;
        sqlite3_bind_int64(s->st[which], 1, s->run_id);
        sqlite3_bind_text(s->st[which], 2, kind, -1, SQLITE_STATIC);
        sqlite3_bind_int64(s->st[which], 3, (int64_t)count);
        sqlite3_bind_text(s->st[which], 4, detail, -1, SQLITE_STATIC);
        if (put(s, which, err))
            return -1;
        if (sqlite3_changes(s->db))
            break;
    }
    return 0;
}

static int put_end(struct store *s, const struct record_end *e, struct err *err)
{
    struct held_item *forward = find_held(&s->forwards, e->forward_id);
    int64_t list = store_list_id(s, e->list, err);
    if (list < 0)
        return -1;
    if (e->list && !list && put_gap(s, ST_GAP_ADD, "kernel_lists_lost", 1, NULL, err))
        return -1; /* the process died before it was written */
    if (forward) {
        forward->late = e->ended_ns;
        forward->list = list;
        return 0;
    }
    sqlite3_stmt *st = fresh(s, ST_END);
    sqlite3_bind_int64(st, 1, (int64_t)e->forward_id + s->forward_offset);
    sqlite3_bind_int64(st, 2, e->ended_ns);
    if (list)
        sqlite3_bind_int64(st, 3, list);
    return put(s, ST_END, err);
}

static int put_token(struct store *s, const struct record_token *t, struct err *err)
{
    struct held_item *row = find_held(&s->rows, t->row_id);
    if (row) {
        row->late = t->token;
        return 0;
    }
    sqlite3_bind_int64(s->st[ST_TOKEN], 1, (int64_t)t->row_id + s->row_offset);
    sqlite3_bind_int(s->st[ST_TOKEN], 2, t->token);
    if (put(s, ST_TOKEN, err))
        return -1;
    return s->vocab.n ? put_text_of(s, t->token, err) : 0;
}

/* Settings that are columns of `runs` too. */
static int put_run_column(struct store *s, const char *name, struct err *err)
{
    static const char *const columns[] = {
        "engine", "model_path", "model_hash",   "n_vocab",        "gpu_name",
        "sm",     "sm_count",   "cuda_version", "driver_version", "cupti_version"};
    for (size_t i = 0; i < sizeof columns / sizeof *columns; i++) {
        if (strcmp(name, columns[i]))
            continue;
        char *sql = sqlite3_mprintf("UPDATE runs SET \"%w\" = (SELECT value FROM settings"
                                    " WHERE run_id = %lld AND name = %Q) WHERE run_id = %lld",
                                    name, (long long)s->run_id, name, (long long)s->run_id);
        int rc = sql ? sqlite3_exec(s->db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
        sqlite3_free(sql);
        return rc ? store_fail(s, err) : 0;
    }
    return 0;
}

static int put_setting(struct store *s, const struct record_setting *v, size_t n_bytes,
                       struct err *err)
{
    size_t n_text = n_bytes - offsetof(struct record_setting, text);
    enum store_statement which = v->offset ? ST_SETTING_MORE : ST_SETTING;
    char name[sizeof v->name + 1];
    snprintf(name, sizeof name, "%.*s", (int)sizeof v->name, v->name);
    sqlite3_bind_int64(s->st[which], 1, s->run_id);
    sqlite3_bind_text(s->st[which], 2, name, -1, SQLITE_STATIC);
    sqlite3_bind_text(s->st[which], 3, v->text, (int)n_text, SQLITE_STATIC);
    if (!v->offset)
        bind_text(s->st[which], 4, v->source, sizeof v->source);
    return put(s, which, err) || put_run_column(s, name, err) ? -1 : 0;
}

static int put_arm(struct store *s, const struct record_arm *a, struct err *err)
{
    sqlite3_stmt *st = fresh(s, ST_ARM);
    sqlite3_bind_int64(st, 1, a->arm + s->arm_offset);
    sqlite3_bind_int64(st, 2, s->run_id);
    sqlite3_bind_text(st, 3, a->label, (int)strnlen(a->label, sizeof a->label), SQLITE_STATIC);
    sqlite3_bind_text(st, 4, phase_names[a->phase % 3], -1, SQLITE_STATIC);
    bind_text(st, 5, a->cls, sizeof a->cls);
    return put(s, ST_ARM, err);
}

static int put_sequence(struct store *s, const struct record_sequence *q, struct err *err)
{
    sqlite3_stmt *st = fresh(s, ST_SEQUENCE_NAME);
    int64_t id = sequence_id(s, q->seq, err);
    int64_t parent = id && q->parent >= 0 ? sequence_id(s, q->parent, err) : 0;
    if (!id || (q->parent >= 0 && !parent))
        return -1;
    sqlite3_bind_int64(st, 1, id);
    bind_text(st, 2, q->label, sizeof q->label);
    if (parent)
        sqlite3_bind_int64(st, 3, parent);
    return put(s, ST_SEQUENCE_NAME, err);
}

int store_gap(struct store *s, const char *kind, uint64_t count, const char *detail,
              struct err *err)
{
    return put_gap(s, ST_GAP_SET, kind, count, detail, err);
}

int store_lost(struct store *s, const _Atomic uint64_t lost[N_LOST], struct err *err)
{
    for (int i = 0; i < N_LOST; i++) {
        uint64_t count = atomic_load(&lost[i]);
        if (count != s->lost_in_file[i] && store_gap(s, spool_lost_names[i], count, NULL, err))
            return -1;
        s->lost[i] = count;
    }
    return 0;
}

static int put_gap_record(struct store *s, const struct record_gap *g, struct err *err)
{
    char kind[sizeof g->kind + 1], detail[sizeof g->detail + 1];
    snprintf(kind, sizeof kind, "%.*s", (int)sizeof g->kind, g->kind);
    snprintf(detail, sizeof detail, "%.*s", (int)sizeof g->detail, g->detail);
    return put_gap(s, ST_GAP_ADD, kind, g->count, detail, err);
}

/* A row's lists lie within its record. */
static bool row_whole(const struct record_row *row, size_t n)
{
    return n >= sizeof *row && row->n_top <= RECORD_TOP_MAX && row->n_base <= RECORD_TOP_MAX &&
           n >= record_row_bytes(row->n_top, row->n_base);
}

int store_put(struct store *s, const struct record *r, struct err *err)
{
    const void *body = r->body;
    size_t n = r->n_bytes;
    switch ((enum record_kind)r->kind) {
    case RECORD_NONE:
        return 0;
    case RECORD_FORWARD:
        if (n >= sizeof(struct record_forward))
            return hold(s, &s->forwards, ((const struct record_forward *)body)->forward_id, body,
                        err);
        break;
    case RECORD_END:
        if (n >= sizeof(struct record_end))
            return put_end(s, body, err);
        break;
    case RECORD_ROW:
        if (row_whole(body, n))
            return hold(s, &s->rows, ((const struct record_row *)body)->row_id, body, err);
        break;
    case RECORD_TOKEN:
        if (n >= sizeof(struct record_token))
            return put_token(s, body, err);
        break;
    case RECORD_SETTING:
        if (n >= offsetof(struct record_setting, text))
            return put_setting(s, body, n, err);
        break;
    case RECORD_ARM:
        if (n >= sizeof(struct record_arm))
            return put_arm(s, body, err);
        break;
    case RECORD_SEQUENCE:
        if (n >= sizeof(struct record_sequence))
            return put_sequence(s, body, err);
        break;
    case RECORD_GAP:
        if (n >= sizeof(struct record_gap))
            return put_gap_record(s, body, err);
        break;
    case RECORD_PENDING:
        break;
    }
    s->n_refused++;
    return 0;
}

void store_vocab(struct store *s, const struct store_vocab *vocab)
{
    free(s->vocab_done);
    s->vocab = (struct store_vocab){0};
    s->vocab_done = calloc((size_t)vocab->n / 8 + 1, 1);
    if (s->vocab_done) /* without memory reports show ids instead of text */
        s->vocab = *vocab;
}
