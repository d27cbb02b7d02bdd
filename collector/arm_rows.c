#include "config.h"

#include "collector/arm_rows.h"
#include "collector/xalloc.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* The columns of scan_rows, by number: this is the long loop. */
enum {
    COL_ROW = ARM_ROWS_FIRST_COLUMN,
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

static const int32_t NO_PAST = INT32_MIN; /* an unknown n_past, less pos */

/* Memory that is touched all over: in large pages where the system has them, since faults and
 * misses of the page table are a third of the time otherwise. */
static void *in_large_pages(void *memory, size_t n_bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    uintptr_t first = ((uintptr_t)memory + page - 1) & ~(page - 1);
    uintptr_t last = ((uintptr_t)memory + n_bytes) & ~(page - 1);
    if (last > first)
        madvise((void *)first, last - first, MADV_HUGEPAGE);
    return memory;
}

static int32_t known_int(struct cells cells, int column)
{
    return cell_is_null(cells, column) ? PAIR_UNKNOWN : (int32_t)cell_int(cells, column);
}

static int32_t phase_of(const struct arm *arm)
{
    static const char *const phases[] = {"prefill", "decode", "verify"};
    for (int i = 0; i < 3; i++)
        if (!strcmp(arm->phase, phases[i]))
            return i;
    return PAIR_UNKNOWN;
}

void arm_rows_init(struct arm_rows *rows, const struct arm *arm)
{
    *rows = (struct arm_rows){
        .phase = phase_of(arm),
        .seqs = {.item_size = sizeof(int64_t)},
        .places = {.item_size = sizeof(struct pair_place)},
    };
}

void arm_rows_free(struct arm_rows *rows)
{
    free(rows->rows);
    intern_free(&rows->seqs);
    intern_free(&rows->places);
    rows->rows = NULL;
    rows->n = rows->cap = 0;
}

void arm_rows_reserve(struct arm_rows *rows, size_t n)
{
    if (n <= rows->cap)
        return;
    rows->cap = n;
    rows->rows = xrealloc(rows->rows, rows->cap, sizeof *rows->rows);
    in_large_pages(rows->rows, rows->cap * sizeof *rows->rows);
}

/* ---- one row ---- */

/* Hex digits; not strtoull, which would need a copy with a NUL behind it. */
static uint64_t context_of(struct cells cells)
{
    size_t n_bytes;
    const unsigned char *hex = cell_bytes(cells, COL_CONTEXT, &n_bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < n_bytes; i++)
        value = value << 4 | (hex[i] <= '9' ? hex[i] - '0' : (hex[i] & 7) + 9);
    return value;
}

static uint64_t content_of(struct cells cells)
{
    size_t n_bytes;
    double lse = cell_real(cells, COL_LSE);
    const void *list = cell_bytes(cells, COL_TOPK, &n_bytes);
    uint64_t seed;
    if (isnan(lse))
        return 0;
    memcpy(&seed, &lse, sizeof seed);
    return XXH3_64bits_withSeed(list, n_bytes, seed) | 1;
}

/* pos - n_past repeats where n_past does not. Unsigned: what is nonsense may wrap, and back. */
static int32_t without_pos(int32_t n_past, int32_t pos)
{
    return n_past == PAIR_UNKNOWN ? NO_PAST : (int32_t)((uint32_t)n_past - (uint32_t)pos);
}

static uint32_t number_place(struct arm_rows *rows, struct cells cells, int32_t pos)
{
    const struct pair_place place = {
        .phase = rows->phase,
        .batch_row = known_int(cells, COL_BATCH_ROW),
        .n_tokens = known_int(cells, COL_N_TOKENS),
        .n_seqs = known_int(cells, COL_N_SEQS),
        .ubatch_index = known_int(cells, COL_UBATCH),
        .n_ubatch = known_int(cells, COL_N_UBATCH),
        .n_past = without_pos(known_int(cells, COL_N_PAST), pos),
        .kernel_list = known_int(cells, COL_KERNEL_LIST),
    };
    return intern_number(&rows->places, &place);
}

static uint32_t number_seq(struct arm_rows *rows, int64_t seq_id)
{
    if (!rows->seqs.n || seq_id != rows->last_seq_id) {
        rows->last_seq = intern_number(&rows->seqs, &seq_id);
        rows->last_seq_id = seq_id;
    }
    return rows->last_seq;
}

void arm_rows_add(struct arm_rows *rows, struct cells cells)
{
    int32_t pos = (int32_t)cell_int(cells, COL_POS);
    if (rows->n == rows->cap)
        arm_rows_reserve(rows, rows->n ? 2 * rows->n : 64);
    rows->rows[rows->n++] = (struct arm_row){
        .context = context_of(cells),
        .row_id = cell_int(cells, COL_ROW),
        .content = content_of(cells),
        .pos = pos,
        .id = {known_int(cells, COL_TOP1), known_int(cells, COL_TOP2)},
        .logit = {(float)cell_real(cells, COL_TOP1_LOGIT), (float)cell_real(cells, COL_TOP2_LOGIT)},
        .emitted = known_int(cells, COL_EMITTED),
        .seq = number_seq(rows, cell_int(cells, COL_SEQ)),
        .place = number_place(rows, cells, pos),
        .not_finite = cell_int(cells, COL_NOT_FINITE) != 0,
    };
}

/* ---- parts ---- */

/* The number in `to` of each item of `from`; to be freed. */
static uint32_t *map_numbers(struct intern *to, const struct intern *from)
{
    uint32_t *map = xcalloc(from->n, sizeof *map);
    for (size_t i = 0; i < from->n; i++)
        map[i] = intern_number(to, (const char *)from->items + i * from->item_size);
    return map;
}

void arm_rows_join(struct arm_rows *rows, struct arm_rows *part)
{
    uint32_t *seqs = map_numbers(&rows->seqs, &part->seqs);
    uint32_t *places = map_numbers(&rows->places, &part->places);
    arm_rows_reserve(rows, rows->n + part->n);
    for (size_t i = 0; i < part->n; i++) {
        struct arm_row *row = rows->rows + rows->n++;
        *row = part->rows[i];
        row->seq = seqs[row->seq];
        row->place = places[row->place];
    }
    free(seqs);
    free(places);
    arm_rows_free(part);
}

int64_t arm_rows_seq_id(const struct arm_rows *rows, const struct arm_row *row)
{
    return ((const int64_t *)rows->seqs.items)[row->seq];
}

struct pair_place arm_rows_place(const struct arm_rows *rows, const struct arm_row *row)
{
    struct pair_place place = ((const struct pair_place *)rows->places.items)[row->place];
    place.n_past = place.n_past == NO_PAST ? PAIR_UNKNOWN
                                           : (int32_t)((uint32_t)place.n_past + (uint32_t)row->pos);
    return place;
}

/* ---- order ---- */

struct ranked {
    int64_t seq_id;
    uint32_t seq;
};

static int ranked_cmp(const void *x, const void *y)
{
    const struct ranked *a = x, *b = y;
    return (a->seq_id > b->seq_id) - (a->seq_id < b->seq_id);
}

/* Where each sequence's rows begin, by its number, when sequences stand by their seq_id; to be
 * freed. */
static size_t *sequence_starts(const struct arm_rows *rows)
{
    size_t n = rows->seqs.n, *starts = xcalloc(n, sizeof *starts), at = 0;
    struct ranked *ranked = xcalloc(n, sizeof *ranked);
    for (size_t i = 0; i < rows->n; i++)
        starts[rows->rows[i].seq]++;
    for (size_t i = 0; i < n; i++)
        ranked[i] = (struct ranked){((const int64_t *)rows->seqs.items)[i], (uint32_t)i};
    qsort(ranked, n, sizeof *ranked, ranked_cmp);
    for (size_t i = 0; i < n; i++) {
        size_t count = starts[ranked[i].seq];
        starts[ranked[i].seq] = at;
        at += count;
    }
    free(ranked);
    return starts;
}

static int row_cmp(const void *x, const void *y, void *data)
{
    const struct arm_row *rows = data, *a = rows + *(const uint32_t *)x,
                         *b = rows + *(const uint32_t *)y;
    if (a->pos != b->pos)
        return a->pos < b->pos ? -1 : 1;
    return (a->row_id > b->row_id) - (a->row_id < b->row_id);
}

/* One sequence's rows: most are in order as they are. */
static void sort_sequence(const struct arm_rows *rows, uint32_t *order, size_t n)
{
    size_t i = 1;
    while (i < n && row_cmp(order + i - 1, order + i, rows->rows) <= 0)
        i++;
    if (i < n)
        qsort_r(order, n, sizeof *order, row_cmp, rows->rows);
}

uint32_t *arm_rows_order(const struct arm_rows *rows)
{
    uint32_t *order = xcalloc(rows->n, sizeof *order);
    size_t *ends = sequence_starts(rows), first = 0;
    for (size_t i = 0; i < rows->n; i++)
        order[ends[rows->rows[i].seq]++] = (uint32_t)i;
    while (first < rows->n) {
        size_t end = ends[rows->rows[order[first]].seq];
        sort_sequence(rows, order + first, end - first);
        first = end;
    }
    free(ends);
    return order;
}

/* ---- index ---- */

enum { AHEAD = 16 };

static size_t index_start(const struct arm_index *index, const struct arm_row *row)
{
    return (row->context ^ (uint64_t)row->pos * 0x9e3779b97f4a7c15u) & (index->size - 1);
}

static uint32_t *index_slot(const struct arm_index *index, const struct arm_row *row)
{
    for (size_t i = index_start(index, row);; i = (i + 1) & (index->size - 1)) {
        uint32_t *slot = index->slots + i;
        if (!*slot)
            return slot;
        const struct arm_row *at = index->rows->rows + *slot - 1;
        if (at->context == row->context && at->pos == row->pos)
            return slot;
    }
}

void arm_index_make(struct arm_index *out, const struct arm_rows *rows)
{
    out->rows = rows;
    out->size = 16;
    while (out->size < rows->n + rows->n / 2)
        out->size *= 2;
    out->slots =
        in_large_pages(xcalloc(out->size, sizeof *out->slots), out->size * sizeof *out->slots);
    for (size_t i = 0; i < rows->n; i++) {
        if (i + AHEAD < rows->n)
            arm_index_prefetch(out, rows->rows + i + AHEAD);
        uint32_t *slot = index_slot(out, rows->rows + i);
        if (!*slot)
            *slot = (uint32_t)i + 1;
    }
}

void arm_index_prefetch(const struct arm_index *index, const struct arm_row *row)
{
    __builtin_prefetch(index->slots + index_start(index, row));
}

const struct arm_row *arm_index_find(const struct arm_index *index, const struct arm_row *row)
{
    uint32_t slot = *index_slot(index, row);
    return slot ? index->rows->rows + slot - 1 : NULL;
}

void arm_index_free(struct arm_index *index)
{
    free(index->slots);
    index->slots = NULL;
}
