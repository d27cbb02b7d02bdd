#include "config.h"

#include "collector/db.h"
#include "collector/merge.h"
#include "sql/sql_text.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

struct merge {
    const char *path;
    char *temporary; /* PATH-merge */
    int fd;          /* of it, locked: one merge at a time */
    sqlite3 *out;
};

/* What a signal that ends the process has to remove. */
static const char *volatile unfinished;

static void remove_unfinished(int signal)
{
    if (unfinished)
        unlink(unfinished);
    raise(signal); /* its action is the default again */
}

static void watch_signals(void)
{
    static const int signals[] = {SIGHUP, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};
    struct sigaction ends = {.sa_handler = remove_unfinished, .sa_flags = (int)SA_RESETHAND};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction now;
        if (!sigaction(signals[i], NULL, &now) && now.sa_handler == SIG_DFL)
            sigaction(signals[i], &ends, NULL);
    }
}

/* An error of the merged file, named after what it was done for. */
static int fail(const struct merge *m, const char *object, struct err *err)
{
    return err_set(err, "%s: %s", object, sqlite3_errmsg(m->out));
}

static int exec(struct merge *m, const char *sql, const char *object, struct err *err)
{
    return sqlite3_exec(m->out, sql, NULL, NULL, NULL) ? fail(m, object, err) : 0;
}

static int begin(struct merge *m, struct err *err)
{
    struct stat st, named;
    if (!lstat(m->path, &st))
        return err_set(err, "%s: exists already; merge writes a new file", m->path);
    m->fd = open(m->temporary, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (m->fd < 0)
        return err_set(err, "%s: %s", m->temporary, strerror(errno));
    if (flock(m->fd, LOCK_EX | LOCK_NB))
        return err_set(err, "%s: another merge is writing it", m->path);
    if (fstat(m->fd, &st) || !S_ISREG(st.st_mode))
        return err_set(err, "%s: not a regular file", m->temporary);
    /* It may have got its name between our opening and our locking it. */
    if (lstat(m->temporary, &named) || named.st_ino != st.st_ino || named.st_dev != st.st_dev)
        return err_set(err, "%s: another merge has written it", m->path);
    if (ftruncate(m->fd, 0))
        return err_set(err, "%s: %s", m->temporary, strerror(errno));
    unfinished = m->temporary;
    watch_signals();
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
    char *uri = db_uri(m->temporary, "mode=rw");
    int rc = sqlite3_open_v2(uri, &m->out, flags, NULL);
    sqlite3_free(uri);
    if (rc)
        return fail(m, m->path, err);
    sqlite3_db_config(m->out, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
    char meta[80];
    snprintf(meta, sizeof meta, "INSERT INTO meta VALUES('schema_version','%d')",
             SQL_SCHEMA_VERSION);
    /* A file that fails is thrown away: it needs no journal. */
    return exec(m,
                "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; PRAGMA temp_store = MEMORY;"
                "PRAGMA cache_size = -65536; BEGIN",
                m->path, err) ||
                   exec(m, sql_schema, m->path, err) || exec(m, sql_views, m->path, err) ||
                   exec(m, meta, m->path, err) || exec(m, "COMMIT", m->path, err)
               ? -1
               : 0;
}

/* Where a run stands already, in the file that is being made. */
static bool has_run(struct merge *m, const char *uuid)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(m->out, "SELECT 1 FROM main.runs WHERE uuid = ?", -1, &st, NULL))
        return false;
    sqlite3_bind_text(st, 1, uuid, -1, SQLITE_STATIC);
    bool found = sqlite3_step(st) == SQLITE_ROW;
    sqlite3_finalize(st);
    return found;
}

/* Open it as every reader does: that folds in what a dead process left, and refuses what is no
 * record. */
static int check_source(struct merge *m, const char *path, struct err *err)
{
    struct db *db;
    struct query *runs = NULL;
    if (db_open(&db, path, err))
        return -1;
    int rc = db_query(db, &runs, "run_states", err);
    while (!rc && (rc = query_step(runs, err)) > 0) {
        rc = 0;
        const char *uuid = query_text(runs, "uuid"), *state = query_text(runs, "state");
        if (state && !strcmp(state, "recording"))
            rc = err_set(err, "%s: run %lld is still recording", path,
                         (long long)query_int(runs, "run"));
        else if (uuid && has_run(m, uuid))
            rc = err_set(err, "%s: run %lld (%.32s) is in a file before it already", path,
                         (long long)query_int(runs, "run"), uuid);
    }
    query_free(runs);
    db_close(db);
    return rc;
}

static int attach(struct merge *m, const char *path, const char *how, struct err *err)
{
    char *uri = db_uri(path, how);
    char *sql = uri ? sqlite3_mprintf("ATTACH %Q AS src", uri) : NULL;
    int rc = sql ? sqlite3_exec(m->out, sql, NULL, NULL, NULL) : SQLITE_NOMEM;
    if (!rc)
        rc = sqlite3_exec(m->out, "SELECT 1 FROM src.runs LIMIT 1", NULL, NULL, NULL);
    sqlite3_free(sql);
    sqlite3_free(uri);
    if (rc) {
        fail(m, path, err);
        sqlite3_exec(m->out, "DETACH src", NULL, NULL, NULL);
    }
    return rc ? -1 : 0;
}

/* What was not taken over, in a line. */
static int say_conflicts(struct merge *m, const char *path, struct err *err)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(m->out, "SELECT coalesce(sum(n), 0) FROM temp.other_texts", -1, &st,
                           NULL))
        return fail(m, path, err);
    int64_t n = sqlite3_step(st) == SQLITE_ROW ? sqlite3_column_int64(st, 0) : 0;
    sqlite3_finalize(st);
    if (n)
        fprintf(stderr,
                "%s: texts of %lld token ids differ from those of a file before it, which "
                "stay\n",
                path, (long long)n);
    return 0;
}

static int add(struct merge *m, const char *path, struct err *err)
{
    if (check_source(m, path, err) ||
        (attach(m, path, "mode=ro", err) && attach(m, path, "immutable=1", err)))
        return -1;
    int rc = exec(m, "BEGIN", path, err) || exec(m, sql_merge, path, err) ||
                     exec(m, "COMMIT", path, err) || say_conflicts(m, path, err) ||
                     exec(m, "DETACH src", path, err)
                 ? -1
                 : 0;
    return rc;
}

/* Under its name, unless that is taken by now. */
static int publish(struct merge *m, struct err *err)
{
    if (fsync(m->fd))
        return err_set(err, "%s: %s", m->path, strerror(errno));
    int rc = renameat2(AT_FDCWD, m->temporary, AT_FDCWD, m->path, RENAME_NOREPLACE);
    if (rc && (errno == EINVAL || errno == ENOSYS)) {
        rc = link(m->temporary, m->path); /* which replaces nothing either */
        if (!rc)
            unlink(m->temporary);
    }
    if (rc)
        return err_set(err, "%s: %s", m->path, strerror(errno));
    unfinished = NULL;
    return 0;
}

int merge_files(const char *path, char *const *sources, int n, struct err *err)
{
    struct merge m = {.path = path, .fd = -1};
    m.temporary = sqlite3_mprintf("%s-merge", path);
    if (!m.temporary)
        return err_set(err, "%s: out of memory", path);
    int rc = begin(&m, err);
    for (int i = 0; i < n && !rc; i++) {
        if (isatty(STDERR_FILENO))
            fprintf(stderr, "%s (%d of %d)\n", sources[i], i + 1, n);
        rc = add(&m, sources[i], err);
    }
    if (!rc)
        rc = exec(&m, sql_merge_end, path, err) || exec(&m, sql_indexes, path, err) ? -1 : 0;
    sqlite3_close(m.out);
    if (!rc)
        rc = publish(&m, err);
    if (rc && unfinished)
        unlink(m.temporary);
    unfinished = NULL;
    if (m.fd >= 0)
        close(m.fd);
    sqlite3_free(m.temporary);
    return rc;
}
