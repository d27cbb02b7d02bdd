/* The probe through its table, as an engine uses it: this program runs itself as the engine, with a
 * database of its own for each case, and reads back what that has recorded. */
#include "config.h"

#include <dlfcn.h>
#include <math.h>
#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shim/capture.h"
#include "shim/probe.h"
#include "shim/tokens.h"
#include "tests/tap.h"

enum { N_VOCAB = 100, STRIDE = 128, TOPK = 20 };

static const struct probe_ops *ops;

/* ---- the engine's side ---- */

static void attach(void)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/shim/libprobe.so", getenv("abs_top_builddir"));
    void *lib = dlopen(path, RTLD_NOW | RTLD_GLOBAL);
    ops = lib ? probe_attach() : NULL;
    if (!ops) {
        printf("Bail out! %s: %s\n", path, dlerror());
        exit(1);
    }
}

/* Distinct values, none of them near another. */
static float logit_at(int64_t pos, int32_t id)
{
    return (float)((id * 37 + pos * 11) % N_VOCAB) / 4 - 10;
}

/* The second arm sees the same but for three ids, one of which climbs to the top. */
static float other_logit_at(int64_t pos, int32_t id)
{
    float x = logit_at(pos, id);
    return id == 3 ? x + 0.125f : id == 5 ? 30 : id == 7 ? x - 1 : x;
}

static uint64_t hash_at(int64_t pos)
{
    uint64_t hash = 0;
    for (int32_t p = 0; p <= pos; p++)
        hash = ops->context_hash(hash, &p, 1);
    return hash;
}

static uint64_t begin(int32_t arm, int32_t n_tokens, int64_t n_past)
{
    return ops->forward_begin(
        &(struct probe_forward){sizeof(struct probe_forward), arm, n_tokens, 1, n_past, 0, 1});
}

static void give(uint64_t forward, enum probe_dtype dtype, int32_t n_rows, int32_t n_vocab,
                 int64_t stride, const void *data, const struct probe_row *rows)
{
    ops->logits(forward, &(struct probe_logits){sizeof(struct probe_logits), PROBE_HOST, dtype,
                                                n_rows, n_vocab, stride, data, NULL, rows});
}

static int text_of(void *user, int32_t token, char *buf, size_t size)
{
    (void)user;
    if (token == 99)
        return -1;
    int n = snprintf(buf, size, "t%d", token);
    if (token == 5) { /* bytes, not text */
        buf[0] = (char)0xff;
        buf[1] = 0;
    }
    ops->forward_end(1); /* a hook within a hook does nothing */
    return n;
}

/* Three positions, all in one forward, then one by one in another arm. */
static void engine_arms(void)
{
    float logits[3 * STRIDE] = {0};
    struct probe_row rows[3];
    char *value = malloc(10001);
    memset(value, 'v', 10000);
    value[10000] = 0;
    ops->run_setting("engine", "probe_t 1", "api");
    ops->run_setting("knob", "a", "env");
    ops->run_setting("knob", "b", "default");
    ops->run_setting("long", value, "api");
    ops->vocab(N_VOCAB, text_of, NULL);
    int32_t prefill = ops->arm("prefill", PROBE_PREFILL, NULL);
    int32_t decode = ops->arm("decode", PROBE_DECODE, "reassoc");
    printf("arms %d %d %d %d\n", prefill > 0, decode == prefill + 1,
           ops->arm("prefill", PROBE_PREFILL, NULL) == prefill,
           ops->arm("prefill", (enum probe_phase)9, NULL));
    ops->sequence(70, "first", -1);
    ops->sequence(71, "second", 70);
    for (int64_t pos = 0; pos < 3; pos++) {
        rows[pos] = (struct probe_row){hash_at(pos), 70, pos, (int32_t)pos, (int32_t)pos};
        for (int32_t i = 0; i < N_VOCAB; i++)
            logits[pos * STRIDE + i] = logit_at(pos, i);
    }
    uint64_t f = begin(prefill, 3, 0);
    give(f, PROBE_F32, 3, N_VOCAB, STRIDE, logits, rows);
    ops->forward_end(f);
    for (int64_t pos = 0; pos < 3; pos++) {
        for (int32_t i = 0; i < N_VOCAB; i++)
            logits[i] = other_logit_at(pos, i);
        rows[0] = (struct probe_row){hash_at(pos), 71, pos, (int32_t)pos, 0};
        f = begin(decode, 1, pos);
        give(f, PROBE_F32, 1, N_VOCAB, N_VOCAB, logits, rows);
        ops->forward_end(f);
        ops->token(71, pos, 5);
    }
    ops->token(71, 999, 5); /* no such row */
    free(value);
}

static uint16_t bf16_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    return (uint16_t)(bits >> 16);
}

/* Rows that are not all finite, short ones, half precision, contexts that are unknown. */
static void engine_odd(void)
{
    int32_t arm = ops->arm("decode", PROBE_DECODE, NULL);
    float x[8] = {1, NAN, -INFINITY, INFINITY, 0.5f, -0.0f, 3e-45f, 2};
    uint16_t bf[4], f16[4] = {0x3c00, 0x7c00, 0xfe00, 0x0001};
    for (int i = 0; i < 4; i++)
        bf[i] = bf16_of((float)i - 2);
    struct probe_row row = {0, 1, 0, PROBE_NO_TOKEN, 0};
    uint64_t f = begin(arm, 1, 0);
    give(f, PROBE_F32, 1, 8, 8, x, &row);
    row.pos = 1;
    give(f, PROBE_BF16, 1, 4, 4, bf, &row);
    row.pos = 2;
    give(f, PROBE_F16, 1, 4, 4, f16, &row);
    for (int i = 0; i < 8; i++)
        x[i] = -INFINITY;
    row.pos = 3;
    give(f, PROBE_F32, 1, 8, 8, x, &row);
    x[0] = NAN;
    row.pos = 4;
    give(f, PROBE_F32, 1, 1, 1, x, &row);
    ops->forward_end(f);
}

/* Two arms with logits that no scale makes whole numbers, that are not finite, or all zero. */
static const float odd_pairs[][2][4] = {
    {{1, NAN, -INFINITY, INFINITY}, {0.5f, 2, -INFINITY, INFINITY}},
    {{3e30f, 1e-30f, -1, 0}, {3e30f, 2e-30f, -0.1f, -0.0f}},
    {{0, 0, 0, 0}, {0, -0.0f, 0, 0}},
    {{0x1.fffffep36f, 0x1p-24f, -0x1.fffffep36f, 1}, {0x1p36f, 0x1p-25f, 0x1.8p-24f, 1}},
};
enum { N_ODD_PAIRS = sizeof odd_pairs / sizeof *odd_pairs };

static void engine_odd_pairs(void)
{
    for (int k = 0; k < 2; k++) {
        int32_t arm = ops->arm(k ? "decode" : "prefill", k ? PROBE_DECODE : PROBE_PREFILL, NULL);
        for (int i = 0; i < N_ODD_PAIRS; i++) {
            struct probe_row row = {(uint64_t)i + 1, 1, i, PROBE_NO_TOKEN, 0};
            uint64_t f = begin(arm, 1, 0);
            give(f, PROBE_F32, 1, 4, 4, odd_pairs[i][1 - k], &row);
            ops->forward_end(f);
        }
    }
}

/* Calls that make no sense: each is counted, none crashes. */
static void engine_bad(void)
{
    float x[4] = {0};
    struct probe_row row = {1, 1, 0, 0, 0};
    uint64_t f = begin(ops->arm("decode", PROBE_DECODE, NULL), 1, 0);
    give(f, PROBE_F32, 0, 4, 4, x, &row);
    give(f, PROBE_F32, 1, 0, 4, x, &row);
    give(f, PROBE_F32, 1, 4, 3, x, &row);
    give(f, (enum probe_dtype)7, 1, 4, 4, x, &row);
    give(f, PROBE_F32, 1, 4, 4, NULL, &row);
    give(f, PROBE_F32, 1, 4, 4, x, NULL);
    ops->logits(f, NULL);
    ops->logits(f, &(struct probe_logits){.struct_size = 4});
    ops->logits(0, NULL);
    ops->forward_begin(NULL);
    ops->forward_end(0);
    ops->run_setting(NULL, NULL, NULL);
    ops->arm(NULL, PROBE_DECODE, NULL);
    ops->vocab(0, NULL, NULL);
    ops->sequence(5, NULL, -1);
    ops->run_setting("empty", NULL, NULL);
    give(0, PROBE_F32, 1, 4, 4, x, &row); /* a forward that is not recorded: legal, silent */
    give(f, PROBE_F32, 1, 4, 4, x, &row);
    ops->forward_end(f);
}

/* A row in device memory, which this build cannot read. */
static void engine_device(void)
{
    struct probe_row row = {1, 1, 0, 0, 0};
    uint64_t f = begin(ops->arm("decode", PROBE_DECODE, NULL), 1, 0);
    ops->logits(f, &(struct probe_logits){sizeof(struct probe_logits), PROBE_CUDA, PROBE_F32, 1, 4,
                                          4, &row, NULL, &row});
    ops->forward_end(f);
}

/* Ten forwards over the same five positions, twice, each followed by a token. */
static void engine_sample(void)
{
    float x[4] = {0, 1, 2, 3};
    int32_t arm = ops->arm("decode", PROBE_DECODE, NULL);
    for (int64_t i = 0; i < 10; i++) {
        struct probe_row row = {(uint64_t)i % 5 + 1, 1, i % 5, 0, 0};
        uint64_t f = begin(arm, 1, i);
        give(f, PROBE_F32, 1, 4, 4, x, &row);
        ops->forward_end(f);
        ops->token(1, i % 5, (int32_t)i);
    }
}

/* ---- the reader's side ---- */

static sqlite3 *db;
static char db_path[4096];

static const char *text(const char *sql)
{
    static char out[4][4096];
    static int turn;
    char *buf = out[turn++ % 4];
    sqlite3_stmt *st = NULL;
    snprintf(buf, sizeof out[0], "(no row)");
    if (sqlite3_prepare_v2(db, sql, -1, &st, NULL))
        snprintf(buf, sizeof out[0], "%s", sqlite3_errmsg(db));
    else if (sqlite3_step(st) == SQLITE_ROW)
        snprintf(buf, sizeof out[0], "%s",
                 sqlite3_column_text(st, 0) ? (const char *)sqlite3_column_text(st, 0) : "NULL");
    sqlite3_finalize(st);
    return buf;
}

/* Run this program as the engine of a case, then open what it left. */
static void record(const char *self, const char *name)
{
    int status;
    sqlite3_close(db);
    db = NULL;
    snprintf(db_path, sizeof db_path, "%s.db", name);
    setenv("PROBE_DB", db_path, 1);
    fflush(stdout);
    pid_t child = fork();
    if (child == 0) {
        execl(self, self, name, (char *)NULL);
        _exit(127);
    }
    waitpid(child, &status, 0);
    ok(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: the engine leaves with 0", name);
    if (sqlite3_open_v2(db_path, &db, SQLITE_OPEN_READONLY, NULL))
        printf("Bail out! %s: %s\n", db_path, sqlite3_errmsg(db));
    is_str(text("SELECT state || (ended_ns > started_ns) FROM runs"), "closed1",
           "%s: the run is closed", name);
    is_str(text("PRAGMA integrity_check"), "ok", "%s: the database is sound", name);
}

static void test_arms(const char *self)
{
    record(self, "arms");
    is_str(text("SELECT group_concat(label || ' ' || phase || ' ' || ifnull(class, '-'), ', ')"
                " FROM arms"),
           "prefill prefill -, decode decode reassoc", "the arms");
    is_str(text("SELECT engine || ' ' || n_vocab FROM runs"), "probe_t 1 100",
           "settings fill the columns of the run");
    is_str(text("SELECT value || ' ' || source FROM settings WHERE name = 'knob'"), "b default",
           "the last value of a setting counts");
    is_str(text("SELECT length(value) || ' ' || length(replace(value, 'v', '')) FROM settings"
                " WHERE name = 'long'"),
           "10000 0", "a long value is whole");
    is_str(text("SELECT value || ' ' || source FROM settings WHERE name = 'PROBE_TOPK'"),
           "20 default", "the probe's own settings are there");
    is_str(text("SELECT group_concat(s.seq || ' ' || s.label || ' ' || ifnull(p.seq, '-'), ', ')"
                " FROM sequences s LEFT JOIN sequences p ON p.seq_id = s.parent_seq_id"),
           "70 first -, 71 second 70", "the sequences");
    is_str(text("SELECT group_concat(n_tokens || ' ' || n_past, ', ') FROM forwards"),
           "3 0, 1 0, 1 1, 1 2", "the forwards");
    is_str(text("SELECT count(*) || ' ' || count(DISTINCT context_hash) || ' ' || sum(pos)"
                " FROM logits WHERE length(context_hash) = 16"),
           "6 3 6", "three contexts, twice");
    is_str(text("SELECT group_concat(ifnull(emitted_token, '-'), ' ') FROM logits"), "- - - 5 5 5",
           "emitted tokens stand at their rows");
    is_str(text("SELECT count(*) FROM logits WHERE json_array_length(topk) <> 20"), "0",
           "each row has its list");
    is_str(text("SELECT hex(text) FROM vocab WHERE token = 5"), "FF00", "texts may be any bytes");
    is_str(text("SELECT count(*) FROM vocab WHERE token NOT IN (SELECT j.value ->> 0 FROM logits,"
                " json_each(topk) AS j UNION SELECT input_token FROM logits)"),
           "0", "only texts of ids that occur");
}

/* Every delta row of the second arm, computed anew from the two rows' logits. */
static void test_deltas(void)
{
    int good = 1, n_exact = 0, n_bound = 0;
    sqlite3_stmt *st;
    sqlite3_prepare_v2(db,
                       "SELECT l.pos, d.token, d.logit, d.base_logit, d.delta, d.bound, b.seq_id,"
                       " b.pos FROM deltas d JOIN logits l USING (row_id)"
                       " JOIN logits b ON b.row_id = d.base_row_id",
                       -1, &st, NULL);
    while (sqlite3_step(st) == SQLITE_ROW) {
        int64_t pos = sqlite3_column_int64(st, 0);
        int32_t id = sqlite3_column_int(st, 1);
        double logit = sqlite3_column_double(st, 2), base = sqlite3_column_double(st, 3);
        int bound = sqlite3_column_int(st, 5);
        good &= logit == (double)other_logit_at(pos, id) && sqlite3_column_int64(st, 7) == pos;
        good &= bound ? (double)logit_at(pos, id) <= base : base == (double)logit_at(pos, id);
        good &= sqlite3_column_double(st, 4) == logit - base;
        n_exact += !bound;
        n_bound += bound;
    }
    sqlite3_finalize(st);
    ok(good, "each delta equals the difference of the logits; a bound is one");
    is_int(n_exact, 3 * TOPK, "exact at the base row's top ids");
    is_str(text("SELECT count(*) FROM (SELECT row_id, j.value ->> 0 AS t FROM logits,"
                " json_each(topk) AS j WHERE row_id > 3) WHERE (row_id, t) NOT IN"
                " (SELECT row_id, token FROM deltas)"),
           "0", "every id of the later row's list has a delta or a bound");
    ok(n_bound > 0, "an id that the base list lacks is bounded by its last logit");
    is_str(text("SELECT count(*) FROM deltas WHERE row_id <= 3"), "0",
           "the first arm has no deltas");
}

static void test_odd(const char *self)
{
    record(self, "odd");
    is_str(text("SELECT n_nan || ' ' || n_posinf || ' ' || n_neginf || ' ' || first_bad"
                " FROM logits WHERE pos = 0"),
           "1 1 1 1", "counts of what is not finite");
    is_str(text("SELECT topk FROM logits WHERE pos = 0"),
           "[[3,9e999],[7,2],[0,1],[4,0.5],[6,2.80259693e-45],[5,-0.0],[2,-9e999]]",
           "NaN never stands in the list; infinities are JSON");
    is_str(text("SELECT group_concat(json_valid(topk), '') FROM logits"), "11111",
           "every list is valid JSON");
    is_str(text("SELECT sum(logit = -9e999) || ' ' || sum(logit = 9e999) FROM topk JOIN logits"
                " USING (row_id) WHERE pos = 0"),
           "1 1", "SQL reads infinities as such");
    is_str(text("SELECT top1 || ' ' || (top1_logit = 9e999) || ' ' || (lse = 9e999) FROM logits"
                " WHERE pos = 0"),
           "3 1 1", "the best is +inf, and so is the sum");
    is_str(text("SELECT dtype || topk FROM logits WHERE pos = 1"),
           "bf16[[3,1],[2,0],[1,-1],[0,-2]]", "bf16");
    is_str(text("SELECT dtype || topk || n_nan || n_posinf FROM logits WHERE pos = 2"),
           "f16[[1,9e999],[0,1],[3,5.96046448e-08]]11", "f16");
    is_str(text("SELECT ifnull(top1, 'NULL') || ' ' || (lse = -9e999) || ' ' || n_neginf"
                " FROM logits WHERE pos = 3"),
           "NULL 1 8", "all masked: no best");
    is_str(text("SELECT topk || n_nan FROM logits WHERE pos = 4"), "[]1", "nothing but a NaN");
    is_str(text("SELECT count(context_hash) || ' ' || count(input_token) FROM logits"), "0 0",
           "what is unknown is NULL");
}

static bool same(sqlite3_stmt *st, int column, double want)
{
    if (sqlite3_column_type(st, column) == SQLITE_NULL)
        return isnan(want);
    return sqlite3_column_double(st, column) == want;
}

/* A delta's logits are the floats, to the last bit; but where no scale makes them whole numbers,
 * what is read is only nearest to them. */
static void test_odd_pairs(const char *self)
{
    bool good = true;
    int n = 0;
    sqlite3_stmt *st;
    record(self, "odd_pairs");
    sqlite3_prepare_v2(
        db,
        "SELECT l.pos, d.token, d.logit, d.base_logit, d.delta, s.scale = 1"
        " FROM deltas d JOIN delta_lists s USING (row_id) JOIN logits l USING (row_id)"
        " WHERE bound = 0",
        -1, &st, NULL);
    while (sqlite3_step(st) == SQLITE_ROW) {
        int i = sqlite3_column_int(st, 0), id = sqlite3_column_int(st, 1);
        float logit = odd_pairs[i][0][id], base = odd_pairs[i][1][id];
        bool rounded = i == 1;
        good &= rounded ? (float)sqlite3_column_double(st, 2) == logit &&
                              (float)sqlite3_column_double(st, 3) == base
                        : same(st, 2, (double)logit) && same(st, 3, (double)base) &&
                              same(st, 4, (double)logit - (double)base);
        good &= rounded || sqlite3_column_int(st, 5) == (i == 2);
        n++;
    }
    sqlite3_finalize(st);
    ok(good, "deltas of logits of every kind are exact");
    is_int(n, 4 * N_ODD_PAIRS, "and there is one for each");
}

static void test_bad(const char *self)
{
    record(self, "bad");
    is_str(text("SELECT count FROM gaps WHERE kind = 'calls_refused'"), "9",
           "calls without sense are counted");
    is_str(text("SELECT count(*) FROM logits"), "1", "the good call among them is recorded");
    is_str(text("SELECT value = '' FROM settings WHERE name = 'empty'"), "1",
           "a setting without a value is an empty text");
    record(self, "device");
    is_str(text("SELECT count FROM gaps WHERE kind = 'device_rows_dropped'"), "1",
           "a row in device memory is counted as lost");
}

static void test_sample(const char *self)
{
    setenv("PROBE_SAMPLE", "3", 1);
    record(self, "sample");
    is_str(text("SELECT count(*) || ' ' || (SELECT count(*) FROM forwards) FROM logits"), "4 4",
           "every third of ten forwards");
    is_str(text("SELECT group_concat(pos || ':' || ifnull(emitted_token, '-'), ' ') FROM logits"),
           "0:0 3:3 1:6 4:9", "a token after a row that is not recorded goes to no other");
    setenv("PROBE_SAMPLE", ".5", 1);
    record(self, "share");
    is_str(text("SELECT count(*) FROM logits"), "5", "half of ten forwards");
    is_str(text("SELECT value || ' ' || source FROM settings WHERE name = 'PROBE_SAMPLE'"),
           "0.5 env", "the setting is recorded");
    unsetenv("PROBE_SAMPLE");
}

/* Arms again, with ids and contexts under a key: the record compares as before and says nothing. */
static void test_hash(const char *self)
{
    struct tokens t;
    setenv("PROBE_TOKENS", "hash", 1);
    setenv("PROBE_TOKENS_KEY", "sesame", 1);
    record(self, "hash");
    unsetenv("PROBE_TOKENS");
    unsetenv("PROBE_TOKENS_KEY");
    tokens_init(&t, true, "sesame");
    is_str(text("SELECT count(*) FROM vocab"), "0", "no texts");
    is_str(text("SELECT count(argv) FROM runs"), "0", "no command line");
    is_str(text("SELECT count(label) FROM sequences"), "0", "no names of sequences");
    is_str(text("SELECT value FROM settings WHERE name = 'PROBE_TOKENS_KEY'"), "(set)",
           "the key is not recorded");
    sqlite3_exec(db, "ATTACH 'arms.db' AS plain", NULL, NULL, NULL);
    int good = 1, n = 0;
    sqlite3_stmt *st;
    sqlite3_prepare_v2(db,
                       "SELECT h.top1, p.top1, h.input_token, p.input_token,"
                       " ifnull(h.emitted_token, -1), ifnull(p.emitted_token, -1),"
                       " h.top1_logit = p.top1_logit AND h.context_hash <> p.context_hash,"
                       " h.topk ->> '$[7][0]', p.topk ->> '$[7][0]'"
                       " FROM main.logits AS h JOIN plain.logits AS p USING (row_id)",
                       -1, &st, NULL);
    for (; sqlite3_step(st) == SQLITE_ROW; n++) {
        for (int i = 0; i < 9; i += i == 4 ? 3 : 2)
            good &= sqlite3_column_int(st, i) == tokens_hide(&t, sqlite3_column_int(st, i + 1));
        good &= sqlite3_column_int(st, 6);
    }
    sqlite3_finalize(st);
    ok(good && n == 6, "every id is the keyed one, every logit as before");
    is_str(text("SELECT count(*) FROM (SELECT row_id, delta, bound FROM main.deltas EXCEPT"
                " SELECT row_id, delta, bound FROM plain.deltas)"),
           "0", "the same deltas");
    is_str(text("SELECT count(*) = (SELECT count(*) FROM plain.deltas) FROM main.deltas"), "1",
           "as many");
    is_str(text("SELECT count(*) FROM main.deltas WHERE token < 100"), "0",
           "none of them with an id of the vocabulary");
}

/* Arms once more, against the rows of the first time: other logits, and one context more. */
static void engine_again(void)
{
    float logits[N_VOCAB];
    int32_t decode = ops->arm("decode", PROBE_DECODE, NULL);
    for (int64_t pos = 0; pos < 4; pos++) {
        for (int32_t i = 0; i < N_VOCAB; i++)
            logits[i] = logit_at(pos, i) + (i == 9 ? 0.5f : 0);
        struct probe_row row = {hash_at(pos), 5, pos, (int32_t)pos, 0};
        uint64_t f = begin(decode, 1, pos);
        give(f, PROBE_F32, 1, N_VOCAB, N_VOCAB, logits, &row);
        ops->forward_end(f);
    }
}

static void test_baseline(const char *self)
{
    setenv("PROBE_BASELINE", "arms.db", 1);
    setenv("PROBE_TOPK", "5", 1); /* the other run's lists are longer */
    record(self, "again");
    unsetenv("PROBE_TOPK");
    sqlite3_exec(db, "ATTACH 'arms.db' AS other", NULL, NULL, NULL);
    is_str(text("SELECT count(*) || ' ' || count(DISTINCT base_run_uuid) FROM main.forwards"
                " WHERE base_run_uuid = (SELECT uuid FROM other.runs)"),
           "4 1", "the forwards name the other run");
    is_str(text("SELECT count(*) || ' ' || count(DISTINCT row_id) FROM main.deltas"
                " WHERE bound = 0"),
           "60 3", "exact at the 20 ids of each context that both have");
    is_str(text("SELECT count(*) FROM main.deltas d JOIN main.logits l USING (row_id)"
                " JOIN other.logits b ON b.row_id = d.base_row_id"
                " WHERE b.context_hash IS NOT l.context_hash OR b.pos IS NOT l.pos"),
           "0", "with the other file's row of the same context");
    is_str(text("SELECT group_concat(DISTINCT a.phase) FROM main.deltas d JOIN other.logits b"
                " ON b.row_id = d.base_row_id JOIN other.arms a USING (arm_id)"),
           "decode", "of the same phase, where there are two");
    is_str(text("SELECT count(*) FROM main.deltas d JOIN other.logits b ON b.row_id = d.base_row_id"
                " JOIN json_each(b.topk) AS j ON j.value ->> 0 = d.token"
                " WHERE d.bound = 0 AND (d.base_logit <> CAST(j.value ->> 1 AS REAL)"
                " OR d.delta <> d.logit - d.base_logit)"),
           "0", "base logits are the recorded ones");
    setenv("PROBE_BASELINE", "nothing-here.db", 1);
    record(self, "lonely");
    unsetenv("PROBE_BASELINE");
    is_str(
        text("SELECT kind || ' ' || count || ' ' || (detail LIKE 'nothing-here.db:%') FROM gaps"),
        "baseline_unread 1 1", "a baseline that cannot be read is stated");
    is_str(text("SELECT count(*) FROM logits"), "4", "and the run is recorded all the same");
    mkfifo("pipe.db", 0600);
    setenv("PROBE_BASELINE", "pipe.db", 1);
    record(self, "piped");
    unsetenv("PROBE_BASELINE");
    is_str(text("SELECT (SELECT detail FROM gaps) || ', ' || count(*) FROM logits"),
           "pipe.db: not a regular file, 4", "a pipe is not waited for");
}

static const struct {
    const char *name;
    void (*run)(void);
} engines[] = {{"again", engine_again}, {"lonely", engine_again},  {"piped", engine_again},
               {"hash", engine_arms},   {"sample", engine_sample}, {"share", engine_sample},
               {"arms", engine_arms},   {"odd", engine_odd},       {"odd_pairs", engine_odd_pairs},
               {"bad", engine_bad},     {"device", engine_device}};

int main(int argc, char **argv)
{
    for (size_t i = 0; argc > 1 && i < sizeof engines / sizeof *engines; i++)
        if (!strcmp(argv[1], engines[i].name)) {
            attach();
            engines[i].run();
            return 0;
        }
    char self[4096], folder[] = "/tmp/neartie-probe_t.XXXXXX";
    ssize_t n = readlink("/proc/self/exe", self, sizeof self - 1);
    if (n < 0 || !mkdtemp(folder) || chdir(folder))
        return 99;
    self[n] = 0;
    test_arms(self);
    test_deltas();
    test_odd(self);
    test_odd_pairs(self);
    test_bad(self);
    test_sample(self);
    test_hash(self);
    setenv("PROBE_LOG", "off", 1);
    test_baseline(self);
    sqlite3_close(db);
    if (!tap_failed && system("rm -rf \"$PWD\""))
        return 99;
    return tap_done();
}
