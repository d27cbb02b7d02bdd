#include "config.h"

#include "sql/rotate.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "sql/sql_text.h"
#include "sql/store_internal.h"

static int exec(struct store *s, const char *sql, struct err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) ? store_fail(s, err) : 0;
}

/* With the value in place of %Q. */
static int exec_with(struct store *s, const char *format, const char *value, struct err *err)
{
    char *sql = sqlite3_mprintf(format, value);
    int rc = sql ? exec(s, sql, err) : err_set(err, "%s: out of memory", s->path);
    sqlite3_free(sql);
    return rc;
}

int rotate_prepare(struct store *s, const char *next, struct err *err)
{
    struct store *n;
    const char *uuid = s->mark_key + strlen("spool:");
    unlink(next); /* of a rotation that was cut short */
    if (store_open(&n, next, err))
        return -1;
    int rc = exec_with(n, "ATTACH %Q AS old", s->path, err);
    if (!rc)
        rc = exec(n, "BEGIN", err) ||
                     exec_with(n, "INSERT INTO meta VALUES('run_uuid', %Q)", uuid, err) ||
                     exec(n, sql_rotate, err) || exec(n, "COMMIT", err)
                 ? -1
                 : 0;
    store_close(n, false);
    if (rc)
        unlink(next);
    return rc;
}

/* Whether nobody else has the file open: then it needs no write-ahead log. */
static int leave_wal(struct store *s, struct err *err)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(s->db, "PRAGMA journal_mode = DELETE", -1, &st, NULL))
        return store_fail(s, err);
    int rc = sqlite3_step(st);
    bool alone = rc == SQLITE_ROW && !strcmp((const char *)sqlite3_column_text(st, 0), "delete");
    sqlite3_finalize(st);
    return alone ? 0 : 1;
}

static int set_state(struct store *s, const char *state, int64_t ended_ns, struct err *err)
{
    char *sql = sqlite3_mprintf("UPDATE runs SET state = %Q, ended_ns = nullif(%lld, 0)"
                                " WHERE run_id = %lld",
                                state, (long long)ended_ns, (long long)s->run_id);
    int rc = sql ? exec(s, sql, err) : err_set(err, "%s: out of memory", s->path);
    sqlite3_free(sql);
    return rc;
}

int rotate_leave(struct store *s, int64_t ended_ns, struct err *err)
{
    if (exec(s, "PRAGMA busy_timeout = 0", err))
        return -1;
    int rc = leave_wal(s, err);
    sqlite3_busy_timeout(s->db, 1000);
    return rc ? rc : set_state(s, "closed", ended_ns, err);
}

int rotate_swap(const char *path, const char *next, const char *old, struct err *err)
{
    /* In one step, so that there is a database at path at every moment; where the file system has
     * no such step, in two. */
    int rc = renameat2(AT_FDCWD, next, AT_FDCWD, path, RENAME_EXCHANGE);
    if (rc == 0)
        rc = rename(next, old);
    else if (errno == EINVAL || errno == ENOSYS)
        rc = rename(path, old) || rename(next, path) ? -1 : 0;
    return rc ? err_set(err, "%s: rename: %s", path, strerror(errno)) : 0;
}
