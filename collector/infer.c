#include "config.h"

#include "collector/infer.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

static void copy(char *out, size_t size, const char *text)
{
    snprintf(out, size, "%s", text ? text : "");
}

int infer_facts(const struct load_side *side, struct arm_facts *out, struct err *err)
{
    struct query *query;
    *out = (struct arm_facts){.chunk = 0};
    if (db_query(side->db, &query, "arm_facts", err))
        return -1;
    query_bind_int(query, ":arm_id", side->arm->arm_id);
    int rc = query_step(query, err);
    if (rc > 0) {
        copy(out->cls, sizeof out->cls, query_text(query, "class"));
        copy(out->run, sizeof out->run, query_text(query, "run"));
        copy(out->phase, sizeof out->phase, query_text(query, "phase"));
        copy(out->engine, sizeof out->engine, query_text(query, "engine"));
        copy(out->model_hash, sizeof out->model_hash, query_text(query, "model_hash"));
        copy(out->model, sizeof out->model, query_text(query, "model"));
        copy(out->dtype, sizeof out->dtype, query_text(query, "dtype"));
        copy(out->kv, sizeof out->kv, query_text(query, "kv"));
        out->chunk = (int)query_int(query, "chunk");
    }
    query_free(query);
    return rc < 0 ? -1 : 0;
}

void infer_name_pair(const struct load_side *a, const struct arm_facts *facts_a,
                     const struct load_side *b, const struct arm_facts *facts_b,
                     char out[INFER_PAIR_SIZE])
{
    snprintf(out, INFER_PAIR_SIZE, "%.8s:%.60s and %.8s:%.60s", facts_a->run, a->arm->label,
             facts_b->run, b->arm->label);
}

static bool differ(const char *a, const char *b)
{
    return a[0] && b[0] && strcmp(a, b);
}

static bool either(const char *a, const char *b, const char *word)
{
    return !strcmp(a, word) || !strcmp(b, word);
}

/* The file name of a model of 4-bit weights says so, in every naming scheme in use. */
static bool is_4bit(const char *model)
{
    static const char *const words[] = {"q4",   "iq4", "nvfp4", "mxfp4",
                                        "int4", "w4a", "awq",   "gptq"};
    const char *name = strrchr(model, '/');
    name = name ? name + 1 : model;
    for (size_t i = 0; i < sizeof words / sizeof *words; i++)
        if (strcasestr(name, words[i]))
            return true;
    return false;
}

/* Two models: the coarser weights give the noise. */
static enum floor_class weights_class(const struct arm_facts *a, const struct arm_facts *b)
{
    if (is_4bit(a->model) || is_4bit(b->model))
        return FLOOR_WEIGHTS_Q4;
    if (strcasestr(a->model, "q6") || strcasestr(b->model, "q6"))
        return FLOOR_WEIGHTS_Q6;
    return FLOOR_WEIGHTS_Q8;
}

static enum floor_class reassoc_class(const struct arm_facts *a, const struct arm_facts *b,
                                      const char **why)
{
    if (either(a->dtype, b->dtype, "bf16"))
        return *why = "logits are bf16", FLOOR_REASSOC_BF16_HEAD;
    if (either(a->dtype, b->dtype, "f16"))
        return *why = "logits are f16", FLOOR_REASSOC_F16;
    if (either(a->kv, b->kv, "f16"))
        return *why = "the key and value cache is f16", FLOOR_REASSOC_F16;
    if (!strcmp(a->kv, "f32") && !strcmp(b->kv, "f32"))
        return *why = "logits and cache are f32", FLOOR_REASSOC_F32;
    return *why = "logits are f32, what lies before them is not known", FLOOR_REASSOC_BF16;
}

enum floor_class infer_class(const struct arm_facts *a, const struct arm_facts *b, char *why,
                             size_t size)
{
    const char *because;
    if (differ(a->model_hash, b->model_hash))
        return snprintf(why, size, "the runs have other weights"), weights_class(a, b);
    if (!strcmp(a->cls, "bitwise") && !strcmp(b->cls, "bitwise"))
        return snprintf(why, size, "both arms say bitwise"), FLOOR_BITWISE;
    if (differ(a->engine, b->engine) || either(a->cls, b->cls, "engine"))
        return snprintf(why, size, "the runs have other engines"), FLOOR_ENGINE;
    if (either(a->cls, b->cls, "weights"))
        return snprintf(why, size, "an arm says weights"), weights_class(a, b);
    if (is_4bit(a->model) || is_4bit(b->model))
        return snprintf(why, size, "the model's name says 4-bit weights"), FLOOR_W4;
    if (either(a->cls, b->cls, "precision"))
        return snprintf(why, size, "an arm says precision"), FLOOR_PRECISION;
    enum floor_class cls = reassoc_class(a, b, &because);
    snprintf(why, size, "%s", because);
    return cls;
}

bool infer_same_kind(const struct arm_facts *a, const struct arm_facts *b,
                     const struct arm_facts *c, const struct arm_facts *d)
{
    bool straight = !strcmp(a->phase, c->phase) && !strcmp(b->phase, d->phase);
    bool crossed = !strcmp(a->phase, d->phase) && !strcmp(b->phase, c->phase);
    return strcmp(a->phase, b->phase) && (straight || crossed) &&
           !differ(a->model_hash, c->model_hash) && !differ(b->model_hash, d->model_hash);
}
