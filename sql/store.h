/* The store: records into the database, by the schema. The recorder's writer and the recovery of a
 * spool go through it, so that both write the same rows. One thread at a time; it owns its SQLite
 * connection. A transaction that fails is rolled back as a whole and can be tried again. */
#ifndef NEARTIE_SQL_STORE_H
#define NEARTIE_SQL_STORE_H

#include <stdbool.h>
#include <stdint.h>

#include "err.h"
#include "sql/spool.h"

struct store;

/* Texts of the token ids 0 ... n - 1. */
struct store_vocab {
    int32_t n;
    const uint32_t *offset; /* (n + 1) into text; equal neighbours: the id has no text */
    const char *text;
};

/* Say, before anything else, that one thread alone uses SQLite in this process; for a process that
 * has a copy of SQLite to itself. Its locks fall away. */
void store_single_thread(void);

/* Open the database at path, or create it with mode 0600. A file that is not a neartie database, or
 * one of another schema version, is an error and stays as it is, byte for byte. */
int store_open(struct store **out, const char *path, struct err *err);

/* Begin the run, or go on with it where the file has it already: then *n_done is the number of its
 * records that are in the file, and a run that is not open any more gives 1. */
int store_run_begin(struct store *s, const struct run_identity *run, uint64_t *n_done,
                    struct err *err);

/* Transactions. store_put takes one record, which must stay as it is until store_commit or
 * store_rollback; a record that the schema refuses is counted in `gaps` and passed over.
 * store_commit states that the first n_done records of the run are in the file. */
int store_begin(struct store *s, struct err *err);
int store_put(struct store *s, const struct record *r, struct err *err);
int store_commit(struct store *s, uint64_t n_done, struct err *err);
void store_rollback(struct store *s);

/* State that count of a kind were not recorded, in all since the run began (within a transaction).
 * detail, where not NULL, replaces what was said before. */
int store_gap(struct store *s, const char *kind, uint64_t count, const char *detail,
              struct err *err);

/* State what the run did not record so far, by enum spool_lost (within a transaction). */
int store_lost(struct store *s, const _Atomic uint64_t lost[N_LOST], struct err *err);

/* Texts of the ids that occur from now on; borrowed until the store is closed or given others. */
void store_vocab(struct store *s, const struct store_vocab *vocab);

/* End the run: state is "closed" or "recovered"; ended_ns 0 = unknown. */
int store_run_end(struct store *s, const char *state, int64_t ended_ns, struct err *err);

/* Mark every run that is recording as recovered: for a caller that holds the database's lock, so
 * that their processes are gone. Returns how many there were, or -1. */
int store_orphans(struct store *s, struct err *err);

/* Close. With finish also make the indexes (for at most about a second) and fold the write-ahead
 * log in, so that one plain file remains; a failure there loses no row. */
void store_close(struct store *s, bool finish);

#endif
