#include "config.h"

#include "shim/core.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "shim/log.h"
#include "shim/ring.h"
#include "shim/tags.h"
#include "shim/writer.h"

enum {
    START_S = 10,       /* a hook waits this long for the files to open */
    STOP_S = 5,         /* exit waits this long for the writer */
    FORK_NS = 500000000 /* a fork waits this long for each lock */
};

struct probe probe = {
    .start = PTHREAD_MUTEX_INITIALIZER,
    .quiet = PTHREAD_MUTEX_INITIALIZER,
    .facts.lock = PTHREAD_MUTEX_INITIALIZER,
};

/* The thread is within a hook. */
static __thread __attribute__((tls_model("initial-exec"))) bool inside;

static struct timespec after(int64_t ns)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    ns += t.tv_nsec;
    return (struct timespec){t.tv_sec + ns / 1000000000, ns % 1000000000};
}

/* Fork: the child must find SQLite and our lists at rest, or else leave them alone. */
static struct {
    bool start, facts, quiet;
} held;

static bool lock_for_fork(pthread_mutex_t *m)
{
    struct timespec deadline = after(FORK_NS);
    return !pthread_mutex_timedlock(m, &deadline);
}

static void before_fork(void)
{
    int kept = errno;
    held.start = lock_for_fork(&probe.start);
    held.facts = lock_for_fork(&probe.facts.lock);
    atomic_store(&probe.fork_waits, true);
    held.quiet = lock_for_fork(&probe.quiet);
    errno = kept;
}

static void after_fork_in_parent(void)
{
    atomic_store(&probe.fork_waits, false);
    if (held.quiet)
        pthread_mutex_unlock(&probe.quiet);
    if (held.facts)
        pthread_mutex_unlock(&probe.facts.lock);
    if (held.start)
        pthread_mutex_unlock(&probe.start);
}

static void unlock_in_child(pthread_mutex_t *m, bool is_held)
{
    if (is_held)
        pthread_mutex_unlock(m);
    else
        pthread_mutex_init(m, NULL);
}

/* The recording is the parent's: its files are left alone, its memory is never freed. */
static void after_fork_in_child(void)
{
    bool rest = held.start && held.facts && held.quiet;
    atomic_store(&probe.fork_waits, false);
    unlock_in_child(&probe.quiet, held.quiet);
    unlock_in_child(&probe.facts.lock, held.facts);
    unlock_in_child(&probe.start, held.start);
    tags_forked();
    if (atomic_load(&probe.state) == STATE_OFF)
        return;
    facts_forked(&probe.facts);
    if (probe.shared_files && probe.spool.fd >= 0)
        close(probe.spool.fd); /* else the lock would outlive the parent */
    probe.spool.fd = -1;
    atomic_store(&probe.refused, !rest);
    atomic_store(&probe.state, rest ? STATE_FORKED : STATE_OFF);
}

static void bad_option(const char *message)
{
    log_line("%s", message);
}

static void prepare(struct probe *p)
{
    if (atomic_fetch_add(&p->generation, 1) == 0) {
        const char *log = getenv("PROBE_LOG");
        if (log && *log)
            log_set(log, true); /* what is wrong with the options goes there already */
        options_load(&p->options, bad_option);
        log_set(p->options.log, getenv("PROBE_LOG") != NULL);
        tokens_init(&p->tokens, p->options.tokens == TOKENS_HASH, p->options.tokens_key);
        pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
    }
    atomic_store(&p->lost_rows, 0);
    atomic_store(&p->n_pending, 0);
    atomic_store(&p->n_forwards, 0);
    atomic_store(&p->n_rows, 0);
    atomic_store(&p->failing, false);
    sem_init(&p->started, 0, 0);
    sem_init(&p->wake, 0, 0);
}

/* A limit on the host's address space is for the host: spool, stack and heap of the writer take
 * some 110 MB of it, and the host must not be the one that finds nothing left. */
static bool has_room(void)
{
    enum { ROOM_MB = 256 };
    struct rlimit limit;
    char text[64] = "";
    if (getrlimit(RLIMIT_AS, &limit) || limit.rlim_cur == RLIM_INFINITY)
        return true;
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    ssize_t n = read(fd, text, sizeof text - 1);
    close(fd);
    long long used = n > 0 ? strtoll(text, NULL, 10) * sysconf(_SC_PAGESIZE) : 0;
    long long left = ((long long)limit.rlim_cur - used) >> 20;
    if (left >= ROOM_MB)
        return true;
    log_line("not recording: %lld MB of address space are left to the program, %d are needed", left,
             ROOM_MB);
    return false;
}

static void start(struct probe *p)
{
    int state = atomic_load(&p->state);
    if ((state != STATE_OFF && state != STATE_FORKED) || atomic_load(&p->refused))
        return;
    prepare(p);
    if (!has_room()) {
        atomic_store(&p->refused, true);
        return;
    }
    atomic_store(&p->state, STATE_STARTING);
    int rc = writer_start(p);
    if (rc) {
        log_line("not recording: no thread: error %d", rc);
        atomic_store(&p->refused, true);
        atomic_store(&p->state, STATE_OFF);
        return;
    }
    struct timespec deadline = after(START_S * INT64_C(1000000000));
    while (sem_timedwait(&p->started, &deadline) && errno == EINTR)
        ;
    if (atomic_load(&p->refused))
        pthread_join(p->writer, NULL); /* it has nothing left to do */
}

bool probe_enter(struct gate *g)
{
    int state = atomic_load_explicit(&probe.state, memory_order_acquire);
    g->errno_kept = errno;
    if (inside || state == STATE_STOPPING ||
        atomic_load_explicit(&probe.refused, memory_order_relaxed))
        return false;
    inside = true;
    if (state != STATE_ON) {
        pthread_mutex_lock(&probe.start);
        start(&probe);
        pthread_mutex_unlock(&probe.start);
        if (atomic_load(&probe.state) != STATE_ON) {
            probe_leave(g);
            return false;
        }
    }
    return true;
}

void probe_leave(const struct gate *g)
{
    log_flush();
    inside = false;
    errno = g->errno_kept;
}

bool probe_inside(void)
{
    return inside;
}

void probe_nudge(void)
{
    if (ring_pressing(&probe.spool) && atomic_exchange(&probe.asleep, false))
        sem_post(&probe.wake);
}

struct record *probe_reserve(uint64_t *n)
{
    struct probe *p = &probe;
    struct record *r = ring_reserve(&p->spool, n);
    while (!r && p->options.on_full == ON_FULL_BLOCK && !atomic_load(&p->failing) &&
           atomic_load(&p->state) == STATE_ON) {
        probe_nudge();
        nanosleep(&(struct timespec){0, 100000}, NULL);
        r = ring_reserve(&p->spool, n);
    }
    return r;
}

bool probe_push(enum record_kind kind, const void *body, size_t n_bytes)
{
    uint64_t n;
    struct record *r = probe_reserve(&n);
    if (!r)
        return false;
    memcpy(r->body, body, n_bytes);
    ring_publish(r, n, kind, n_bytes);
    return true;
}

/* All that happens at load time: nothing, unless somebody asks for the settings. */
__attribute__((constructor)) static void help(void)
{
    if (getenv("PROBE_HELP"))
        options_help();
}

/* exit() comes here; _exit, abort and signals do not: then the spool tells the rest. */
__attribute__((destructor)) static void stop(void)
{
    int on = STATE_ON;
    tags_stop();
    if (atomic_compare_exchange_strong(&probe.state, &on, STATE_STOPPING)) {
        struct timespec deadline = after(STOP_S * INT64_C(1000000000));
        sem_post(&probe.wake);
        pthread_timedjoin_np(probe.writer, NULL, &deadline);
    }
    uint64_t lost = atomic_load(&probe.lost_rows);
    if (lost)
        log_line("%" PRIu64 " rows were not recorded", lost);
    log_flush();
}
