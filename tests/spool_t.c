/* Ring, spool, store and recovery, without the probe around them: what was pushed arrives once and
 * in order, whatever dies in between. */
#include "config.h"

#include <pthread.h>
#include <sched.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shim/ring.h"
#include "sql/recover.h"
#include "sql/spool.h"
#include "sql/store.h"
#include "tests/tap.h"

enum { K = 4, PRODUCERS = 4, EACH = 50000 };

static struct run_identity identity(char c)
{
    struct run_identity run = {.pid = 1, .started_ns = 1000, .probe_version = "test"};
    memset(run.uuid, c, 32);
    return run;
}

/* Open a fresh spool of n slots for the database; the run is named by c. */
static void open_spool(struct spool *sp, const char *db, char c, size_t n_slots)
{
    struct err err = {""};
    struct run_identity run = identity(c);
    size_t slot = record_slot_bytes(K, K);
    if (spool_lock(sp, db, true, &err) ||
        spool_create(sp, &run, slot, SPOOL_HEADER_BYTES + n_slots * slot, &err)) {
        printf("Bail out! %s\n", err.text);
        exit(1);
    }
}

static bool push_row(struct spool *sp, uint64_t row_id)
{
    struct {
        struct record_row row;
        struct record_top top[K];
    } r = {.row = {.row_id = row_id,
                   .forward_id = 1,
                   .context_hash = row_id,
                   .seq = 1,
                   .pos = (int64_t)row_id - 1,
                   .input_token = 3,
                   .n_vocab = 10,
                   .first_bad = -1,
                   .n_top = K}};
    for (int i = 0; i < K; i++)
        r.top[i] = (struct record_top){i, (float)(K - i)};
    return ring_push(sp, RECORD_ROW, &r.row, sizeof r.row, r.top, sizeof r.top);
}

static void push_rows(struct spool *sp, uint64_t from, uint64_t to)
{
    for (uint64_t id = from; id <= to; id++)
        if (!push_row(sp, id))
            ok(0, "row %llu does not fit", (unsigned long long)id);
}

static sqlite3_int64 query(const char *path, const char *sql)
{
    sqlite3 *db;
    sqlite3_stmt *st = NULL;
    sqlite3_int64 value = -1;
    if (!sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) &&
        !sqlite3_prepare_v2(db, sql, -1, &st, NULL) && sqlite3_step(st) == SQLITE_ROW)
        value = sqlite3_column_int64(st, 0);
    sqlite3_finalize(st);
    sqlite3_close(db);
    return value;
}

/* The rows 1 ... n of the run are there, each once, and the file is sound. */
static void is_whole(const char *db, int n, const char *name)
{
    is_int(query(db, "SELECT count(*) FROM logits"), n, "%s: %d rows", name, n);
    is_int(query(db, "SELECT count(*) FROM logits WHERE pos = row_id - 1"), n,
           "%s: each is the one it was", name);
    ok(query(db, "SELECT count(*) FROM pragma_integrity_check WHERE integrity_check = 'ok'") == 1,
       "%s: the database is sound", name);
}

static bool exists(const char *path)
{
    return access(path, F_OK) == 0;
}

static void test_ring(void)
{
    struct spool sp;
    open_spool(&sp, "ring.db", 'a', 16);
    uint64_t n;
    int fit = 0;
    for (uint64_t id = 1; id <= 20; id++)
        fit += push_row(&sp, id);
    is_int(fit, 16, "a ring of 16 takes 16 records");
    is_int((long long)ring_used(&sp), 16, "all of them wait");
    ok(!ring_close(&sp), "a ring with records does not close");
    ok(ring_get(&sp, 0) != NULL && ring_get(&sp, 16) == NULL, "what is not there is not got");
    ring_free(&sp, 3);
    fit = 0;
    for (uint64_t id = 21; id <= 30; id++)
        fit += push_row(&sp, id);
    is_int(fit, 3, "three slots given back take three records");
    const struct record_row *row = (const struct record_row *)ring_get(&sp, 16)->body;
    is_int((long long)row->row_id, 21, "the ring goes round");
    struct record *r = ring_reserve(&sp, &n);
    ok(r == NULL, "a full ring reserves nothing");
    ring_free(&sp, 19);
    r = ring_reserve(&sp, &n);
    ok(r && ring_get(&sp, n) == NULL, "a reserved record is not there before it is published");
    ok(!ring_close(&sp), "a ring with a reserved record does not close");
    ring_publish(r, n, RECORD_NONE, 0);
    ok(ring_get(&sp, n) == r, "published, it is");
    ring_free(&sp, n + 1);
    ok(ring_close(&sp) && ring_close(&sp), "an empty ring closes");
    ok(!push_row(&sp, 1), "a closed ring takes nothing");
    is_int((long long)ring_used(&sp), 0, "a closed ring is empty");
    spool_remove(&sp);
    spool_close(&sp);
    ok(!exists("ring.db-spool"), "the file is gone");
}

static struct spool shared;

static void *produce(void *arg)
{
    for (uint64_t i = 1; i <= EACH; i++)
        while (!push_row(&shared, (uint64_t)(uintptr_t)arg << 32 | i))
            sched_yield();
    return NULL;
}

static void test_threads(void)
{
    pthread_t threads[PRODUCERS];
    uint64_t next[PRODUCERS], n = 0;
    int good = 1;
    open_spool(&shared, "threads.db", 'b', 64);
    for (uintptr_t i = 0; i < PRODUCERS; i++) {
        next[i] = 1;
        pthread_create(&threads[i], NULL, produce, (void *)i);
    }
    while (n < PRODUCERS * EACH) {
        const struct record *r = ring_get(&shared, n);
        if (!r) {
            sched_yield();
            continue;
        }
        const struct record_row *row = (const struct record_row *)r->body;
        good &= spool_record(&shared, n) == r && row->row_id >> 32 < PRODUCERS;
        good &= next[row->row_id >> 32 & (PRODUCERS - 1)]++ == (row->row_id & 0xffffffff);
        if (++n % 16 == 0)
            ring_free(&shared, n);
    }
    for (int i = 0; i < PRODUCERS; i++)
        pthread_join(threads[i], NULL);
    ok(good, "%d producers: each one's records arrive once, whole and in order", PRODUCERS);
    ring_free(&shared, n);
    ok(ring_close(&shared), "nothing is left");
    spool_remove(&shared);
    spool_close(&shared);
}

static void test_recover(void)
{
    struct spool sp, other;
    struct recovery r;
    struct err err = {""};
    open_spool(&sp, "r.db", 'c', 64);
    push_rows(&sp, 1, 50);
    is_int(spool_lock(&other, "r.db", false, &err), 1, "a second owner is turned away");
    is_int(recover_database("r.db", &r, &err), -1, "no database yet: nothing is touched");
    spool_close(&sp);
    struct store *s;
    ok(!store_open(&s, "r.db", &err), "an empty database");
    store_close(s, false);
    is_int(recover_database("r.db", &r, &err), 1, "a dead run is folded in");
    is_int((long long)r.n_rows, 50, "all its rows are counted");
    is_int((long long)r.n_torn, 0, "none was torn");
    is_whole("r.db", 50, "recovered");
    is_int(query("r.db", "SELECT count(*) FROM runs WHERE state = 'recovered'"), 1,
           "the run is marked");
    is_int(query("r.db", "SELECT count(*) FROM meta WHERE key GLOB 'spool*'"), 0,
           "no mark of progress is left");
    ok(!exists("r.db-spool"), "the spool is gone");
    is_int(recover_database("r.db", &r, &err), 0, "once: there is nothing more");
    is_whole("r.db", 50, "once");
}

/* The ring has gone round, part of it is in the database, one record is torn and the last slot is
 * reserved: what a process leaves that is killed at work. */
static void test_torn(void)
{
    struct spool sp;
    struct store *s;
    struct recovery r;
    struct err err = {""};
    struct run_identity run = identity('d');
    uint64_t done, n;
    open_spool(&sp, "t.db", 'd', 16);
    if (store_open(&s, "t.db", &err) || store_run_begin(s, &run, &done, &err))
        printf("Bail out! %s\n", err.text);
    for (n = 0; n < 30; n++) {
        push_rows(&sp, n + 1, n + 1);
        if (store_begin(s, &err) || store_put(s, ring_get(&sp, n), &err) ||
            store_commit(s, n + 1, &err))
            printf("Bail out! %s\n", err.text);
        if (n < 28) /* the last two are in the database, and their slots not yet given back */
            ring_free(&sp, n + 1);
    }
    push_rows(&sp, 31, 36);
    store_close(s, false);
    struct record *torn = ring_get(&sp, 35);
    ((struct record_row *)torn->body)->pos = 77;
    ring_reserve(&sp, &n);
    spool_lose(&sp, LOST_ROWS, 9);
    spool_close(&sp);
    is_int(recover_database("t.db", &r, &err), 1, "a run that was killed at work is folded in");
    is_int((long long)r.n_rows, 5, "only what was not in the database");
    is_int(query("t.db", "SELECT count(*) FROM logits"), 35, "no row is there twice");
    is_int(query("t.db", "SELECT count(*) FROM logits WHERE pos = row_id - 1"), 35,
           "the torn one is not there");
    is_int(query("t.db", "SELECT count FROM gaps WHERE kind = 'rows_dropped'"), 9,
           "what the dead process had lost is stated");
}

/* A recovery that dies after its first transaction, and one that dies before it removes the spool.
 */
static void test_recover_twice(void)
{
    struct spool sp;
    struct store *s;
    struct recovery r;
    struct err err = {""};
    struct run_identity run = identity('e');
    uint64_t done;
    open_spool(&sp, "e.db", 'e', 64);
    push_rows(&sp, 1, 50);
    if (store_open(&s, "e.db", &err) || store_run_begin(s, &run, &done, &err) ||
        store_begin(s, &err))
        printf("Bail out! %s\n", err.text);
    for (uint64_t n = 0; n < 20; n++)
        store_put(s, spool_record(&sp, n), &err);
    ok(!store_commit(s, 20, &err), "20 of 50 are folded in");
    store_close(s, false);
    is_int(recover_spool(&sp, "e.db", &r, &err), 1, "the next one goes on");
    is_int((long long)r.n_rows, 30, "with the other 30");
    is_whole("e.db", 50, "a recovery cut short");
    spool_close(&sp);
    ok(exists("e.db-spool"), "the spool is still there");
    is_int(recover_database("e.db", &r, &err), 1, "a third one finds a run that is done");
    is_int((long long)r.n_rows, 0, "and folds nothing in");
    is_whole("e.db", 50, "a recovery repeated");
    ok(!exists("e.db-spool"), "the spool is gone");
}

/* Another run goes into the same file: ids come after those that are there. */
static void test_second_run(void)
{
    struct spool sp;
    struct recovery r;
    struct err err = {""};
    open_spool(&sp, "e.db", 'f', 64);
    push_rows(&sp, 1, 10);
    spool_close(&sp);
    is_int(recover_database("e.db", &r, &err), 1, "a second run of the same file");
    is_int(query("e.db", "SELECT count(*) FROM logits WHERE row_id > 50"), 10,
           "its ids come after the first one's");
    is_int(query("e.db", "SELECT count(*) FROM runs"), 2, "two runs");
}

static void test_orphan(void)
{
    struct store *s;
    struct recovery r;
    struct err err = {""};
    struct run_identity run = identity('0');
    uint64_t done;
    if (store_open(&s, "o.db", &err) || store_run_begin(s, &run, &done, &err))
        printf("Bail out! %s\n", err.text);
    store_close(s, false);
    is_int(recover_database("o.db", &r, &err), 1, "a run whose spool is gone");
    is_int(query("o.db", "SELECT count(*) FROM runs WHERE state = 'recovered'"), 1,
           "becomes recovered");
    ok(!exists("o.db-spool"), "and leaves no file");
    is_int(recover_database("o.db", &r, &err), 0, "once");
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "w");
    if (!f || fwrite(bytes, 1, n, f) != n || fclose(f))
        printf("Bail out! cannot write %s\n", path);
}

static void test_damaged(void)
{
    static char junk[20000];
    struct recovery r;
    struct err err = {""};
    struct spool sp;
    memset(junk, 'x', sizeof junk);
    write_file("o.db-spool", junk, sizeof junk);
    is_int(recover_database("o.db", &r, &err), -1, "a spool that is none");
    ok(strstr(err.text, "not a spool of this version") != NULL, "the message says so: %s",
       err.text);
    ok(exists("o.db-spool"), "it stays");
    unlink("o.db-spool");
    open_spool(&sp, "o.db", '1', 16);
    push_rows(&sp, 1, 5);
    sp.head->n_slots = 1000000;
    spool_close(&sp);
    is_int(recover_database("o.db", &r, &err), -1, "a header that promises more than there is");
    ok(strstr(err.text, "damaged") != NULL, "the message says so: %s", err.text);
    unlink("o.db-spool");
    write_file("o.db-spool", junk, 100);
    is_int(recover_database("o.db", &r, &err), 0, "a spool shorter than its header");
    ok(!exists("o.db-spool"), "is removed");
}

static void test_modes(void)
{
    struct stat st;
    struct spool sp;
    open_spool(&sp, "r.db", '2', 16);
    ok(!stat("r.db-spool", &st) && (st.st_mode & 0777) == 0600, "the spool is its owner's");
    ok(!stat("r.db", &st) && (st.st_mode & 0777) == 0600, "so is the database");
    ok(sp.in_file && st.st_blocks > 0, "the ring is in the file");
    ok(spool_intact(&sp), "and intact");
    unlink("r.db-spool");
    ok(!spool_intact(&sp), "removed by somebody: it is noticed");
    spool_close(&sp);
}

int main(void)
{
    char folder[] = "/tmp/neartie-spool_t.XXXXXX";
    if (!mkdtemp(folder) || chdir(folder))
        return 99;
    test_ring();
    test_threads();
    test_recover();
    test_torn();
    test_recover_twice();
    test_second_run();
    test_orphan();
    test_damaged();
    test_modes();
    if (!tap_failed && system("rm -rf \"$PWD\""))
        return 99;
    return tap_done();
}
