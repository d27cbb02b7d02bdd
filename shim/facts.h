/* What the engine has declared of itself: arms and settings. They are kept, so that one that found
 * the ring full is recorded later, and so that a child that goes on recording after a fork states
 * them again. Bounded; any thread. */
#ifndef NEARTIE_SHIM_FACTS_H
#define NEARTIE_SHIM_FACTS_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sql/spool.h"

enum { FACTS_ARMS = 1023, FACTS_SETTINGS = 512 };

struct fact_arm {
    struct record_arm arm;
    bool recorded;
};

struct fact_setting {
    char *name, *value; /* owned */
    char source[8];
    bool recorded;
};

struct facts {
    pthread_mutex_t lock;
    _Atomic bool behind; /* something is not recorded yet */
    int32_t n_arms, n_settings;
    struct fact_arm *arms;                 /* grows; arm number i + 1 */
    _Atomic int8_t phases[FACTS_ARMS + 1]; /* enum probe_phase, by arm number */
    struct fact_setting *settings;
};

/* Declare and record. facts_arm returns the arm's number, from 1, the same for the same label and
 * phase, or -1 where there are too many. Labels and names beyond their room are cut. */
int32_t facts_arm(struct facts *f, struct spool *sp, const char *label, uint32_t phase,
                  const char *cls);
void facts_setting(struct facts *f, struct spool *sp, const char *name, const char *value,
                   const char *source);

/* Record what is not recorded yet. */
void facts_catch_up(struct facts *f, struct spool *sp);

/* In the child of a fork: nothing is recorded there yet. */
void facts_forked(struct facts *f);

#endif
