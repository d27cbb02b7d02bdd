/* All rows of one arm in memory, 56 bytes each: enough to pair and compare the rows of two arms
 * without going back to the file, but for the few whose lists are needed. */
#ifndef NEARTIE_COLLECTOR_ARM_ROWS_H
#define NEARTIE_COLLECTOR_ARM_ROWS_H

#include "collector/cells.h"
#include "collector/intern.h"
#include "collector/load.h"

struct arm_row {
    uint64_t context; /* hash of the tokens up to pos */
    int64_t row_id;
    uint64_t content; /* hash of the list and the log-sum-exp; 0 = the latter is unknown */
    int32_t pos;
    int32_t id[2]; /* the two best; PAIR_UNKNOWN where there is none */
    float logit[2];
    int32_t emitted;
    uint32_t seq;        /* index into seqs */
    uint32_t place : 31; /* index into places */
    uint32_t not_finite : 1;
};

struct arm_rows {
    struct arm_row *rows; /* (n) by row_id */
    size_t n, cap;
    int32_t phase;       /* of the arm, as in struct pair_place */
    struct intern seqs;  /* int64_t, the seq_id */
    int64_t last_seq_id; /* of the last row added: mostly the next one's too */
    uint32_t last_seq;   /* its number */
    /* struct pair_place, its n_past less the row's pos: few differ, so that a row needs only a
     * number */
    struct intern places;
};

/* The columns of scan_rows, behind the arm. */
enum { ARM_ROWS_FIRST_COLUMN = 1 };

void arm_rows_init(struct arm_rows *rows, const struct arm *arm);
void arm_rows_free(struct arm_rows *rows);

/* Make room for n rows in all, where about so many are expected: what is not used is not touched.
 */
void arm_rows_reserve(struct arm_rows *rows, size_t n);

/* Add the row that scan_rows gives. */
void arm_rows_add(struct arm_rows *rows, struct cells cells);

/* Add all rows of another part of the arm, and empty that. */
void arm_rows_join(struct arm_rows *rows, struct arm_rows *part);

int64_t arm_rows_seq_id(const struct arm_rows *rows, const struct arm_row *row);
struct pair_place arm_rows_place(const struct arm_rows *rows, const struct arm_row *row);

/* The numbers of the rows by sequence, position and row_id; to be freed. */
uint32_t *arm_rows_order(const struct arm_rows *rows);

/* A table from context and position to the first row that has them. A look-up that is announced a
 * few rows before waits less for memory. */
struct arm_index {
    const struct arm_rows *rows;
    uint32_t *slots; /* 1 + index into rows; 0 = free */
    size_t size;     /* a power of two */
};

void arm_index_make(struct arm_index *out, const struct arm_rows *rows);
void arm_index_prefetch(const struct arm_index *index, const struct arm_row *row);
const struct arm_row *arm_index_find(const struct arm_index *index, const struct arm_row *row);
void arm_index_free(struct arm_index *index);

#endif
