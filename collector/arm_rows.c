#include "config.h"

#include "collector/arm_rows.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The columns of q_arm_rows, by number: this is the long loop. */
enum {
    COL_ROW,
    COL_CONTEXT,
    COL_POS,
    COL_SEQ,
    COL_TOP1,
    COL_TOP1_LOGIT,
    COL_TOP2,
    COL_TOP2_LOGIT,
    COL_NOT_FINITE,
    COL_EMITTED,
    COL_LSE,
    COL_TOPK,
    COL_BATCH_ROW,
    COL_N_TOKENS,
    COL_N_SEQS,
    COL_UBATCH,
    COL_N_UBATCH,
    COL_N_PAST,
    COL_KERNEL_LIST
};

/* Zeroed memory that is touched all over: in large pages where the system has them, since faults
 * and misses of the page table are a third of the time otherwise. */
static void *large_alloc(size_t n_bytes)
{
    enum { PAGE = 2 << 20 };
    size_t whole = (n_bytes + PAGE - 1) & ~(size_t)(PAGE - 1);
    void *memory = whole > PAGE ? aligned_alloc(PAGE, whole) : NULL;
    if (!memory)
        return xcalloc(1, n_bytes);
    madvise(memory, whole, MADV_HUGEPAGE);
    return memset(memory, 0, whole);
}

static int32_t known_int(const struct query *query, int column)
{
    return query_column_type(query, column) == QUERY_NULL
               ? PAIR_UNKNOWN
               : (int32_t)query_column_int(query, column);
}

static int32_t phase_of(const struct arm *arm)
{
    static const char *const phases[] = {"prefill", "decode", "verify"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(arm->phase, phases[i]))
            return i;
    return PAIR_UNKNOWN;
}

/* ---- places: few differ, so that a row needs only a number ---- */

static uint32_t *place_slot(struct arm_rows *rows, const struct pair_place *place)
{
    size_t i = XXH3_64bits(place, sizeof *place);
    uint32_t *slot;
    while (*(slot = rows->place_slots + (i & (rows->n_place_slots - 1))) &&
           memcmp(&rows->places[*slot - 1], place, sizeof *place))
        i++;
    return slot;
}

static void grow_slots(struct arm_rows *rows)
{
    rows->n_place_slots = rows->n_place_slots ? 2 * rows->n_place_slots : 256;
    free(rows->place_slots);
    rows->place_slots = xcalloc(rows->n_place_slots, sizeof *rows->place_slots);
    for (size_t i = 0; i < rows->n_places; i++)
        *place_slot(rows, rows->places + i) = (uint32_t)i + 1;
}

/* struct pair_place has no padding: all of its members are int32_t. */
static uint32_t intern_place(struct arm_rows *rows, const struct pair_place *place)
{
    if (2 * rows->n_places >= rows->n_place_slots)
        grow_slots(rows);
    uint32_t *slot = place_slot(rows, place);
    if (*slot)
        return *slot - 1;
    if (rows->n_places == rows->places_size) {
        rows->places_size = rows->places_size ? 2 * rows->places_size : 64;
        rows->places = xrealloc(rows->places, rows->places_size, sizeof *rows->places);
    }
    rows->places[rows->n_places] = *place;
    *slot = (uint32_t)++rows->n_places;
    return *slot - 1;
}

static uint32_t read_place(struct arm_rows *rows, const struct query *query, int32_t phase)
{
    const struct pair_place place = {
        .phase = phase,
        .batch_row = known_int(query, COL_BATCH_ROW),
        .n_tokens = known_int(query, COL_N_TOKENS),
        .n_seqs = known_int(query, COL_N_SEQS),
        .ubatch_index = known_int(query, COL_UBATCH),
        .n_ubatch = known_int(query, COL_N_UBATCH),
        .n_past = known_int(query, COL_N_PAST),
        .kernel_list = known_int(query, COL_KERNEL_LIST),
    };
    return intern_place(rows, &place);
}

/* ---- rows ---- */

/* Hex digits; not strtoull, which would need a copy with a NUL behind it. */
static uint64_t context_of(const struct query *query)
{
    int n_bytes;
    const unsigned char *hex = query_column_bytes(query, COL_CONTEXT, &n_bytes);
    uint64_t value = 0;
    for (int i = 0; i < n_bytes; i++)
        value = value << 4 | (hex[i] <= '9' ? hex[i] - '0' : (hex[i] & 7) + 9);
    return value;
}

static uint64_t content_of(const struct query *query)
{
    int n_bytes;
    double lse = query_column_real(query, COL_LSE);
    const void *list = query_column_bytes(query, COL_TOPK, &n_bytes);
    uint64_t seed;
    if (isnan(lse))
        return 0;
    memcpy(&seed, &lse, sizeof seed);
    return XXH3_64bits_withSeed(list, (size_t)n_bytes, seed) | 1;
}

static void read_row(struct arm_rows *rows, struct arm_row *row, const struct query *query,
                     int32_t phase)
{
    *row = (struct arm_row){
        .context = context_of(query),
        .row_id = query_column_int(query, COL_ROW),
        .content = content_of(query),
        .seq_id = query_column_int(query, COL_SEQ),
        .pos = (int32_t)query_column_int(query, COL_POS),
        .id = {known_int(query, COL_TOP1), known_int(query, COL_TOP2)},
        .logit = {(float)query_column_real(query, COL_TOP1_LOGIT),
                  (float)query_column_real(query, COL_TOP2_LOGIT)},
        .emitted = known_int(query, COL_EMITTED),
        .not_finite = query_column_int(query, COL_NOT_FINITE) != 0,
        .place = read_place(rows, query, phase),
    };
}

static int count_rows(struct db *db, int64_t arm_id, size_t *out, struct err *err)
{
    struct query *query;
    if (db_query(db, &query, "arm_count", err))
        return -1;
    query_bind_int(query, ":arm_id", arm_id);
    int rc = query_step(query, err);
    if (rc > 0)
        *out = (size_t)query_int(query, "n");
    query_free(query);
    return rc > 0 ? 0 : -1;
}

int arm_rows_load(struct arm_rows *out, struct db *db, const struct arm *arm, struct err *err)
{
    struct query *query = NULL;
    size_t size;
    int rc;
    *out = (struct arm_rows){0};
    if (count_rows(db, arm->arm_id, &size, err) || db_query(db, &query, "arm_rows", err))
        return -1;
    out->rows = large_alloc(size * sizeof *out->rows);
    query_bind_int(query, ":arm_id", arm->arm_id);
    while ((rc = query_step(query, err)) > 0 && out->n < size)
        read_row(out, out->rows + out->n++, query, phase_of(arm));
    query_free(query);
    if (rc < 0)
        arm_rows_free(out);
    return rc < 0 ? -1 : 0;
}

void arm_rows_free(struct arm_rows *rows)
{
    free(rows->rows);
    free(rows->places);
    free(rows->place_slots);
    *rows = (struct arm_rows){0};
}

static int row_cmp(const void *x, const void *y)
{
    const struct arm_row *a = x, *b = y;
    if (a->seq_id != b->seq_id)
        return a->seq_id < b->seq_id ? -1 : 1;
    if (a->pos != b->pos)
        return a->pos < b->pos ? -1 : 1;
    return (a->row_id > b->row_id) - (a->row_id < b->row_id);
}

void arm_rows_sort(struct arm_rows *rows)
{
    size_t i = 1;
    while (i < rows->n && row_cmp(rows->rows + i - 1, rows->rows + i) <= 0)
        i++;
    if (i < rows->n) /* most records are in order as they are */
        qsort(rows->rows, rows->n, sizeof *rows->rows, row_cmp);
}

/* ---- index ---- */

static uint32_t *index_slot(const struct arm_index *index, uint64_t context, int32_t pos)
{
    size_t i = context ^ (uint64_t)pos * 0x9e3779b97f4a7c15u;
    uint32_t *slot;
    for (;; i++) {
        slot = index->slots + (i & (index->size - 1));
        const struct arm_row *row = index->rows->rows + (*slot ? *slot - 1 : 0);
        if (!*slot || (row->context == context && row->pos == pos))
            return slot;
    }
}

void arm_index_make(struct arm_index *out, const struct arm_rows *rows)
{
    out->rows = rows;
    out->size = 16;
    while (out->size < rows->n + rows->n / 2)
        out->size *= 2;
    out->slots = large_alloc(out->size * sizeof *out->slots);
    for (size_t i = 0; i < rows->n; i++) {
        uint32_t *slot = index_slot(out, rows->rows[i].context, rows->rows[i].pos);
        if (!*slot)
            *slot = (uint32_t)i + 1;
    }
}

const struct arm_row *arm_index_find(const struct arm_index *index, uint64_t context, int32_t pos)
{
    uint32_t slot = *index_slot(index, context, pos);
    return slot ? index->rows->rows + slot - 1 : NULL;
}

void arm_index_free(struct arm_index *index)
{
    free(index->slots);
    index->slots = NULL;
}
