/* A run goes on in a fresh database when the one it records into is full. The two steps leave, at
 * every moment, one database at the recorder's path that the spool can be folded into. */
#ifndef NEARTIE_SQL_ROTATE_H
#define NEARTIE_SQL_ROTATE_H

#include <stdint.h>

#include "err.h"
#include "sql/store.h"

/* Make a database at next that goes on with the run of s, which is between two transactions. */
int rotate_prepare(struct store *s, const char *next, struct err *err);

/* End the run's part in this file, as of ended_ns, and fold the write-ahead log in, so that the
 * file may be renamed once it is closed. Returns 1, and the run goes on here, where another process
 * has the file open. */
int rotate_leave(struct store *s, int64_t ended_ns, struct err *err);

/* Let the database at path and the one at next, both closed, change places, and the former become
 * old, in place of any that is there. */
int rotate_swap(const char *path, const char *next, const char *old, struct err *err);

#endif
