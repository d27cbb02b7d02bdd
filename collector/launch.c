#include "config.h"

#include "collector/launch.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static char *join(const char *a, const char *b)
{
    size_t size = strlen(a) + strlen(b) + 1;
    char *out = xcalloc(size, 1);
    snprintf(out, size, "%s%s", a, b);
    return out;
}

/* The first of the places that exists: "/..." is absolute, others stand beside this program. */
static char *find(const char *what, const char *const places[], struct err *err)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    self[n > 0 ? n : 0] = '\0';
    char *slash = strrchr(self, '/');
    if (slash)
        slash[1] = '\0';
    for (int i = 0; places[i]; i++) {
        char *path = join(places[i][0] == '/' ? "" : self, places[i]);
        char *real = access(path, R_OK) ? NULL : realpath(path, NULL);
        free(path);
        if (real)
            return real;
    }
    err_set(err, "%s: not found beside this program (%s) nor where it was to be installed", what,
            self);
    return NULL;
}

char *launch_find_probe(struct err *err)
{
    static const char *const places[] = {"../shim/libprobe.so", LIB_FROM_BIN "/libprobe.so",
                                         LIBDIR "/libprobe.so", NULL};
    return find("libprobe.so", places, err);
}

char *launch_find_engine(struct err *err)
{
    static const char *const places[] = {"../engine/neartie-engine", "neartie-engine",
                                         BINDIR "/neartie-engine", NULL};
    return find("neartie-engine", places, err);
}

/* The program may change its folder before the probe opens the file. */
static char *absolute(const char *path)
{
    char cwd[PATH_MAX];
    if (path[0] == '/' || !getcwd(cwd, sizeof cwd - 1))
        return xstrdup(path);
    strcat(cwd, "/");
    return join(cwd, path);
}

static int set_environment(const char *db, struct err *err)
{
    char *probe = launch_find_probe(err);
    if (!probe)
        return -1;
    const char *others = getenv("LD_PRELOAD");
    char *preload = xstrdup(probe), *path = absolute(db);
    if (others && *others) { /* first, since a sanitizer's library insists on that */
        char *first = join(others, ":");
        free(preload);
        preload = join(first, probe);
        free(first);
    }
    int rc = setenv("LD_PRELOAD", preload, 1) || setenv("CUDA_INJECTION64_PATH", probe, 1) ||
             setenv("PROBE_DB", path, 1);
    if (rc)
        rc = err_set(err, "environment: %s", strerror(errno));
    free(path);
    free(preload);
    free(probe);
    return rc;
}

static const int passed[] = {SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};
static const int ignored[] = {SIGINT,
                              SIGQUIT}; /* the terminal sends these to the program as well */
enum {
    N_PASSED = sizeof passed / sizeof *passed,
    N_IGNORED = sizeof ignored / sizeof *ignored,
};

struct saved_signals {
    sigset_t mask;
    struct sigaction ignored[N_IGNORED], child;
};

/* Signals that are passed on are blocked and waited for, together with the end of the program: a
 * handler would have to know the program before it is there. */
static void take_signals(struct saved_signals *saved, sigset_t *waited)
{
    struct sigaction ignore = {.sa_handler = SIG_IGN}, by_default = {.sa_handler = SIG_DFL}, now;
    sigemptyset(waited);
    sigaddset(waited, SIGCHLD);
    for (int i = 0; i < N_PASSED; i++)
        if (!sigaction(passed[i], NULL, &now) && now.sa_handler != SIG_IGN)
            sigaddset(waited, passed[i]);
    for (int i = 0; i < N_IGNORED; i++)
        sigaction(ignored[i], &ignore, &saved->ignored[i]);
    sigaction(SIGCHLD, &by_default, &saved->child);
    sigprocmask(SIG_BLOCK, waited, &saved->mask);
}

static void give_signals_back(const struct saved_signals *saved)
{
    for (int i = 0; i < N_IGNORED; i++)
        sigaction(ignored[i], &saved->ignored[i], NULL);
    sigaction(SIGCHLD, &saved->child, NULL);
    sigprocmask(SIG_SETMASK, &saved->mask, NULL);
}

/* In the child. Returns only errno of a program that could not be started, through the pipe. */
static void start(const struct launch *launch, const struct saved_signals *saved, int report)
{
    give_signals_back(saved);
    if (launch->quiet) {
        int nowhere = open("/dev/null", O_WRONLY);
        if (nowhere >= 0)
            dup2(nowhere, STDOUT_FILENO);
    }
    execvp(launch->argv[0], launch->argv);
    int cause = errno;
    ssize_t n = write(report, &cause, sizeof cause);
    _exit(n == sizeof cause && cause == ENOENT ? 127 : 126);
}

/* End as the program did, so that a shell sees the signal; without a second core file. */
static void die_of(int signal_number)
{
    struct rlimit none = {0, 0};
    sigset_t set;
    setrlimit(RLIMIT_CORE, &none);
    signal(signal_number, SIG_DFL);
    sigemptyset(&set);
    sigaddset(&set, signal_number);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
    raise(signal_number);
}

static int wait_for(pid_t pid, const sigset_t *waited, struct err *err)
{
    for (;;) {
        int status, got = sigwaitinfo(waited, NULL);
        if (got > 0 && got != SIGCHLD) {
            kill(pid, got);
            continue;
        }
        pid_t ended = waitpid(pid, &status, WNOHANG);
        if (ended == pid)
            return status;
        if (ended < 0 && errno != EINTR)
            return err_set(err, "wait: %s", strerror(errno));
    }
}

int launch_run(const struct launch *launch, bool keep, int *status, struct err *err)
{
    struct saved_signals saved;
    sigset_t waited;
    int ends[2], cause = 0;
    if (set_environment(launch->db, err))
        return -1;
    fflush(NULL);
    if (pipe2(ends, O_CLOEXEC))
        return err_set(err, "pipe: %s", strerror(errno));
    take_signals(&saved, &waited);
    pid_t pid = fork();
    if (pid == 0)
        start(launch, &saved, ends[1]);
    close(ends[1]);
    int raw = pid < 0 ? err_set(err, "fork: %s", strerror(errno)) : wait_for(pid, &waited, err);
    bool failed = read(ends[0], &cause, sizeof cause) == sizeof cause;
    close(ends[0]);
    give_signals_back(&saved);
    if (raw < 0)
        return -1;
    *status = WIFSIGNALED(raw) ? 128 + WTERMSIG(raw) : WEXITSTATUS(raw);
    if (failed)
        return err_set(err, "%s: %s", launch->argv[0], strerror(cause));
    if (WIFSIGNALED(raw) && !keep)
        die_of(WTERMSIG(raw));
    return 0;
}
