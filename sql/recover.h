/* Recovery: folds the spool that a dead process left beside a database into it, exactly once: the
 * number of records folded in stands in the same transaction as the records, so that it can be
 * killed and repeated at any moment. */
#ifndef NEARTIE_SQL_RECOVER_H
#define NEARTIE_SQL_RECOVER_H

#include "err.h"
#include "sql/spool.h"

struct recovery {
    char uuid[33];      /* the run */
    uint64_t n_records; /* folded in by this call */
    uint64_t n_rows;    /* of these, logits rows */
    uint64_t n_torn; /* slots that a hook was writing when the process died: never returned from */
};

/* Fold in what a dead process left beside the database at path, remove its spool and mark its run
 * as recovered. Returns 1 when there was something, 0 when there was nothing or the process lives,
 * -1 when it failed: the spool stays. Needs to write; so look first whether a run is recording. */
int recover_database(const char *path, struct recovery *out, struct err *err);

/* The same for a spool that is locked and opened already; the caller removes it. */
int recover_spool(struct spool *sp, const char *db_path, struct recovery *out, struct err *err);

#endif
