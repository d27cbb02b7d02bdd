/* What the engine tells a probe: settings, arms, sequences, every forward pass with its logits,
 * and the tokens chosen. record.c is the only file that knows shim/probe.h. Without a loaded probe
 * record_open returns NULL, which every call accepts; without hooks (--disable-hooks) the calls
 * are nothing at all. */
#ifndef NEARTIE_ENGINE_RECORD_H
#define NEARTIE_ENGINE_RECORD_H

#include "engine/forward.h"

#include <stddef.h>

struct backend;
struct err;
struct record;
struct tokenizer;

enum { RECORD_NO_ARM = -1 };

/* What a run is made of; all borrowed. */
struct record_run {
    const struct model *model;
    const struct tokenizer *tokenizer; /* NULL = none */
    const struct backend *backend;
    const struct knobs *knobs;
    int32_t n_slots; /* most sequences at a time */
};

/* Which of how many pieces of one batch a forward pass is. */
struct record_piece {
    int32_t index, n; /* index < n */
};
static const struct record_piece record_whole = {0, 1};

#if defined(PROBE_HOOKS) && PROBE_HOOKS

/* Attach to a loaded probe and give it the run's settings and vocabulary. NULL: no probe. */
struct record *record_open(const struct record_run *run);
void record_close(struct record *r);

/* Was the probe found, for reports: "compiled in, no probe loaded" and the like. */
const char *record_describe(void);

/* Declare an arm: a phase of a context; returns its number. What the context engaged becomes the
 * setting "arm LABEL". */
int32_t record_arm(struct record *r, const char *label, enum forward_phase phase,
                   const struct forward *f);

/* Slot `slot` of the context holds from now on the sequence `seq`, without tokens yet. */
void record_sequence(struct record *r, int32_t slot, int64_t seq, const char *label);

/* The slot's sequence begins anew, as after forward_seq_reset. */
void record_rewind(struct record *r, int32_t slot);

/* forward_run, recorded: as it, and with the same result. */
int record_forward(struct record *r, int32_t arm, struct record_piece piece, struct forward *f,
                   const struct forward_batch *batch, struct forward_logits *out, struct err *err);

/* Whether the kernels that are launched from now on are recorded. */
void record_kernels(struct record *r, bool on);

/* The token that was chosen after position pos of the sequence in a slot. */
void record_token(struct record *r, int32_t slot, int64_t pos, int32_t token);

#else

static inline struct record *record_open(const struct record_run *run)
{
    (void)run;
    return NULL;
}

static inline void record_close(struct record *r)
{
    (void)r;
}

static inline const char *record_describe(void)
{
    return "not compiled in";
}

static inline int32_t record_arm(struct record *r, const char *label, enum forward_phase phase,
                                 const struct forward *f)
{
    (void)r, (void)label, (void)phase, (void)f;
    return RECORD_NO_ARM;
}

static inline void record_sequence(struct record *r, int32_t slot, int64_t seq, const char *label)
{
    (void)r, (void)slot, (void)seq, (void)label;
}

static inline void record_rewind(struct record *r, int32_t slot)
{
    (void)r, (void)slot;
}

static inline int record_forward(struct record *r, int32_t arm, struct record_piece piece,
                                 struct forward *f, const struct forward_batch *batch,
                                 struct forward_logits *out, struct err *err)
{
    (void)r, (void)arm, (void)piece;
    return forward_run(f, batch, out, err);
}

static inline void record_kernels(struct record *r, bool on)
{
    (void)r, (void)on;
}

static inline void record_token(struct record *r, int32_t slot, int64_t pos, int32_t token)
{
    (void)r, (void)slot, (void)pos, (void)token;
}

#endif

#endif
