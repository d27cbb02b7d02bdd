/* The spool: a file beside the database, DB-spool, that holds the ring of records of the run being
 * recorded. The page cache outlives a process, so that whatever stands in it survives SIGKILL; and
 * whoever holds its lock owns the database: one process records into a file at a time, and a reader
 * that gets the lock knows that the recording process is gone. Power loss is not covered.
 *
 * The recording process creates and removes it; sql/recover.h folds in one that was left behind. */
#ifndef NEARTIE_SQL_SPOOL_H
#define NEARTIE_SQL_SPOOL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "sql/record.h"

enum {
    SPOOL_HEADER_BYTES = 8192,
    SPOOL_RESERVE_BYTES = 1 << 20 /* kept at the end of the file, to be given up on a full disk */
};

/* What was not recorded, by what it was; the kinds of the same names in `gaps` (spool_lost_names).
 * Any thread adds, whoever writes the database states the sums. */
enum spool_lost {
    LOST_ROWS,        /* logits rows that found the ring full */
    LOST_FORWARDS,    /* whole forwards; their rows are counted as rows as well */
    LOST_RECORDS,     /* tokens, settings and sequences */
    LOST_CALLS,       /* calls whose arguments make no sense */
    LOST_DEVICE_ROWS, /* rows in device memory that could not be captured */
    N_LOST
};
extern const char *const spool_lost_names[N_LOST];

/* The first SPOOL_HEADER_BYTES of the file. */
struct spool_header {
    char magic[8]; /* SPOOL_MAGIC; written last, so that a half-made file has none */
    uint32_t slot_bytes;
    uint32_t n_slots;
    struct run_identity run;
    _Alignas(64) _Atomic uint64_t head; /* records reserved so far; SPOOL_CLOSED when no more */
    _Alignas(64) _Atomic uint64_t tail; /* records that are in the database */
    _Alignas(64) _Atomic uint64_t lost[N_LOST];
};

#define SPOOL_CLOSED (UINT64_C(1) << 63)

struct spool {
    int fd;                    /* holds the lock; -1 = not open */
    struct spool_header *head; /* the mapping: header, then the slots; NULL = not mapped */
    size_t map_bytes;
    bool in_file;    /* the mapping is the file; false: memory only, because the disk is full */
    char path[4096]; /* of the spool file */
};

/* Lock the database's spool, creating the file where create is set. Returns 0; 1: another live
 * process holds it; 2: there is none and create is not set; -1: failed. Pair with
 * spool_close. */
int spool_lock(struct spool *sp, const char *db_path, bool create, struct err *err);

/* Lay out a ring of at most bytes (at least 16 slots), all of it reserved on the disk, and map it;
 * where the disk has no room the ring is in memory only. */
int spool_create(struct spool *sp, const struct run_identity *run, size_t slot_bytes, size_t bytes,
                 struct err *err);

/* Map what a dead process left. Returns 0, or 1 where the file holds no run. */
int spool_open(struct spool *sp, struct err *err);

/* Record number n (from 0) as it stands in its slot, or NULL where that is another or torn. */
const struct record *spool_record(const struct spool *sp, uint64_t n);

/* The slot in which record number n stands. */
static inline struct record *spool_slot(const struct spool *sp, uint64_t n)
{
    const struct spool_header *h = sp->head;
    return (struct record *)((char *)sp->head + SPOOL_HEADER_BYTES +
                             (size_t)(n % h->n_slots) * h->slot_bytes);
}

/* Whether the descriptor and the path still name the same file: nobody closed or removed it. */
bool spool_intact(const struct spool *sp);

/* Count n of a kind as not recorded. */
static inline void spool_lose(struct spool *sp, enum spool_lost kind, uint64_t n)
{
    atomic_fetch_add_explicit(&sp->head->lost[kind], n, memory_order_relaxed);
}

/* Give the reserve's disk space back, so that a run on a full disk can state what it lost. */
void spool_yield(struct spool *sp);

void spool_remove(struct spool *sp); /* remove the file; mapping and lock stay */
void spool_unmap(struct spool *sp);  /* unmap; the lock stays */
void spool_close(struct spool *sp);  /* unmap, and give up the lock */

#endif
