#include "config.h"

#include "collector/scan.h"
#include "collector/xalloc.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

enum { MOST_WORKERS = 8, RANGES_PER_WORKER = 4, MOST_RANGES = MOST_WORKERS * RANGES_PER_WORKER };

/* Fewer rows than this are read at once and without threads. */
static const uint64_t LEAST_SPAN = 100000;

/* A range of one file, for both arms, or for one, which stands here twice. */
struct range {
    struct db *db; /* borrowed */
    int64_t arms[2];
    int sides[2]; /* whose rows these are */
    int64_t first, last;
    struct arm_rows rows[2];
};

struct scan {
    struct range ranges[2 * MOST_RANGES];
    int n_ranges;
    atomic_int next, failed;
};

/* ---- a range ---- */

static void take_row(void *data, struct cells cells)
{
    struct range *range = data;
    int arm = cell_int(cells, 0) == range->arms[0] ? 0 : 1;
    arm_rows_add(range->rows + arm, cells);
}

/* Room for all rows that the range can have, unless that is many. */
static void make_room(struct range *range)
{
    static const uint64_t most = 2 << 20;
    uint64_t n = (uint64_t)range->last - (uint64_t)range->first + 1;
    for (int k = 0; k < 2; k++)
        arm_rows_reserve(range->rows + k, (size_t)(n < most ? n : most));
}

static int read_range(struct range *range, struct db *db, struct err *err)
{
    const struct db_value parameters[] = {
        {.name = ":arm_a", .integer = range->arms[0]},
        {.name = ":arm_b", .integer = range->arms[1]},
        {.name = ":first", .integer = range->first},
        {.name = ":last", .integer = range->last},
    };
    make_room(range);
    return db_each(db, "scan_rows", parameters, sizeof parameters / sizeof *parameters, take_row,
                   range, err);
}

/* ---- the ranges ---- */

static int span_of(struct db *db, int64_t *first, int64_t *last, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "row_span", err))
        return -1;
    int rc = query_step(query, err);
    *first = rc > 0 ? query_int(query, "first") : 0;
    *last = rc > 0 ? query_int(query, "last") : 0;
    query_free(query);
    return rc < 0 ? -1 : 0;
}

/* The ranges of a file, for two of the sides or for one and the same. */
static int add_ranges(struct scan *scan, int n_workers, const struct load_side sides[2], int a,
                      int b, struct err *err)
{
    const int both[2] = {a, b};
    int64_t first, last;
    if (span_of(sides[a].db, &first, &last, err))
        return -1;
    uint64_t span = (uint64_t)last - (uint64_t)first;
    uint64_t n = span < LEAST_SPAN || n_workers < 2 ? 1 : (uint64_t)n_workers * RANGES_PER_WORKER;
    for (uint64_t i = 0; i < n; i++) {
        struct range *range = scan->ranges + scan->n_ranges++;
        *range = (struct range){.db = sides[a].db};
        range->first = (int64_t)((uint64_t)first + span / n * i + (i > 0));
        range->last = i + 1 < n ? (int64_t)((uint64_t)first + span / n * (i + 1)) : last;
        for (int k = 0; k < 2; k++) {
            range->sides[k] = both[k];
            range->arms[k] = sides[both[k]].arm->arm_id;
            arm_rows_init(range->rows + k, sides[both[k]].arm);
        }
    }
    return 0;
}

static int plan(struct scan *scan, int n_workers, const struct load_side sides[2], struct err *err)
{
    if (sides[0].db == sides[1].db && sides[0].arm->arm_id != sides[1].arm->arm_id)
        return add_ranges(scan, n_workers, sides, 0, 1, err);
    return add_ranges(scan, n_workers, sides, 0, 0, err) ||
                   add_ranges(scan, n_workers, sides, 1, 1, err)
               ? -1
               : 0;
}

/* ---- workers, each with connections of its own ---- */

struct worker {
    struct scan *scan;
    pthread_t thread;
    struct db *source, *again; /* the file at hand, and this worker's connection to it */
    int rc;
    struct err err;
};

static int work_on(struct worker *worker, struct range *range)
{
    if (worker->source != range->db) {
        db_close(worker->again);
        worker->again = NULL;
        if (db_again(&worker->again, range->db, &worker->err))
            return -1;
        worker->source = range->db;
    }
    return read_range(range, worker->again, &worker->err);
}

static void *worker_run(void *arg)
{
    struct worker *worker = arg;
    struct scan *scan = worker->scan;
    while (!worker->rc && !scan->failed) {
        int i = scan->next++;
        if (i >= scan->n_ranges)
            break;
        worker->rc = work_on(worker, scan->ranges + i);
    }
    scan->failed |= worker->rc != 0;
    db_close(worker->again);
    return NULL;
}

static int run_workers(struct scan *scan, int n_workers, struct err *err)
{
    struct worker workers[MOST_WORKERS] = {{0}};
    bool started[MOST_WORKERS];
    for (int i = 1; i < n_workers; i++) {
        workers[i].scan = scan;
        started[i] = !pthread_create(&workers[i].thread, NULL, worker_run, workers + i);
    }
    workers[0].scan = scan;
    worker_run(workers);
    for (int i = 1; i < n_workers; i++)
        if (started[i])
            pthread_join(workers[i].thread, NULL);
    for (int i = 0; i < n_workers; i++)
        if (workers[i].rc) {
            *err = workers[i].err;
            return -1;
        }
    return 0;
}

static int run_alone(struct scan *scan, struct err *err)
{
    for (int i = 0; i < scan->n_ranges; i++)
        if (read_range(scan->ranges + i, scan->ranges[i].db, err))
            return -1;
    return 0;
}

static void join_ranges(struct scan *scan, struct arm_rows rows[2])
{
    size_t n[2] = {0, 0};
    for (int i = 0; i < scan->n_ranges; i++)
        for (int k = 0; k < 2; k++)
            n[scan->ranges[i].sides[k]] += scan->ranges[i].rows[k].n;
    for (int k = 0; k < 2; k++)
        arm_rows_reserve(rows + k, n[k]);
    for (int i = 0; i < scan->n_ranges; i++)
        for (int k = 0; k < 2; k++)
            arm_rows_join(rows + scan->ranges[i].sides[k], scan->ranges[i].rows + k);
}

static int count_processors(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) ? 1 : CPU_COUNT(&set);
    return n < MOST_WORKERS ? n : MOST_WORKERS;
}

int scan_arms(const struct load_side *a, const struct load_side *b, struct arm_rows rows[2],
              struct err *err)
{
    const struct load_side sides[2] = {*a, *b};
    struct scan *scan = xcalloc(1, sizeof *scan);
    int n_workers = count_processors();
    arm_rows_init(rows, a->arm);
    arm_rows_init(rows + 1, b->arm);
    int rc = plan(scan, n_workers, sides, err);
    if (!rc)
        rc = scan->n_ranges > 2 ? run_workers(scan, n_workers, err) : run_alone(scan, err);
    if (!rc)
        join_ranges(scan, rows);
    for (int i = 0; i < scan->n_ranges; i++)
        for (int k = 0; k < 2; k++)
            arm_rows_free(scan->ranges[i].rows + k);
    free(scan);
    return rc;
}
