#include "config.h"

#include "sql/recover.h"

#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <unistd.h>

#include "sql/store.h"

enum { BATCH = 5000 };

/* One past the last whole record in the spool. */
static uint64_t find_end(const struct spool *sp)
{
    uint64_t end = 0;
    for (uint64_t i = 0; i < sp->head->n_slots; i++) {
        uint64_t seq = atomic_load_explicit(&spool_slot(sp, i)->seq, memory_order_relaxed);
        if (seq > end && (seq - 1) % sp->head->n_slots == i && spool_record(sp, seq - 1))
            end = seq;
    }
    return end;
}

/* Records from ... to - 1 in one transaction. */
static int fold(struct store *s, const struct spool *sp, uint64_t from, uint64_t to,
                struct recovery *out, struct err *err)
{
    struct recovery sum = *out;
    if (store_begin(s, err))
        return -1;
    for (uint64_t n = from; n < to; n++) {
        const struct record *r = spool_record(sp, n);
        bool whole = r && r->kind != RECORD_PENDING;
        if (whole && store_put(s, r, err))
            goto fail;
        sum.n_torn += !whole;
        sum.n_records += whole;
        sum.n_rows += whole && r->kind == RECORD_ROW;
    }
    if (store_lost(s, sp->head->lost, err) || store_commit(s, to, err))
        goto fail;
    *out = sum;
    return 0;
fail:
    store_rollback(s);
    return -1;
}

int recover_spool(struct spool *sp, const char *db_path, struct recovery *out, struct err *err)
{
    struct store *s;
    uint64_t done, tail = atomic_load(&sp->head->tail);
    *out = (struct recovery){0};
    memcpy(out->uuid, sp->head->run.uuid, sizeof out->uuid);
    if (store_open(&s, db_path, err))
        return -1;
    int rc = store_run_begin(s, &sp->head->run, &done, err);
    uint64_t end = rc ? 0 : find_end(sp);
    /* What is below the tail is in this database, or in one that it was rotated from. */
    done = done > tail ? done : tail;
    do {
        uint64_t to = done + BATCH < end ? done + BATCH : end > done ? end : done;
        if (rc == 0 && fold(s, sp, done, to, out, err))
            rc = -1;
        done = to;
    } while (rc == 0 && done < end);
    if (rc == 0 && store_run_end(s, "recovered", 0, err))
        rc = -1;
    if (rc >= 0 && store_orphans(s, err) < 0)
        rc = -1;
    store_close(s, rc >= 0);
    return rc < 0 ? -1 : 1;
}

/* Runs that are marked as recording though the lock is ours, and whose spool is gone: the process
 * died before its first record, or somebody removed the file. */
static int recover_orphans(const char *path, struct err *err)
{
    struct store *s;
    if (store_open(&s, path, err))
        return -1;
    int n = store_orphans(s, err);
    store_close(s, n > 0);
    return n < 0 ? -1 : n > 0;
}

int recover_database(const char *path, struct recovery *out, struct err *err)
{
    struct spool sp;
    *out = (struct recovery){0};
    if (access(path, F_OK))
        return err_set(err, "%s: %s", path, strerror(errno));
    int rc = spool_lock(&sp, path, false, err);
    if (rc == 2)
        rc = spool_lock(&sp, path, true, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    rc = spool_open(&sp, err);
    bool empty = rc == 1;
    if (rc == 0)
        rc = recover_spool(&sp, path, out, err);
    else if (empty)
        rc = recover_orphans(path, err);
    if (rc >= 0 || empty)
        spool_remove(&sp);
    spool_close(&sp);
    return rc;
}
