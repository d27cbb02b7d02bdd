/* A context's memory, checks and chunks; the arithmetic is in forward.c. */
#include "config.h"
#include "engine/forward_int.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "kernels/quant.h"

enum input_row { IN_TOKENS, IN_SEQS, IN_POSITIONS, IN_WANTED, N_INPUT_ROWS };

static const int32_t kv_types[] = {
    [KV_F16] = QUANT_F16, [KV_F32] = QUANT_F32, [KV_Q8_0] = QUANT_Q8_0};

static int params_check(const struct model *m, const struct forward_params *p, struct err *err)
{
    const struct knobs *k = &p->knobs;
    const struct quant_info *kv = quant_find((uint32_t)kv_types[k->value[KNOB_KV]]);
    if (p->n_ctx < 1 || p->n_seqs < 1 || p->n_batch < 0)
        return err_set(err, "context of %d positions, %d sequences, batches of %d: too small",
                       p->n_ctx, p->n_seqs, p->n_batch);
    if (p->n_batch > p->n_ctx && p->n_batch > p->n_seqs)
        return err_set(err, "batches of %d tokens in a context of %d positions, %d sequences",
                       p->n_batch, p->n_ctx, p->n_seqs);
    if (m->hp.head_dim % kv->block_elems)
        return err_set(err, "NEARTIE_KV=q8_0: needs heads of a multiple of %d, %s has %d",
                       kv->block_elems, m->path, m->hp.head_dim);
    if (k->value[KNOB_Q80_G2] && knobs_not_engaged(k, KNOB_Q80_G2, m))
        return err_set(err, "NEARTIE_Q80_G2=1: cannot act on %s: %s", m->path,
                       knobs_not_engaged(k, KNOB_Q80_G2, m));
    return 0;
}

struct binder {
    struct backend *backend;
    struct err *err;
    int rc;
};

static void tensor_to_device(struct tensor *t, void *user)
{
    struct binder *b = user;
    if (b->rc == 0)
        b->rc = backend_bind(b->backend, t, &t->data, b->err);
}

/* A copy of the model whose weights are where the device reads them. */
static int weights_to_device(struct forward *f, struct err *err)
{
    struct binder b = {f->backend, err, 0};
    size_t bytes = (size_t)f->host_model->hp.n_layers * sizeof *f->model.layers;
    f->model = *f->host_model;
    f->model.layers = malloc(bytes);
    if (!f->model.layers)
        return err_set(err, "%s: out of memory", f->host_model->path);
    memcpy(f->model.layers, f->host_model->layers, bytes);
    model_each_tensor(&f->model, tensor_to_device, &b);
    return b.rc;
}

/* Does a section of interleaved mRoPE cover this pair? Sections take turns, time first; text has
 * one position for all of them, and a pair that none covers does not turn. */
static bool pair_is_covered(const struct hparams *hp, int32_t pair)
{
    const int32_t *sections = hp->rope_sections;
    int32_t n = sections[0] + sections[1] + sections[2] + sections[3];
    if (n == 0)
        return true;
    int32_t i = pair % n;
    return i < 3 * sections[i % 3];
}

static int frequencies_fill(struct forward *f, struct err *err)
{
    const struct hparams *hp = &f->host_model->hp;
    const float *divisor = f->host_model->rope_freqs.data;
    int32_t n = hp->n_rot / 2;
    double *host = malloc((size_t)n * sizeof *host);
    if (!host)
        return err_set(err, "%s: out of memory", f->host_model->path);
    for (int32_t i = 0; i < n; i++) {
        host[i] = pow(hp->rope_base, -2.0 * i / hp->n_rot) * hp->rope_scale;
        host[i] /= divisor ? divisor[i] : 1;
        host[i] *= pair_is_covered(hp, i);
    }
    f->rope_frequencies = tensor_packed(NULL, QUANT_F64, 1, 1, n);
    int rc = backend_alloc(f->backend, (size_t)n * sizeof *host, &f->rope_frequencies.data, err);
    if (rc == 0)
        backend_upload(f->backend, f->rope_frequencies.data, host, (size_t)n * sizeof *host);
    free(host);
    return rc;
}

/* From one row of the input to the next. */
static int32_t input_stride(const struct forward *f, enum forward_phase phase)
{
    return phase == FORWARD_DECODE ? f->params.n_seqs : f->chunk;
}

/* Point the graph at its input: n tokens, n_wanted rows that go to logits row first_row and on. */
static void graph_aim(struct forward *f, enum forward_phase phase, int32_t n, int32_t n_wanted,
                      int32_t first_row)
{
    struct tensor *rows[N_INPUT_ROWS] = {&f->tokens, &f->seqs, &f->positions, &f->wanted};
    for (int i = 0; i < N_INPUT_ROWS; i++)
        *rows[i] = tensor_packed(f->input + i * input_stride(f, phase), QUANT_I32, 1, 1,
                                 i == IN_WANTED ? n_wanted : n);
    f->phase = phase;
    f->logits = f->out;
    f->logits.data = f->out.data ? tensor_row(&f->out, 0, first_row) : NULL;
    f->logits.n_rows = n_wanted;
}

/* Run the largest graphs without arithmetic, then allocate what they would have used. */
static int workspace_alloc(struct forward *f, struct err *err)
{
    static char nowhere[1];
    void *arena;
    f->is_measuring = true;
    f->arena = nowhere;
    for (int phase = FORWARD_PREFILL; phase <= FORWARD_DECODE; phase++) {
        graph_aim(f, (enum forward_phase)phase, f->chunk, f->chunk, 0);
        forward_graph(f);
    }
    f->is_measuring = false;
    f->arena = NULL;
    if (backend_alloc(f->backend, f->arena_peak, &arena, err) < 0)
        return -1;
    f->arena = arena;
    return backend_alloc(f->backend, f->scratch_bytes, &f->scratch, err);
}

static int logits_reserve(struct forward *f, int32_t n_rows, struct err *err)
{
    if (n_rows <= f->out.n_rows && f->out.data)
        return 0;
    struct tensor out = tensor_packed(NULL, QUANT_F32, 1, n_rows, f->model.hp.n_vocab);
    if (backend_alloc(f->backend, (size_t)out.mat_bytes, &out.data, err) < 0)
        return -1;
    backend_free(f->backend, f->out.data);
    backend_free_host(f->backend, f->host_logits);
    f->out = out;
    f->host_logits = NULL;
    return 0;
}

static int host_logits_reserve(struct forward *f, struct err *err)
{
    if (!f->host_logits &&
        !(f->host_logits = backend_alloc_host(f->backend, (size_t)f->out.mat_bytes)))
        return err_set(err, "logits: out of memory: %lld bytes", (long long)f->out.mat_bytes);
    return 0;
}

static void describe(struct forward *f)
{
    static const char *const forms[N_FORMS] = {
        [FORM_F32] = "float reference", [FORM_F64] = "float64 reference", [FORM_FAST] = "fast"};
    char kv[16];
    snprintf(f->text, sizeof f->text, "%s; %s; KV %s, cache %.1f MB", backend_describe(f->backend),
             forms[f->form], knobs_text(&f->params.knobs, KNOB_KV, kv, sizeof kv),
             (double)f->cache.n_bytes / 1e6);
}

static int context_init(struct forward *f, struct err *err)
{
    struct forward_params *p = &f->params;
    int32_t prime = p->knobs.value[KNOB_PRIME_CHUNK];
    void *input;
    p->n_batch = p->n_batch ? p->n_batch : p->n_ctx > p->n_seqs ? p->n_ctx : p->n_seqs;
    f->chunk = prime > 0 && prime < p->n_batch ? prime : p->n_batch;
    f->chunk = f->chunk < p->n_seqs ? p->n_seqs : f->chunk;
    f->form = p->knobs.value[KNOB_REF]    ? FORM_F64
              : p->knobs.value[KNOB_FAST] ? FORM_FAST
                                          : FORM_F32;
    f->fuses = backend_fuses(f->backend) && f->form == FORM_FAST;
    size_t n_ints = (size_t)f->chunk * N_INPUT_ROWS;
    f->staging = calloc(n_ints, sizeof *f->staging);
    f->row_tokens = calloc((size_t)p->n_batch, sizeof *f->row_tokens);
    if (!f->staging || !f->row_tokens)
        return err_set(err, "context: out of memory");
    if (backend_alloc(f->backend, n_ints * sizeof *f->input, &input, err) < 0)
        return -1;
    f->input = input;
    if (weights_to_device(f, err) < 0 || frequencies_fill(f, err) < 0 ||
        kvcache_init(&f->cache, f->backend, f->host_model, kv_types[p->knobs.value[KNOB_KV]],
                     p->n_ctx, p->n_seqs, err) < 0 ||
        workspace_alloc(f, err) < 0)
        return -1;
    describe(f);
    return logits_reserve(f, p->n_seqs, err);
}

int forward_new(const struct model *m, struct backend *backend, const struct forward_params *params,
                struct forward **out, struct err *err)
{
    if (params_check(m, params, err) < 0)
        return -1;
    struct forward *f = calloc(1, sizeof *f);
    if (!f)
        return err_set(err, "context: out of memory");
    f->host_model = m;
    f->backend = backend;
    f->params = *params;
    if (context_init(f, err) < 0) {
        forward_free(f);
        return -1;
    }
    *out = f;
    return 0;
}

void forward_free(struct forward *f)
{
    if (!f)
        return;
    backend_graph_forget(f->backend, f);
    backend_free(f->backend, f->out.data);
    backend_free_host(f->backend, f->host_logits);
    backend_free(f->backend, f->scratch);
    backend_free(f->backend, f->arena);
    kvcache_fini(&f->cache, f->backend);
    backend_free(f->backend, f->rope_frequencies.data);
    free(f->model.layers);
    backend_free(f->backend, f->input);
    free(f->row_tokens);
    free(f->staging);
    free(f);
}

static int32_t seq_of(const struct forward_batch *b, int32_t i)
{
    return b->seqs ? b->seqs[i] : b->phase == FORWARD_PREFILL ? 0 : i;
}

static bool is_wanted(const struct forward_batch *b, int32_t i)
{
    return b->wanted ? b->wanted[i] : b->phase == FORWARD_DECODE || i == b->n_tokens - 1;
}

static int token_check(const struct forward *f, const struct forward_batch *b, int32_t i,
                       struct err *err)
{
    int32_t seq = seq_of(b, i), n_vocab = f->model.hp.n_vocab;
    if (b->tokens[i] < 0 || b->tokens[i] >= n_vocab)
        return err_set(err, "token %d: id %d is not in 0 ... %d", i, b->tokens[i], n_vocab - 1);
    if (seq < 0 || seq >= f->params.n_seqs)
        return err_set(err, "token %d: sequence %d is not in 0 ... %d", i, seq,
                       f->params.n_seqs - 1);
    if (b->phase == FORWARD_PREFILL && seq != seq_of(b, 0))
        return err_set(err, "token %d: sequence %d in a prefill of sequence %d", i, seq,
                       seq_of(b, 0));
    for (int32_t j = 0; b->phase == FORWARD_DECODE && j < i; j++)
        if (seq == seq_of(b, j))
            return err_set(err, "tokens %d and %d: both of sequence %d in one decode step", j, i,
                           seq);
    int32_t n_new = b->phase == FORWARD_PREFILL ? b->n_tokens : 1;
    if (f->cache.n_past[seq] > f->params.n_ctx - n_new)
        return err_set(err, "sequence %d: %d + %d tokens do not fit a context of %d", seq,
                       f->cache.n_past[seq], n_new, f->params.n_ctx);
    return 0;
}

/* Check a batch and count its wanted rows. */
static int batch_check(struct forward *f, const struct forward_batch *b, int32_t *out_rows,
                       struct err *err)
{
    if (b->n_tokens < 1 || b->n_tokens > f->params.n_batch)
        return err_set(err, "batch of %d tokens: not in 1 ... %d", b->n_tokens, f->params.n_batch);
    int32_t n_rows = 0;
    for (int32_t i = 0; i < b->n_tokens; i++) {
        if (token_check(f, b, i, err) < 0)
            return -1;
        if (is_wanted(b, i))
            f->row_tokens[n_rows++] = i;
    }
    if (n_rows == 0)
        return err_set(err, "batch of %d tokens: no row wanted", b->n_tokens);
    *out_rows = n_rows;
    return 0;
}

/* Run what the graph is aimed at. Steps of decode are the same calls over and over. */
static void graph_run(struct forward *f)
{
    const struct graph_key key = {f, f->logits.data, f->tokens.n_cols, f->wanted.n_cols};
    if (f->phase == FORWARD_PREFILL || !f->params.knobs.value[KNOB_GRAPH]) {
        forward_graph(f);
    } else if (!backend_graph_begin(f->backend, &key)) {
        forward_graph(f);
        backend_graph_end(f->backend);
    }
}

/* Run tokens first ... first+n-1 of the batch; their logits begin at row first_row. Returns how
 * many rows went out. */
static int32_t chunk_run(struct forward *f, const struct forward_batch *b, int32_t first, int32_t n,
                         int32_t first_row)
{
    int32_t *row[N_INPUT_ROWS], n_wanted = 0;
    for (int i = 0; i < N_INPUT_ROWS; i++)
        row[i] = f->staging + i * input_stride(f, b->phase);
    f->n_pairs = 0;
    for (int32_t i = 0; i < n; i++) {
        int32_t seq = seq_of(b, first + i);
        row[IN_TOKENS][i] = b->tokens[first + i];
        row[IN_SEQS][i] = seq;
        row[IN_POSITIONS][i] = f->cache.n_past[seq]++;
        f->n_pairs += row[IN_POSITIONS][i] + 1;
        if (is_wanted(b, first + i))
            row[IN_WANTED][n_wanted++] = i;
    }
    backend_upload(f->backend, f->input, f->staging,
                   (size_t)input_stride(f, b->phase) * N_INPUT_ROWS * sizeof *f->staging);
    graph_aim(f, b->phase, n, n_wanted, first_row);
    graph_run(f);
    return n_wanted;
}

int forward_start(struct forward *f, const struct forward_batch *batch, struct forward_logits *out,
                  struct err *err)
{
    int32_t n_rows = 0, row = 0;
    if (batch_check(f, batch, &n_rows, err) < 0 || logits_reserve(f, n_rows, err) < 0)
        return -1;
    for (int32_t i = 0; i < batch->n_tokens; i += f->chunk) {
        int32_t left = batch->n_tokens - i;
        row += chunk_run(f, batch, i, left < f->chunk ? left : f->chunk, row);
    }
    backend_mark(f->backend);
    const float *data = backend_host_view(f->backend, f->out.data);
    *out = (struct forward_logits){.n_rows = n_rows,
                                   .n_vocab = f->model.hp.n_vocab,
                                   .data = data,
                                   .tokens = f->row_tokens,
                                   .device = data ? NULL : f->out.data,
                                   .stream = backend_stream(f->backend)};
    return 0;
}

int forward_finish(struct forward *f, struct forward_logits *out, struct err *err)
{
    if (!out->data && !f->keeps_logits) {
        if (host_logits_reserve(f, err) < 0)
            return -1;
        backend_download(f->backend, f->host_logits, f->out.data,
                         (size_t)f->out.row_bytes * (size_t)out->n_rows);
        out->data = f->host_logits;
    }
    return backend_finish(f->backend, err);
}

int forward_run(struct forward *f, const struct forward_batch *batch, struct forward_logits *out,
                struct err *err)
{
    return forward_start(f, batch, out, err) ? -1 : forward_finish(f, out, err);
}

void forward_fetch_logits(struct forward *f, bool fetch)
{
    f->keeps_logits = !fetch;
}

int32_t forward_n_past(const struct forward *f, int32_t seq)
{
    assert(seq >= 0 && seq < f->params.n_seqs);
    return f->cache.n_past[seq];
}

void forward_seq_reset(struct forward *f, int32_t seq)
{
    assert(seq >= 0 && seq < f->params.n_seqs);
    kvcache_reset(&f->cache, f->backend, seq);
}

void forward_seq_copy(struct forward *f, int32_t dst, int32_t src)
{
    assert(dst >= 0 && dst < f->params.n_seqs && src >= 0 && src < f->params.n_seqs);
    kvcache_copy(&f->cache, f->backend, dst, src);
}

const struct forward_params *forward_params_of(const struct forward *f)
{
    return &f->params;
}

const struct model *forward_model(const struct forward *f)
{
    return f->host_model;
}

const char *forward_describe(const struct forward *f)
{
    return f->text;
}
