/* The one struct probe, its states and its gate. core.c owns the transitions: the first hook
 * starts the recording, exit stops it, a fork leaves the child with none. hooks.c is the function
 * table, rows.c the way of a logits row, writer.c the thread behind it. */
#ifndef NEARTIE_SHIM_CORE_H
#define NEARTIE_SHIM_CORE_H

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/baseline.h"
#include "shim/compare.h"
#include "shim/facts.h"
#include "shim/options.h"
#include "shim/recent.h"
#include "shim/tokens.h"
#include "sql/spool.h"
#include "sql/store.h"

enum state {
    STATE_OFF,      /* no hook has been called yet; or refused, and then for good */
    STATE_STARTING, /* the writer is opening its files */
    STATE_ON,
    STATE_STOPPING, /* the process exits: the writer drains the ring */
    STATE_FORKED /* the child of a recording process: the next hook starts a recording of its own */
};

struct probe {
    _Atomic int state;           /* enum state */
    _Atomic bool refused;        /* it could not start: hooks only count what is lost */
    struct options options;      /* read once, at the first start */
    struct tokens tokens;        /* what token ids look like on disk */
    _Atomic uint32_t generation; /* recordings in this process and those it was forked from */

    struct spool spool;        /* the ring; made by the writer before it reports that it is on */
    struct baseline *baseline; /* NULL: PROBE_RETAIN_ROWS is 0, or there is another run: */
    struct compare compare;
    struct recent *recent;
    struct facts facts;                  /* arms and settings, as declared */
    _Atomic uint64_t n_seen;             /* forwards, recorded or not */
    _Atomic uint64_t n_forwards, n_rows; /* ids given out */
    _Atomic uint64_t lost_rows;          /* that came when there was no ring */
    _Atomic uint32_t n_pending;          /* rows in the ring whose results the GPU still owes */

    _Atomic bool failing; /* the writer cannot write at present: do not wait for it */
    _Atomic(struct store_vocab *) vocab; /* for the writer to take over; owned */

    pthread_mutex_t start; /* held while a thread starts the recording */
    pthread_mutex_t quiet; /* held by the writer while it is inside SQLite; by fork */
    _Atomic bool fork_waits;
    bool shared_files; /* the writer has no file table of its own */
    pthread_t writer;
    sem_t started; /* posted once when the state has left STATE_STARTING */
    sem_t wake;    /* wakes the writer before its time */
    _Atomic bool asleep;
};

extern struct probe probe;

/* The gate: whether the hook that calls may record; then probe_leave must follow. It starts the
 * recording at need. A hook that was called from within a hook of its own thread may not. errno is
 * kept from enter to leave. */
struct gate {
    int errno_kept;
};
bool probe_enter(struct gate *g);
void probe_leave(const struct gate *g);

/* Whether the calling thread is in a hook. */
bool probe_inside(void);

/* Within the gate: reserve a slot of the ring, or copy a record in. A full ring refuses (NULL,
 * false), or, where PROBE_ON_FULL is block, holds the caller while the writer gets on. */
struct record *probe_reserve(uint64_t *n);
bool probe_push(enum record_kind kind, const void *body, size_t n_bytes);

/* Wake the writer where the ring is filling and it sleeps. */
void probe_nudge(void);

#endif
