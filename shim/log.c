#include "config.h"

#include "shim/log.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { LINE_MAX_BYTES = 1024, KEPT_MAX = 8 };

static char log_target[4096] = "stderr";
static bool log_asked;
static __thread __attribute__((tls_model("initial-exec"))) bool keeps;

static pthread_mutex_t kept_lock = PTHREAD_MUTEX_INITIALIZER;
static char kept[KEPT_MAX][LINE_MAX_BYTES];
static _Atomic int n_kept;

void log_set(const char *target, bool asked)
{
    snprintf(log_target, sizeof log_target, "%s", target);
    log_asked = asked;
}

void log_keep(void)
{
    keeps = true;
}

/* Write without blocking, and without the signal that a closed pipe would send to the host. */
static void write_quietly(int fd, const char *line, size_t n)
{
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    sigset_t pipe, old, pending;
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    if (poll(&ready, 1, 0) != 1 || !(ready.revents & POLLOUT) ||
        pthread_sigmask(SIG_BLOCK, &pipe, &old))
        return;
    sigpending(&pending);
    bool was_pending = sigismember(&pending, SIGPIPE);
    if (write(fd, line, n) < 0 && !was_pending)
        sigtimedwait(&pipe, NULL, &(struct timespec){0, 0});
    pthread_sigmask(SIG_SETMASK, &old, NULL);
}

static void keep_line(const char *line)
{
    pthread_mutex_lock(&kept_lock);
    int n = atomic_load(&n_kept);
    if (n < KEPT_MAX) {
        strcpy(kept[n], line);
        atomic_store(&n_kept, n + 1);
    }
    pthread_mutex_unlock(&kept_lock);
}

static void to_stderr(const char *line, size_t n)
{
    if (keeps)
        keep_line(line);
    else
        write_quietly(STDERR_FILENO, line, n);
}

/* The file does not take lines: say so once. */
static void no_file(int why)
{
    static atomic_flag told = ATOMIC_FLAG_INIT;
    char line[LINE_MAX_BYTES];
    if (atomic_flag_test_and_set(&told))
        return;
    int n = snprintf(line, sizeof line, "libprobe: PROBE_LOG: %.512s: %s; messages go to stderr\n",
                     log_target, strerrordesc_np(why));
    to_stderr(line, (size_t)n);
}

static void write_line(const char *line, size_t n)
{
    if (!strcmp(log_target, "stderr")) {
        to_stderr(line, n);
        return;
    }
    int fd =
        open(log_target, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC | O_NOCTTY | O_NONBLOCK, 0600);
    if (fd < 0) {
        no_file(errno);
        to_stderr(line, n);
        return;
    }
    write_quietly(fd, line, n);
    close(fd);
}

static void log_args(const char *fmt, va_list ap)
{
    char line[LINE_MAX_BYTES] = "libprobe: ";
    size_t n = strlen(line);
    int m = vsnprintf(line + n, sizeof line - n - 1, fmt, ap);
    if (m < 0 || !strcmp(log_target, "off"))
        return;
    n += (size_t)m < sizeof line - n - 1 ? (size_t)m : sizeof line - n - 2;
    line[n++] = '\n';
    line[n] = 0;
    write_line(line, n);
}

void log_line(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    log_args(fmt, ap);
    va_end(ap);
}

void log_info(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    if (log_asked)
        log_args(fmt, ap);
    va_end(ap);
}

void log_flush(void)
{
    if (!atomic_load_explicit(&n_kept, memory_order_relaxed) || pthread_mutex_trylock(&kept_lock))
        return;
    for (int i = 0; i < atomic_load(&n_kept); i++)
        write_line(kept[i], strlen(kept[i]));
    atomic_store(&n_kept, 0);
    pthread_mutex_unlock(&kept_lock);
}
