/* What recording costs the writer: rows through ring and store, beside plain SQLite inserts of the
 * same bytes, with the same settings and transactions, by one thread.
 *   bench_store [ROWS [FOLDER]]   200,000 rows in a folder of /tmp by default */
#include "config.h"

#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "shim/ring.h"
#include "sql/store.h"

enum { K = 20, BATCH = 5000, N_VOCAB = 151936 };

static void die(const char *what)
{
    fprintf(stderr, "bench_store: %s\n", what);
    exit(1);
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static uint64_t rng_state = 1;

static uint32_t rng(void)
{
    rng_state = rng_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(rng_state >> 33);
}

/* A record_row with room for its lists. */
union row {
    struct record_row row;
    uint64_t room[(sizeof(struct record_row) + K * sizeof(struct record_top) +
                   K * sizeof(struct record_base)) /
                      8 +
                  1];
};

/* A row as a model gives it, and a baseline with the same ids. */
static size_t make_row(union row *r, uint64_t id, bool deltas)
{
    r->row = (struct record_row){.row_id = id,
                                 .forward_id = id,
                                 .context_hash = (uint64_t)rng() << 32 | rng(),
                                 .base_row_id = deltas ? id : 0,
                                 .seq = 1,
                                 .pos = (int64_t)id,
                                 .lse = 20 + rng() / 1e10,
                                 .input_token = (int32_t)(rng() % N_VOCAB),
                                 .n_vocab = N_VOCAB,
                                 .first_bad = -1,
                                 .n_top = K,
                                 .n_base = deltas ? K : 0};
    struct record_base *base = record_row_base(&r->row);
    float x = 25;
    for (int i = 0; i < K; i++) {
        x -= (float)(rng() % 100000) / 131072;
        r->row.top[i] = (struct record_top){(int32_t)(rng() % N_VOCAB), x};
        if (deltas)
            base[i] = (struct record_base){r->row.top[i].token, x,
                                           x + (float)(rng() % 1000 - 500.0) * 1e-5f};
    }
    return record_row_bytes(r->row.n_top, r->row.n_base);
}

/* What a forward of one row brings: itself, its row, its end and its token. */
static void push_forward(struct spool *sp, uint64_t id, bool deltas)
{
    union row r;
    struct record_forward f = {
        id, 1800000000000000000 + (int64_t)id * 1000000, (int64_t)id, 1, 1, 1, 0, 1, 4242};
    struct record_end e = {.forward_id = id, .ended_ns = f.started_ns + 800000};
    struct record_token t = {id, 0};
    size_t n = make_row(&r, id, deltas);
    t.token = r.row.top[0].token;
    if (!ring_push(sp, RECORD_FORWARD, &f, sizeof f, NULL, 0) ||
        !ring_push(sp, RECORD_ROW, &r, n, NULL, 0) ||
        !ring_push(sp, RECORD_END, &e, sizeof e, NULL, 0) ||
        !ring_push(sp, RECORD_TOKEN, &t, sizeof t, NULL, 0))
        die("the ring is full");
}

static double file_bytes(const char *path)
{
    struct stat st;
    return stat(path, &st) ? 0 : (double)st.st_size;
}

/* Rows through the store; returns seconds of processor time in it. */
static double run_store(const char *path, uint64_t n, bool deltas)
{
    struct run_identity run = {.uuid = "00000000000000000000000000000001",
                               .probe_version = "bench"};
    struct spool sp;
    struct store *s;
    struct err err;
    uint64_t done;
    double sum = 0;
    if (spool_lock(&sp, path, true, &err) || store_open(&s, path, &err) ||
        spool_create(&sp, &run, record_slot_bytes(K, K), 32 << 20, &err) ||
        store_run_begin(s, &run, &done, &err))
        die(err.text);
    for (uint64_t id = 1; id <= n;) {
        for (int i = 0; i < BATCH / 4 && id <= n; i++)
            push_forward(&sp, id++, deltas);
        double start = seconds(CLOCK_THREAD_CPUTIME_ID);
        const struct record *r;
        if (store_begin(s, &err))
            die(err.text);
        for (; (r = ring_get(&sp, done)) != NULL; done++)
            if (store_put(s, r, &err))
                die(err.text);
        if (store_commit(s, done, &err))
            die(err.text);
        ring_free(&sp, done);
        sum += seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    }
    store_close(s, false);
    spool_remove(&sp);
    spool_close(&sp);
    return sum;
}

enum { COLUMNS_MAX = 24 };
static sqlite3_value *values[BATCH][COLUMNS_MAX];

/* Read up to BATCH rows into memory; returns how many. */
static int read_rows(sqlite3_stmt *get, int n_columns)
{
    int n = 0;
    for (; n < BATCH && sqlite3_step(get) == SQLITE_ROW; n++)
        for (int c = 0; c < n_columns; c++)
            values[n][c] = sqlite3_value_dup(sqlite3_column_value(get, c));
    return n;
}

/* Insert them in one transaction; returns seconds of processor time. */
static double insert_rows(sqlite3 *out, sqlite3_stmt *put, int n, int n_columns)
{
    double start = seconds(CLOCK_THREAD_CPUTIME_ID);
    sqlite3_exec(out, "BEGIN", 0, 0, 0);
    for (int i = 0; i < n; i++) {
        for (int c = 0; c < n_columns; c++)
            sqlite3_bind_value(put, c + 1, values[i][c]);
        if (sqlite3_step(put) != SQLITE_DONE || sqlite3_reset(put))
            die(sqlite3_errmsg(out));
    }
    sqlite3_exec(out, "COMMIT", 0, 0, 0);
    double spent = seconds(CLOCK_THREAD_CPUTIME_ID) - start;
    for (int i = 0; i < n; i++)
        for (int c = 0; c < n_columns; c++)
            sqlite3_value_free(values[i][c]);
    return spent;
}

static double copy_table(sqlite3 *in, sqlite3 *out, const char *table)
{
    char sql[400];
    sqlite3_stmt *get, *put;
    double sum = 0;
    snprintf(sql, sizeof sql, "SELECT * FROM %s", table);
    if (sqlite3_prepare_v2(in, sql, -1, &get, NULL))
        die(sqlite3_errmsg(in));
    int n_columns = sqlite3_column_count(get);
    char *p = sql + sprintf(sql, "INSERT INTO %s VALUES(?", table);
    for (int i = 1; i < n_columns; i++)
        p += sprintf(p, ",?");
    strcpy(p, ")");
    if (n_columns > COLUMNS_MAX || sqlite3_prepare_v2(out, sql, -1, &put, NULL))
        die(sqlite3_errmsg(out));
    int n;
    do {
        n = read_rows(get, n_columns);
        sum += insert_rows(out, put, n, n_columns);
    } while (n == BATCH);
    sqlite3_finalize(get);
    sqlite3_finalize(put);
    return sum;
}

/* The rows of every table, as they stand in the database that run_store made, into another: values
 * that are ready to be bound, one statement a row. */
static double run_plain(const char *from, const char *path)
{
    sqlite3 *in, *out;
    struct store *s;
    struct err err;
    if (store_open(&s, path, &err)) /* for the schema */
        die(err.text);
    store_close(s, false);
    if (sqlite3_open(from, &in) || sqlite3_open(path, &out) ||
        sqlite3_exec(out,
                     "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;"
                     "PRAGMA cache_size = -8192",
                     0, 0, 0))
        die("cannot open");
    double sum = copy_table(in, out, "forwards") + copy_table(in, out, "logits") +
                 copy_table(in, out, "delta_lists");
    sqlite3_close(in);
    sqlite3_close(out);
    return sum;
}

int main(int argc, char **argv)
{
    uint64_t n = argc > 1 ? strtoull(argv[1], NULL, 10) : 200000;
    char folder[64] = "/tmp/neartie-bench.XXXXXX";
    if (!(argc > 2 ? argv[2] : mkdtemp(folder)) || chdir(argc > 2 ? argv[2] : folder))
        die("no folder");
    printf("k %d, %llu rows, each with its forward and its token\n", K, (unsigned long long)n);
    printf("%-16s %12s %12s %8s %10s %18s\n", "", "rows/s", "plain rows/s", "share", "bytes/row",
           "at 15,000 rows/s");
    for (int deltas = 0; deltas < 2; deltas++) {
        const char *path = deltas ? "deltas.db" : "rows.db";
        double store = run_store(path, n, deltas), bytes = file_bytes(path);
        double plain = run_plain(path, "plain.db");
        printf("%-16s %12.0f %12.0f %7.0f%% %10.0f %12.1f%% CPU\n",
               deltas ? "with 20 deltas" : "without deltas", (double)n / store, (double)n / plain,
               100 * plain / store, bytes / (double)n, 100 * store / (double)n * 15000);
        unlink(path);
        unlink("plain.db");
    }
    return argc > 2 || !rmdir(folder) ? 0 : 1;
}
