#include "config.h"

#include "shim/files.h"

#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/log.h"
#include "sql/recover.h"
#include "sql/rotate.h"

enum { ATTEMPTS = 5 };

/* For kernels without close_range. */
static void close_listed(void)
{
    DIR *dir = opendir("/proc/thread-self/fd");
    const struct dirent *entry;
    while (dir && (entry = readdir(dir)) != NULL) {
        int fd = atoi(entry->d_name);
        if (entry->d_name[0] != '.' && fd != dirfd(dir))
            close(fd);
    }
    if (dir)
        closedir(dir);
}

bool files_private(void)
{
#ifdef __SANITIZE_THREAD__
    return false; /* the sanitizer knows one table only and would report races that are none */
#endif
    if (close_range(0, UINT_MAX, CLOSE_RANGE_UNSHARE)) {
        if (unshare(CLONE_FILES))
            return false;
        /* What unshare has copied goes at once: a copy would keep the host's pipes open. */
        close_listed();
    }
    for (int i = 0; i < 3; i++) /* so that no file of ours becomes a standard stream */
        if (open("/dev/null", O_RDWR | O_CLOEXEC) < 0)
            break;
    return true;
}

/* Whether the host changes its folder must not matter. */
static int make_absolute(const char *path, char out[PATH_MAX], struct err *err)
{
    char dir[PATH_MAX];
    int n = path[0] == '/' || !getcwd(dir, sizeof dir) || dir[0] != '/'
                ? snprintf(out, PATH_MAX, "%s", path)
                : snprintf(out, PATH_MAX, "%s/%s", strcmp(dir, "/") ? dir : "", path);
    return n < PATH_MAX - 64 ? 0 : err_set(err, "%.100s...: the path is too long", path);
}

/* NAME.db with an addition before its ending. */
static void stem_name(char out[PATH_MAX], const char *path, const char *addition)
{
    const char *base = strrchr(path, '/');
    const char *dot = strrchr(base ? base : path, '.');
    int stem = dot && dot > (base ? base + 1 : path) ? (int)(dot - path) : (int)strlen(path);
    snprintf(out, PATH_MAX, "%.*s%s%s", stem, path, addition, path + stem);
}

/* The name of attempt i: NAME.db, NAME-PID.db, NAME-PID-2.db, ... */
static void attempt_name(char out[PATH_MAX], const char *path, int i)
{
    char addition[40] = "";
    if (i > 1)
        snprintf(addition, sizeof addition, "-%d-%d", (int)getpid(), i);
    else if (i == 1)
        snprintf(addition, sizeof addition, "-%d", (int)getpid());
    stem_name(out, path, addition);
}

/* Lock the database and fold in what a dead process left beside it. Returns 0, 1 where another name
 * is better, or -1. */
static int take(struct spool *sp, const char *path, struct err *err)
{
    struct err cause;
    struct recovery left;
    int rc = spool_lock(sp, path, true, err);
    if (rc > 0)
        log_info("%s: another process records into it", path);
    if (rc)
        return rc;
    rc = spool_open(sp, &cause);
    if (rc == 0)
        rc = recover_spool(sp, path, &left, &cause);
    if (rc >= 0) {
        spool_unmap(sp);
        return 0;
    }
    log_line("%s: left as it is: %s", sp->path, cause.text);
    spool_close(sp);
    return 1;
}

int64_t files_bytes(const struct files *f)
{
    char wal[PATH_MAX + 8];
    struct stat st;
    int64_t bytes = stat(f->path, &st) ? 0 : st.st_size;
    snprintf(wal, sizeof wal, "%s-wal", f->path);
    return bytes + (stat(wal, &st) ? 0 : st.st_size);
}

int files_reopen(struct files *f, const struct run_identity *run, struct err *err)
{
    if (!f->store && store_open(&f->store, f->path, err))
        return -1;
    if (store_run_begin(f->store, run, &f->n_done, err) == 0)
        return 0;
    store_close(f->store, false);
    f->store = NULL;
    return -1;
}

int files_rotate(struct files *f, const struct run_identity *run, struct err *err)
{
    char next[PATH_MAX + 8], old[PATH_MAX];
    struct timespec now;
    snprintf(next, sizeof next, "%s-next", f->path);
    stem_name(old, f->path, "-old");
    clock_gettime(CLOCK_REALTIME, &now);
    if (rotate_prepare(f->store, next, err))
        return -1;
    int rc = rotate_leave(f->store, now.tv_sec * INT64_C(1000000000) + now.tv_nsec, err);
    if (rc) {
        unlink(next);
        return rc;
    }
    store_close(f->store, true);
    f->store = NULL;
    rc = rotate_swap(f->path, next, old, err);
    return files_reopen(f, run, err) || rc ? -1 : 0;
}

static int begin(struct files *f, const char *path, const struct run_identity *run,
                 size_t slot_bytes, size_t bytes, struct err *err)
{
    /* The spool before the run: whoever dies in between leaves a run that is folded in. */
    if (!store_open(&f->store, path, err) &&
        !spool_create(&f->spool, run, slot_bytes, bytes, err) &&
        !store_run_begin(f->store, run, &f->n_done, err))
        return 0;
    store_close(f->store, false);
    spool_remove(&f->spool);
    spool_close(&f->spool);
    return -1;
}

int files_open(struct files *f, const char *path, int skip, const struct run_identity *run,
               size_t slot_bytes, size_t bytes, struct err *err)
{
    char wanted[PATH_MAX], name[PATH_MAX];
    if (make_absolute(path, wanted, err))
        return -1;
    for (int i = skip; i < skip + ATTEMPTS; i++) {
        attempt_name(name, wanted, i);
        int rc = take(&f->spool, name, err);
        if (rc < 0 || (rc == 0 && begin(f, name, run, slot_bytes, bytes, err)))
            return -1;
        if (rc == 0) {
            strcpy(f->path, name);
            if (i > 0)
                log_info("recording into %s", name);
            return 0;
        }
    }
    return err_set(err, "%s: no name beside it is free", wanted);
}
