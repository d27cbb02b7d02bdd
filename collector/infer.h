/* What a record says of how two arms may differ: the class of difference where the user names none,
 * whether a control differs in the same thing, and the prefill chunk. Every answer comes with the
 * reason that a report prints. */
#ifndef NEARTIE_COLLECTOR_INFER_H
#define NEARTIE_COLLECTOR_INFER_H

#include "collector/floor.h"
#include "collector/load.h"

/* Facts of one arm; "" where unknown. */
struct arm_facts {
    char cls[16]; /* as the engine declared it */
    char run[33]; /* its uuid */
    char phase[16], engine[128], model_hash[80], model[256], dtype[8], kv[16];
    int chunk; /* 0 = whole prompt, or unknown */
};

int infer_facts(const struct load_side *side, struct arm_facts *out, struct err *err);

/* Two arms in words that name the same pair in any file: "1f6c0e2a:prefill and 1f6c0e2a:decode",
 * the first digits of each run's uuid and the arm's label. */
enum { INFER_PAIR_SIZE = 160 };
void infer_name_pair(const struct load_side *a, const struct arm_facts *facts_a,
                     const struct load_side *b, const struct arm_facts *facts_b,
                     char out[INFER_PAIR_SIZE]);

/* The class of the pair; why: "both arms say precision". */
enum floor_class infer_class(const struct arm_facts *a, const struct arm_facts *b, char *why,
                             size_t size);

/* Whether (c, d) is a control of the same kind as (a, b): the same two phases, of the same model.
 */
bool infer_same_kind(const struct arm_facts *a, const struct arm_facts *b,
                     const struct arm_facts *c, const struct arm_facts *d);

#endif
