/* All rows of one arm in memory, 64 bytes each, read in one scan of its file: enough to pair and
 * compare the rows of two arms without going back to the file, but for the few whose lists are
 * needed. */
#ifndef NEARTIE_COLLECTOR_ARM_ROWS_H
#define NEARTIE_COLLECTOR_ARM_ROWS_H

#include "collector/load.h"

struct arm_row {
    uint64_t context; /* hash of the tokens up to pos */
    int64_t row_id;
    uint64_t content; /* hash of the list and the log-sum-exp; 0 = the latter is unknown */
    int64_t seq_id;
    int32_t pos;
    int32_t id[2]; /* the two best; PAIR_UNKNOWN where there is none */
    float logit[2];
    int32_t emitted;
    uint32_t place : 31; /* index into places */
    uint32_t not_finite : 1;
};

struct arm_rows {
    struct arm_row *rows; /* (n) in the order of recording, or sorted */
    size_t n;
    struct pair_place *places; /* (n_places) */
    size_t n_places, places_size;
    uint32_t *place_slots; /* hash table of 1 + index; 0 = free */
    size_t n_place_slots;
};

int arm_rows_load(struct arm_rows *out, struct db *db, const struct arm *arm, struct err *err);
void arm_rows_free(struct arm_rows *rows);

/* Order by sequence, position, row. */
void arm_rows_sort(struct arm_rows *rows);

/* A table from context and position to the first row that has them. */
struct arm_index {
    const struct arm_rows *rows;
    uint32_t *slots; /* 1 + index into rows; 0 = free */
    size_t size;     /* a power of two */
};

void arm_index_make(struct arm_index *out, const struct arm_rows *rows);
const struct arm_row *arm_index_find(const struct arm_index *index, uint64_t context, int32_t pos);
void arm_index_free(struct arm_index *index);

#endif
