/* Views and named queries on a golden record (tests/data/golden.sql) whose figures can be worked
 * out by hand: every q_*.sql and every view is prepared and run, and what they say is compared. */
#include "config.h"

#include "sql/sql_text.h"
#include "tests/tap.h"

#include <sqlite3.h>

static sqlite3 *db;

static char *read_file(const char *path)
{
    FILE *in = fopen(path, "rb");
    char *text = NULL;
    size_t size = 0, n;
    if (!in)
        return NULL;
    FILE *out = open_memstream(&text, &size);
    char buf[4096];
    while ((n = fread(buf, 1, sizeof buf, in)) > 0)
        fwrite(buf, 1, n, out);
    fclose(out);
    fclose(in);
    return text;
}

static int exec(const char *what, const char *sql)
{
    char *message = NULL;
    int rc = sqlite3_exec(db, sql, NULL, NULL, &message);
    if (!ok(!rc, "%s", what))
        diag("%s", message);
    sqlite3_free(message);
    return rc;
}

/* What each parameter name of a q_*.sql stands for here; a name that is not listed is a fault. */
static const struct {
    const char *name, *value;
} parameters[] = {
    {":run_id", "1"},       {":run_a", "1"},  {":run_b", "2"},       {":arm_a", "1"},
    {":arm_b", "2"},        {":n", "24"},     {":arm_id", "2"},      {":seq_id", "1"},
    {":row_a", "4"},        {":row_id", "8"}, {":name", "'decode'"}, {":sorted", "1"},
    {":label", "'golden'"}, {":token", "1"},  {":config_id", "2"},   {":step", "2"},
    {":row_b", "10"},       {":reach", "64"},
};

static int bind_all(sqlite3_stmt *st, const char *query)
{
    for (int i = 1; i <= sqlite3_bind_parameter_count(st); i++) {
        const char *name = sqlite3_bind_parameter_name(st, i);
        size_t at = 0, n = sizeof parameters / sizeof *parameters;
        while (at < n && name && strcmp(parameters[at].name, name))
            at++;
        if (!name || at == n) {
            diag("%s: parameter %s is not known", query, name ? name : "without a name");
            return -1;
        }
        const char *value = parameters[at].value;
        if (value[0] == '\'')
            sqlite3_bind_text(st, i, value + 1, (int)strlen(value) - 2, SQLITE_STATIC);
        else
            sqlite3_bind_int64(st, i, atoll(value));
    }
    return 0;
}

/* Run one statement; return its rows as text, "a|b\n...", NULL as nothing, or NULL if it failed. */
static char *rows_of(const char *sql, const char *name)
{
    sqlite3_stmt *st = NULL;
    const char *tail = NULL;
    char *text = NULL;
    size_t size;
    int rc = sqlite3_prepare_v2(db, sql, -1, &st, &tail);
    if (rc || bind_all(st, name)) {
        diag("%s: %s", name, sqlite3_errmsg(db));
        sqlite3_finalize(st);
        return NULL;
    }
    FILE *out = open_memstream(&text, &size);
    while ((rc = sqlite3_step(st)) == SQLITE_ROW)
        for (int i = 0, n = sqlite3_column_count(st); i < n; i++) {
            const char *value = (const char *)sqlite3_column_text(st, i);
            fprintf(out, "%s%s", value ? value : "", i + 1 < n ? "|" : "\n");
        }
    fclose(out);
    sqlite3_finalize(st);
    if (rc == SQLITE_DONE && !tail[strspn(tail, " \n")])
        return text;
    diag("%s: %s", name, rc == SQLITE_DONE ? "more than one statement" : sqlite3_errmsg(db));
    free(text);
    return NULL;
}

static void is_rows(const char *name, const char *sql, const char *want)
{
    char *got = rows_of(sql, name);
    is_str(got, want, "%s", name);
    free(got);
}

static const char *text_named(const char *name)
{
    for (const struct sql_text *t = sql_texts; t->name; t++)
        if (!strcmp(t->name, name))
            return t->text;
    return "";
}

/* Every query begins with a comment, runs, and finds something in the golden record. */
static void test_queries(void)
{
    int n = 0;
    for (const struct sql_text *t = sql_texts; t->name; t++) {
        if (strncmp(t->name, "q_", 2))
            continue;
        char *rows = rows_of(t->text, t->name);
        ok(rows && *rows && !strncmp(t->text, "-- ", 3), "%s.sql runs, and says what it is",
           t->name);
        free(rows);
        n++;
    }
    ok(n > 10, "%d queries are embedded", n);
}

static void test_views(void)
{
    sqlite3_stmt *st;
    sqlite3_prepare_v2(db, "SELECT name FROM sqlite_schema WHERE type = 'view'", -1, &st, NULL);
    while (sqlite3_step(st) == SQLITE_ROW) {
        const char *name = (const char *)sqlite3_column_text(st, 0);
        char *sql = sqlite3_mprintf("SELECT * FROM \"%w\"", name);
        char *rows = rows_of(sql, name);
        ok(rows && *rows, "view %s", name);
        free(rows);
        sqlite3_free(sql);
    }
    sqlite3_finalize(st);
}

static void test_pairs(void)
{
    is_rows("a pair that agrees: contrast at A's runner-up",
            "SELECT flip, contrast, delta, max_delta, bounded FROM pairs WHERE row_a=1 AND row_b=7",
            "0|-0.25|0.25|0.5|0\n");
    is_rows("a flip's contrast is the sum of the two margins between the contenders",
            "SELECT flip, contrast, delta, bounded FROM pairs WHERE row_a = 2 AND row_b = 8",
            "1|0.5|0.5|0\n");
    is_rows("an id that A did not record is bounded by A's last logit",
            "SELECT flip, contrast, delta, max_delta, bounded FROM pairs WHERE row_a=4",
            "1|1.25|1.5|1.0|1\n");
    is_rows("pair_ids: exact where a delta was recorded, a bound elsewhere",
            "SELECT token, logit_a, logit_b, bound FROM pair_ids WHERE row_a = 4 ORDER BY token",
            "1|3.0|2.0|\n2|3.0|4.5|a\n6|4.0|4.25|\n7|3.5|3.0|\n");
    is_rows("every row of B is matched with A's first row of its context",
            "SELECT row_a, row_b FROM matches WHERE context_hash LIKE '%c0' ORDER BY 1, 2",
            "1|7\n1|13\n1|14\n1|17\n7|13\n7|14\n7|17\n13|17\n");
    is_rows("other contexts match nothing",
            "SELECT count(*) FROM matches WHERE row_a = 16 OR row_b = 16", "0\n");
    is_rows("flips between prefill and decode, with texts",
            "SELECT pos, text_a, text_b FROM flips WHERE run_b = 1 ORDER BY pos",
            "1|<b>| cat\n3| sat| a\n");
    is_rows("agreement",
            "SELECT n, n_seqs, n_flips FROM agreement WHERE arm_id_b = 3 ORDER BY arm_id_a",
            "3|2|1\n3|2|0\n");
}

static void test_figures(void)
{
    is_rows("topk", "SELECT rank, token, logit FROM topk WHERE row_id = 8",
            "1|5|2.25\n2|4|2.0\n3|1|0.5\n");
    is_rows("margins: equal ones share a rank",
            "SELECT pos, rank, round(percentile, 2) FROM margins WHERE arm_id = 2 ORDER BY pos",
            "0|6|100.0\n1|1|33.33\n2|3|66.67\n3|1|33.33\n4|3|66.67\n5|5|83.33\n");
    is_rows("the window is in order, and notes what is bad or bounded", text_named("q_window"),
            "0|1|2|1.0|1|2|1.25|0.25|0|0|0|1|7\n1|4|5|0.25|5|4|0.25|0.5|1|0|0|2|8\n"
            "2|1|2|0.0|1|2|0.5|0.5|0|0|0|3|9\n3|6|7|0.5|2|6|0.25|1.5|1|1|0|4|10\n"
            "4|1|2|0.5|1|2|0.5|0.0|0|0|1|5|11\n5|3|4|0.5|3|4|0.625|0.125|0|0|0|6|12\n");
    is_rows("settings that differ", text_named("q_setting_diff"),
            "NEARTIE_CHUNK|||64|env\nNEARTIE_FAST|0|default|1|env\n");
    is_rows("kernels that differ", text_named("q_kernel_diff"),
            "_Z4gemmPf|8x1x1|256x1x1|c1|2.0|\n_Z4gemvPf|64x2x1|128x1x1|c2|1.0|2.0\n");
    is_rows("kernel_usage multiplies lists by forwards",
            "SELECT config_id, n_forwards, n_launches FROM kernel_usage WHERE arm_id = 2",
            "2|5|10\n");
    is_rows(
        "a query for Nsight Systems' tables",
        "SELECT s.value, count(*), sum(k.\"end\" - k.start) FROM CUPTI_ACTIVITY_KIND_KERNEL AS k"
        " JOIN StringIds AS s ON s.id = k.shortName GROUP BY 1",
        "_Z4gemmPf|2|\n_Z4gemvPf|17|\n");
}

int main(void)
{
    char path[4096];
    const char *top = getenv("abs_top_srcdir");
    snprintf(path, sizeof path, "%s/tests/data/golden.sql", top ? top : ".");
    char *golden = read_file(path);
    if (!ok(golden != NULL, "read %s", path) || sqlite3_open(":memory:", &db))
        return tap_done();
    if (!exec("schema", sql_schema) && !exec("views", sql_views) &&
        !exec("golden record", golden)) {
        test_queries();
        test_views();
        test_pairs();
        test_figures();
        exec("indexes", sql_indexes);
        test_pairs();
        test_figures();
        exec("deltas against a row of another file",
             "UPDATE forwards SET base_run_uuid = 'ff' WHERE forward_id = 5");
        is_rows("a number of another file's row is none of this one's",
                "SELECT max_delta FROM pairs WHERE row_a = 4 AND row_b = 10", "0.5\n");
        is_rows("deltas says whose row it is",
                "SELECT DISTINCT row_id, base_row_id, base_run_uuid FROM deltas ORDER BY 1",
                "8|2|\n10|4|ff\n");
        is_rows("every reference of the golden record holds", "PRAGMA foreign_key_check", "");
    }
    sqlite3_close(db);
    free(golden);
    return tap_done();
}
