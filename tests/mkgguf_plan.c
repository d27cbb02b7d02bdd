#include "config.h"

#include "tests/mkgguf_plan.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "err.h"
#include "kernels/quant.h"
#include "tests/pack.h"

enum { ALIGNMENT = 32 }; /* of tensors in the data part: GGUF's default */

const struct preset presets[] = {
    {"tiny",
     "four layers, 64 wide, 320 tokens; any architecture",
     {"llama", 4, 64, 192, 4, 2, 32, 320, 2048, 0, 2, 4, 32, 4, 4, 8, 2, 64, 64, 0}},
    {"small",
     "four layers, 256 wide, 1,024 tokens; rows are whole blocks of every type",
     {"llama", 4, 256, 512, 4, 2, 64, 1024, 2048, 0, 2, 4, 64, 4, 4, 8, 2, 256, 256, 0}},
    {"1b", "the shape of Llama 3.2 1B", {"llama", 16, 2048, 8192, 32, 8,  64, 128256, 131072, 1,
                                         16,      32, 64,   4,    4,  16, 2,  1024,   1024,   0}},
    {"8b-qwen3", "the shape of Qwen3 8B", {"qwen3", 36,    4096, 12288, 32,   8,   128,
                                           151936,  40960, 0,    16,    32,   128, 4,
                                           4,       16,    2,    1536,  1536, 0}},
    {"9b-qwen35", "the shape of Qwen3.5 9B", {"qwen35", 32,     4096, 12288, 16,   4,   256,
                                              248320,   262144, 0,    16,    32,   128, 4,
                                              4,        16,     2,    1536,  1536, 0}},
    {"30b-qwen3moe", "the shape of Qwen3 30B-A3B", {"qwen3moe", 48,    2048, 6144, 32,  4,   128,
                                                    151936,     40960, 0,    16,   32,  128, 4,
                                                    4,          128,   8,    768,  768, 0}},
    {NULL, NULL, {0}},
};

static const struct arch archs[] = {
    {"llama", "llama-bpe", 500000, 1e-5,
     PART_ATTENTION | PART_DENSE | PART_FFN_NORM | PART_ROPE_FREQS},
    {"qwen2", "qwen2", 1000000, 1e-6, PART_ATTENTION | PART_QKV_BIAS | PART_DENSE | PART_FFN_NORM},
    {"qwen3", "qwen2", 1000000, 1e-6, PART_ATTENTION | PART_QK_NORM | PART_DENSE | PART_FFN_NORM},
    {"qwen3moe", "qwen2", 1000000, 1e-6,
     PART_ATTENTION | PART_QK_NORM | PART_EXPERTS | PART_FFN_NORM},
    {"qwen35", "qwen35", 10000000, 1e-6,
     PART_ATTENTION | PART_GATED | PART_QK_NORM | PART_DENSE | PART_HYBRID | PART_POST_NORM},
    {"qwen35moe", "qwen35", 10000000, 1e-6,
     PART_ATTENTION | PART_GATED | PART_QK_NORM | PART_EXPERTS | PART_SHARED_EXPERT | PART_HYBRID |
         PART_POST_NORM},
};

const struct arch *arch_find(const char *name)
{
    for (size_t i = 0; i < sizeof archs / sizeof *archs; i++)
        if (!strcmp(archs[i].name, name))
            return &archs[i];
    return NULL;
}

int32_t shape_n_rot(const struct shape *shape, const struct arch *arch)
{
    return arch->parts & PART_GATED ? shape->head_dim / 4 : shape->head_dim;
}

/* Sizes that tensors have, from the shape. */
enum dim {
    NONE,
    EMBD,
    VOCAB,
    HEAD,
    ROT_PAIRS,
    Q_WIDTH,
    Q_OUT,
    KV_WIDTH,
    FFN,
    CONV_WIDTH,
    DELTA_CHANNELS,
    DELTA_WIDTH,
    VALUE_HEADS,
    STATE,
    EXPERTS,
    EXPERT_FFN,
    SHARED_FFN,
    TWO_EMBD,
    N_DIMS,
};

/* What the size of a matrix's elements is measured by. */
enum scale {
    BY_INPUT,  /* outputs as large as inputs: 1 / sqrt(columns) */
    BY_DEPTH,  /* the same, less with every layer: what is added to the residual stream */
    BY_LOGITS, /* logits with a standard deviation of 3 */
    FIXED,     /* as the row says */
    ROUTER,    /* 1.5 / sqrt(columns): experts differ */
    HALF,      /* 0.5 / sqrt(columns) */
};

static const struct row {
    const char *name;
    int parts; /* present when a layer has any of them; 0 = always */
    enum dim dim[3];
    enum fill fill;
    enum scale scale;
    float mean, sd; /* sd where the scale is FIXED */
    bool is_float;  /* F32 whatever the type asked for */
} layer_rows[] = {
    {"attn_norm.weight", 0, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
    {"attn_q.weight", PART_ATTENTION, {EMBD, Q_OUT}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"attn_k.weight", PART_ATTENTION, {EMBD, KV_WIDTH}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"attn_v.weight", PART_ATTENTION, {EMBD, KV_WIDTH}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"attn_output.weight", PART_ATTENTION, {Q_WIDTH, EMBD}, FILL_NORMAL, BY_DEPTH, 0, 0, false},
    {"attn_q.bias", PART_QKV_BIAS, {Q_WIDTH}, FILL_NORMAL, FIXED, 0, 0.5f, true},
    {"attn_k.bias", PART_QKV_BIAS, {KV_WIDTH}, FILL_NORMAL, FIXED, 0, 1.8f, true},
    {"attn_v.bias", PART_QKV_BIAS, {KV_WIDTH}, FILL_NORMAL, FIXED, 0, 0.05f, true},
    {"attn_q_norm.weight", PART_QK_NORM, {HEAD}, FILL_NORM, FIXED, 1.5f, 0.25f, true},
    {"attn_k_norm.weight", PART_QK_NORM, {HEAD}, FILL_NORM, FIXED, 1.5f, 0.25f, true},
    {"attn_qkv.weight", PART_DELTA_NET, {EMBD, DELTA_CHANNELS}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"attn_gate.weight", PART_DELTA_NET, {EMBD, DELTA_WIDTH}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"ssm_conv1d.weight",
     PART_DELTA_NET,
     {CONV_WIDTH, DELTA_CHANNELS},
     FILL_CONV,
     FIXED,
     0.7f,
     0.3f,
     true},
    {"ssm_a", PART_DELTA_NET, {VALUE_HEADS}, FILL_DECAY, FIXED, 0, 0, true},
    {"ssm_dt.bias", PART_DELTA_NET, {VALUE_HEADS}, FILL_DT_BIAS, FIXED, 0, 0, true},
    {"ssm_alpha.weight", PART_DELTA_NET, {EMBD, VALUE_HEADS}, FILL_NORMAL, HALF, 0, 0, false},
    {"ssm_beta.weight", PART_DELTA_NET, {EMBD, VALUE_HEADS}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"ssm_norm.weight", PART_DELTA_NET, {STATE}, FILL_NORM, FIXED, 1, 0.25f, true},
    {"ssm_out.weight", PART_DELTA_NET, {DELTA_WIDTH, EMBD}, FILL_NORMAL, BY_DEPTH, 0, 0, false},
    {"ffn_norm.weight", PART_FFN_NORM, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
    {"post_attention_norm.weight", PART_POST_NORM, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
    {"ffn_gate.weight", PART_DENSE, {EMBD, FFN}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"ffn_up.weight", PART_DENSE, {EMBD, FFN}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"ffn_down.weight", PART_DENSE, {FFN, EMBD}, FILL_NORMAL, BY_DEPTH, 0, 0, false},
    {"ffn_gate_inp.weight", PART_EXPERTS, {EMBD, EXPERTS}, FILL_NORMAL, ROUTER, 0, 0, true},
    {"ffn_gate_exps.weight",
     PART_EXPERTS,
     {EMBD, EXPERT_FFN, EXPERTS},
     FILL_NORMAL,
     BY_INPUT,
     0,
     0,
     false},
    {"ffn_up_exps.weight",
     PART_EXPERTS,
     {EMBD, EXPERT_FFN, EXPERTS},
     FILL_NORMAL,
     BY_INPUT,
     0,
     0,
     false},
    {"ffn_down_exps.weight",
     PART_EXPERTS,
     {EXPERT_FFN, EMBD, EXPERTS},
     FILL_NORMAL,
     BY_DEPTH,
     0,
     0,
     false},
    {"ffn_gate_inp_shexp.weight", PART_SHARED_EXPERT, {EMBD}, FILL_NORMAL, BY_INPUT, 0, 0, true},
    {"ffn_gate_shexp.weight",
     PART_SHARED_EXPERT,
     {EMBD, SHARED_FFN},
     FILL_NORMAL,
     BY_INPUT,
     0,
     0,
     false},
    {"ffn_up_shexp.weight",
     PART_SHARED_EXPERT,
     {EMBD, SHARED_FFN},
     FILL_NORMAL,
     BY_INPUT,
     0,
     0,
     false},
    {"ffn_down_shexp.weight",
     PART_SHARED_EXPERT,
     {SHARED_FFN, EMBD},
     FILL_NORMAL,
     BY_DEPTH,
     0,
     0,
     false},
    {"nextn.eh_proj.weight", PART_PREDICT, {TWO_EMBD, EMBD}, FILL_NORMAL, BY_INPUT, 0, 0, false},
    {"nextn.enorm.weight", PART_PREDICT, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
    {"nextn.hnorm.weight", PART_PREDICT, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
    {"nextn.shared_head_norm.weight", PART_PREDICT, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
};
static const struct row embedding_row = {
    "token_embd.weight", 0, {EMBD, VOCAB}, FILL_NORMAL, BY_LOGITS, 0, 0, false};
static const struct row model_rows[] = {
    {"output_norm.weight", 0, {EMBD}, FILL_NORM, FIXED, 1, 0.4f, true},
    {"rope_freqs.weight", PART_ROPE_FREQS, {ROT_PAIRS}, FILL_ROPE_FREQS, FIXED, 0, 0, true},
};
static const struct row output_row = {
    "output.weight", 0, {EMBD, VOCAB}, FILL_NORMAL, BY_LOGITS, 0, 0, false};

struct maker {
    struct plan *plan;
    const struct type_rule *rules;
    size_t n_rules;
    int64_t dim[N_DIMS];
};

static void dims_get(struct maker *m)
{
    const struct shape *s = &m->plan->shape;
    int parts = m->plan->arch->parts;
    int64_t *d = m->dim;
    d[EMBD] = s->n_embd;
    d[VOCAB] = s->n_vocab;
    d[HEAD] = s->head_dim;
    d[ROT_PAIRS] = shape_n_rot(s, m->plan->arch) / 2;
    d[Q_WIDTH] = (int64_t)s->n_heads * s->head_dim;
    d[Q_OUT] = d[Q_WIDTH] * (parts & PART_GATED ? 2 : 1);
    d[KV_WIDTH] = (int64_t)s->n_kv_heads * s->head_dim;
    d[FFN] = s->n_ffn;
    d[CONV_WIDTH] = s->conv_width;
    d[DELTA_WIDTH] = (int64_t)s->n_value_heads * s->state_dim;
    d[DELTA_CHANNELS] = d[DELTA_WIDTH] + 2 * (int64_t)s->n_key_heads * s->state_dim;
    d[VALUE_HEADS] = s->n_value_heads;
    d[STATE] = s->state_dim;
    d[EXPERTS] = s->n_experts;
    d[EXPERT_FFN] = s->n_ffn_expert;
    d[SHARED_FFN] = s->n_ffn_shared;
    d[TWO_EMBD] = 2 * (int64_t)s->n_embd;
}

/* A type whose blocks divide the row, as close to the one asked for as there is. */
static uint32_t type_that_fits(uint32_t type, uint64_t n_cols)
{
    static const uint8_t smaller[QUANT_N_TYPES] = {
        [QUANT_Q2_K] = QUANT_Q4_0,  [QUANT_Q3_K] = QUANT_Q4_0,  [QUANT_Q4_K] = QUANT_Q5_0,
        [QUANT_Q5_K] = QUANT_Q5_1,  [QUANT_Q6_K] = QUANT_Q8_0,  [QUANT_IQ4_XS] = QUANT_IQ4_NL,
        [QUANT_TQ1_0] = QUANT_Q4_0, [QUANT_TQ2_0] = QUANT_Q4_0,
    };
    if (n_cols % (uint64_t)quant_find(type)->block_elems && smaller[type])
        type = smaller[type];
    return n_cols % (uint64_t)quant_find(type)->block_elems ? QUANT_F16 : type;
}

static uint32_t type_of(const struct maker *m, const char *name)
{
    uint32_t type = m->rules[0].type;
    for (size_t i = 1; i < m->n_rules; i++)
        if (strstr(name, m->rules[i].part))
            type = m->rules[i].type;
    return type;
}

static float sd_of(const struct maker *m, const struct row *row, uint64_t n_cols)
{
    double by_input = 1 / sqrt((double)n_cols);
    switch (row->scale) {
    case BY_INPUT:
        return (float)by_input;
    case BY_DEPTH:
        return (float)(by_input / sqrt(m->plan->shape.n_layers / 2.0));
    case BY_LOGITS:
        return (float)(3 * by_input);
    case ROUTER:
        return (float)(1.5 * by_input);
    case HALF:
        return (float)(0.5 * by_input);
    case FIXED:
        break;
    }
    return row->sd;
}

static void tensor_add(struct maker *m, const struct row *row, int layer)
{
    struct plan *plan = m->plan;
    struct plan_tensor *t = &plan->tensors[plan->n_tensors++];
    uint64_t n_rows = 1;
    memset(t, 0, sizeof *t);
    if (layer < 0)
        snprintf(t->name, sizeof t->name, "%s", row->name);
    else
        snprintf(t->name, sizeof t->name, "blk.%d.%s", layer, row->name);
    for (; t->n_dims < 3 && row->dim[t->n_dims] != NONE; t->n_dims++) {
        t->dim[t->n_dims] = (uint64_t)m->dim[row->dim[t->n_dims]];
        n_rows *= t->n_dims ? t->dim[t->n_dims] : 1;
    }
    t->fill = row->fill;
    t->mean = row->mean;
    t->sd = sd_of(m, row, t->dim[0]);
    uint32_t type = row->is_float ? QUANT_F32 : type_of(m, t->name);
    t->type = type_that_fits(type, t->dim[0]);
    plan->n_other_type += t->type != type;
    t->offset = (plan->data_bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    t->size_bytes = (uint64_t)quant_row_bytes(t->type, (int64_t)t->dim[0]) * n_rows;
    plan->data_bytes = t->offset + t->size_bytes;
    plan->n_params += t->dim[0] * n_rows;
}

static int layer_parts(const struct plan *plan, int layer)
{
    int parts = plan->arch->parts;
    const struct shape *s = &plan->shape;
    if (layer >= s->n_layers)
        return parts | PART_PREDICT;
    if ((parts & PART_HYBRID) && (layer + 1) % s->attention_interval)
        return (parts & ~(PART_ATTENTION | PART_QK_NORM)) | PART_DELTA_NET;
    return parts;
}

/* Name the first size that cannot be. */
static int shape_check(const struct plan *plan, struct err *err)
{
    const struct shape *s = &plan->shape;
    const struct {
        const char *name;
        int32_t value, multiple;
        int parts; /* 0 = for all */
    } rules[] = {
        {"layers", s->n_layers, 1, 0},
        {"embd", s->n_embd, 1, 0},
        {"heads", s->n_heads, s->n_kv_heads, 0},
        {"kv-heads", s->n_kv_heads, 1, 0},
        {"head-dim", s->head_dim, plan->arch->parts & PART_GATED ? 8 : 2, 0},
        {"ctx", s->n_ctx, 1, 0},
        {"ffn", s->n_ffn, 1, 0},
        {"key-heads", s->n_key_heads, 1, PART_HYBRID},
        {"value-heads", s->n_value_heads, s->n_key_heads, PART_HYBRID},
        {"state-dim", s->state_dim, 1, PART_HYBRID},
        {"conv", s->conv_width, 1, PART_HYBRID},
        {"interval", s->attention_interval, 1, PART_HYBRID},
        {"experts-used", s->n_experts_used, 1, PART_EXPERTS},
        {"expert-ffn", s->n_ffn_expert, 1, PART_EXPERTS},
        {"shared-ffn", s->n_ffn_shared, 1, PART_SHARED_EXPERT},
    };
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++)
        if ((!rules[i].parts || (plan->arch->parts & rules[i].parts)) &&
            (rules[i].value < 1 || rules[i].multiple < 1 || rules[i].value % rules[i].multiple))
            return err_set(err, "--%s=%d: must be a positive multiple of %d", rules[i].name,
                           rules[i].value, rules[i].multiple);
    if ((plan->arch->parts & PART_EXPERTS) && s->n_experts < s->n_experts_used)
        return err_set(err, "--experts=%d: must be at least the %d used", s->n_experts,
                       s->n_experts_used);
    if (s->n_predict < 0)
        return err_set(err, "--predict=%d: must not be negative", s->n_predict);
    return 0;
}

static void tensors_add(struct maker *m)
{
    const struct plan *plan = m->plan;
    tensor_add(m, &embedding_row, -1);
    for (size_t i = 0; i < sizeof model_rows / sizeof *model_rows; i++)
        if (!model_rows[i].parts || (plan->arch->parts & model_rows[i].parts))
            tensor_add(m, &model_rows[i], -1);
    if (!plan->shape.tied)
        tensor_add(m, &output_row, -1);
    for (int layer = 0; layer < plan->shape.n_layers + plan->shape.n_predict; layer++)
        for (size_t i = 0; i < sizeof layer_rows / sizeof *layer_rows; i++)
            if (!layer_rows[i].parts || (layer_parts(plan, layer) & layer_rows[i].parts))
                tensor_add(m, &layer_rows[i], layer);
}

int plan_make(const struct shape *shape, const struct type_rule *rules, size_t n_rules,
              struct plan *out, struct err *err)
{
    struct plan plan = {.shape = *shape, .arch = arch_find(shape->arch)};
    if (!plan.arch)
        return err_set(err,
                       "--arch=%s: unknown; known: llama qwen2 qwen3 qwen3moe qwen35 qwen35moe",
                       shape->arch);
    if (shape_check(&plan, err))
        return -1;
    for (size_t i = 0; i < n_rules; i++)
        if (!pack_has(rules[i].type))
            return err_set(err, "type %s: cannot be packed", quant_find(rules[i].type)->name);
    size_t n_max =
        4 + (size_t)(shape->n_layers + shape->n_predict) * (sizeof layer_rows / sizeof *layer_rows);
    plan.tensors = malloc(n_max * sizeof *plan.tensors);
    if (!plan.tensors)
        return err_set(err, "out of memory");
    struct maker m = {.plan = &plan, .rules = rules, .n_rules = n_rules};
    dims_get(&m);
    tensors_add(&m);
    *out = plan;
    return 0;
}

void plan_free(struct plan *plan)
{
    free(plan->tensors);
    plan->tensors = NULL;
}
