#include "config.h"

#include "sql/reference.h"

#include <errno.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "sql/recover.h"
#include "sql/sql_text.h"

struct reference_reader {
    sqlite3 *db;
    sqlite3_stmt *rows;
    char path[4096];
};

static int fail(const struct reference_reader *r, struct err *err)
{
    return err_set(err, "%s: %s", r->path, sqlite3_errmsg(r->db));
}

static int find_run(struct reference_reader *r, struct reference *about, int64_t *run_id,
                    struct err *err)
{
    sqlite3_stmt *st;
    if (sqlite3_prepare_v2(r->db, sql_baseline_run, -1, &st, NULL))
        return fail(r, err);
    int rc = sqlite3_step(st);
    if (rc == SQLITE_ROW) {
        int k = sqlite3_column_int(st, 3);
        *run_id = sqlite3_column_int64(st, 0);
        snprintf(about->run_uuid, sizeof about->run_uuid, "%s",
                 (const char *)sqlite3_column_text(st, 1));
        about->n_vocab = sqlite3_column_int(st, 2);
        about->k = k > 0 && k <= RECORD_TOP_MAX ? k : RECORD_TOP_MAX;
        about->n_rows = sqlite3_column_int64(st, 4);
    }
    sqlite3_finalize(st);
    if (rc == SQLITE_ROW)
        return 0;
    return rc == SQLITE_DONE ? err_set(err, "%s: no run in it has rows", r->path) : fail(r, err);
}

/* To open a pipe would wait for its other end for ever. */
static int check_file(const char *path, struct err *err)
{
    struct stat st;
    if (stat(path, &st))
        return err_set(err, "%s: %s", path, strerror(errno));
    return S_ISREG(st.st_mode) ? 0 : err_set(err, "%s: not a regular file", path);
}

int reference_open(struct reference_reader **out, const char *path, struct reference *about,
                   struct err *err)
{
    struct reference_reader *r = calloc(1, sizeof *r);
    struct recovery left;
    int64_t run_id = 0;
    *out = NULL;
    if (!r)
        return err_set(err, "%s: out of memory", path);
    snprintf(r->path, sizeof r->path, "%s", path);
    if (check_file(path, err))
        goto fail;
    /* Where it cannot be folded in, what is in the file has to do. */
    recover_database(path, &left, NULL);
    if (sqlite3_open_v2(path, &r->db, SQLITE_OPEN_READONLY, NULL)) {
        fail(r, err);
        goto fail;
    }
    sqlite3_busy_timeout(r->db, 1000);
    if (find_run(r, about, &run_id, err))
        goto fail;
    if (sqlite3_prepare_v2(r->db, sql_baseline_rows, -1, &r->rows, NULL) ||
        sqlite3_bind_int64(r->rows, 1, run_id)) {
        fail(r, err);
        goto fail;
    }
    *out = r;
    return 0;
fail:
    reference_close(r);
    return -1;
}

/* [[id,logit],...]; the thread's locale must be one whose decimal point is a point. Returns how
 * many, or -1 where it is anything else. */
static int parse_top(const char *p, struct record_top *out, int room)
{
    int n = 0;
    char *end;
    if (!p || *p++ != '[')
        return -1;
    while (*p == '[' && n < room) {
        out[n].token = (int32_t)strtol(p + 1, &end, 10);
        if (end == p + 1 || *end != ',')
            return -1;
        p = end + 1;
        out[n++].logit = strtof(p, &end);
        if (end == p || *end != ']')
            return -1;
        p = end + 1;
        if (*p == ',')
            p++;
    }
    return *p == ']' ? n : -1;
}

int reference_next(struct reference_reader *r, struct reference_row *out, struct err *err)
{
    static const char *const phases[] = {"prefill", "decode", "verify"};
    int rc = sqlite3_step(r->rows);
    if (rc != SQLITE_ROW)
        return rc == SQLITE_DONE ? 0 : fail(r, err);
    const char *hash = (const char *)sqlite3_column_text(r->rows, 1);
    const char *phase = (const char *)sqlite3_column_text(r->rows, 3);
    out->row_id = (uint64_t)sqlite3_column_int64(r->rows, 0);
    out->context_hash = hash ? strtoull(hash, NULL, 16) : 0;
    out->pos = sqlite3_column_int64(r->rows, 2);
    out->phase = -1;
    for (int i = 0; phase && i < 3; i++)
        if (!strcmp(phase, phases[i]))
            out->phase = i;
    out->n_nan = sqlite3_column_int(r->rows, 5);
    out->n_top = parse_top((const char *)sqlite3_column_text(r->rows, 4), out->top, RECORD_TOP_MAX);
    if (out->n_top < 0)
        return err_set(err, "%s: row %llu: its topk is not a list of pairs", r->path,
                       (unsigned long long)out->row_id);
    return 1;
}

void reference_close(struct reference_reader *r)
{
    if (!r)
        return;
    sqlite3_finalize(r->rows);
    sqlite3_close(r->db);
    free(r);
}
