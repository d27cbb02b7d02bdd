/* The writer: the one thread behind the ring, the only one that touches SQLite. It opens the files,
 * moves records from the ring into the database, a transaction every 100 ms or 5,000 records, and
 * ends the run. What it cannot write now stays in the ring and is tried again. */
#ifndef NEARTIE_SHIM_WRITER_H
#define NEARTIE_SHIM_WRITER_H

struct probe;

/* Start the thread, with every signal blocked. It posts p->started once it has set the state.
 * Returns 0 or an errno value. */
int writer_start(struct probe *p);

#endif
