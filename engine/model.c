#include "config.h"
#include "engine/model.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/gguf.h"
#include "err.h"
#include "kernels/quant.h"

/* What a layer is made of; a bit set selects rows of the binding table. */
enum part {
    ATTENTION = 1 << 0,
    GATED = 1 << 1, /* with ATTENTION: wq also yields a gate */
    QKV_BIAS = 1 << 2,
    QK_NORM = 1 << 3,
    DELTA_NET = 1 << 4,
    DENSE = 1 << 5,
    EXPERTS = 1 << 6,
    SHARED_EXPERT = 1 << 7,
    HYBRID = 1 << 8,    /* most layers are DELTA_NET instead of ATTENTION */
    POST_NORM = 1 << 9, /* the feed-forward norm goes by its other name */
    ANY = ~0,
};

static const struct arch {
    const char *name;
    enum rope_kind rope_kind;
    int parts;
} archs[] = {
    {"llama", ROPE_ADJACENT, ATTENTION | DENSE},
    {"qwen2", ROPE_HALVES, ATTENTION | QKV_BIAS | DENSE},
    {"qwen3", ROPE_HALVES, ATTENTION | QK_NORM | DENSE},
    {"qwen3moe", ROPE_HALVES, ATTENTION | QK_NORM | EXPERTS},
    {"qwen35", ROPE_HALVES, ATTENTION | GATED | QK_NORM | DENSE | HYBRID | POST_NORM},
    {"qwen35moe", ROPE_HALVES,
     ATTENTION | GATED | QK_NORM | EXPERTS | SHARED_EXPERT | HYBRID | POST_NORM},
};
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

/* Sizes that tensors' dimensions are checked against. */
enum dim {
    ONE,
    EMBD,
    VOCAB,
    HEAD,
    ROT_PAIRS,
    Q_WIDTH,
    Q_OUT, /* of wq: twice the width where it also yields a gate */
    KV_WIDTH,
    FFN,
    CONV_WIDTH,
    DELTA_CHANNELS,
    DELTA_WIDTH,
    VALUE_HEADS,
    VALUE_DIM,
    N_EXPERTS,
    EXPERT_FFN,
    SHARED_FFN,
    N_DIMS,
};

/* One tensor of a layer: its name after "blk.N.", its field, and (columns, rows, planes). */
static const struct binding {
    const char *name;
    size_t field;
    int parts; /* bound when a layer has any of them */
    enum dim dim[3];
} layer_bindings[] = {
#define FIELD(name) offsetof(struct layer, name)
    {"attn_norm.weight", FIELD(mixer_norm), ANY, {EMBD, ONE, ONE}},
    {"attn_q.weight", FIELD(wq), ATTENTION, {EMBD, Q_OUT, ONE}},
    {"attn_k.weight", FIELD(wk), ATTENTION, {EMBD, KV_WIDTH, ONE}},
    {"attn_v.weight", FIELD(wv), ATTENTION, {EMBD, KV_WIDTH, ONE}},
    {"attn_output.weight", FIELD(wo), ATTENTION, {Q_WIDTH, EMBD, ONE}},
    {"attn_q.bias", FIELD(bq), QKV_BIAS, {Q_WIDTH, ONE, ONE}},
    {"attn_k.bias", FIELD(bk), QKV_BIAS, {KV_WIDTH, ONE, ONE}},
    {"attn_v.bias", FIELD(bv), QKV_BIAS, {KV_WIDTH, ONE, ONE}},
    {"attn_q_norm.weight", FIELD(q_norm), QK_NORM, {HEAD, ONE, ONE}},
    {"attn_k_norm.weight", FIELD(k_norm), QK_NORM, {HEAD, ONE, ONE}},
    {"attn_qkv.weight", FIELD(w_qkv), DELTA_NET, {EMBD, DELTA_CHANNELS, ONE}},
    {"attn_gate.weight", FIELD(w_z), DELTA_NET, {EMBD, DELTA_WIDTH, ONE}},
    {"ssm_alpha.weight", FIELD(w_alpha), DELTA_NET, {EMBD, VALUE_HEADS, ONE}},
    {"ssm_beta.weight", FIELD(w_beta), DELTA_NET, {EMBD, VALUE_HEADS, ONE}},
    {"ssm_conv1d.weight", FIELD(conv), DELTA_NET, {CONV_WIDTH, DELTA_CHANNELS, ONE}},
    {"ssm_dt.bias", FIELD(dt_bias), DELTA_NET, {VALUE_HEADS, ONE, ONE}},
    {"ssm_a", FIELD(a), DELTA_NET, {VALUE_HEADS, ONE, ONE}},
    {"ssm_norm.weight", FIELD(out_norm), DELTA_NET, {VALUE_DIM, ONE, ONE}},
    {"ssm_out.weight", FIELD(w_out), DELTA_NET, {DELTA_WIDTH, EMBD, ONE}},
    {"ffn_norm.weight", FIELD(ffn_norm), ~POST_NORM, {EMBD, ONE, ONE}},
    {"post_attention_norm.weight", FIELD(ffn_norm), POST_NORM, {EMBD, ONE, ONE}},
    {"ffn_gate.weight", FIELD(w_gate), DENSE, {EMBD, FFN, ONE}},
    {"ffn_up.weight", FIELD(w_up), DENSE, {EMBD, FFN, ONE}},
    {"ffn_down.weight", FIELD(w_down), DENSE, {FFN, EMBD, ONE}},
    {"ffn_gate_inp.weight", FIELD(router), EXPERTS, {EMBD, N_EXPERTS, ONE}},
    {"ffn_gate_exps.weight", FIELD(e_gate), EXPERTS, {EMBD, EXPERT_FFN, N_EXPERTS}},
    {"ffn_up_exps.weight", FIELD(e_up), EXPERTS, {EMBD, EXPERT_FFN, N_EXPERTS}},
    {"ffn_down_exps.weight", FIELD(e_down), EXPERTS, {EXPERT_FFN, EMBD, N_EXPERTS}},
    {"ffn_gate_inp_shexp.weight", FIELD(s_router), SHARED_EXPERT, {EMBD, ONE, ONE}},
    {"ffn_gate_shexp.weight", FIELD(s_gate), SHARED_EXPERT, {EMBD, SHARED_FFN, ONE}},
    {"ffn_up_shexp.weight", FIELD(s_up), SHARED_EXPERT, {EMBD, SHARED_FFN, ONE}},
    {"ffn_down_shexp.weight", FIELD(s_down), SHARED_EXPERT, {SHARED_FFN, EMBD, ONE}},
#undef FIELD
};
enum { N_LAYER_BINDINGS = sizeof layer_bindings / sizeof layer_bindings[0] };

struct reader {
    const struct gguf *g;
    struct model *m;
    const struct arch *arch;
    bool *is_recurrent; /* (n_layers) */
    int64_t dim[N_DIMS];
    size_t n_bound;
    struct err *err;
};

const char *model_arch_at(size_t i)
{
    return i < N_ARCHS ? archs[i].name : NULL;
}

static int arch_find(struct reader *r)
{
    struct gguf_str name;
    if (gguf_get_str(r->g, "general.architecture", &name, r->err) < 0)
        return -1;
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strlen(archs[i].name) == name.n && !memcmp(archs[i].name, name.p, name.n)) {
            r->arch = &archs[i];
            r->m->arch = archs[i].name;
            return 0;
        }
    char known[128] = "";
    for (size_t i = 0; i < N_ARCHS; i++)
        snprintf(known + strlen(known), sizeof known - strlen(known), " %s", archs[i].name);
    return err_set(r->err, "%s: unknown architecture %.*s; known:%s", gguf_path(r->g),
                   name.n < 64 ? (int)name.n : 64, name.p, known);
}

/* Keys of the architecture, "<arch>.<name>". A count is in 1 ... 2^24; `otherwise` stands for an
 * absent key, negative = the key must be there. */
static int count_get(struct reader *r, const char *name, int64_t otherwise, int32_t *out)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch->name, name);
    uint64_t value = (uint64_t)otherwise;
    if ((otherwise < 0 || gguf_has(r->g, key)) && gguf_get_u64(r->g, key, &value, r->err) < 0)
        return -1;
    if (value > 1 << 24 || (value < 1 && otherwise != 0))
        return err_set(r->err, "%s: %s is %llu, not in 1 ... %d", gguf_path(r->g), key,
                       (unsigned long long)value, 1 << 24);
    *out = (int32_t)value;
    return 0;
}

static int real_get(struct reader *r, const char *name, double otherwise, double *out)
{
    char key[128];
    snprintf(key, sizeof key, "%s.%s", r->arch->name, name);
    *out = otherwise;
    if ((otherwise < 0 || gguf_has(r->g, key)) && gguf_get_f64(r->g, key, out, r->err) < 0)
        return -1;
    if (!(*out >= 0 && isfinite(*out)))
        return err_set(r->err, "%s: %s is %g, not a finite number above 0", gguf_path(r->g), key,
                       *out);
    return 0;
}

static int rope_scaling_get(struct reader *r)
{
    char key[128];
    struct gguf_str kind = {"none", 4};
    double factor;
    snprintf(key, sizeof key, "%s.rope.scaling.type", r->arch->name);
    if (gguf_has(r->g, key) && gguf_get_str(r->g, key, &kind, r->err) < 0)
        return -1;
    if (real_get(r, "rope.scaling.factor", 1, &factor) < 0)
        return -1;
    r->m->hp.rope_scale = 1;
    if (kind.n == 6 && !memcmp(kind.p, "linear", 6) && factor > 0)
        r->m->hp.rope_scale = 1 / factor;
    else if (kind.n != 4 || memcmp(kind.p, "none", 4))
        return err_set(r->err, "%s: %s is %.*s with factor %g; known: none, linear",
                       gguf_path(r->g), key, kind.n < 64 ? (int)kind.n : 64, kind.p, factor);
    return 0;
}

static int rope_get(struct reader *r)
{
    struct hparams *hp = &r->m->hp;
    char key[128];
    struct gguf_arr sections;
    hp->rope_kind = r->arch->rope_kind;
    if (count_get(r, "rope.dimension_count", hp->head_dim, &hp->n_rot) < 0 ||
        real_get(r, "rope.freq_base", 10000, &hp->rope_base) < 0 || rope_scaling_get(r) < 0)
        return -1;
    if (hp->n_rot % 2 || hp->n_rot > hp->head_dim)
        return err_set(r->err, "%s: %d rotary dimensions in a head of %d", gguf_path(r->g),
                       hp->n_rot, hp->head_dim);
    snprintf(key, sizeof key, "%s.rope.dimension_sections", r->arch->name);
    if (!gguf_has(r->g, key))
        return 0;
    if (gguf_get_arr(r->g, key, &sections, r->err) < 0)
        return -1;
    for (uint64_t i = 0; i < 4 && i < sections.n; i++) {
        int64_t n = sections.type == GGUF_STR ? -1 : gguf_arr_int(&sections, i);
        if (n < 0 || n > hp->n_rot)
            return err_set(r->err, "%s: %s: section %d is %lld, not in 0 ... %d", gguf_path(r->g),
                           key, (int)i, (long long)n, hp->n_rot);
        hp->rope_sections[i] = (int32_t)n;
    }
    return 0;
}

static int attention_get(struct reader *r)
{
    struct hparams *hp = &r->m->hp;
    int32_t value_dim;
    if (count_get(r, "attention.head_count", -1, &hp->n_heads) < 0 ||
        count_get(r, "attention.head_count_kv", hp->n_heads, &hp->n_kv_heads) < 0 ||
        count_get(r, "attention.key_length", hp->n_embd / hp->n_heads, &hp->head_dim) < 0 ||
        count_get(r, "attention.value_length", hp->head_dim, &value_dim) < 0)
        return -1;
    if (hp->n_heads % hp->n_kv_heads)
        return err_set(r->err, "%s: %d query heads are no multiple of %d key heads",
                       gguf_path(r->g), hp->n_heads, hp->n_kv_heads);
    if (value_dim != hp->head_dim || hp->head_dim > MAX_HEAD_DIM)
        return err_set(r->err,
                       "%s: key heads of %d and value heads of %d; must be equal, at most %d",
                       gguf_path(r->g), hp->head_dim, value_dim, MAX_HEAD_DIM);
    return 0;
}

static int delta_net_get(struct reader *r)
{
    struct hparams *hp = &r->m->hp;
    int32_t inner;
    if (!(r->arch->parts & HYBRID))
        return 0;
    if (count_get(r, "ssm.conv_kernel", -1, &hp->conv_width) < 0 ||
        count_get(r, "ssm.group_count", -1, &hp->n_key_heads) < 0 ||
        count_get(r, "ssm.time_step_rank", -1, &hp->n_value_heads) < 0 ||
        count_get(r, "ssm.state_size", -1, &hp->key_dim) < 0 ||
        count_get(r, "ssm.inner_size", -1, &inner) < 0)
        return -1;
    if (inner % hp->n_value_heads || hp->n_value_heads % hp->n_key_heads || hp->conv_width < 2)
        return err_set(r->err,
                       "%s: delta net of width %d, %d value heads, %d key heads, convolution %d",
                       gguf_path(r->g), inner, hp->n_value_heads, hp->n_key_heads, hp->conv_width);
    hp->value_dim = inner / hp->n_value_heads;
    return 0;
}

static int experts_get(struct reader *r)
{
    struct hparams *hp = &r->m->hp;
    if (!(r->arch->parts & EXPERTS))
        return count_get(r, "feed_forward_length", -1, &hp->n_ffn);
    if (count_get(r, "expert_count", -1, &hp->n_experts) < 0 ||
        count_get(r, "expert_used_count", -1, &hp->n_experts_used) < 0 ||
        count_get(r, "expert_feed_forward_length", -1, &hp->n_ffn_expert) < 0)
        return -1;
    if ((r->arch->parts & SHARED_EXPERT) &&
        count_get(r, "expert_shared_feed_forward_length", -1, &hp->n_ffn_shared) < 0)
        return -1;
    if (hp->n_experts > MAX_EXPERTS || hp->n_experts_used > MAX_EXPERTS_USED ||
        hp->n_experts_used > hp->n_experts)
        return err_set(r->err, "%s: %d of %d experts used; at most %d of %d", gguf_path(r->g),
                       hp->n_experts_used, hp->n_experts, MAX_EXPERTS_USED, MAX_EXPERTS);
    hp->norm_expert_weights = true;
    return 0;
}

/* Layers of multi-token prediction come last; they are not run. */
static int layers_get(struct reader *r)
{
    int32_t n_blocks, n_predict;
    if (count_get(r, "block_count", -1, &n_blocks) < 0 ||
        count_get(r, "nextn_predict_layers", 0, &n_predict) < 0)
        return -1;
    if (n_predict >= n_blocks)
        return err_set(r->err, "%s: %d of %d layers are for multi-token prediction",
                       gguf_path(r->g), n_predict, n_blocks);
    r->m->hp.n_layers = n_blocks - n_predict;
    return 0;
}

static int hparams_get(struct reader *r)
{
    struct hparams *hp = &r->m->hp;
    if (count_get(r, "embedding_length", -1, &hp->n_embd) < 0 ||
        count_get(r, "context_length", -1, &hp->n_ctx_train) < 0 ||
        real_get(r, "attention.layer_norm_rms_epsilon", -1, &hp->rms_eps) < 0 ||
        layers_get(r) < 0 || attention_get(r) < 0 || rope_get(r) < 0 || delta_net_get(r) < 0)
        return -1;
    return experts_get(r);
}

static void dims_fill(struct reader *r)
{
    const struct hparams *hp = &r->m->hp;
    int64_t q_width = (int64_t)hp->n_heads * hp->head_dim;
    int64_t delta_width = (int64_t)hp->n_value_heads * hp->value_dim;
    int64_t dim[N_DIMS] = {
        [ONE] = 1,
        [EMBD] = hp->n_embd,
        [VOCAB] = hp->n_vocab,
        [HEAD] = hp->head_dim,
        [ROT_PAIRS] = hp->n_rot / 2,
        [Q_WIDTH] = q_width,
        [Q_OUT] = r->arch->parts & GATED ? 2 * q_width : q_width,
        [KV_WIDTH] = (int64_t)hp->n_kv_heads * hp->head_dim,
        [FFN] = hp->n_ffn,
        [CONV_WIDTH] = hp->conv_width,
        [DELTA_CHANNELS] = 2 * (int64_t)hp->n_key_heads * hp->key_dim + delta_width,
        [DELTA_WIDTH] = delta_width,
        [VALUE_HEADS] = hp->n_value_heads,
        [VALUE_DIM] = hp->value_dim,
        [N_EXPERTS] = hp->n_experts,
        [EXPERT_FFN] = hp->n_ffn_expert,
        [SHARED_FFN] = hp->n_ffn_shared,
    };
    memcpy(r->dim, dim, sizeof dim);
}

static int tensor_check(struct reader *r, const char *name, const struct gguf_tensor *t,
                        const enum dim dim[3])
{
    const struct quant_info *type = quant_find(t->type);
    for (int i = 0; i < 4; i++) {
        int64_t want = i < 3 ? r->dim[dim[i]] : 1;
        if (t->dim[i] != (uint64_t)want)
            return err_set(r->err, "%s: tensor %s: dimension %d is %llu, the keys say %lld",
                           gguf_path(r->g), name, i, (unsigned long long)t->dim[i],
                           (long long)want);
    }
    bool is_vector = dim[1] == ONE || dim[0] == CONV_WIDTH;
    if (is_vector ? t->type != QUANT_F32 : !kernels_have_type((int32_t)t->type))
        return err_set(r->err, "%s: tensor %s: type %s (%u) is not supported here", gguf_path(r->g),
                       name, type ? type->name : "unknown", t->type);
    return 0;
}

/* Bind one tensor. An absent one is an error, unless it is optional: then out stays as it is. */
static int tensor_bind(struct reader *r, const char *name, const enum dim dim[3], bool optional,
                       struct tensor *out)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, name);
    if (!t && optional)
        return 0;
    if (!t)
        return err_set(r->err, "%s: tensor %s: not in the file", gguf_path(r->g), name);
    if (tensor_check(r, name, t, dim) < 0)
        return -1;
    *out = tensor_packed((void *)t->data, (int32_t)t->type, (int32_t)t->dim[2], (int32_t)t->dim[1],
                         (int32_t)t->dim[0]);
    r->n_bound++;
    r->m->n_params += t->dim[0] * t->dim[1] * t->dim[2];
    r->m->weight_bytes += t->size_bytes;
    return 0;
}

static int layer_parts(const struct reader *r, int32_t i)
{
    int parts = r->arch->parts;
    return r->is_recurrent[i] ? (parts & ~(ATTENTION | GATED | QK_NORM)) | DELTA_NET : parts;
}

static bool binding_applies(const struct binding *b, int parts)
{
    if (b->parts == ~POST_NORM)
        return !(parts & POST_NORM);
    return (b->parts & parts) != 0;
}

static int layer_bind(struct reader *r, int32_t i)
{
    struct layer *l = &r->m->layers[i];
    int parts = layer_parts(r, i);
    l->mixer = parts & DELTA_NET ? MIXER_DELTA_NET
               : parts & GATED   ? MIXER_GATED_ATTENTION
                                 : MIXER_ATTENTION;
    l->ffn = parts & EXPERTS ? FFN_MOE : FFN_DENSE;
    for (size_t j = 0; j < N_LAYER_BINDINGS; j++) {
        const struct binding *b = &layer_bindings[j];
        char name[128];
        snprintf(name, sizeof name, "blk.%d.%s", i, b->name);
        if (binding_applies(b, parts) &&
            tensor_bind(r, name, b->dim, false, (struct tensor *)((char *)l + b->field)) < 0)
            return -1;
    }
    return 0;
}

/* Which layers are recurrent: by name in one array, else all but every n-th. */
static int recurrent_get(struct reader *r)
{
    int32_t n_layers = r->m->hp.n_layers, interval = 0;
    char key[128];
    struct gguf_arr flags;
    r->is_recurrent = calloc((size_t)n_layers, sizeof *r->is_recurrent);
    if (!r->is_recurrent)
        return err_set(r->err, "%s: out of memory", gguf_path(r->g));
    if (!(r->arch->parts & HYBRID))
        return 0;
    snprintf(key, sizeof key, "%s.attention.recurrent_layers", r->arch->name);
    if (!gguf_has(r->g, key)) {
        if (count_get(r, "full_attention_interval", 4, &interval) < 0)
            return -1;
        for (int32_t i = 0; i < n_layers; i++)
            r->is_recurrent[i] = (i + 1) % interval != 0;
        return 0;
    }
    if (gguf_get_arr(r->g, key, &flags, r->err) < 0)
        return -1;
    if (flags.n < (uint64_t)n_layers || flags.type == GGUF_STR)
        return err_set(r->err, "%s: %s: %llu entries for %d layers", gguf_path(r->g), key,
                       (unsigned long long)flags.n, n_layers);
    for (int32_t i = 0; i < n_layers; i++)
        r->is_recurrent[i] = gguf_arr_int(&flags, (uint64_t)i) != 0;
    return 0;
}

static int vocab_get(struct reader *r)
{
    const struct gguf_tensor *t = gguf_tensor_find(r->g, "token_embd.weight");
    if (!t)
        return err_set(r->err, "%s: tensor token_embd.weight: not in the file", gguf_path(r->g));
    if (t->dim[1] < 1 || t->dim[1] > 1 << 24)
        return err_set(r->err, "%s: tensor token_embd.weight: %llu rows, not in 1 ... %d",
                       gguf_path(r->g), (unsigned long long)t->dim[1], 1 << 24);
    r->m->hp.n_vocab = (int32_t)t->dim[1];
    return 0;
}

/* Layer number of "blk.N.rest", or -1. */
static long layer_of(struct gguf_str name)
{
    char text[32];
    if (name.n < 5 || memcmp(name.p, "blk.", 4))
        return -1;
    size_t n = name.n - 4 < sizeof text - 1 ? name.n - 4 : sizeof text - 1;
    memcpy(text, name.p + 4, n);
    text[n] = '\0';
    return strtol(text, NULL, 10);
}

static bool is_prediction(const struct reader *r, struct gguf_str name)
{
    return layer_of(name) >= r->m->hp.n_layers || (name.n > 4 && !memcmp(name.p, "mtp.", 4));
}

static bool is_bound(const struct reader *r, struct gguf_str name)
{
    static const char *const of_model[] = {"token_embd.weight", "output_norm.weight",
                                           "output.weight", "rope_freqs.weight"};
    char full[128];
    for (size_t i = 0; i < sizeof of_model / sizeof of_model[0]; i++)
        if (strlen(of_model[i]) == name.n && !memcmp(of_model[i], name.p, name.n))
            return true;
    long layer = layer_of(name);
    for (size_t j = 0; layer >= 0 && layer < r->m->hp.n_layers && j < N_LAYER_BINDINGS; j++) {
        int n = snprintf(full, sizeof full, "blk.%ld.%s", layer, layer_bindings[j].name);
        if (binding_applies(&layer_bindings[j], layer_parts(r, (int32_t)layer)) &&
            (size_t)n == name.n && !memcmp(full, name.p, name.n))
            return true;
    }
    return false;
}

/* A weight that this architecture does not use would silently change nothing: refuse it. */
static int leftovers_check(struct reader *r)
{
    for (size_t i = 0; i < gguf_n_tensors(r->g); i++) {
        struct gguf_str name = gguf_tensor_at(r->g, i)->name;
        if (is_prediction(r, name))
            r->m->n_skipped++;
        else if (!is_bound(r, name))
            return err_set(r->err, "%s: tensor %.*s: architecture %s has none of that name",
                           gguf_path(r->g), name.n < 128 ? (int)name.n : 128, name.p,
                           r->arch->name);
    }
    return 0;
}

static int weights_bind(struct reader *r)
{
    struct model *m = r->m;
    static const enum dim table[3] = {EMBD, VOCAB, ONE}, norm[3] = {EMBD, ONE, ONE},
                          pairs[3] = {ROT_PAIRS, ONE, ONE};
    m->layers = calloc((size_t)m->hp.n_layers, sizeof *m->layers);
    if (!m->layers)
        return err_set(r->err, "%s: out of memory", gguf_path(r->g));
    if (tensor_bind(r, "token_embd.weight", table, false, &m->tok_embd) < 0 ||
        tensor_bind(r, "output_norm.weight", norm, false, &m->out_norm) < 0 ||
        tensor_bind(r, "rope_freqs.weight", pairs, true, &m->rope_freqs) < 0)
        return -1;
    m->output = m->tok_embd;
    if (tensor_bind(r, "output.weight", table, true, &m->output) < 0)
        return -1;
    for (int32_t i = 0; i < m->hp.n_layers; i++)
        if (layer_bind(r, i) < 0)
            return -1;
    return leftovers_check(r);
}

int model_open(const struct gguf *g, struct model **out, struct err *err)
{
    struct model *m = calloc(1, sizeof *m);
    if (!m)
        return err_set(err, "%s: out of memory", gguf_path(g));
    struct reader r = {.g = g, .m = m, .err = err};
    m->gguf = g;
    m->path = gguf_path(g);
    int rc = arch_find(&r) < 0 || vocab_get(&r) < 0 || hparams_get(&r) < 0 || recurrent_get(&r) < 0
                 ? -1
                 : 0;
    if (rc == 0) {
        dims_fill(&r);
        rc = weights_bind(&r);
    }
    free(r.is_recurrent);
    if (rc < 0) {
        model_close(m);
        return -1;
    }
    *out = m;
    return 0;
}

void model_close(struct model *m)
{
    if (m)
        free(m->layers);
    free(m);
}

void model_each_tensor(struct model *m, void (*fn)(struct tensor *t, void *user), void *user)
{
    struct tensor *of_model[] = {&m->tok_embd, &m->out_norm, &m->output, &m->rope_freqs};
    for (size_t i = 0; i < sizeof of_model / sizeof of_model[0]; i++)
        if (of_model[i]->data)
            fn(of_model[i], user);
    for (int32_t i = 0; i < m->hp.n_layers; i++)
        for (size_t j = 0; j < N_LAYER_BINDINGS; j++) {
            struct tensor *t = (struct tensor *)((char *)&m->layers[i] + layer_bindings[j].field);
            /* two names for one field: visit it at the second */
            bool again =
                j + 1 < N_LAYER_BINDINGS && layer_bindings[j].field == layer_bindings[j + 1].field;
            if (t->data && !again)
                fn(t, user);
        }
}

uint64_t model_hash(const struct model *m)
{
    enum { sample = 4096 };
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (size_t i = 0; i < gguf_n_tensors(m->gguf); i++) {
        const struct gguf_tensor *t = gguf_tensor_at(m->gguf, i);
        size_t n = t->size_bytes < sample ? t->size_bytes : sample;
        XXH64_update(&state, t->name.p, t->name.n);
        XXH64_update(&state, &t->type, sizeof t->type);
        XXH64_update(&state, t->dim, sizeof t->dim);
        XXH64_update(&state, t->data, n);
        XXH64_update(&state, (const char *)t->data + t->size_bytes - n, n);
    }
    return XXH64_digest(&state);
}

uint64_t model_bytes_per_token(const struct model *m)
{
    uint64_t bytes = m->weight_bytes;
    if (m->output.data != m->tok_embd.data)
        bytes -= (uint64_t)m->tok_embd.mat_bytes - (uint64_t)m->tok_embd.row_bytes;
    for (int32_t i = 0; i < m->hp.n_layers; i++) {
        const struct layer *l = &m->layers[i];
        uint64_t unused = (uint64_t)(m->hp.n_experts - m->hp.n_experts_used);
        if (l->ffn == FFN_MOE)
            bytes -=
                unused * (uint64_t)(l->e_gate.mat_bytes + l->e_up.mat_bytes + l->e_down.mat_bytes);
    }
    return bytes;
}

bool model_has_mixer(const struct model *m, enum mixer_kind kind)
{
    for (int32_t i = 0; i < m->hp.n_layers; i++)
        if (m->layers[i].mixer == kind)
            return true;
    return false;
}

struct type_query {
    int32_t type;
    bool found;
};

static void tensor_ask(struct tensor *t, void *user)
{
    struct type_query *q = user;
    q->found |= t->type == q->type && t->n_rows > 1;
}

bool model_has_type(const struct model *m, int32_t type)
{
    struct type_query q = {type, false};
    model_each_tensor((struct model *)m, tensor_ask, &q);
    return q.found;
}
