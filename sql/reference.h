/* Rows of a recorded run, read back so that another run is compared with them while it records. */
#ifndef NEARTIE_SQL_REFERENCE_H
#define NEARTIE_SQL_REFERENCE_H

#include <stdint.h>

#include "err.h"
#include "sql/record.h"

struct reference {
    char run_uuid[33];
    int32_t n_vocab; /* 0 = unknown */
    int32_t k;       /* longest list of a row */
    int64_t n_rows;  /* at most so many rows */
};

struct reference_row {
    uint64_t context_hash;
    int64_t pos;
    uint64_t row_id;
    int phase; /* enum probe_phase, or -1 = unknown */
    int32_t n_nan;
    int32_t n_top;
    struct record_top top[RECORD_TOP_MAX];
};

struct reference_reader;

/* Open the newest run of the database that has rows; an unclosed one of a dead process is folded in
 * first. */
int reference_open(struct reference_reader **out, const char *path, struct reference *about,
                   struct err *err);

/* Read the next row, from the newest back. Returns 1, 0 at the end, or -1. */
int reference_next(struct reference_reader *r, struct reference_row *out, struct err *err);

void reference_close(struct reference_reader *r);

#endif
