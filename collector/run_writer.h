/* A run that a command writes by itself, record by record, through the store: what simulate and
 * import make. A new file appears when it is whole; one that exists gets another run, so check the
 * input before the first record: what a failure leaves there reads as a run that died. */
#ifndef NEARTIE_COLLECTOR_RUN_WRITER_H
#define NEARTIE_COLLECTOR_RUN_WRITER_H

#include "sql/record.h"
#include "sql/store.h"

enum {
    RUN_BATCH = 1000 /* records in a transaction: the store reads them until it is committed */
};

struct run_writer {
    struct store *store;
    uint64_t n_records, n_rows, n_forwards; /* ids count from 1 */
    int64_t now_ns;
    union {
        struct record head;
        char bytes[8192];
    } slots[RUN_BATCH];
};

/* What writes the run's records; input as given to run_write_file. */
typedef int (*run_write_fn)(struct run_writer *w, void *input, struct err *err);

/* Write one run into the database at path through fn. */
int run_write_file(const char *path, run_write_fn fn, void *input, struct err *err);

/* Body of the record that comes next, and putting it. */
void *run_next_body(struct run_writer *w);
int run_put(struct run_writer *w, enum record_kind kind, size_t n_bytes, struct err *err);

/* Whole records. cls may be "". The forward's id and time are set here; value is at most 4,096
 * bytes, longer ones are cut. */
int run_put_arm(struct run_writer *w, int arm, const char *label, uint32_t phase, const char *cls,
                struct err *err);
int run_put_setting(struct run_writer *w, const char *name, const char *value, struct err *err);
int run_put_forward(struct run_writer *w, const struct record_forward *forward, struct err *err);
int run_put_gap(struct run_writer *w, const char *kind, uint64_t count, const char *detail,
                struct err *err);

#endif
