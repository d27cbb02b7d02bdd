/* The files of a recording: which database this process records into, and opening it. Called by
 * the writer alone, which has a table of open files of its own: the host can neither close nor
 * inherit what is in it, and a host that counts its descriptors finds none of ours. */
#ifndef NEARTIE_SHIM_FILES_H
#define NEARTIE_SHIM_FILES_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "sql/spool.h"
#include "sql/store.h"

/* Give the calling thread a file table of its own, empty; where the system does not allow it the
 * thread goes on with the shared one. Returns whether it has its own. */
bool files_private(void);

struct files {
    struct spool spool;
    struct store *store;
    uint64_t n_done; /* records of this run that are in the database */
    char path[4096]; /* of the database, absolute */
};

/* Take the database at path, make the ring and begin the run. One that another process records
 * into, or that the first attempts skip, gives way to NAME-PID.db, NAME-PID-2.db and so on; a run
 * that a dead process left is folded in first. run must be filled. On failure nothing is left open.
 */
int files_open(struct files *f, const char *path, int skip, const struct run_identity *run,
               size_t slot_bytes, size_t bytes, struct err *err);

/* Bytes of the database and its write-ahead log. */
int64_t files_bytes(const struct files *f);

/* Go on in a fresh database at the same path; the full one becomes NAME-old.db. Returns 1 where it
 * cannot be now, since another process has it open. On failure f->store may be NULL: files_reopen.
 */
int files_rotate(struct files *f, const struct run_identity *run, struct err *err);

/* Open the database at the path again and go on with the run. */
int files_reopen(struct files *f, const struct run_identity *run, struct err *err);

#endif
