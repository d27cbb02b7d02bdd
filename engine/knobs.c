#include "config.h"
#include "engine/knobs.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "engine/model.h"
#include "err.h"
#include "kernels/quant.h"

#define PREFIX "NEARTIE_"

const struct knob_info knob_table[N_KNOBS] = {
    [KNOB_FAST] = {PREFIX "FAST", "1", "0 or 1",
                   "1: vector instructions and 8-bit dot products; 0: float reference arithmetic"},
    [KNOB_KV] = {PREFIX "KV", "f16; f32 where FAST=0 or REF=1", "f16, f32 or q8_0",
                 "element type of the KV cache"},
    [KNOB_PRIME_CHUNK] = {PREFIX "PRIME_CHUNK", "0", "tokens, 0 = the whole prompt",
                          "tokens of a prompt that are computed together"},
    [KNOB_FA_SPLIT] = {PREFIX "FA_SPLIT", "0", "1 to 1024, 0 = by the context's length",
                       "parts that decode attention reads the cache in, and adds up in order"},
    [KNOB_Q80_G2] = {PREFIX "Q80_G2", "0", "0 or 1",
                     "Q8_0 matrix-vector products: two blocks per lane, so another order"},
    [KNOB_GRAPH] = {PREFIX "GRAPH", "1", "0 or 1",
                    "CUDA: a step of decode is replayed as one graph; changes no result"},
    [KNOB_REF] = {PREFIX "REF", "0", "0 or 1", "float64 accumulation in every operator"},
};

/* What a value may be; a knob of words has no bounds. */
static const struct rule {
    const char *words[4];
    int32_t min, max;
} rules[N_KNOBS] = {
    [KNOB_FAST] = {.max = 1},
    [KNOB_KV] = {.words = {[KV_F16] = "f16", [KV_F32] = "f32", [KV_Q8_0] = "q8_0"}},
    [KNOB_PRIME_CHUNK] = {.max = INT32_MAX},
    [KNOB_FA_SPLIT] = {.max = 1024},
    [KNOB_Q80_G2] = {.max = 1},
    [KNOB_GRAPH] = {.max = 1},
    [KNOB_REF] = {.max = 1},
};

/* Defaults that are not 0. Some hang on another knob: the reference arithmetics keep their cache in
 * float. */
static void knobs_derive(struct knobs *k)
{
    if (!k->is_set[KNOB_GRAPH])
        k->value[KNOB_GRAPH] = 1;
    if (!k->is_set[KNOB_FAST])
        k->value[KNOB_FAST] = !k->value[KNOB_REF];
    if (!k->is_set[KNOB_KV])
        k->value[KNOB_KV] = k->value[KNOB_FAST] ? KV_F16 : KV_F32;
}

void knobs_init(struct knobs *k)
{
    *k = (struct knobs){0};
    knobs_derive(k);
}

static int value_parse(enum knob id, const char *text, int32_t *out)
{
    const struct rule *rule = &rules[id];
    for (int32_t i = 0; rule->words[0] && rule->words[i]; i++)
        if (!strcmp(text, rule->words[i])) {
            *out = i;
            return 0;
        }
    char *end;
    errno = 0;
    long value = strtol(text, &end, 10);
    if (rule->words[0] || end == text || *end || errno || value < rule->min || value > rule->max)
        return -1;
    *out = (int32_t)value;
    return 0;
}

/* A knob that another one would cancel is refused, not ignored. */
static int knobs_check(const struct knobs *k, struct err *err)
{
    if (k->value[KNOB_REF] && k->value[KNOB_FAST])
        return err_set(err, PREFIX "REF=1: cannot be combined with " PREFIX "FAST=1");
    if (k->value[KNOB_Q80_G2] && !k->value[KNOB_FAST])
        return err_set(err, PREFIX "Q80_G2=1: needs " PREFIX "FAST=1, got %s",
                       k->value[KNOB_REF] ? PREFIX "REF=1" : PREFIX "FAST=0");
    return 0;
}

static int knob_set(struct knobs *k, enum knob id, const char *text, struct err *err)
{
    if (value_parse(id, text, &k->value[id]) < 0)
        return err_set(err, "%s=%s: not allowed; allowed: %s", knob_table[id].name, text,
                       knob_table[id].allowed);
    k->is_set[id] = true;
    knobs_derive(k);
    return 0;
}

int knobs_from_env(struct knobs *k, struct err *err)
{
    knobs_init(k);
    for (int id = 0; id < N_KNOBS; id++) {
        const char *text = getenv(knob_table[id].name);
        if (text && knob_set(k, (enum knob)id, text, err) < 0)
            return -1;
    }
    return knobs_check(k, err);
}

int knobs_set(struct knobs *k, const char *name, const char *value, struct err *err)
{
    for (int id = 0; id < N_KNOBS; id++) {
        const char *full = knob_table[id].name;
        if (strcmp(name, full) && strcmp(name, full + strlen(PREFIX)))
            continue;
        struct knobs changed = *k;
        if (knob_set(&changed, (enum knob)id, value, err) < 0 || knobs_check(&changed, err) < 0)
            return -1;
        *k = changed;
        return 0;
    }
    return err_set(err, "%s: no such knob", name);
}

const char *knobs_text(const struct knobs *k, enum knob id, char *buf, size_t size)
{
    if (rules[id].words[0])
        snprintf(buf, size, "%s", rules[id].words[k->value[id]]);
    else
        snprintf(buf, size, "%d", k->value[id]);
    return buf;
}

const char *knobs_source(const struct knobs *k, enum knob id)
{
    return k->is_set[id] ? "env" : "default";
}

const char *knobs_not_engaged(const struct knobs *k, enum knob id, const struct model *m)
{
    switch (id) {
    case KNOB_FAST:
        return k->value[KNOB_REF] ? PREFIX "REF is 1" : NULL;
    case KNOB_KV:
    case KNOB_FA_SPLIT:
        return model_has_mixer(m, MIXER_ATTENTION) || model_has_mixer(m, MIXER_GATED_ATTENTION)
                   ? NULL
                   : "no attention layer";
    case KNOB_Q80_G2:
        if (!k->value[KNOB_FAST])
            return PREFIX "FAST is 0";
        return model_has_type(m, QUANT_Q8_0) ? NULL : "no Q8_0 matrix";
    default:
        return NULL;
    }
}
