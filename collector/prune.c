#include "config.h"

#include "collector/prune.h"
#include "sql/spool.h"
#include "sql/sql_text.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void say(const char *path, const char *what)
{
    if (isatty(STDERR_FILENO))
        fprintf(stderr, "%s: %s\n", path, what);
}

/* The record, without a run that is still writing it. */
static int check_ended(const char *path, struct err *err)
{
    struct db *db;
    struct query *runs = NULL;
    if (db_open(&db, path, err))
        return -1;
    int rc = db_query(db, &runs, "run_states", err);
    while (!rc && (rc = query_step(runs, err)) > 0) {
        const char *state = query_text(runs, "state");
        rc = state && !strcmp(state, "recording") ? err_set(err, "%s: run %lld is still recording",
                                                            path, (long long)query_int(runs, "run"))
                                                  : 0;
    }
    query_free(runs);
    db_close(db);
    return rc;
}

static int64_t file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (int64_t)st.st_size;
}

/* The first column of the only row. */
static int read_number(struct db *db, const char *sql, int64_t *out, struct err *err)
{
    struct query *query;
    if (db_statement(db, &query, sql, NULL, err))
        return -1;
    int rc = query_step(query, err);
    if (rc > 0)
        *out = query_column_int(query, 0);
    query_free(query);
    return rc > 0 ? 0 : -1;
}

/* What rows may weigh so that the file has max_bytes. Written anew, pages are full but for 6 in
 * 100; what is no row stays. An SQLite without dbstat takes the whole file for rows. */
static int find_budget(struct db *db, int64_t max_bytes, int64_t *out, struct err *err)
{
#define OF_ROWS "('logits', 'delta_lists', 'logits_context', 'forwards')"
    int64_t weight, rows, rest = 0;
    if (read_number(db, "SELECT coalesce(sum(weight), 0) FROM temp.weighed", &weight, err))
        return -1;
    if ((read_number(db, "SELECT sum(pgsize - unused) FROM dbstat WHERE name IN " OF_ROWS, &rows,
                     NULL) ||
         read_number(db, "SELECT sum(pgsize) FROM dbstat WHERE name NOT IN " OF_ROWS, &rest,
                     NULL)) &&
        read_number(db, "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
                    &rows, err))
        return -1;
    double room = (double)(max_bytes - rest) / 1.06;
    *out = room > 0 && rows > 0 ? (int64_t)(room / (double)rows * (double)weight) : 0;
    return 0;
#undef OF_ROWS
}

/* Fill temp.doomed; max_bytes 0: whatever size. */
static int choose(struct db *db, const struct prune_options *options, int64_t max_bytes,
                  struct err *err)
{
    char sql[200];
    int64_t budget = INT64_MAX;
    snprintf(sql, sizeof sql,
             "DROP TABLE IF EXISTS temp.prune_by; CREATE TEMP TABLE prune_by AS SELECT %" PRId64
             " AS before_ns, %d AS keep_flips, NULL AS budget, NULL AS until_ns",
             options->before_ns, options->keep_flips);
    if (db_exec(db, sql, err) || db_exec(db, sql_prune_weigh, err) ||
        (max_bytes && find_budget(db, max_bytes, &budget, err)))
        return -1;
    snprintf(sql, sizeof sql, "UPDATE temp.prune_by SET budget = %" PRId64, budget);
    return db_exec(db, sql, err) || db_exec(db, sql_prune_choose, err) ? -1 : 0;
}

static int count(struct db *db, struct pruned *out, struct err *err)
{
    struct query *query;
    int rc;
    if (db_statement(db, &query, sql_prune_counts, NULL, err))
        return -1;
    out->n_kept = 0;
    while ((rc = query_step(query, err)) > 0) {
        out->n_pruned += query_int(query, "n_pruned");
        out->n_kept += query_int(query, "n_kept");
    }
    query_free(query);
    return rc;
}

/* The rows go, or nothing does. */
static int prune_rows(struct db *db, const struct prune_options *options, int64_t max_bytes,
                      struct pruned *out, struct err *err)
{
    int64_t had = out->n_pruned;
    int rc = db_exec(db, "BEGIN IMMEDIATE", err);
    if (rc)
        return -1;
    say(db_path(db), "choosing rows");
    rc = choose(db, options, max_bytes, err) || count(db, out, err);
    if (!rc && out->n_pruned > had) {
        say(db_path(db), "removing rows");
        rc = db_exec(db, sql_prune, err) || db_exec(db, sql_indexes, err);
    }
    if (rc) {
        out->n_pruned = had;
        db_exec(db, "ROLLBACK", NULL);
        return -1;
    }
    return db_exec(db, "COMMIT", err);
}

static int vacuum(struct db *db, struct err *err)
{
    struct err cause;
    say(db_path(db), "writing the file anew");
    if (!db_exec(db, "VACUUM", &cause))
        return 0;
    return err_set(err, "%s; the rows are gone, but the file keeps its size", cause.text);
}

/* What the rows take is estimated: a file that is still too large is pruned again. One that keeps
 * rows for flips, or has few, stays as large as it is. */
static int prune_db(struct db *db, const struct prune_options *options, struct pruned *out,
                    struct err *err)
{
    enum { MOST_PASSES = 4 };
    double aim = (double)options->max_bytes;
    if (read_number(db, "SELECT count(*) FROM main.logits", &out->n_rows, err))
        return -1;
    for (int i = 0; i < MOST_PASSES; i++) {
        int64_t had = out->n_pruned;
        bool too_large = options->max_bytes && file_bytes(db_path(db)) > options->max_bytes;
        if (i > 0 && !too_large)
            break;
        if (prune_rows(db, options, too_large ? (int64_t)aim : 0, out, err))
            return -1;
        /* A file with free pages may be small enough without them. */
        if ((out->n_pruned > had || (too_large && i == 0)) && vacuum(db, err))
            return -1;
        aim *= 0.97;
    }
    return 0;
}

int prune_file(const char *path, const struct prune_options *options, struct pruned *out,
               struct err *err)
{
    struct spool sp;
    struct db *db = NULL;
    *out = (struct pruned){.bytes_before = file_bytes(path)};
    if (check_ended(path, err))
        return -1;
    if (access(path, W_OK))
        return err_set(err, "%s: %s", path, strerror(errno));
    int rc = spool_lock(&sp, path, true, err);
    if (rc)
        return rc < 0 ? -1 : err_set(err, "%s: a run is recording into it", path);
    rc = db_open_own(&db, path, true, err) || prune_db(db, options, out, err) ? -1 : 0;
    db_close(db);
    spool_remove(&sp);
    spool_close(&sp);
    out->bytes_now = file_bytes(path);
    return rc;
}

int prune_print(FILE *out, enum render_format format, const char *path,
                const struct prune_options *options, struct err *err)
{
    struct db *db = NULL;
    struct query *query = NULL;
    bool too_large = options->max_bytes && file_bytes(path) > options->max_bytes;
    if (check_ended(path, err))
        return -1;
    say(path, "choosing rows");
    int rc = db_open_own(&db, path, false, err) ||
                     choose(db, options, too_large ? options->max_bytes : 0, err) ||
                     db_statement(db, &query, sql_prune_counts, NULL, err) ||
                     render_query(out, format, 4, query, err)
                 ? -1
                 : 0;
    query_free(query);
    db_close(db);
    return rc;
}
