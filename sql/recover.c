#include "config.h"

#include "sql/recover.h"

#include <stdatomic.h>
#include <string.h>

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
        if (r && store_put(s, r, err))
            goto fail;
        sum.n_torn += !r;
        sum.n_records += r != NULL;
        sum.n_rows += r && r->kind == RECORD_ROW;
    }
    if (store_commit(s, to, err))
        goto fail;
    *out = sum;
    return 0;
fail:
    store_rollback(s);
    return -1;
}

/* What the dead process had counted as lost. */
static int fold_lost(struct store *s, const struct spool *sp, uint64_t end, struct err *err)
{
    const struct spool_lost *lost = &sp->head->lost;
    const struct {
        const char *kind;
        uint64_t count;
    } gaps[] = {
        {"rows_dropped", atomic_load(&lost->rows)},
        {"forwards_dropped", atomic_load(&lost->forwards)},
        {"records_dropped", atomic_load(&lost->others)},
    };
    if (store_begin(s, err))
        return -1;
    for (size_t i = 0; i < sizeof gaps / sizeof *gaps; i++)
        if (gaps[i].count && store_gap(s, gaps[i].kind, gaps[i].count, NULL, err))
            goto fail;
    if (!store_commit(s, end, err))
        return 0;
fail:
    store_rollback(s);
    return -1;
}

int recover_spool(struct spool *sp, const char *db_path, struct recovery *out, struct err *err)
{
    struct store *s;
    uint64_t done;
    *out = (struct recovery){0};
    memcpy(out->uuid, sp->head->run.uuid, sizeof out->uuid);
    if (store_open(&s, db_path, err))
        return -1;
    int rc = store_run_begin(s, &sp->head->run, &done, err);
    uint64_t end = find_end(sp);
    for (; rc == 0 && done < end; done += done + BATCH < end ? BATCH : end - done)
        rc = fold(s, sp, done, done + BATCH < end ? done + BATCH : end, out, err);
    if (rc == 0 && (fold_lost(s, sp, done, err) || store_run_end(s, "recovered", 0, err)))
        rc = -1;
    store_close(s, rc >= 0);
    return rc < 0 ? -1 : 1;
}

int recover_database(const char *path, struct recovery *out, struct err *err)
{
    struct spool sp;
    *out = (struct recovery){0};
    int rc = spool_lock(&sp, path, false, err);
    if (rc)
        return rc < 0 ? -1 : 0;
    rc = spool_open(&sp, err);
    if (rc == 0)
        rc = recover_spool(&sp, path, out, err);
    else if (rc > 0)
        rc = 0; /* an empty one: its process died before its first record */
    if (rc >= 0)
        spool_remove(&sp);
    spool_close(&sp);
    return rc;
}
