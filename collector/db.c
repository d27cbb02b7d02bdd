#include "config.h"

#include "collector/db.h"
#include "collector/cells.h"
#include "sql/recover.h"
#include "sql/sql_text.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <sqlite3.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

struct db {
    sqlite3 *handle;
    char *path;
};

struct query {
    sqlite3_stmt *st;
    const struct db *db; /* borrowed */
};

static int db_fail(const struct db *db, struct err *err)
{
    return err_set(err, "%s: %s", db->path, sqlite3_errmsg(db->handle));
}

int db_exec(struct db *db, const char *sql, struct err *err)
{
    return sqlite3_exec(db->handle, sql, NULL, NULL, NULL) ? db_fail(db, err) : 0;
}

static bool is_there(const char *path, const char *suffix)
{
    struct stat st;
    char *name = sqlite3_mprintf("%s%s", path, suffix);
    bool there = name && !stat(name, &st) && st.st_size > 0;
    sqlite3_free(name);
    return there;
}

/* A recorder makes its spool first: beside a file without a schema it says who was interrupted. */
static int no_schema(const char *path, const char *what, struct err *err)
{
    struct stat st;
    char *spool = sqlite3_mprintf("%s-spool", path);
    bool begun = spool && !stat(spool, &st);
    sqlite3_free(spool);
    return begun
               ? err_set(err, "%s: nothing was recorded: the recorder ended while it made the file",
                         path)
               : err_set(err, "%s: %s", path, what);
}

/* What the file system alone can tell: SQLite's own messages say less. */
static int check_file(const char *path, struct err *err)
{
    static const char magic[16] = "SQLite format 3";
    char head[16];
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return err_set(err, "%s: %s", path, strerror(errno));
    int rc = 0;
    if (fstat(fd, &st))
        rc = err_set(err, "%s: %s", path, strerror(errno));
    else if (S_ISDIR(st.st_mode))
        rc = err_set(err, "%s: is a directory", path);
    else if (!S_ISREG(st.st_mode))
        rc = err_set(err, "%s: not a regular file", path);
    else if (st.st_size == 0)
        rc = no_schema(path, "an empty file, not a neartie database", err);
    else if (read(fd, head, sizeof head) != sizeof head || memcmp(head, magic, sizeof head))
        rc = err_set(err, "%s: not an SQLite database", path);
    close(fd);
    return rc;
}

/* Fold in what a dead process left; one that lives keeps what it has, and is read as far as it is.
 */
static int recover(const char *path, struct err *err)
{
    struct recovery done;
    int rc = recover_database(path, &done, err);
    if (rc > 0)
        fprintf(stderr, "%s: recovered %llu rows of a run that did not end\n", path,
                (unsigned long long)done.n_rows);
    return rc < 0 ? -1 : 0;
}

/* A transaction that a dead process began is taken back by whoever can write. */
static void roll_back(const char *path)
{
    sqlite3 *writer;
    if (!is_there(path, "-journal") || access(path, W_OK))
        return;
    if (!sqlite3_open_v2(path, &writer, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL))
        sqlite3_exec(writer, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL);
    sqlite3_close(writer);
}

char *db_uri(const char *path, const char *options)
{
    /* %w is not for file names: ? and # must be escaped in a URI. */
    sqlite3_str *uri = sqlite3_str_new(NULL);
    sqlite3_str_appendall(uri, "file:");
    for (const char *p = path; *p; p++)
        sqlite3_str_appendf(uri, strchr("?#%", *p) ? "%%%02x" : "%c", (unsigned char)*p);
    sqlite3_str_appendf(uri, "?%s", options);
    return sqlite3_str_finish(uri);
}

/* Read-only; a write-ahead log in a folder that cannot be written leaves one way to read. */
static int open_handle(struct db *db, struct err *err)
{
    int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI;
    if (sqlite3_open_v2(db->path, &db->handle, SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX, NULL))
        return db_fail(db, err);
    sqlite3_busy_timeout(db->handle, 5000);
    if (sqlite3_exec(db->handle, "SELECT 1 FROM sqlite_schema LIMIT 1", NULL, NULL, NULL) !=
            SQLITE_CANTOPEN ||
        is_there(db->path, "-wal"))
        return 0;
    sqlite3_close(db->handle);
    char *name = db_uri(db->path, "immutable=1");
    int rc = sqlite3_open_v2(name, &db->handle, flags, NULL);
    sqlite3_free(name);
    return rc ? db_fail(db, err) : 0;
}

/* One value of a query as a number; 0 where there is no row, -1 where it failed. */
static int64_t value_of(struct db *db, const char *sql)
{
    sqlite3_stmt *st;
    int64_t value = -1;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &st, NULL))
        return -1;
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    else if (rc == SQLITE_DONE)
        value = 0;
    sqlite3_finalize(st);
    return value;
}

static int check_schema(struct db *db, struct err *err)
{
    int64_t has = value_of(db, "SELECT count(*) FROM main.sqlite_schema WHERE name = 'meta'");
    if (has < 0)
        return db_fail(db, err);
    int64_t version =
        has ? value_of(db, "SELECT value FROM main.meta WHERE key = 'schema_version'") : 0;
    if (version < 1)
        return no_schema(db->path, "an SQLite database, but not one of neartie: no schema_version",
                         err);
    if (version > SQL_SCHEMA_VERSION)
        return err_set(err, "%s: schema version %lld, this neartie reads versions up to %d",
                       db->path, (long long)version, SQL_SCHEMA_VERSION);
    return 0;
}

/* Lay this program's views over the file's. */
static int make_views(struct db *db, struct err *err)
{
    static const char from[] = "CREATE VIEW ", to[] = "CREATE TEMP VIEW ";
    sqlite3_str *sql = sqlite3_str_new(db->handle);
    const char *p = sql_views, *hit;
    for (; (hit = strstr(p, from)); p = hit + strlen(from)) {
        sqlite3_str_append(sql, p, (int)(hit - p));
        sqlite3_str_appendall(sql, to);
    }
    sqlite3_str_appendall(sql, p);
    char *text = sqlite3_str_finish(sql);
    int rc = text ? db_exec(db, text, err) : err_set(err, "%s: out of memory", db->path);
    sqlite3_free(text);
    return rc;
}

/* Make the readers' indexes where the recorder had no time for it. A file that cannot be written,
 * or is being recorded into, is read without. */
static void make_indexes(struct db *db)
{
    sqlite3 *writer;
    if (access(db->path, W_OK) || is_there(db->path, "-spool") ||
        value_of(db, "SELECT count(*) FROM main.sqlite_schema WHERE name = 'logits_context'"))
        return;
    if (isatty(STDERR_FILENO) && value_of(db, "SELECT max(row_id) FROM main.logits") > 1000000)
        fprintf(stderr, "%s: making the index of contexts, once\n", db->path);
    if (!sqlite3_open_v2(db->path, &writer, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL))
        sqlite3_exec(writer, sql_indexes, NULL, NULL, NULL);
    sqlite3_close(writer);
}

/* A run that is marked as recording: its process lives, or has left it to be recovered. */
static bool has_unended(struct db *db)
{
    return !access(db->path, W_OK) &&
           value_of(db, "SELECT count(*) FROM main.runs WHERE state = 'recording'") > 0;
}

static int reopen(struct db *db, struct err *err)
{
    sqlite3_close(db->handle);
    db->handle = NULL;
    return recover(db->path, err) || open_handle(db, err) ? -1 : 0;
}

static struct db *new_db(const char *path, struct err *err)
{
    struct db *db = calloc(1, sizeof *db);
    if (db)
        db->path = strdup(path);
    if (db && db->path)
        return db;
    free(db);
    err_set(err, "%s: out of memory", path);
    return NULL;
}

/* What the file's schema says is not run. */
static void distrust(struct db *db)
{
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
}

int db_open(struct db **out, const char *path, struct err *err)
{
    if (access(path, F_OK) && is_there(path, "-spool") && recover(path, err))
        return -1;
    roll_back(path);
    if (check_file(path, err))
        return -1;
    struct db *db = new_db(path, err);
    if (!db)
        return -1;
    if (open_handle(db, err) || check_schema(db, err) || (has_unended(db) && reopen(db, err)))
        goto fail;
    make_indexes(db);
    distrust(db);
    if (make_views(db, err) ||
        db_exec(db, "PRAGMA query_only = 1; PRAGMA cache_size = -16384;", err))
        goto fail;
    *out = db;
    return 0;
fail:
    db_close(db);
    return -1;
}

int db_open_own(struct db **out, const char *path, bool writable, struct err *err)
{
    struct db *db = new_db(path, err);
    if (!db)
        return -1;
    int flags = writable ? SQLITE_OPEN_READWRITE : SQLITE_OPEN_READONLY;
    if (sqlite3_open_v2(path, &db->handle, flags | SQLITE_OPEN_NOMUTEX, NULL)) {
        db_fail(db, err);
        goto fail;
    }
    sqlite3_busy_timeout(db->handle, 5000);
    distrust(db);
    sqlite3_db_config(db->handle, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, NULL);
    if (make_views(db, err) || db_exec(db, "PRAGMA cache_size = -65536", err))
        goto fail;
    *out = db;
    return 0;
fail:
    db_close(db);
    return -1;
}

int db_again(struct db **out, const struct db *from, struct err *err)
{
    struct db *db = new_db(from->path, err);
    if (!db)
        return -1;
    if (open_handle(db, err) ||
        db_exec(db, "PRAGMA query_only = 1; PRAGMA cache_size = -2048;", err)) {
        db_close(db);
        return -1;
    }
    distrust(db);
    *out = db;
    return 0;
}

void db_close(struct db *db)
{
    if (!db)
        return;
    sqlite3_close(db->handle);
    free(db->path);
    free(db);
}

const char *db_path(const struct db *db)
{
    return db->path;
}

int db_statement(struct db *db, struct query **out, const char *sql, const char **tail,
                 struct err *err)
{
    sqlite3_stmt *st;
    *out = NULL;
    if (sqlite3_prepare_v2(db->handle, sql, -1, &st, tail))
        return db_fail(db, err);
    if (!st)
        return 0;
    if (!sqlite3_stmt_readonly(st)) {
        sqlite3_finalize(st);
        return err_set(err, "%s: only statements that read are allowed", db->path);
    }
    struct query *query = calloc(1, sizeof *query);
    if (!query) {
        sqlite3_finalize(st);
        return err_set(err, "%s: out of memory", db->path);
    }
    query->st = st;
    query->db = db;
    *out = query;
    return 0;
}

static const char *text_named(const char *prefix, const char *name)
{
    size_t n = strlen(prefix);
    for (const struct sql_text *t = sql_texts; t->name; t++)
        if (!strncmp(t->name, prefix, n) && !strcmp(t->name + n, name))
            return t->text;
    return NULL;
}

int db_query(struct db *db, struct query **out, const char *name, struct err *err)
{
    const char *sql = text_named("q_", name);
    *out = NULL;
    if (!sql)
        return err_set(err, "%s: there is no query of that name", name);
    return db_statement(db, out, sql, NULL, err);
}

static void bind_value(sqlite3_stmt *st, const struct db_value *value)
{
    int i = sqlite3_bind_parameter_index(st, value->name);
    assert(i > 0);
    switch (value->type) {
    case DB_INT:
        sqlite3_bind_int64(st, i, value->integer);
        break;
    case DB_REAL:
        sqlite3_bind_double(st, i, value->real);
        break;
    case DB_TEXT:
        sqlite3_bind_text(st, i, value->text, -1, SQLITE_STATIC);
        break;
    }
}

int db_put(struct db *db, const char *name, const struct db_value *values, int n, struct err *err)
{
    sqlite3 *writer;
    sqlite3_stmt *st = NULL;
    const char *sql = text_named("", name);
    assert(sql);
    int rc = sqlite3_open_v2(db->path, &writer, SQLITE_OPEN_READWRITE | SQLITE_OPEN_NOMUTEX, NULL);
    sqlite3_busy_timeout(writer, 5000);
    if (!rc)
        rc = sqlite3_prepare_v2(writer, sql, -1, &st, NULL);
    for (int i = 0; !rc && i < n; i++)
        bind_value(st, values + i);
    if (!rc && sqlite3_step(st) != SQLITE_DONE)
        rc = -1;
    if (rc)
        err_set(err, "%s: %s", db->path, sqlite3_errmsg(writer));
    sqlite3_finalize(st);
    sqlite3_close(writer);
    return rc ? -1 : 0;
}

/* ---- scans: the columns go to an aggregate, which never leaves SQLite's loop ---- */

struct visit {
    db_row_fn fn;
    void *data;
};

static void visit_row(sqlite3_context *context, int n, sqlite3_value **values)
{
    const struct visit *visit = sqlite3_user_data(context);
    (void)n;
    visit->fn(visit->data, (struct cells){values});
}

static void visit_end(sqlite3_context *context)
{
    sqlite3_result_null(context);
}

int db_each(struct db *db, const char *name, const struct db_value *values, int n, db_row_fn fn,
            void *data, struct err *err)
{
    struct visit visit = {fn, data};
    sqlite3_stmt *st = NULL;
    const char *sql = text_named("", name);
    assert(sql);
    int rc = sqlite3_create_function(db->handle, "each_row", -1, SQLITE_UTF8 | SQLITE_DIRECTONLY,
                                     &visit, NULL, visit_row, visit_end);
    if (!rc)
        rc = sqlite3_prepare_v2(db->handle, sql, -1, &st, NULL);
    for (int i = 0; !rc && i < n; i++)
        bind_value(st, values + i);
    while (!rc && (rc = sqlite3_step(st)) == SQLITE_ROW)
        rc = 0;
    if (rc != SQLITE_DONE)
        db_fail(db, err);
    sqlite3_finalize(st);
    sqlite3_create_function(db->handle, "each_row", -1, SQLITE_UTF8, NULL, NULL, NULL, NULL);
    return rc == SQLITE_DONE ? 0 : -1;
}

bool query_has_parameter(const struct query *query, const char *name)
{
    return sqlite3_bind_parameter_index(query->st, name) > 0;
}

void query_bind_int(struct query *query, const char *name, int64_t value)
{
    int i = sqlite3_bind_parameter_index(query->st, name);
    assert(i > 0);
    sqlite3_bind_int64(query->st, i, value);
}

void query_bind_text(struct query *query, const char *name, const char *value)
{
    int i = sqlite3_bind_parameter_index(query->st, name);
    assert(i > 0);
    sqlite3_bind_text(query->st, i, value, -1, SQLITE_TRANSIENT);
}

void query_reset(struct query *query)
{
    sqlite3_reset(query->st);
}

int query_step(struct query *query, struct err *err)
{
    switch (sqlite3_step(query->st)) {
    case SQLITE_ROW:
        return 1;
    case SQLITE_DONE:
        return 0;
    default:
        return db_fail(query->db, err);
    }
}

void query_free(struct query *query)
{
    if (!query)
        return;
    sqlite3_finalize(query->st);
    free(query);
}

int query_n_columns(const struct query *query)
{
    return sqlite3_column_count(query->st);
}

const char *query_column_name(const struct query *query, int i)
{
    return sqlite3_column_name(query->st, i);
}

enum query_type query_column_type(const struct query *query, int i)
{
    switch (sqlite3_column_type(query->st, i)) {
    case SQLITE_INTEGER:
        return QUERY_INT;
    case SQLITE_FLOAT:
        return QUERY_REAL;
    case SQLITE_NULL:
        return QUERY_NULL;
    default:
        return QUERY_TEXT;
    }
}

int64_t query_column_int(const struct query *query, int i)
{
    return sqlite3_column_int64(query->st, i);
}

double query_column_real(const struct query *query, int i)
{
    return sqlite3_column_type(query->st, i) == SQLITE_NULL ? NAN
                                                            : sqlite3_column_double(query->st, i);
}

const char *query_column_text(const struct query *query, int i, int *n_bytes)
{
    const char *text = (const char *)sqlite3_column_text(query->st, i);
    *n_bytes = sqlite3_column_bytes(query->st, i);
    return text ? text : "";
}

const void *query_column_bytes(const struct query *query, int i, int *n_bytes)
{
    const void *bytes = sqlite3_column_blob(query->st, i);
    *n_bytes = sqlite3_column_bytes(query->st, i);
    return bytes ? bytes : "";
}

static int column_named(const struct query *query, const char *name)
{
    int n = sqlite3_column_count(query->st), i = 0;
    while (i < n && strcmp(sqlite3_column_name(query->st, i), name))
        i++;
    assert(i < n);
    return i;
}

bool query_is_null(const struct query *query, const char *name)
{
    return query_column_type(query, column_named(query, name)) == QUERY_NULL;
}

int64_t query_int(const struct query *query, const char *name)
{
    return query_column_int(query, column_named(query, name));
}

double query_real(const struct query *query, const char *name)
{
    return query_column_real(query, column_named(query, name));
}

const char *query_text(const struct query *query, const char *name)
{
    return (const char *)sqlite3_column_text(query->st, column_named(query, name));
}
