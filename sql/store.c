#include "config.h"

#include "sql/store_internal.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "sql/sql_text.h"

static const char *const statement_sql[N_STATEMENTS] = {
    [ST_BEGIN] = "BEGIN IMMEDIATE",
    [ST_COMMIT] = "COMMIT",
    [ST_ROLLBACK] = "ROLLBACK",
    [ST_MARK] = "UPDATE meta SET value = ?2 WHERE key = ?1",
    [ST_FORWARD] = "INSERT INTO forwards(forward_id, run_id, arm_id, started_ns, n_tokens, n_seqs,"
                   " n_past, ubatch_index, n_ubatch, thread, duration_ns, base_run_uuid,"
                   " kernel_list_id) VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [ST_END] = "UPDATE forwards SET duration_ns = ?2 - started_ns, kernel_list_id = ?3"
               " WHERE forward_id = ?1",
    [ST_ROW] = "INSERT INTO logits(row_id, forward_id, seq_id, pos, batch_row, context_hash,"
               " input_token, dtype, top1, top1_logit, top2, top2_logit, margin, lse, n_nan,"
               " n_posinf, n_neginf, first_bad, topk, emitted_token, arm_id)"
               " VALUES(?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?)",
    [ST_ARM_OF] = "SELECT arm_id FROM forwards WHERE forward_id = ?",
    [ST_DELTAS] = "INSERT INTO delta_lists(row_id, base_row_id, scale, list) VALUES(?,?,?,?)",
    [ST_TOKEN] = "UPDATE logits SET emitted_token = ?2 WHERE row_id = ?1",
    [ST_SETTING] = "INSERT INTO settings(run_id, name, value, source) VALUES(?,?,?,?)"
                   " ON CONFLICT DO UPDATE SET value = excluded.value, source = excluded.source",
    [ST_SETTING_MORE] = "UPDATE settings SET value = value || ?3 WHERE run_id = ?1 AND name = ?2",
    [ST_ARM] = "INSERT INTO arms(arm_id, run_id, label, phase, class) VALUES(?,?,?,?,?)",
    [ST_SEQUENCE_NEW] = "INSERT OR IGNORE INTO sequences(run_id, seq) VALUES(?,?)",
    [ST_SEQUENCE_GET] = "SELECT seq_id FROM sequences WHERE run_id = ? AND seq = ?",
    [ST_SEQUENCE_NAME] = "UPDATE sequences SET label = ?2, parent_seq_id = ?3 WHERE seq_id = ?1",
    [ST_GAP_ADD] = "UPDATE gaps SET count = count + ?3 WHERE run_id = ?1 AND kind = ?2"
                   " AND detail IS ?4",
    [ST_GAP_SET] = "UPDATE gaps SET count = ?3, detail = coalesce(?4, detail)"
                   " WHERE run_id = ?1 AND kind = ?2",
    [ST_GAP_NEW] = "INSERT INTO gaps(run_id, kind, count, detail) VALUES(?,?,?,?)",
    [ST_VOCAB] = "INSERT OR IGNORE INTO vocab(model_hash, token, text) VALUES("
                 "(SELECT coalesce(model_hash, '') FROM runs WHERE run_id = ?),?,?)",
    [ST_MODULE_GET] = "SELECT module_id FROM modules WHERE hash = ?",
    [ST_MODULE_NEW] = "INSERT INTO modules(hash, size_bytes, arch, first_seen_ns) VALUES(?,?,?,?)",
    [ST_KERNEL_GET] = "SELECT kernel_id FROM kernels WHERE name = ? AND code_hash IS ?"
                      " AND module_id IS ? AND resolve IS ?",
    [ST_KERNEL_NEW] = "INSERT INTO kernels(name, code_hash, module_id, resolve, const_hash,"
                      " registers, static_smem_bytes, stack_bytes, max_threads)"
                      " VALUES(?,?,?,?,?,?,?,?,?)",
    [ST_CONFIG_GET] = "SELECT config_id FROM launch_configs WHERE kernel_id = ? AND grid_x = ?"
                      " AND grid_y = ? AND grid_z = ? AND block_x = ? AND block_y = ?"
                      " AND block_z = ? AND dynamic_smem_bytes = ? AND cluster_x IS ?"
                      " AND cluster_y IS ? AND cluster_z IS ? AND attributes IS ?",
    [ST_CONFIG_NEW] = "INSERT INTO launch_configs(kernel_id, grid_x, grid_y, grid_z, block_x,"
                      " block_y, block_z, dynamic_smem_bytes, cluster_x, cluster_y, cluster_z,"
                      " attributes) VALUES(?,?,?,?,?,?,?,?,?,?,?,?)",
    [ST_LIST_GET] = "SELECT kernel_list_id FROM kernel_lists WHERE hash = ?",
    [ST_LIST_NEW] = "INSERT INTO kernel_lists(hash, n) VALUES(?,?)",
    [ST_LIST_ITEM] = "INSERT INTO kernel_list_items(kernel_list_id, ord, config_id) VALUES(?,?,?)",
    [ST_LIST_NUMBER] = "INSERT OR REPLACE INTO list_numbers(run_id, number, kernel_list_id)"
                       " VALUES(?,?,?)",
    [ST_LIST_OF] = "SELECT kernel_list_id FROM list_numbers WHERE run_id = ? AND number = ?",
    [ST_GRAPH_EXEC] = "INSERT INTO graph_execs(run_id, kernel_list_id, label, version, created_ns)"
                      " VALUES(?,?,?,?,?)",
    [ST_N_VOCAB] = "UPDATE runs SET n_vocab = ?2 WHERE run_id = ?1 AND n_vocab IS NULL",
};

int store_fail(const struct store *s, struct err *err)
{
    return err_set(err, "%s: %s", s->path, sqlite3_errmsg(s->db));
}

int store_step(struct store *s, enum store_statement which, struct err *err)
{
    int rc = sqlite3_step(s->st[which]);
    if (rc != SQLITE_DONE)
        store_fail(s, err);
    sqlite3_reset(s->st[which]);
    return rc == SQLITE_DONE ? 0 : -1;
}

/* Read one text value; "" where there is none. */
static int get_text(struct store *s, const char *sql, const char *bind, char *out, size_t size,
                    struct err *err)
{
    sqlite3_stmt *st;
    out[0] = 0;
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL))
        return store_fail(s, err);
    if (bind)
        sqlite3_bind_text(st, 1, bind, -1, SQLITE_STATIC);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW && sqlite3_column_text(st, 0))
        snprintf(out, size, "%s", (const char *)sqlite3_column_text(st, 0));
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        store_fail(s, err);
    sqlite3_finalize(st);
    return rc == SQLITE_ROW || rc == SQLITE_DONE ? 0 : -1;
}

/* Open the file to look at it: closing it again will not change it. */
static int open_to_look(struct store *s, int flags, struct err *err)
{
    sqlite3_close(s->db);
    if (sqlite3_open_v2(s->path, &s->db, flags | SQLITE_OPEN_NOMUTEX, NULL))
        return store_fail(s, err);
    sqlite3_db_config(s->db, SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, NULL);
    sqlite3_busy_timeout(s->db, 1000);
    return 0;
}

/* Refuse what we cannot write, before anything in the file changes. Returns 1 for a database
 * without any table: its maker died before it had made ours. */
static int check_file(struct store *s, struct err *err)
{
    static const char *const sql = "SELECT count(*) FROM sqlite_master";
    char n_tables[32], version[32];
    int rc = -1;
    if (open_to_look(s, SQLITE_OPEN_READONLY, err))
        goto out;
    if (get_text(s, sql, NULL, n_tables, sizeof n_tables, err)) {
        /* What a process left that died in the middle of a transaction has to be rolled back, and a
         * read-only connection cannot. */
        if ((sqlite3_errcode(s->db) & 0xff) != SQLITE_READONLY ||
            open_to_look(s, SQLITE_OPEN_READWRITE, err) ||
            get_text(s, sql, NULL, n_tables, sizeof n_tables, err))
            goto out;
    }
    rc = strcmp(n_tables, "0") == 0;
    if (rc)
        goto out;
    rc = -1;
    if (get_text(s, "SELECT value FROM meta WHERE key = 'schema_version'", NULL, version,
                 sizeof version, err))
        err_set(err, "%s: not a neartie database: it has no table meta", s->path);
    else if (strtol(version, NULL, 10) != SQL_SCHEMA_VERSION)
        err_set(err, "%s: schema version %s, this program writes version %d", s->path,
                version[0] ? version : "missing", SQL_SCHEMA_VERSION);
    else
        rc = 0;
out:
    sqlite3_close(s->db);
    s->db = NULL;
    return rc;
}

static int exec(struct store *s, const char *sql, struct err *err)
{
    return sqlite3_exec(s->db, sql, NULL, NULL, NULL) ? store_fail(s, err) : 0;
}

static int make_schema(struct store *s, struct err *err)
{
    char meta[160];
    snprintf(meta, sizeof meta, "INSERT INTO meta VALUES('schema_version','%d')",
             SQL_SCHEMA_VERSION);
    if (exec(s, "BEGIN IMMEDIATE", err) || exec(s, sql_schema, err) || exec(s, sql_views, err) ||
        exec(s, meta, err) || exec(s, "COMMIT", err)) {
        sqlite3_exec(s->db, "ROLLBACK", NULL, NULL, NULL);
        return -1;
    }
    return 0;
}

/* Make the file, empty and readable by its owner alone, before SQLite makes it readable by all.
 * Returns 1 when it is new or empty, 0 when it has content. */
static int make_file(const char *path, struct err *err)
{
    struct stat st;
    int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
        return 1;
    }
    if (errno != EEXIST || stat(path, &st))
        return err_set(err, "%s: %s", path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(err, "%s: not a regular file", path);
    if (access(path, R_OK | W_OK))
        return err_set(err, "%s: %s", path, strerror(errno));
    return st.st_size == 0;
}

static int open_connection(struct store *s, struct err *err)
{
    int flags = SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX;
    if (sqlite3_open_v2(s->path, &s->db, flags, NULL))
        return store_fail(s, err);
    sqlite3_busy_timeout(s->db, 1000);
    /* NORMAL: no fsync at commit, one at a checkpoint. Cache and log are bounded. */
    return exec(s,
                "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA cache_size = -8192;"
                "PRAGMA journal_size_limit = 16777216",
                err);
}

void store_single_thread(void)
{
    /* Refused once SQLite has begun, as in the child of a fork: then the answer is there already.
     */
    sqlite3_config(SQLITE_CONFIG_SINGLETHREAD);
    sqlite3_config(SQLITE_CONFIG_MEMSTATUS, 0);
}

int store_open(struct store **out, const char *path, struct err *err)
{
    struct store *s = calloc(1, sizeof *s);
    *out = NULL;
    if (!s || (size_t)snprintf(s->path, sizeof s->path, "%s", path) >= sizeof s->path) {
        free(s);
        return err_set(err, "%.100s: %s", path, s ? "the path is too long" : "out of memory");
    }
    int fresh = make_file(path, err), bare = fresh;
    if (fresh < 0 || (!fresh && (bare = check_file(s, err)) < 0))
        goto fail;
    if (open_connection(s, err) || (bare && make_schema(s, err)))
        goto fail;
    for (int i = 0; i < N_STATEMENTS; i++)
        if (sqlite3_prepare_v3(s->db, statement_sql[i], -1, SQLITE_PREPARE_PERSISTENT, &s->st[i],
                               NULL)) {
            store_fail(s, err);
            goto fail;
        }
    *out = s;
    return 0;
fail:
    store_close(s, false);
    if (fresh == 1)
        unlink(path); /* nothing half-made stays */
    return -1;
}

/* The ids that the file has used up, so that a run's own come after them. */
static int find_offsets(struct store *s, struct err *err)
{
    static const struct {
        const char *sql;
        size_t at;
    } list[] = {
        {"SELECT max(row_id) FROM logits", offsetof(struct store, row_offset)},
        {"SELECT max(forward_id) FROM forwards", offsetof(struct store, forward_offset)},
        {"SELECT max(arm_id) FROM arms", offsetof(struct store, arm_offset)},
    };
    for (size_t i = 0; i < sizeof list / sizeof *list; i++) {
        char text[32];
        if (get_text(s, list[i].sql, NULL, text, sizeof text, err))
            return -1;
        int64_t value = strtoll(text, NULL, 10);
        memcpy((char *)s + list[i].at, &value, sizeof value);
    }
    return 0;
}

static void mark_text(const struct store *s, uint64_t n_done, char out[96])
{
    snprintf(out, 96, "%" PRIu64 " %" PRId64 " %" PRId64 " %" PRId64, n_done, s->row_offset,
             s->forward_offset, s->arm_offset);
}

/* NULL for an empty string: unknown. */
static void bind_known(sqlite3_stmt *st, int i, const char *text)
{
    if (text[0])
        sqlite3_bind_text(st, i, text, -1, SQLITE_STATIC);
}

static int insert_run(struct store *s, const struct run_identity *run, struct err *err)
{
    static const char *const sql =
        "INSERT INTO runs(uuid, host, pid, exe, exe_build_id, argv, probe_version, started_ns,"
        " state) VALUES(?,?,?,?,?,?,?,?,'recording')";
    static const char *const sql_meta = "INSERT OR IGNORE INTO meta VALUES('run_uuid',?),(?,?)";
    sqlite3_stmt *st = NULL, *meta = NULL;
    char mark[96];
    mark_text(s, 0, mark);
    if (sqlite3_prepare_v2(s->db, sql, -1, &st, NULL) ||
        sqlite3_prepare_v2(s->db, sql_meta, -1, &meta, NULL))
        goto fail;
    bind_known(st, 1, run->uuid);
    bind_known(st, 2, run->host);
    sqlite3_bind_int64(st, 3, run->pid);
    bind_known(st, 4, run->exe);
    bind_known(st, 5, run->build_id);
    bind_known(st, 6, run->argv);
    bind_known(st, 7, run->probe_version);
    sqlite3_bind_int64(st, 8, run->started_ns);
    bind_known(meta, 1, run->uuid);
    bind_known(meta, 2, s->mark_key);
    bind_known(meta, 3, mark);
    if (sqlite3_step(st) != SQLITE_DONE || sqlite3_step(meta) != SQLITE_DONE)
        goto fail;
    s->run_id = sqlite3_last_insert_rowid(s->db);
    sqlite3_finalize(st);
    sqlite3_finalize(meta);
    return 0;
fail:
    store_fail(s, err);
    sqlite3_finalize(st);
    sqlite3_finalize(meta);
    return -1;
}

/* Go on counting where the process before stopped. */
static int get_refused(struct store *s, const char *run_id, struct err *err)
{
    char count[32];
    if (get_text(s, "SELECT count FROM gaps WHERE run_id = ? AND kind = 'records_refused'", run_id,
                 count, sizeof count, err))
        return -1;
    s->n_refused = s->n_refused_in_file = strtoull(count, NULL, 10);
    return 0;
}

/* A run that was about to leave this file, and did not, is recording again. */
static int go_on(struct store *s, struct err *err)
{
    char sql[120];
    snprintf(sql, sizeof sql,
             "UPDATE runs SET state = 'recording', ended_ns = NULL WHERE run_id = %" PRId64,
             s->run_id);
    return exec(s, sql, err);
}

int store_run_begin(struct store *s, const struct run_identity *run, uint64_t *n_done,
                    struct err *err)
{
    char id[32], mark[96];
    *n_done = 0;
    snprintf(s->base_run_uuid, sizeof s->base_run_uuid, "%.32s", run->base_run_uuid);
    snprintf(s->mark_key, sizeof s->mark_key, "spool:%s", run->uuid);
    if (store_step(s, ST_BEGIN, err))
        return -1;
    if (get_text(s, "SELECT run_id FROM runs WHERE uuid = ?", run->uuid, id, sizeof id, err) ||
        get_text(s, "SELECT value FROM meta WHERE key = ?", s->mark_key, mark, sizeof mark, err))
        goto fail;
    if (id[0]) {
        s->run_id = strtoll(id, NULL, 10);
        if (sscanf(mark, "%" SCNu64 " %" SCNd64 " %" SCNd64 " %" SCNd64, n_done, &s->row_offset,
                   &s->forward_offset, &s->arm_offset) != 4) {
            store_rollback(s);
            return 1;
        }
        if (get_refused(s, id, err) || go_on(s, err))
            goto fail;
    } else if (find_offsets(s, err) || insert_run(s, run, err))
        goto fail;
    if (store_step(s, ST_COMMIT, err))
        goto fail;
    return 0;
fail:
    store_rollback(s);
    return -1;
}

int store_begin(struct store *s, struct err *err)
{
    return store_step(s, ST_BEGIN, err);
}

int store_commit(struct store *s, uint64_t n_done, struct err *err)
{
    char mark[96];
    if (store_flush(s, err))
        return -1;
    mark_text(s, n_done, mark);
    sqlite3_bind_text(s->st[ST_MARK], 1, s->mark_key, -1, SQLITE_STATIC);
    sqlite3_bind_text(s->st[ST_MARK], 2, mark, -1, SQLITE_STATIC);
    if (s->n_refused != s->n_refused_in_file &&
        store_gap(s, "records_refused", s->n_refused, NULL, err))
        return -1;
    if (store_step(s, ST_MARK, err) || store_step(s, ST_COMMIT, err))
        return -1;
    s->n_refused_in_file = s->n_refused;
    memcpy(s->lost_in_file, s->lost, sizeof s->lost);
    return 0;
}

void store_rollback(struct store *s)
{
    if (!sqlite3_get_autocommit(s->db))
        store_step(s, ST_ROLLBACK, NULL);
    s->forwards.n = s->rows.n = 0;
    s->arm_of_forward = 0;
    s->list_number = 0;
    /* What the caches say is in the file may have gone with the transaction. */
    memset(s->sequences, 0, sizeof s->sequences);
    if (s->vocab_done)
        memset(s->vocab_done, 0, (size_t)s->vocab.n / 8 + 1);
    s->n_vocab_known = false;
    s->n_refused = s->n_refused_in_file;
}

int store_run_end(struct store *s, const char *state, int64_t ended_ns, struct err *err)
{
    sqlite3_stmt *st = NULL, *meta = NULL, *lists = NULL;
    int rc = -1;
    if (store_step(s, ST_BEGIN, err))
        return -1;
    if (sqlite3_prepare_v2(s->db,
                           "UPDATE runs SET state = ?, ended_ns = nullif(?, 0) WHERE run_id = ?",
                           -1, &st, NULL) ||
        sqlite3_prepare_v2(s->db, "DELETE FROM meta WHERE key = ?", -1, &meta, NULL) ||
        sqlite3_prepare_v2(s->db, "DELETE FROM list_numbers WHERE run_id = ?", -1, &lists, NULL))
        goto out;
    sqlite3_bind_int64(lists, 1, s->run_id);
    sqlite3_bind_text(st, 1, state, -1, SQLITE_STATIC);
    sqlite3_bind_int64(st, 2, ended_ns);
    sqlite3_bind_int64(st, 3, s->run_id);
    sqlite3_bind_text(meta, 1, s->mark_key, -1, SQLITE_STATIC);
    if (sqlite3_step(st) == SQLITE_DONE && sqlite3_step(meta) == SQLITE_DONE &&
        sqlite3_step(lists) == SQLITE_DONE)
        rc = 0;
out:
    if (rc)
        store_fail(s, err);
    sqlite3_finalize(st);
    sqlite3_finalize(meta);
    sqlite3_finalize(lists);
    if (!rc)
        rc = store_step(s, ST_COMMIT, err);
    if (rc)
        store_rollback(s);
    return rc;
}

int store_orphans(struct store *s, struct err *err)
{
    /* A mark is the progress of a run that is recording; see store_commit. */
    int n = exec(s,
                 "BEGIN IMMEDIATE; DELETE FROM meta WHERE key GLOB 'spool:*' AND substr(key, 7) IN"
                 " (SELECT uuid FROM runs WHERE state = 'recording');"
                 "DELETE FROM list_numbers WHERE run_id IN"
                 " (SELECT run_id FROM runs WHERE state = 'recording');"
                 "UPDATE runs SET state = 'recovered' WHERE state = 'recording'",
                 err);
    if (n == 0)
        n = sqlite3_changes(s->db);
    if (n >= 0 && store_step(s, ST_COMMIT, err))
        n = -1;
    if (n < 0)
        store_rollback(s);
    return n;
}

/* SQLite calls this every so many steps; not 0 interrupts. */
static int out_of_time(void *deadline)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec > *(const time_t *)deadline;
}

void store_close(struct store *s, bool finish)
{
    if (!s)
        return;
    for (int i = 0; i < N_STATEMENTS; i++)
        sqlite3_finalize(s->st[i]);
    if (finish && s->db) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        sqlite3_progress_handler(s->db, 10000, out_of_time, &now.tv_sec);
        sqlite3_exec(s->db, sql_indexes, NULL, NULL, NULL);
        sqlite3_progress_handler(s->db, 0, NULL, NULL);
        sqlite3_exec(s->db, "PRAGMA wal_checkpoint(TRUNCATE); PRAGMA journal_mode = DELETE", NULL,
                     NULL, NULL);
    }
    sqlite3_close(s->db);
    free(s->vocab_done);
    free(s);
}
