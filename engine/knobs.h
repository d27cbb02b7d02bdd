/* The numeric knobs: which arithmetic a context computes with. One table row per knob; parsing,
 * messages, help and the recorded settings all come from it.
 *
 * A knob is read from the environment (NEARTIE_<NAME>) and may be set again per arm with
 * knobs_set. A value outside the allowed ones is an error, and so is a combination that one knob
 * would silently cancel (REF=1 with FAST=1 given). */
#ifndef NEARTIE_ENGINE_KNOBS_H
#define NEARTIE_ENGINE_KNOBS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct model;

enum knob {
    KNOB_FAST,
    KNOB_KV,
    KNOB_PRIME_CHUNK,
    KNOB_FA_SPLIT,
    KNOB_Q80_G2,
    KNOB_GRAPH,
    KNOB_REF,
    N_KNOBS
};

enum kv_type { KV_F16, KV_F32, KV_Q8_0 };

/* The value of each knob, by enum knob, and which of them a user has set. */
struct knobs {
    int32_t value[N_KNOBS]; /* KNOB_KV: enum kv_type; the others as written */
    bool is_set[N_KNOBS];   /* from the environment or knobs_set, not the default */
};

/* A row of the table. */
struct knob_info {
    const char *name;         /* "NEARTIE_FAST" */
    const char *default_text; /* "1" */
    const char *allowed;      /* "0 or 1", for messages and help */
    const char *help;         /* what it changes, one line */
};
extern const struct knob_info knob_table[N_KNOBS];

/* All defaults. */
void knobs_init(struct knobs *k);

/* Defaults, then the environment. On an error (which names variable, value and allowed values)
 * *k is unspecified. */
int knobs_from_env(struct knobs *k, struct err *err);

/* Set one knob by name, with or without the prefix ("FAST", "NEARTIE_FAST"). Errors: no such
 * knob; a value that is not allowed; a combination that is not. */
int knobs_set(struct knobs *k, const char *name, const char *value, struct err *err);

/* The value as text, as knobs_set would read it; returns buf. */
const char *knobs_text(const struct knobs *k, enum knob id, char *buf, size_t size);

/* "env" or "default", for the recorded settings. */
const char *knobs_source(const struct knobs *k, enum knob id);

/* Does this knob's value take part in this model's arithmetic under these knobs? NULL when it
 * does; otherwise the reason why it does not ("no Q8_0 matrix", "NEARTIE_FAST is 0"). */
const char *knobs_not_engaged(const struct knobs *k, enum knob id, const struct model *m);

#endif
