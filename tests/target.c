/* A small host of the probe: it calls the hooks as an engine does, then leaves in one of many ways.
 * What it prints and its exit status must not depend on whether a probe is loaded.
 *   target MODE [N]    N: how many rows, 100 by default */
#include "config.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "shim/probe.h"

enum { N_VOCAB = 500, N_THREADS = 8 };

static const struct probe_ops *ops;
static char *self;

/* A logit that depends on nothing but its place. */
static float logit_at(int64_t seq, int64_t pos, int32_t arm, int32_t id)
{
    uint64_t x = (uint64_t)seq * 7919 + (uint64_t)pos * 104729 + (uint64_t)id * 1299709 + 12345;
    x ^= x >> 13;
    x *= 0x9e3779b97f4a7c15u;
    return (float)(x >> 40) / 1048576.0f - 8 + (float)arm * 1e-4f;
}

static int32_t declare(void)
{
    if (!ops)
        return -1;
    ops->run_setting("engine", "target 1", "api");
    return ops->arm("decode", PROBE_DECODE, NULL);
}

/* Rows from ... to - 1 of a sequence, one forward each; returns a digest of what was computed. */
static uint64_t record(int32_t arm, int64_t seq, int64_t from, int64_t to, _Atomic int64_t *done)
{
    float logits[N_VOCAB];
    uint64_t digest = 0, hash = 0;
    for (int64_t pos = from; pos < to; pos++) {
        int32_t token = (int32_t)(pos * 31 % N_VOCAB), best = 0;
        for (int32_t i = 0; i < N_VOCAB; i++)
            logits[i] = logit_at(seq, pos, 0, i);
        for (int32_t i = 1; i < N_VOCAB; i++)
            best = logits[i] > logits[best] ? i : best;
        digest = digest * 31 + (uint64_t)best;
        if (!ops)
            continue;
        hash = ops->context_hash(hash, &token, 1);
        struct probe_row row = {hash, seq, pos, token, 0};
        uint64_t f = ops->forward_begin(
            &(struct probe_forward){sizeof(struct probe_forward), arm, 1, 1, pos, 0, 1});
        ops->logits(f, &(struct probe_logits){sizeof(struct probe_logits), PROBE_HOST, PROBE_F32, 1,
                                              N_VOCAB, N_VOCAB, logits, NULL, &row});
        ops->forward_end(f);
        ops->token(seq, pos, best);
        if (done)
            atomic_store(done, pos + 1);
    }
    return digest;
}

static void report(const char *who, uint64_t digest)
{
    printf("%s %016llx errno %d\n", who, (unsigned long long)digest, errno);
    fflush(stdout);
}

static int mode_rows(int64_t n)
{
    errno = 77;
    report("rows", record(declare(), 0, 0, n, NULL));
    return 3;
}

/* Asks for the table and calls nothing. */
static int mode_idle(int64_t n)
{
    (void)n;
    puts("idle");
    return 0;
}

static int mode_underscore_exit(int64_t n)
{
    mode_rows(n);
    _exit(4);
}

static int mode_abort(int64_t n)
{
    mode_rows(n);
    abort();
}

static int mode_quick_exit(int64_t n)
{
    mode_rows(n);
    quick_exit(5);
}

static void wait_for(pid_t child)
{
    int status;
    if (waitpid(child, &status, 0) == child)
        printf("child: %s %d\n", WIFEXITED(status) ? "exit" : "signal",
               WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

/* The child goes on as an engine of its own; the parent too. */
static int mode_fork(int64_t n)
{
    int32_t arm = declare();
    report("before", record(arm, 0, 0, n, NULL));
    pid_t child = fork();
    if (child == 0) {
        report("child", record(arm, 1, 0, n / 2, NULL));
        exit(6);
    }
    wait_for(child);
    report("after", record(arm, 0, n, 2 * n, NULL));
    return 0;
}

/* The child calls no hook, and leaves by exit(). */
static int mode_fork_idle(int64_t n)
{
    int32_t arm = declare();
    report("before", record(arm, 0, 0, n, NULL));
    pid_t child = fork();
    if (child == 0)
        exit(7);
    wait_for(child);
    report("after", record(arm, 0, n, 2 * n, NULL));
    return 0;
}

/* A daemon's way: the parent leaves at once, the child works. */
static int mode_daemon(int64_t n)
{
    int32_t arm = declare();
    int ends[2];
    char c;
    report("before", record(arm, 0, 0, n, NULL));
    if (pipe(ends))
        return 1;
    if (fork() == 0) {
        close(ends[0]);
        report("child", record(arm, 1, 0, n, NULL));
        exit(0);
    }
    close(ends[1]);
    while (read(ends[0], &c, 1) > 0) /* until the child's end closes: when it is gone */
        ;
    _exit(0);
}

static int mode_exec(int64_t n)
{
    char count[24];
    mode_rows(n);
    snprintf(count, sizeof count, "%lld", (long long)(n / 2));
    execl(self, self, "rows", count, (char *)NULL);
    return 1;
}

/* Forks while other threads record. */
static _Atomic bool stop_threads;
static int32_t threads_arm;

static void *thread_main(void *arg)
{
    int64_t seq = (int64_t)(intptr_t)arg;
    for (int64_t pos = 0; !atomic_load(&stop_threads); pos += 10)
        record(threads_arm, seq, pos, pos + 10, NULL);
    return NULL;
}

static int mode_fork_busy(int64_t n)
{
    pthread_t threads[N_THREADS];
    threads_arm = declare();
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&threads[i], NULL, thread_main, (void *)(intptr_t)(i + 1));
    for (int i = 0; i < 10; i++) {
        pid_t child = fork();
        if (child == 0) {
            record(threads_arm, 100 + i, 0, n, NULL);
            exit(i);
        }
        wait_for(child);
    }
    atomic_store(&stop_threads, true);
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    return 0;
}

static void *thread_rows(void *arg)
{
    struct {
        int64_t seq, n;
    } *job = arg;
    int32_t arm = !ops ? -1 : job->seq % 2 ? ops->arm("verify", PROBE_VERIFY, NULL) : threads_arm;
    record(arm, job->seq, 0, job->n, NULL);
    return NULL;
}

/* Every thread has the same contexts, every second one in another arm. */
static int mode_threads(int64_t n)
{
    pthread_t threads[N_THREADS];
    struct {
        int64_t seq, n;
    } jobs[N_THREADS];
    threads_arm = declare();
    for (int i = 0; i < N_THREADS; i++) {
        jobs[i].seq = i;
        jobs[i].n = n;
        pthread_create(&threads[i], NULL, thread_rows, &jobs[i]);
    }
    for (int i = 0; i < N_THREADS; i++)
        pthread_join(threads[i], NULL);
    puts("threads");
    return 0;
}

/* Leaves by exit() while threads record. */
static int mode_exit_busy(int64_t n)
{
    pthread_t thread;
    (void)n;
    threads_arm = declare();
    for (int i = 0; i < N_THREADS; i++)
        pthread_create(&thread, NULL, thread_main, (void *)(intptr_t)i);
    usleep(200000);
    puts("leaving");
    exit(9);
}

/* Closes every descriptor as a daemon does, opens files of its own, and goes on. */
static int mode_close_all(int64_t n)
{
    int32_t arm = declare();
    report("before", record(arm, 0, 0, n, NULL));
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    char name[] = "own-file-0";
    for (int i = 0; i < 8; i++) {
        name[9] = (char)('0' + i);
        printf("descriptor %d\n", open(name, O_RDWR | O_CREAT | O_TRUNC, 0600));
    }
    report("after", record(arm, 0, n, 2 * n, NULL));
    return 0;
}

/* Changes its folder after it has begun. */
static int mode_chdir(int64_t n)
{
    int32_t arm = declare();
    report("before", record(arm, 0, 0, n, NULL));
    if (chdir("/"))
        return 1;
    report("after", record(arm, 0, n, 2 * n, NULL));
    return 0;
}

/* Until it is killed, n rows are done or the file "stop" is there; the number of rows whose hook
 * has returned stands in the file "progress". With a second arm, each was recorded in that before.
 */
static int endless(int64_t n, bool two_arms)
{
    int fd = open("progress", O_RDWR | O_CREAT | O_TRUNC, 0600);
    if (fd < 0 || ftruncate(fd, 4096))
        return 1;
    _Atomic int64_t *done = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (done == MAP_FAILED)
        return 1;
    int32_t arm = declare(), other = two_arms ? ops->arm("prefill", PROBE_PREFILL, NULL) : -1;
    for (int64_t pos = 0; pos < n && access("stop", F_OK); pos += 1000) {
        if (two_arms)
            record(other, 1, pos, pos + 1000, NULL);
        record(arm, 0, pos, pos + 1000, done);
    }
    return 0;
}

static int mode_endless(int64_t n)
{
    return endless(n, false);
}

static int mode_endless_arms(int64_t n)
{
    return endless(n, ops != NULL);
}

/* KiB of memory in use. */
static long resident(void)
{
    char line[200];
    long kib = 0;
    FILE *f = fopen("/proc/self/status", "r");
    while (f && fgets(line, sizeof line, f))
        if (sscanf(line, "VmRSS: %ld", &kib) == 1)
            break;
    if (f)
        fclose(f);
    return kib;
}

/* Sleep until n rows are due at a rate of rows a second, counted from *start; 0 = at once. */
static void keep_pace(struct timespec *start, int64_t n, int64_t rate)
{
    if (!rate)
        return;
    if (!n)
        clock_gettime(CLOCK_MONOTONIC, start);
    int64_t ns = start->tv_nsec + n % rate * 1000000000 / rate;
    struct timespec due = {start->tv_sec + n / rate + ns / 1000000000, ns % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL);
}

/* n rows of few columns, a thousand to a forward, FLOOD_RATE of them a second or as fast as they
 * go; how much memory was in use after a tenth of them, and at the end, goes to "memory". */
static int mode_flood(int64_t n)
{
    enum { ROWS = 1000, COLUMNS = 8 };
    static float logits[ROWS][COLUMNS];
    static struct probe_row rows[ROWS];
    const char *rate = getenv("FLOOD_RATE");
    struct timespec start;
    long early = 0;
    int32_t arm = declare();
    for (int64_t pos = 0; ops && pos < n; pos += ROWS) {
        keep_pace(&start, pos, rate ? atoll(rate) : 0);
        for (int i = 0; i < ROWS; i++) {
            logits[i][pos % COLUMNS] = (float)(i + pos % 1000);
            rows[i] =
                (struct probe_row){(uint64_t)(pos + i) % 100000 + 1, pos / 100000, pos + i, 0, i};
        }
        uint64_t f = ops->forward_begin(
            &(struct probe_forward){sizeof(struct probe_forward), arm, ROWS, 1, pos, 0, 1});
        ops->logits(f, &(struct probe_logits){sizeof(struct probe_logits), PROBE_HOST, PROBE_F32,
                                              ROWS, COLUMNS, COLUMNS, logits, NULL, rows});
        ops->forward_end(f);
        if (pos == n / 10 / ROWS * ROWS)
            early = resident();
    }
    FILE *out = fopen("memory", "w");
    if (!out)
        return 1;
    fprintf(out, "%ld %ld\n", early, resident());
    return fclose(out) != 0;
}

static const struct {
    const char *name;
    int (*run)(int64_t n);
} modes[] = {
    {"rows", mode_rows},
    {"idle", mode_idle},
    {"_exit", mode_underscore_exit},
    {"abort", mode_abort},
    {"quick_exit", mode_quick_exit},
    {"fork", mode_fork},
    {"fork_idle", mode_fork_idle},
    {"fork_busy", mode_fork_busy},
    {"daemon", mode_daemon},
    {"exec", mode_exec},
    {"threads", mode_threads},
    {"exit_busy", mode_exit_busy},
    {"close_all", mode_close_all},
    {"chdir", mode_chdir},
    {"endless", mode_endless},
    {"endless_arms", mode_endless_arms},
    {"flood", mode_flood},
};

int main(int argc, char **argv)
{
    self = argv[0];
    ops = probe_attach();
    int64_t n = argc > 2 ? atoll(argv[2]) : 100;
    for (size_t i = 0; argc > 1 && i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(argv[1], modes[i].name))
            return modes[i].run(n);
    fprintf(stderr, "usage: target MODE [N]\n");
    return 2;
}
