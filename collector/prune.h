/* Old rows of a record go, and the file shrinks (sql/prune*.sql). Rows go in one transaction, and
 * the file is written anew after it: a prune that is killed leaves a whole record, with or without
 * them. */
#ifndef NEARTIE_COLLECTOR_PRUNE_H
#define NEARTIE_COLLECTOR_PRUNE_H

#include "collector/render.h"

#include "err.h"

#include <stdbool.h>
#include <stdint.h>

struct prune_options {
    int64_t before_ns; /* rows of forwards that began before go; 0: none for their age */
    int64_t max_bytes; /* the oldest go until the file has at most that; 0: whatever size */
    bool keep_flips;   /* not the rows about a flip */
};

/* What was done. */
struct pruned {
    int64_t n_rows, n_pruned, n_kept; /* before; gone; older ones that stay for a flip */
    int64_t bytes_before, bytes_now;
};

/* Refuses a record that a run is writing. */
int prune_file(const char *path, const struct prune_options *options, struct pruned *out,
               struct err *err);

/* Print, run by run, what would go; the file stays as it is. */
int prune_print(FILE *out, enum render_format format, const char *path,
                const struct prune_options *options, struct err *err);

#endif
