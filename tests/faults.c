#include "config.h"

#include "tests/faults.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

void __real_backend_run(struct backend *b, enum op op, const struct op_args *args);
void __wrap_backend_run(struct backend *b, enum op op, const struct op_args *args);

/* The fault at work and where the forward pass is. */
static struct {
    const struct fault *fault;
    struct forward *f;
    int32_t token;
    int32_t layer; /* of the operator at hand */
    int32_t
        n_ropes; /* rotary calls in this layer: the first turns the keys, the second the queries */
    uint64_t n_draws;
} state;

enum { MOST_ROWS = 512, MOST_COLS = 8192 };

static int32_t positions[MOST_ROWS], seqs[MOST_ROWS];
static float buffer[MOST_ROWS * MOST_COLS], kept[64 * MOST_COLS];

static void run(struct fault_call *c)
{
    __real_backend_run(c->backend, c->op, c->args);
}

static int32_t pos_of(int32_t row)
{
    return ((const int32_t *)state.f->positions.data)[row];
}

static int32_t n_rows(void)
{
    return state.f->positions.n_cols;
}

static const struct layer *layer(void)
{
    return &state.f->model.layers[state.layer];
}

static bool in_middle_layer(void)
{
    return state.layer == state.f->model.hp.n_layers / 2;
}

static bool in_upper_layer(void)
{
    return state.layer >= state.f->model.hp.n_layers / 2;
}

static bool is_matmul(const struct fault_call *c, const struct tensor *matrix)
{
    return (c->op == OP_MATMUL_MM || c->op == OP_MATMUL_MV) && c->args->in[1].data == matrix->data;
}

static bool is_attention(const struct fault_call *c)
{
    return c->op == OP_ATTENTION_MM || c->op == OP_ATTENTION_MV;
}

static float *out_row(const struct fault_call *c, int32_t row)
{
    return tensor_row(&c->args->out, 0, row);
}

/* A private copy of an input of floats, to be spoilt. */
static struct tensor copy_input(const struct tensor *x)
{
    struct tensor copy = tensor_packed(buffer, x->type, 1, x->n_rows, x->n_cols);
    for (int32_t r = 0; r < x->n_rows; r++)
        memcpy(tensor_row(&copy, 0, r), tensor_row(x, 0, r), (size_t)x->n_cols * sizeof(float));
    return copy;
}

/* The positions of the batch in a private copy, to be spoilt. */
static int32_t *copy_positions(struct tensor *tensor)
{
    memcpy(positions, tensor->data, (size_t)n_rows() * sizeof *positions);
    tensor->data = positions;
    return positions;
}

static float to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static float to_f16(float x)
{
    int exponent;
    if (x == 0 || !isfinite(x))
        return x;
    frexpf(x, &exponent);
    float step = ldexpf(1, (exponent < -13 ? -13 : exponent) - 11);
    float rounded = nearbyintf(x / step) * step;
    return fabsf(rounded) > 65504 ? copysignf(INFINITY, x) : rounded;
}

/* Rotary positions of the queries one too high from position 64 on. */
static void rope_boundary(struct fault_call *c)
{
    if (c->op == OP_ROPE && state.n_ropes == 2) {
        int32_t *p = copy_positions(&c->args->in[1]);
        for (int32_t r = 0; r < n_rows(); r++)
            p[r] += p[r] >= 64;
    }
    run(c);
}

/* Rotary frequencies 1 % too high. */
static void rope_base(struct fault_call *c)
{
    static double frequencies[MAX_HEAD_DIM];
    if (c->op == OP_ROPE) {
        const double *sound = c->args->in[2].data;
        for (int32_t i = 0; i < c->args->in[2].n_cols; i++)
            frequencies[i] = sound[i] * 1.01;
        c->args->in[2].data = frequencies;
    }
    run(c);
}

/* The last, partly filled split of 64 keys is not read. */
static void split_dropped(struct fault_call *c)
{
    if (is_attention(c)) {
        int32_t *p = copy_positions(&c->args->in[4]);
        for (int32_t r = 0; r < n_rows(); r++)
            p[r] = p[r] > 64 ? p[r] / 64 * 64 - 1 : p[r];
    }
    run(c);
}

/* A row does not see its own key. */
static void mask_short(struct fault_call *c)
{
    if (is_attention(c)) {
        int32_t *p = copy_positions(&c->args->in[4]);
        for (int32_t r = 0; r < n_rows(); r++)
            p[r] -= p[r] > 0;
    }
    run(c);
}

/* Every 64th row sees the key behind it. */
static void mask_leak(struct fault_call *c)
{
    if (is_attention(c)) {
        int32_t *p = copy_positions(&c->args->in[4]);
        for (int32_t r = 0; r + 1 < n_rows(); r++)
            p[r] += p[r] % 64 == 30 || p[r] % 64 == 62;
    }
    run(c);
}

/* Batch row 3 reads another sequence's cache in the upper layers. */
static void batch_crossed(struct fault_call *c)
{
    if (is_attention(c) && in_upper_layer() && n_rows() > 3) {
        memcpy(seqs, c->args->in[3].data, (size_t)n_rows() * sizeof *seqs);
        seqs[3] = seqs[2];
        c->args->in[3].data = seqs;
    }
    run(c);
}

static void attention_scale(struct fault_call *c, double factor)
{
    if (is_attention(c))
        c->args->scale *= factor;
    run(c);
}

static void attention_warm(struct fault_call *c)
{
    attention_scale(c, 1 / 1.01);
}

static void attention_hot(struct fault_call *c)
{
    attention_scale(c, 1 / 1.1);
}

/* The output of two heads changes places in the upper layers. */
static void heads_swapped(struct fault_call *c)
{
    run(c);
    if (!is_attention(c) || !in_upper_layer())
        return;
    int32_t width = state.f->model.hp.head_dim;
    for (int32_t r = 0; r < c->args->out.n_rows; r++) {
        float *row = out_row(c, r);
        memcpy(buffer, row, (size_t)width * sizeof *row);
        memcpy(row, row + width, (size_t)width * sizeof *row);
        memcpy(row + width, buffer, (size_t)width * sizeof *row);
    }
}

/* A key and value in 32 is not stored: the cache keeps what it held. */
static void store_skipped(struct fault_call *c)
{
    if (c->op != OP_STORE) {
        run(c);
        return;
    }
    struct op_args whole = *c->args;
    for (int32_t r = 0; r < whole.in[0].n_rows; r++) {
        if (pos_of(r) % 32 == 31)
            continue;
        c->args->in[0].data = tensor_row(&whole.in[0], 0, r);
        c->args->in[0].n_rows = 1;
        for (int i = 1; i <= 2; i++) {
            c->args->in[i].data = (int32_t *)whole.in[i].data + r;
            c->args->in[i].n_cols = 1;
        }
        run(c);
    }
}

/* Keys rounded to 4 bits. */
static void keys_rounded(struct fault_call *c)
{
    if (c->op == OP_STORE && state.n_ropes == 1) {
        struct tensor x = copy_input(&c->args->in[0]);
        for (int32_t i = 0; i + 32 <= x.n_rows * x.n_cols; i += 32) {
            float most = 1e-9f;
            for (int32_t k = 0; k < 32; k++)
                most = fmaxf(most, fabsf(buffer[i + k]));
            for (int32_t k = 0; k < 32; k++)
                buffer[i + k] = nearbyintf(buffer[i + k] / most * 7) * most / 7;
        }
        c->args->in[0] = x;
    }
    run(c);
}

/* Every 16th row of the feed-forward's output is the row before it. */
static void stale_row(struct fault_call *c)
{
    run(c);
    if (!is_matmul(c, &layer()->w_down))
        return;
    for (int32_t r = 0; r < c->args->out.n_rows; r++) {
        float *row = out_row(c, r), *old = kept + (size_t)(state.layer % 64) * MOST_COLS;
        size_t size = (size_t)c->args->out.n_cols * sizeof *row;
        if (pos_of(r) % 16 == 15)
            memcpy(row, old, size);
        else
            memcpy(old, row, size);
    }
}

/* The scale of the last block of 32 inputs is lost: it counts one and a half times. */
static void block_scale(struct fault_call *c)
{
    if (is_matmul(c, &layer()->w_down)) {
        struct tensor x = copy_input(&c->args->in[0]);
        for (int32_t r = 0; r < x.n_rows; r++)
            for (int32_t k = x.n_cols - 32; k < x.n_cols; k++)
                ((float *)tensor_row(&x, 0, r))[k] *= 1.5f;
        c->args->in[0] = x;
    }
    run(c);
}

/* 8-bit rounding of a batch with the scale of its first row. */
static void batch_scale(struct fault_call *c)
{
    if (is_matmul(c, &layer()->w_gate) || is_matmul(c, &layer()->w_up)) {
        struct tensor x = copy_input(&c->args->in[0]);
        float most = 1e-9f;
        for (int32_t k = 0; k < x.n_cols; k++)
            most = fmaxf(most, fabsf(buffer[k]));
        for (int32_t i = x.n_cols; i < x.n_rows * x.n_cols; i++)
            buffer[i] = fmaxf(-most, fminf(most, nearbyintf(buffer[i] / most * 127) * most / 127));
        c->args->in[0] = x;
    }
    run(c);
}

/* Inputs of the feed-forward's last product saturate. */
static void saturated(struct fault_call *c)
{
    if (is_matmul(c, &layer()->w_down)) {
        struct tensor x = copy_input(&c->args->in[0]);
        for (int32_t i = 0; i < x.n_rows * x.n_cols; i++)
            buffer[i] = fmaxf(-1, fminf(1, buffer[i]));
        c->args->in[0] = x;
    }
    run(c);
}

/* The feed-forward's last product accumulates its blocks of 32 in half precision. */
static void half_sums(struct fault_call *c)
{
    if (!is_matmul(c, &layer()->w_down)) {
        run(c);
        return;
    }
    struct tensor whole = c->args->in[0], out = c->args->out;
    static float sums[MOST_ROWS * MOST_COLS];
    memset(sums, 0, (size_t)out.n_rows * (size_t)out.n_cols * sizeof *sums);
    for (int32_t first = 0; first < whole.n_cols; first += 32) {
        struct tensor x = copy_input(&whole);
        for (int32_t i = 0; i < x.n_rows * x.n_cols; i++)
            if (i % x.n_cols / 32 * 32 != first)
                buffer[i] = 0;
        c->args->in[0] = x;
        run(c);
        for (int32_t i = 0; i < out.n_rows * out.n_cols; i++)
            sums[i] = to_f16(sums[i] + to_f16(out_row(c, i / out.n_cols)[i % out.n_cols]));
    }
    for (int32_t r = 0; r < out.n_rows; r++)
        memcpy(out_row(c, r), sums + r * out.n_cols, (size_t)out.n_cols * sizeof *sums);
}

/* The last rows of a chunk, which do not fill a tile of 8, are not written in the middle layer. */
static void tail_unwritten(struct fault_call *c)
{
    int32_t n = c->args->out.n_rows, first = n / 8 * 8;
    bool strikes = is_matmul(c, &layer()->w_down) && in_middle_layer();
    for (int32_t r = first; strikes && r < n; r++)
        memcpy(kept + (r - first) * MOST_COLS, out_row(c, r),
               (size_t)c->args->out.n_cols * sizeof *kept);
    run(c);
    for (int32_t r = first; strikes && r < n; r++)
        memcpy(out_row(c, r), kept + (r - first) * MOST_COLS,
               (size_t)c->args->out.n_cols * sizeof *kept);
}

/* The residual stream is kept in bf16. */
static void stream_bf16(struct fault_call *c)
{
    run(c);
    if (c->op != OP_ADD)
        return;
    for (int32_t r = 0; r < c->args->out.n_rows; r++)
        for (int32_t k = 0; k < c->args->out.n_cols; k++)
            out_row(c, r)[k] = to_bf16(out_row(c, r)[k]);
}

/* One row in a hundred has one element of the residual stream overwritten. */
static void raced(struct fault_call *c)
{
    run(c);
    if (c->op != OP_ADD || !in_middle_layer())
        return;
    for (int32_t r = 0; r < c->args->out.n_rows; r++) {
        state.n_draws = state.n_draws * 6364136223846793005u + 1442695040888963407u; /* Knuth */
        if (state.n_draws >> 33 & 0x7f)
            continue;
        out_row(c, r)[(state.n_draws >> 40) % (uint64_t)c->args->out.n_cols] += 4;
    }
}

/* Norms with an epsilon of 0.01. */
static void norm_eps(struct fault_call *c)
{
    if (c->op == OP_RMS_NORM)
        c->args->eps = 1e-2;
    run(c);
}

/* SiLU from a table that is 2 % too low. */
static void silu_low(struct fault_call *c)
{
    run(c);
    if (c->op != OP_SWIGLU)
        return;
    for (int32_t r = 0; r < c->args->out.n_rows; r++)
        for (int32_t k = 0; k < c->args->out.n_cols; k++)
            out_row(c, r)[k] *= 0.98f;
}

/* The attention's gate is not applied in the upper layers. */
static void gate_skipped(struct fault_call *c)
{
    if (c->op != OP_GATE || !in_upper_layer())
        run(c);
}

static bool is_head(const struct fault_call *c)
{
    return is_matmul(c, &state.f->model.output);
}

/* The last 64 ids have logits 10 % too large. */
static void vocab_tail(struct fault_call *c)
{
    run(c);
    if (!is_head(c))
        return;
    for (int32_t r = 0; r < c->args->out.n_rows; r++)
        for (int32_t k = c->args->out.n_cols - 64; k < c->args->out.n_cols; k++)
            out_row(c, r)[k] *= 1.1f;
}

/* One id's logit is half a logit too high. */
static void vocab_row(struct fault_call *c)
{
    run(c);
    for (int32_t r = 0; is_head(c) && r < c->args->out.n_rows; r++)
        out_row(c, r)[state.token] += 0.5f;
}

/* All logits 1 % too small. */
static void logits_cold(struct fault_call *c)
{
    run(c);
    for (int32_t r = 0; is_head(c) && r < c->args->out.n_rows; r++)
        for (int32_t k = 0; k < c->args->out.n_cols; k++)
            out_row(c, r)[k] *= 0.99f;
}

/* One row of one sequence overflows. */
static void row_nan(struct fault_call *c)
{
    run(c);
    if (c->op != OP_ADD || !in_middle_layer())
        return;
    for (int32_t r = 0; r < c->args->out.n_rows; r++)
        if (pos_of(r) == 100 && ((const int32_t *)state.f->seqs.data)[r] == 1)
            out_row(c, r)[0] = NAN;
}

/* Zero a sequence's plane of a state. */
static void clear_state(const struct tensor *t, int32_t seq)
{
    memset(tensor_row(t, seq, 0), 0, (size_t)t->mat_bytes);
}

/* Each chunk begins with an empty convolution window. */
static void window_lost(struct fault_call *c)
{
    if (c->op == OP_CONV && pos_of(0) > 0)
        clear_state(&c->args->in[2], ((const int32_t *)state.f->seqs.data)[0]);
    run(c);
}

/* Each chunk begins with an empty delta-net memory. */
static void memory_lost(struct fault_call *c)
{
    if (c->op == OP_DELTA_NET && pos_of(0) > 0)
        clear_state(&c->args->in[5], ((const int32_t *)state.f->seqs.data)[0]);
    run(c);
}

/* The first layer's delta-net memory is lost once, at position 64. */
static void memory_lost_once(struct fault_call *c)
{
    if (c->op == OP_DELTA_NET && state.layer == 0)
        for (int32_t r = 0; r < n_rows(); r++)
            if (pos_of(r) == 64)
                clear_state(&c->args->in[5], ((const int32_t *)state.f->seqs.data)[r]);
    run(c);
}

const struct fault faults[] = {
    {"rope-boundary", "query rotary position + 1 from 64 on", FAULT_DECODE, rope_boundary},
    {"rope-base", "rotary frequencies 1 % too high", FAULT_DECODE, rope_base},
    {"split-dropped", "last, partly filled split of 64 keys not read", FAULT_DECODE, split_dropped},
    {"mask-short", "a row does not see its own key", FAULT_DECODE, mask_short},
    {"mask-leak", "two rows in 64 see the next key", FAULT_PREFILL, mask_leak},
    {"batch-crossed", "batch row 3 reads row 2's cache, upper layers", FAULT_DECODE, batch_crossed},
    {"batch-scale", "8-bit rounding with row 0's scale", FAULT_DECODE, batch_scale},
    {"attention-1%", "attention temperature + 1 %", FAULT_DECODE, attention_warm},
    {"attention-10%", "attention temperature + 10 %", FAULT_DECODE, attention_hot},
    {"heads-swapped", "two heads swapped, upper layers", FAULT_DECODE, heads_swapped},
    {"store-skipped", "one key in 32 not stored", FAULT_DECODE, store_skipped},
    {"keys-4-bit", "keys rounded to 4 bits", FAULT_DECODE, keys_rounded},
    {"stale-row", "every 16th row of a product is the row before", FAULT_DECODE, stale_row},
    {"block-scale", "scale of the last block of 32 lost", FAULT_DECODE, block_scale},
    {"saturated", "inputs of a product cut at 1", FAULT_DECODE, saturated},
    {"half-sums", "a product accumulates in half precision", FAULT_DECODE, half_sums},
    {"tail-unwritten", "rows beyond the last tile of 8, one layer", FAULT_PREFILL, tail_unwritten},
    {"stream-bf16", "residual stream in bf16", FAULT_DECODE, stream_bf16},
    {"race", "one row in 128 with one wrong element", FAULT_DECODE, raced},
    {"norm-eps", "norms with epsilon 0.01", FAULT_DECODE, norm_eps},
    {"silu-low", "SiLU 2 % too low", FAULT_DECODE, silu_low},
    {"vocab-tail", "last 64 ids' logits 10 % too large", FAULT_DECODE, vocab_tail},
    {"vocab-row", "one id's logit + 0.5", FAULT_DECODE, vocab_row},
    {"logits-1%", "logits 1 % too small", FAULT_DECODE, logits_cold},
    {"row-nan", "one row of one sequence overflows", FAULT_DECODE, row_nan},
    {"gate-skipped", "attention gate not applied, upper layers", FAULT_HYBRID_DECODE, gate_skipped},
    {"window-lost", "chunk begins without convolution window", FAULT_HYBRID_PREFILL, window_lost},
    {"memory-lost", "chunk begins without delta-net memory", FAULT_HYBRID_PREFILL, memory_lost},
    {"memory-lost-once", "one layer's memory lost at 64", FAULT_HYBRID_DECODE, memory_lost_once},
};
const int n_faults = (int)(sizeof faults / sizeof *faults);

void faults_plant(const struct fault *fault, struct forward *f, int32_t token)
{
    state.fault = fault;
    state.f = f;
    state.token = token;
    state.n_draws = 1;
    memset(kept, 0, sizeof kept);
}

/* Follow which layer the pass is in. */
static void follow(enum op op, const struct op_args *args)
{
    const struct model *m = &state.f->model;
    if (op == OP_ROPE)
        state.n_ropes++;
    if (op != OP_RMS_NORM)
        return;
    for (int32_t i = 0; i < m->hp.n_layers; i++)
        if (args->in[1].data == m->layers[i].mixer_norm.data) {
            state.layer = i;
            state.n_ropes = 0;
        }
}

void __wrap_backend_run(struct backend *b, enum op op, const struct op_args *args)
{
    if (!state.fault) {
        __real_backend_run(b, op, args);
        return;
    }
    struct op_args copy = *args;
    struct fault_call call = {b, op, &copy};
    follow(op, args);
    state.fault->run(&call);
}
