/* The forward pass. The upper half is vocabulary: one function per operator, named as in the
 * papers; the lower half is the models, one function per kind of layer. */
#include "config.h"
#include "engine/forward.h"

#include <math.h>
#include <string.h>

#include "engine/forward_int.h"
#include "kernels/quant.h"

/* Run one operator, or while measuring only note what it would need. */
static void run(struct forward *f, enum op op, struct op_args *args)
{
    args->form = f->form;
    args->many = f->phase == FORWARD_PREFILL;
    args->scratch = f->scratch;
    if (!f->is_measuring) {
        backend_run(f->backend, op, args);
        return;
    }
    size_t bytes = ops[op].scratch_bytes(args);
    f->scratch_bytes = bytes > f->scratch_bytes ? bytes : f->scratch_bytes;
}

/* A new activation of (n_rows, n_cols) floats; lives until the arena goes back below it. */
static struct tensor activation(struct forward *f, int32_t n_rows, int32_t n_cols)
{
    struct tensor t = tensor_packed(f->arena + f->arena_used, QUANT_F32, 1, n_rows, n_cols);
    f->arena_used += ((size_t)t.mat_bytes + 63) / 64 * 64;
    f->arena_peak = f->arena_used > f->arena_peak ? f->arena_used : f->arena_peak;
    return t;
}

/* Columns first ... first+n-1 of every row. */
static struct tensor columns(struct tensor t, int32_t first, int32_t n)
{
    t.data = (float *)t.data + first;
    t.n_cols = n;
    return t;
}

/* Part i of every head, where the n_parts parts of a head stand side by side. */
static struct tensor head_part(struct tensor t, int32_t n_heads, int32_t n_parts, int32_t i)
{
    int32_t n = t.n_cols / n_heads / n_parts;
    t.data = (float *)t.data + i * n;
    t.n_rows *= n_heads;
    t.row_bytes /= n_heads;
    t.n_cols = n;
    return t;
}

/* The same memory as rows of n_cols. */
static struct tensor reshape(struct tensor t, int32_t n_rows, int32_t n_cols)
{
    return tensor_packed(t.data, t.type, 1, n_rows, n_cols);
}

static struct tensor rows(struct forward *f, struct tensor table, struct tensor ids)
{
    struct tensor out = activation(f, ids.n_cols, table.n_cols);
    run(f, OP_ROWS, &(struct op_args){.out = out, .in = {table, ids}});
    return out;
}

static void linear_into(struct forward *f, struct tensor out, struct tensor x, struct tensor matrix)
{
    run(f, f->phase == FORWARD_PREFILL ? OP_MATMUL_MM : OP_MATMUL_MV,
        &(struct op_args){
            .out = out, .in = {x, matrix}, .two_groups = f->params.knobs.value[KNOB_Q80_G2] != 0});
}

static struct tensor linear(struct forward *f, struct tensor x, struct tensor matrix)
{
    struct tensor out = activation(f, x.n_rows, matrix.n_rows);
    linear_into(f, out, x, matrix);
    return out;
}

static struct tensor add(struct forward *f, struct tensor a, struct tensor b)
{
    run(f, OP_ADD, &(struct op_args){.out = a, .in = {a, b}});
    return a;
}

/* h += x matrix^T */
static void add_linear(struct forward *f, struct tensor h, struct tensor x, struct tensor matrix)
{
    if (f->fuses)
        run(f, f->phase == FORWARD_PREFILL ? OP_ADD_MATMUL_MM : OP_ADD_MATMUL_MV,
            &(struct op_args){.out = h,
                              .in = {x, matrix, h},
                              .two_groups = f->params.knobs.value[KNOB_Q80_G2] != 0});
    else
        add(f, h, linear(f, x, matrix));
}

/* Products of one x with n matrices, at most four. */
static void project(struct forward *f, struct tensor x, int n, const struct tensor *matrices,
                    struct tensor *out)
{
    struct op_args args = {.in = {x}, .two_groups = f->params.knobs.value[KNOB_Q80_G2] != 0};
    struct tensor *outs[] = {&args.out, &args.out2, &args.out3, &args.out4};
    bool at_once = f->fuses && f->phase == FORWARD_DECODE;
    for (int i = 0; i < n; i++) {
        args.in[1 + i] = matrices[i];
        *outs[i] = out[i] = activation(f, x.n_rows, matrices[i].n_rows);
        if (!at_once)
            linear_into(f, out[i], x, matrices[i]);
    }
    if (at_once)
        run(f, OP_PROJECT_MV, &args);
}

static struct tensor rms_norm(struct forward *f, struct tensor x, int32_t n_heads,
                              struct tensor weight)
{
    struct tensor out = activation(f, x.n_rows, x.n_cols);
    run(f, OP_RMS_NORM,
        &(struct op_args){
            .out = out, .in = {x, weight}, .n_heads = n_heads, .eps = f->model.hp.rms_eps});
    return out;
}

static struct tensor l2_norm(struct forward *f, struct tensor x, int32_t n_heads, double scale)
{
    struct tensor out = activation(f, x.n_rows, x.n_cols);
    run(f, OP_L2_NORM,
        &(struct op_args){
            .out = out, .in = {x}, .n_heads = n_heads, .scale = scale, .eps = f->model.hp.rms_eps});
    return out;
}

static struct tensor swiglu(struct forward *f, struct tensor gate, struct tensor up)
{
    run(f, OP_SWIGLU, &(struct op_args){.out = up, .in = {gate, up}});
    return up;
}

/* silu(x gate^T) * (x up^T) */
static struct tensor glu(struct forward *f, struct tensor x, struct tensor gate, struct tensor up)
{
    if (!f->fuses || f->phase == FORWARD_PREFILL)
        return swiglu(f, linear(f, x, gate), linear(f, x, up));
    struct tensor out = activation(f, x.n_rows, gate.n_rows);
    run(f, OP_GLU_MV,
        &(struct op_args){.out = out,
                          .in = {x, gate, up},
                          .two_groups = f->params.knobs.value[KNOB_Q80_G2] != 0});
    return out;
}

/* n_heads: rows of x for a token. */
static struct tensor gated(struct forward *f, struct tensor x, struct tensor gate, int32_t n_heads)
{
    run(f, OP_GATE, &(struct op_args){.out = x, .in = {x, gate}, .n_heads = n_heads});
    return x;
}

static struct tensor rope(struct forward *f, struct tensor x, int32_t n_heads)
{
    run(f, OP_ROPE,
        &(struct op_args){.out = x,
                          .in = {x, f->positions, f->rope_frequencies},
                          .n_heads = n_heads,
                          .n_rot = f->model.hp.n_rot,
                          .adjacent = f->model.hp.rope_kind == ROPE_ADJACENT});
    return x;
}

static void store(struct forward *f, struct tensor cache, struct tensor x)
{
    run(f, OP_STORE, &(struct op_args){.out = cache, .in = {x, f->seqs, f->positions}});
}

/* Norms, where there are weights for them, and rotary positions of the heads of q and k; k and v go
 * into the cache. q has a row for each head. */
static struct tensor heads(struct forward *f, const struct layer *l, const struct kv_layer *kv,
                           struct tensor q, struct tensor k, struct tensor v)
{
    const struct hparams *hp = &f->model.hp;
    struct tensor out = activation(f, k.n_rows, hp->n_heads * hp->head_dim);
    if (f->fuses) {
        run(f, OP_HEADS,
            &(struct op_args){
                .out = out,
                .out2 = kv->keys,
                .out3 = kv->values,
                .in = {q, k, v, l->q_norm, l->k_norm, f->seqs, f->positions, f->rope_frequencies},
                .n_heads = hp->n_heads,
                .n_kv_heads = hp->n_kv_heads,
                .n_rot = hp->n_rot,
                .eps = hp->rms_eps,
                .adjacent = hp->rope_kind == ROPE_ADJACENT});
        return out;
    }
    q = l->q_norm.data ? rms_norm(f, q, 1, l->q_norm) : q;
    q = reshape(q, k.n_rows, hp->n_heads * hp->head_dim);
    k = l->k_norm.data ? rms_norm(f, k, hp->n_kv_heads, l->k_norm) : k;
    store(f, kv->keys, rope(f, k, hp->n_kv_heads));
    store(f, kv->values, v);
    return rope(f, q, hp->n_heads);
}

static struct tensor attend(struct forward *f, struct tensor q, const struct kv_layer *kv)
{
    const struct hparams *hp = &f->model.hp;
    struct tensor out = activation(f, q.n_rows, q.n_cols);
    run(f, f->phase == FORWARD_PREFILL ? OP_ATTENTION_MM : OP_ATTENTION_MV,
        &(struct op_args){.out = out,
                          .in = {q, kv->keys, kv->values, f->seqs, f->positions},
                          .n_heads = hp->n_heads,
                          .n_kv_heads = hp->n_kv_heads,
                          .n_split = f->params.knobs.value[KNOB_FA_SPLIT],
                          .scale = 1 / sqrt(hp->head_dim),
                          .n_pairs = f->n_pairs});
    return out;
}

static struct tensor conv(struct forward *f, struct tensor x, struct tensor weight,
                          struct tensor state)
{
    struct tensor out = activation(f, x.n_rows, x.n_cols);
    run(f, OP_CONV, &(struct op_args){.out = out, .in = {x, weight, state, f->seqs}});
    return out;
}

/* Softmax attention over the cache (Vaswani et al. 2017), with the grouped heads, per-head norms,
 * biases and output gate that the layer's weights ask for. Adds to h, as does every mixer. */
static void attention(struct forward *f, const struct layer *l, const struct kv_layer *kv,
                      struct tensor x, struct tensor h)
{
    const struct hparams *hp = &f->model.hp;
    const struct tensor matrices[] = {l->wq, l->wk, l->wv};
    bool has_gate = l->mixer == MIXER_GATED_ATTENTION;
    struct tensor qkv[3];

    project(f, x, 3, matrices, qkv);
    if (l->bq.data) {
        add(f, qkv[0], l->bq);
        add(f, qkv[1], l->bk);
        add(f, qkv[2], l->bv);
    }
    struct tensor q = head_part(qkv[0], hp->n_heads, has_gate ? 2 : 1, 0);
    struct tensor y = attend(f, heads(f, l, kv, q, qkv[1], qkv[2]), kv);
    if (has_gate)
        gated(f, head_part(y, hp->n_heads, 1, 0), head_part(qkv[0], hp->n_heads, 2, 1),
              hp->n_heads);
    add_linear(f, h, y, l->wo);
}

/* What the recurrence of a gated delta net reads. */
struct delta_input {
    struct tensor q, k, v, decay, strength;
};

/* The short convolution, the norms of q and k, and the gates. */
static struct delta_input delta_heads(struct forward *f, const struct layer *l,
                                      const struct delta_layer *state, struct tensor x,
                                      struct tensor alpha, struct tensor beta)
{
    const struct hparams *hp = &f->model.hp;
    int32_t key_width = hp->n_key_heads * hp->key_dim;
    double scale = 1 / sqrt(hp->key_dim);
    struct tensor qkv, q, k;
    if (f->fuses) {
        qkv = activation(f, x.n_rows, x.n_cols);
        run(f, OP_DELTA_HEADS,
            &(struct op_args){
                .out = qkv,
                .out2 = alpha,
                .out3 = beta,
                .in = {x, l->conv, state->window, f->seqs, alpha, beta, l->dt_bias, l->a},
                .n_kv_heads = hp->n_key_heads,
                .key_width = key_width,
                .scale = scale,
                .eps = hp->rms_eps});
        q = columns(qkv, 0, key_width);
        k = columns(qkv, key_width, key_width);
    } else {
        qkv = conv(f, x, l->conv, state->window);
        q = l2_norm(f, columns(qkv, 0, key_width), hp->n_key_heads, scale);
        k = l2_norm(f, columns(qkv, key_width, key_width), hp->n_key_heads, 1);
        run(f, OP_DELTA_GATES,
            &(struct op_args){.out = alpha, .out2 = beta, .in = {alpha, beta, l->dt_bias, l->a}});
    }
    return (struct delta_input){q, k, columns(qkv, 2 * key_width, qkv.n_cols - 2 * key_width),
                                alpha, beta};
}

/* rms_norm(x) * silu(z) for each head */
static struct tensor gated_norm(struct forward *f, struct tensor x, int32_t n_heads,
                                struct tensor weight, struct tensor z)
{
    if (!f->fuses)
        return swiglu(f, z, rms_norm(f, x, n_heads, weight));
    struct tensor out = activation(f, x.n_rows, x.n_cols);
    run(f, OP_GATED_NORM,
        &(struct op_args){
            .out = out, .in = {x, weight, z}, .n_heads = n_heads, .eps = f->model.hp.rms_eps});
    return out;
}

/* Gated delta net (Yang et al. 2024): a short convolution, then per head a matrix state that
 * decays and is corrected towards each new value. */
static void delta_net(struct forward *f, const struct layer *l, const struct delta_layer *state,
                      struct tensor x, struct tensor h)
{
    const struct hparams *hp = &f->model.hp;
    const struct tensor matrices[] = {l->w_qkv, l->w_z, l->w_alpha, l->w_beta};
    struct tensor out[4];

    project(f, x, 4, matrices, out);
    struct delta_input in = delta_heads(f, l, state, out[0], out[2], out[3]);
    struct tensor y = activation(f, x.n_rows, hp->n_value_heads * hp->value_dim);
    run(f, OP_DELTA_NET,
        &(struct op_args){.out = y,
                          .in = {in.q, in.k, in.v, in.decay, in.strength, state->memory, f->seqs},
                          .n_heads = hp->n_value_heads,
                          .n_kv_heads = hp->n_key_heads});
    add_linear(f, h, gated_norm(f, y, hp->n_value_heads, l->out_norm, out[1]), l->w_out);
}

static struct tensor expert_linear(struct forward *f, struct tensor x, struct tensor matrices,
                                   struct tensor ids)
{
    struct tensor out = activation(f, ids.n_rows * ids.n_cols, matrices.n_rows);
    run(f, f->phase == FORWARD_PREFILL ? OP_EXPERTS_MM : OP_EXPERTS_MV,
        &(struct op_args){.out = out,
                          .in = {x, matrices, ids},
                          .two_groups = f->params.knobs.value[KNOB_Q80_G2] != 0});
    return out;
}

/* Mixture of experts (Shazeer et al. 2017): each token goes through the experts that its router
 * finds most probable, and through a gated shared one where the layer has it. */
static struct tensor mixture(struct forward *f, const struct layer *l, struct tensor x)
{
    const struct hparams *hp = &f->model.hp;
    struct tensor weights = activation(f, x.n_rows, hp->n_experts_used), ids = weights;
    ids.data = activation(f, x.n_rows, hp->n_experts_used).data;
    ids.type = QUANT_I32;
    run(f, OP_ROUTER,
        &(struct op_args){.out = weights,
                          .out2 = ids,
                          .in = {linear(f, x, l->router)},
                          .normalise = hp->norm_expert_weights});
    struct tensor hidden =
        swiglu(f, expert_linear(f, x, l->e_gate, ids), expert_linear(f, x, l->e_up, ids));
    struct tensor y = activation(f, x.n_rows, hp->n_embd);
    run(f, OP_MIX,
        &(struct op_args){.out = y, .in = {expert_linear(f, hidden, l->e_down, ids), weights}});
    if (!l->s_gate.data)
        return y;
    struct tensor shared = linear(f, glu(f, x, l->s_gate, l->s_up), l->s_down);
    return add(f, y, gated(f, shared, linear(f, x, l->s_router), 1));
}

static void mixer(struct forward *f, int32_t i, struct tensor x, struct tensor h)
{
    const struct layer *l = &f->model.layers[i];
    if (l->mixer == MIXER_DELTA_NET)
        delta_net(f, l, &f->cache.layers[i].delta, x, h);
    else
        attention(f, l, &f->cache.layers[i].kv, x, h);
}

/* Dense: a gated linear unit with SiLU (Shazeer 2020). */
static void feed_forward(struct forward *f, const struct layer *l, struct tensor x, struct tensor h)
{
    if (l->ffn == FFN_MOE)
        add(f, h, mixture(f, l, x));
    else
        add_linear(f, h, glu(f, x, l->w_gate, l->w_up), l->w_down);
}

/* Pre-norm residual layers (Xiong et al. 2020), then the logits of the wanted rows. */
void forward_graph(struct forward *f)
{
    const struct model *m = &f->model;
    f->arena_used = 0;
    struct tensor h = rows(f, m->tok_embd, f->tokens);
    size_t layer_start = f->arena_used;
    for (int32_t i = 0; i < m->hp.n_layers; i++) {
        const struct layer *l = &m->layers[i];
        mixer(f, i, rms_norm(f, h, 1, l->mixer_norm), h);
        f->arena_used = layer_start;
        feed_forward(f, l, rms_norm(f, h, 1, l->ffn_norm), h);
        f->arena_used = layer_start;
    }
    if (f->wanted.n_cols == 0)
        return;
    linear_into(f, f->logits, rms_norm(f, rows(f, h, f->wanted), 1, m->out_norm), m->output);
}
