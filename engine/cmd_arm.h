/* Arms: a phase under some knobs, written "decode:FA_SPLIT=16", and the two ways in which the
 * logits of many positions come out of one. */
#ifndef NEARTIE_ENGINE_CMD_ARM_H
#define NEARTIE_ENGINE_CMD_ARM_H

#include "engine/forward.h"

#include <stddef.h>

struct err;
struct record;

struct arm {
    char label[64]; /* as given */
    enum forward_phase phase;
    struct knobs knobs;
};

/* Read "PHASE[:KNOB=VALUE...]", several apart by commas, over the given knobs. Errors: more than
 * n_max; a word that is no phase, no knob or no value of it; the same arm twice. */
int arms_parse(const char *text, const struct knobs *knobs, struct arm *arms, size_t n_max,
               size_t *out_n, struct err *err);

/* One sequence of tokens, to be computed in a slot of a context. */
struct arm_input {
    const int32_t *tokens; /* (n) */
    int32_t n;
    int32_t slot;
};

/* Where the logits of position pos go: n_vocab of them, borrowed for the call. */
typedef void (*arm_row_fn)(void *user, int32_t pos, const float *logits);

/* Compute all positions by prefill: pieces of NEARTIE_PRIME_CHUNK tokens, which is the arithmetic
 * of the whole pass at less memory. The slot must be empty. */
int arm_prefill(struct forward *f, struct record *r, int32_t id, const struct arm_input *in,
                arm_row_fn row, void *user, struct err *err);

#endif
