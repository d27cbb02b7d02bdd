#include "config.h"

#include "shim/writer.h"

#include <errno.h>
#include <inttypes.h>
#include <locale.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "shim/core.h"
#include "shim/device.h"
#include "shim/files.h"
#include "shim/identity.h"
#include "shim/gpu.h"
#include "shim/log.h"
#include "shim/ring.h"
#include "shim/tags.h"

enum {
    BATCH = 5000,           /* records of a transaction */
    COMMIT_NS = 100000000,  /* from one transaction to the next */
    TICK_NS = 10000000,     /* from one look at the ring to the next */
    IDLE_NS = 100000000,    /* the same when nothing has come for a while */
    RETRY_NS = 250000000,   /* from a failed transaction to the next attempt */
    ROTATE_NS = 2000000000, /* from a rotation that failed to the next attempt */
    DRAIN_NS = 2000000000,  /* at exit, for what is in the ring */
    STACK_BYTES = 1024 * 1024
};

struct writer {
    struct probe *p;
    struct files f;
    struct run_identity run;
    int64_t rotate_again; /* the monotonic time before which rotation is not tried */
    uint64_t n_complete;  /* no record before this one is pending */
    uint64_t n_failures;  /* times that it began to fail */
    struct err failure;   /* the last one's reason */
    int64_t last_commit, last_try, last_record;
    struct store_vocab *vocab; /* in use by the store */
    bool gone;                 /* the files are no longer ours to touch */
    struct err no_comparison;  /* why PROBE_BASELINE has no effect; "" = it has, or is not set */
};

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return t.tv_sec * INT64_C(1000000000) + t.tv_nsec;
}

static bool is_stopping(const struct writer *w)
{
    return atomic_load(&w->p->state) == STATE_STOPPING;
}

/* Let a fork pass: its child wants SQLite at rest. */
static void let_fork(struct probe *p)
{
    if (!atomic_load(&p->fork_waits))
        return;
    pthread_mutex_unlock(&p->quiet);
    while (atomic_load(&p->fork_waits))
        nanosleep(&(struct timespec){0, 50000}, NULL);
    pthread_mutex_lock(&p->quiet);
}

/* Complete the rows that a GPU has computed by now: from then on they survive the process. */
static void complete(struct writer *w)
{
    struct probe *p = w->p;
    const struct record *r;
    uint64_t n = w->n_complete > w->f.n_done ? w->n_complete : w->f.n_done;
    if (!atomic_load(&p->n_pending))
        return;
    while ((r = ring_get(&p->spool, n)) != NULL &&
           (r->kind != RECORD_PENDING || device_complete(p, spool_slot(&p->spool, n), n)))
        n++;
    w->n_complete = n;
}

static void take_vocab(struct writer *w)
{
    struct store_vocab *new = atomic_exchange(&w->p->vocab, NULL);
    if (!new)
        return;
    store_vocab(w->f.store, new);
    free(w->vocab);
    w->vocab = new;
}

/* Write up to BATCH records; *out is one past the last. */
static int put_batch(struct writer *w, uint64_t *out, struct err *err)
{
    uint64_t n = w->f.n_done, end = n + BATCH;
    struct record *r;
    for (; n < end && (r = ring_get(&w->p->spool, n)) != NULL; n++) {
        if (r->kind == RECORD_PENDING && !device_complete(w->p, r, n))
            break;
        if (tags_put(w->f.store, r, err) || store_put(w->f.store, r, err))
            return -1;
        if (n % 64 == 0)
            let_fork(w->p);
    }
    take_vocab(w); /* one that came before these rows, but after the batch was begun */
    *out = n;
    return 0;
}

static int write_batch(struct writer *w, struct err *err)
{
    uint64_t n, early = atomic_exchange(&w->p->lost_rows, 0);
    if (early) /* they came while we were opening our files */
        spool_lose(&w->p->spool, LOST_ROWS, early);
    if (!w->f.store && files_reopen(&w->f, &w->run, err))
        return -1;
    take_vocab(w);
    if (store_begin(w->f.store, err))
        return -1;
    if (put_batch(w, &n, err) || store_lost(w->f.store, w->p->spool.head->lost, err) ||
        (w->n_failures &&
         store_gap(w->f.store, "write_failed", w->n_failures, w->failure.text, err)) ||
        tags_state(w->f.store, err) || store_commit(w->f.store, n, err)) {
        store_rollback(w->f.store);
        tags_forget();
        return -1;
    }
    tags_settle();
    ring_free(&w->p->spool, n);
    w->f.n_done = n;
    return 0;
}

/* Begin a fresh database where this one is full. What goes wrong is told once; recording goes on as
 * far as it can. */
static void rotate(struct writer *w, int64_t now)
{
    struct err err;
    int64_t half = (int64_t)w->p->options.max_mb << 19;
    if (!half || now < w->rotate_again || files_bytes(&w->f) < half)
        return;
    int rc = files_rotate(&w->f, &w->run, &err);
    if (rc)
        w->rotate_again = now + ROTATE_NS;
    if (rc < 0 && !w->n_failures)
        log_line("%s", err.text);
    if (w->f.store && w->vocab)
        store_vocab(w->f.store, w->vocab);
}

/* The host has closed our descriptors: their numbers may be its own by now. */
static void give_up(struct writer *w)
{
    log_line("the host has closed the probe's files: no longer recording");
    w->gone = true;
    atomic_store(&w->p->refused, true);
}

/* One transaction if it is time for one. Returns whether there may be more to write at once. */
static bool work(struct writer *w)
{
    struct probe *p = w->p;
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    struct err err;
    bool failing = atomic_load(&p->failing);
    device_poll(p);
    complete(w);
    uint64_t used = ring_used(&p->spool), before = w->f.n_done;
    if (p->shared_files && !spool_intact(&p->spool)) {
        give_up(w);
        return false;
    }
    if (failing ? now - w->last_try < RETRY_NS
                : used < BATCH && !ring_pressing(&p->spool) && now - w->last_commit < COMMIT_NS &&
                      !is_stopping(w))
        return false;
    w->last_try = w->last_commit = now;
    if (used == 0 && !failing) {
        pthread_mutex_lock(&p->quiet);
        tags_read_images();
        pthread_mutex_unlock(&p->quiet);
        return false;
    }
    w->last_record = now;
    pthread_mutex_lock(&p->quiet);
    int rc = write_batch(w, &err);
    if (!rc)
        rotate(w, now);
    pthread_mutex_unlock(&p->quiet);
    if (rc && !failing) {
        w->failure = err;
        w->n_failures++;
        log_line("%s", err.text);
    }
    atomic_store(&p->failing, rc != 0);
    return rc == 0 && w->f.n_done - before == BATCH;
}

static void sleep_until_woken(struct writer *w)
{
    struct timespec t;
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    int64_t wake = now + (now - w->last_record > 10 * (int64_t)IDLE_NS ? IDLE_NS : TICK_NS);
    t.tv_sec = wake / 1000000000;
    t.tv_nsec = wake % 1000000000;
    atomic_store(&w->p->asleep, true);
    sem_clockwait(&w->p->wake, CLOCK_MONOTONIC, &t);
    atomic_store(&w->p->asleep, false);
}

/* Drain the ring and close it; returns whether everything is written. */
static bool drain(struct writer *w)
{
    int64_t deadline = clock_ns(CLOCK_MONOTONIC) + DRAIN_NS;
    while (!ring_close(&w->p->spool)) {
        w->last_try = 0;
        if (!work(w) && (atomic_load(&w->p->failing) || clock_ns(CLOCK_MONOTONIC) > deadline))
            return false;
        const struct record *r = ring_get(&w->p->spool, w->f.n_done);
        if (!r || r->kind == RECORD_PENDING) /* its hook, or the GPU, still fills it */
            nanosleep(&(struct timespec){0, 200000}, NULL);
    }
    return true;
}

/* Where the ring is in memory only, what is left in it is lost. */
static void count_rest(struct writer *w)
{
    struct spool *sp = &w->p->spool;
    const struct record *r;
    for (uint64_t n = w->f.n_done; (r = ring_get(sp, n)) != NULL; n++)
        spool_lose(sp,
                   r->kind == RECORD_ROW       ? LOST_ROWS
                   : r->kind == RECORD_PENDING ? LOST_DEVICE_ROWS
                   : r->kind == RECORD_FORWARD ? LOST_FORWARDS
                                               : LOST_RECORDS,
                   1);
}

/* The disk is full, or something like it: say at least what is lost. */
static void state_losses(struct writer *w)
{
    struct err err;
    if (!w->p->spool.in_file)
        count_rest(w);
    spool_yield(&w->p->spool);
    if (store_begin(w->f.store, &err) || store_lost(w->f.store, w->p->spool.head->lost, &err) ||
        store_gap(w->f.store, "write_failed", w->n_failures, w->failure.text, &err) ||
        store_commit(w->f.store, w->f.n_done, &err))
        store_rollback(w->f.store);
}

/* What was lost after the last batch. */
static int write_lost(struct writer *w, struct err *err)
{
    if (store_begin(w->f.store, err))
        return -1;
    if (!store_lost(w->f.store, w->p->spool.head->lost, err) && !tags_state(w->f.store, err) &&
        !store_commit(w->f.store, w->f.n_done, err))
        return 0;
    store_rollback(w->f.store);
    return -1;
}

/* Tell the user where the record is not whole. */
static void report(struct writer *w, bool whole)
{
    const struct spool *sp = &w->p->spool;
    uint64_t lost =
        atomic_load(&sp->head->lost[LOST_ROWS]) + atomic_load(&sp->head->lost[LOST_DEVICE_ROWS]);
    bool waits = !whole && sp->in_file && ring_used(sp);
    if (lost || waits)
        log_line("%.*s: %" PRIu64 " rows were not recorded%s",
                 (int)(strlen(sp->path) - strlen("-spool")), sp->path, lost,
                 waits ? "; others wait in the spool beside it" : "");
}

static void finish(struct writer *w)
{
    struct probe *p = w->p;
    struct err err;
    gpu_record(&p->facts, &p->spool);
    bool whole = drain(w);
    pthread_mutex_lock(&p->quiet);
    if (!w->f.store && files_reopen(&w->f, &w->run, &err)) {
        report(w, false);
        pthread_mutex_unlock(&p->quiet);
        return;
    }
    if (!whole && atomic_load(&p->failing))
        state_losses(w);
    if (whole || !p->spool.in_file)
        whole = !write_lost(w, &err) &&
                !store_run_end(w->f.store, "closed", clock_ns(CLOCK_REALTIME), &err);
    report(w, whole);
    store_close(w->f.store, whole);
    if (whole)
        spool_remove(&p->spool);
    pthread_mutex_unlock(&p->quiet);
}

/* The run to compare with; without it this one is recorded all the same. */
static void load_other(struct writer *w)
{
    struct probe *p = w->p;
    struct err err;
    if (compare_load(&p->compare, p->options.baseline, &p->tokens, &err)) {
        log_line("no comparison: %s", err.text);
        w->no_comparison = err;
        return;
    }
    memcpy(w->run.base_run_uuid, p->compare.run_uuid, sizeof w->run.base_run_uuid);
    baseline_free(p->baseline);
    p->baseline = NULL;
}

/* The files, the ring and the tables; 0, or -1 with the reason. */
static int open_all(struct writer *w, struct err *err)
{
    struct probe *p = w->p;
    const struct options *o = &p->options;
    struct run_identity *run = &w->run;
    identity_fill(run);
    if (p->tokens.hidden)
        run->argv[0] = 0; /* a prompt may stand there */
    p->recent = recent_new();
    p->baseline = o->retain_rows ? baseline_new(o->retain_rows, o->topk) : NULL;
    if (!p->recent || (o->retain_rows && !p->baseline))
        return err_set(err, "out of memory for %d rows", o->retain_rows);
    if (o->baseline[0])
        load_other(w);
    if (files_open(&w->f, o->db, (int)atomic_load(&p->generation) - 1, run,
                   record_slot_bytes(o->topk, p->compare.rows ? p->compare.k : o->topk),
                   (size_t)o->spool_mb << 20, err))
        return -1;
    p->spool = w->f.spool;
    return 0;
}

static void push_gap(struct probe *p, const char *kind, uint64_t count, const char *detail)
{
    struct record_gap gap = {.count = count};
    snprintf(gap.kind, sizeof gap.kind, "%s", kind);
    snprintf(gap.detail, sizeof gap.detail, "%s", detail);
    ring_push(&p->spool, RECORD_GAP, &gap, sizeof gap, NULL, 0);
}

static void record_option(const char *name, const char *value, const char *source)
{
    facts_setting(&probe.facts, &probe.spool, name, value, source);
}

static void *writer_main(void *arg)
{
    struct writer *w = arg;
    struct probe *p = w->p;
    struct err err;
    uselocale(newlocale(LC_ALL_MASK, "C", (locale_t)0)); /* numbers have a point */
    if (files_private())
        log_keep();
    else
        p->shared_files = true;
    store_single_thread();
    pthread_mutex_lock(&p->quiet);
    int rc = open_all(w, &err);
    pthread_mutex_unlock(&p->quiet);
    if (rc) {
        log_line("not recording: %s", err.text);
        atomic_store(&p->refused, true);
    } else {
        options_each(&p->options, record_option);
        if (w->no_comparison.text[0])
            push_gap(p, "baseline_unread", 1, w->no_comparison.text);
        if (p->compare.n_left_out)
            push_gap(p, "baseline_rows_left_out", (uint64_t)p->compare.n_left_out, "too many rows");
        facts_catch_up(&p->facts, &p->spool);
    }
    int starting = STATE_STARTING;
    atomic_compare_exchange_strong(&p->state, &starting, rc ? STATE_OFF : STATE_ON);
    sem_post(&p->started);
    while (!rc && !is_stopping(w) && !w->gone) {
        gpu_record(&p->facts, &p->spool);
        if (!work(w))
            sleep_until_woken(w);
    }
    if (!rc && !w->gone)
        finish(w);
    free(w);
    return NULL;
}

int writer_start(struct probe *p)
{
    struct writer *w = calloc(1, sizeof *w);
    pthread_attr_t attr;
    sigset_t all, old;
    if (!w)
        return ENOMEM;
    w->p = p;
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_BYTES);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    int rc = pthread_create(&p->writer, &attr, writer_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (rc)
        free(w);
    return rc;
}
