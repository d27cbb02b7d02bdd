#include "config.h"

#include "collector/load.h"
#include "collector/list_numbers.h"
#include "collector/scan.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 256, AHEAD = 16 };

/* ---- lists: read from the file only where two arms' best ids differ ---- */

/* The columns of q_side. */
enum { COL_TOPK, COL_N_NAN, COL_N_POSINF, COL_FIRST_BAD };

struct lists {
    struct query *row, *exact;
    struct pair_logit topk[MAX_LIST], extra[MAX_LIST];
};

static int lists_open(struct lists *lists, struct db *db, struct err *err)
{
    return db_query(db, &lists->row, "side", err) || db_query(db, &lists->exact, "exact", err) ? -1
                                                                                               : 0;
}

static void lists_close(struct lists *lists)
{
    query_free(lists->row);
    query_free(lists->exact);
}

/* [[id,logit],...] as the recorder prints it. */
static int parse_list(const char *text, struct pair_logit out[MAX_LIST], int64_t row_id,
                      struct err *err)
{
    const char *p = text;
    int n = 0;
    for (char *end; (p = strpbrk(p, "-0123456789")) && n < MAX_LIST; p = end) {
        long token = strtol(p, &end, 10);
        float logit = NAN;
        if (end > p && *end == ',') {
            p = end + 1;
            logit = strtof(p, &end);
        }
        if (end == p || isnan(logit))
            return err_set(err, "row %lld: its list is broken at byte %d", (long long)row_id,
                           (int)(p - text));
        out[n++] = (struct pair_logit){(int32_t)token, logit};
    }
    return n;
}

static int read_extra(struct lists *lists, int64_t row_id, struct pair_side *out, struct err *err)
{
    int rc = 1;
    query_reset(lists->exact);
    query_bind_int(lists->exact, ":row_id", row_id);
    while (out->n_extra < MAX_LIST && (rc = query_step(lists->exact, err)) > 0)
        lists->extra[out->n_extra++] = (struct pair_logit){
            (int32_t)query_column_int(lists->exact, 0), (float)query_column_real(lists->exact, 1)};
    out->extra = lists->extra;
    return rc < 0 ? -1 : 0;
}

/* The whole of one side of a pair. */
static int read_side(struct lists *lists, const struct arm_row *row, struct pair_side *out,
                     struct err *err)
{
    int n_bytes;
    query_reset(lists->row);
    query_bind_int(lists->row, ":row_id", row->row_id);
    if (query_step(lists->row, err) <= 0)
        return -1;
    out->n_topk = parse_list(query_column_text(lists->row, COL_TOPK, &n_bytes), lists->topk,
                             row->row_id, err);
    out->topk = lists->topk;
    out->n_nan = query_column_int(lists->row, COL_N_NAN);
    out->n_posinf = query_column_int(lists->row, COL_N_POSINF);
    out->first_bad = query_column_type(lists->row, COL_FIRST_BAD) == QUERY_NULL
                         ? PAIR_UNKNOWN
                         : (int32_t)query_column_int(lists->row, COL_FIRST_BAD);
    return out->n_topk < 0 ? -1 : read_extra(lists, row->row_id, out, err);
}

/* ---- the pairs ---- */

struct loader {
    struct arm_rows rows[2];
    struct arm_index index; /* of arm A */
    struct lists lists[2];
    struct list_numbers list_numbers; /* of A's kernel lists, in B's file */
    struct load *load;
};

static bool same_best(const struct arm_row *a, const struct arm_row *b)
{
    return a->id[0] >= 0 && a->id[1] >= 0 && !a->not_finite && !b->not_finite &&
           ((a->id[0] == b->id[0] && a->id[1] == b->id[1]) ||
            (a->id[0] == b->id[1] && a->id[1] == b->id[0]));
}

static struct pair_side known_side(const struct loader *l, int side, const struct arm_row *row)
{
    struct pair_side out = {
        .first_bad = PAIR_UNKNOWN,
        .emitted = row->emitted,
        .place = arm_rows_place(&l->rows[side], row),
    };
    if (side == 0)
        out.place.kernel_list = list_numbers_of(&l->list_numbers, out.place.kernel_list);
    return out;
}

static void fill_best(const struct arm_row *row, struct pair_logit best[2], struct pair_side *out)
{
    for (int i = 0; i < 2; i++)
        best[i] = (struct pair_logit){row->id[i], row->logit[i]};
    out->topk = best;
    out->n_topk = 2;
}

static void keep_flip(struct load *load, const struct load_flip *flip)
{
    if (load->n_flips == load->flips_size) {
        load->flips_size = load->flips_size ? 2 * load->flips_size : 64;
        load->flips = xrealloc(load->flips, load->flips_size, sizeof *load->flips);
    }
    load->flips[load->n_flips++] = *flip;
}

/* first: the row of B that had the context before, NULL: none. */
static int add_pair(struct loader *l, const struct arm_row *a, const struct arm_row *b,
                    const struct arm_row *first, struct err *err)
{
    struct pair_logit best[2][2];
    struct pair_row row = {
        .seq = arm_rows_seq_id(&l->rows[1], b),
        .pos = b->pos,
        .repeat = first != NULL,
        .first_seq = first ? arm_rows_seq_id(&l->rows[1], first) : 0,
        .comparable = true,
        .bit_equal = a->content && b->content ? a->content == b->content : PAIR_UNKNOWN,
        .a = known_side(l, 0, a),
        .b = known_side(l, 1, b),
    };
    if (same_best(a, b)) {
        fill_best(a, best[0], &row.a);
        fill_best(b, best[1], &row.b);
    } else if (read_side(&l->lists[0], a, &row.a, err) || read_side(&l->lists[1], b, &row.b, err)) {
        return -1;
    }
    if (a->id[0] != b->id[0] || a->emitted != b->emitted)
        keep_flip(l->load, &(struct load_flip){row.seq, row.pos, a->row_id, b->row_id});
    return pairs_add(l->load->pairs, &row, err);
}

/* A row of B whose context an earlier one had. */
struct again {
    uint32_t first, row; /* places in B's order */
};

/* What arm B's rows are paired with: arm A's row, or one of these. */
enum { ALONE = 0, SEEN = UINT32_MAX }; /* no row of A; paired already or later */

struct matches {
    uint32_t *order; /* (n of B) indices of B's rows, by sequence and position */
    uint32_t *of_b;  /* (n of B) in this order: 1 + index of A's row, ALONE or SEEN */
    struct again *again;
    size_t n_again, again_size;
};

/* Nothing new: the same logits and the same choice. */
static bool came_out_the_same(const struct arm_row *x, const struct arm_row *y)
{
    return x->content && x->content == y->content && x->emitted == y->emitted;
}

static void keep_again(struct matches *m, uint32_t first, uint32_t row)
{
    if (m->n_again == m->again_size) {
        m->again_size = m->again_size ? 2 * m->again_size : 64;
        m->again = xrealloc(m->again, m->again_size, sizeof *m->again);
    }
    m->again[m->n_again++] = (struct again){first, row};
}

static int compare_again(const void *x, const void *y)
{
    const struct again *a = x, *b = y;
    if (a->first != b->first)
        return a->first < b->first ? -1 : 1;
    return (a->row > b->row) - (a->row < b->row);
}

static const struct arm_row *row_of_b(const struct loader *l, const struct matches *m, size_t i)
{
    return l->rows[1].rows + m->order[i];
}

static void match_rows(struct loader *l, struct matches *m)
{
    const struct arm_rows *a = &l->rows[0], *b = &l->rows[1];
    uint32_t *first_b = xcalloc(a->n, sizeof *first_b); /* 1 + place of B's first row */
    for (size_t i = 0; i < b->n; i++) {
        if (i + AHEAD < b->n)
            arm_index_prefetch(&l->index, row_of_b(l, m, i + AHEAD));
        const struct arm_row *row = row_of_b(l, m, i);
        const struct arm_row *with = arm_index_find(&l->index, row);
        if (!with) {
            l->load->n_alone++;
            continue;
        }
        uint32_t *first = first_b + (with - a->rows);
        m->of_b[i] = SEEN;
        if (!*first) {
            *first = (uint32_t)i + 1;
            m->of_b[i] = (uint32_t)(with - a->rows) + 1;
        } else if (came_out_the_same(row_of_b(l, m, *first - 1), row)) {
            l->load->n_again++;
        } else {
            keep_again(m, *first - 1, (uint32_t)i);
        }
    }
    free(first_b);
    if (m->n_again)
        qsort(m->again, m->n_again, sizeof *m->again, compare_again);
}

/* Sequence by sequence, each with the later rows of its contexts behind it. */
static int add_rows(struct loader *l, const struct matches *m, struct err *err)
{
    const struct arm_row *a = l->rows[0].rows;
    size_t n = l->rows[1].n, k = 0;
    for (size_t i = 0; i < n; i++) {
        const struct arm_row *row = row_of_b(l, m, i);
        if (m->of_b[i] != ALONE && m->of_b[i] != SEEN &&
            add_pair(l, a + m->of_b[i] - 1, row, NULL, err))
            return -1;
        if (i + 1 < n && row_of_b(l, m, i + 1)->seq == row->seq)
            continue;
        for (; k < m->n_again && m->again[k].first <= i; k++) {
            const struct again *again = m->again + k;
            if (add_pair(l, a + m->of_b[again->first] - 1, row_of_b(l, m, again->row),
                         row_of_b(l, m, again->first), err))
                return -1;
        }
    }
    return 0;
}

static int pair_rows(struct loader *l, struct err *err)
{
    const struct arm_rows *b = &l->rows[1];
    struct matches m = {.order = arm_rows_order(b), .of_b = xcalloc(b->n, sizeof *m.of_b)};
    l->load->n_a = (int64_t)l->rows[0].n;
    l->load->n_b = (int64_t)b->n;
    arm_index_make(&l->index, &l->rows[0]);
    match_rows(l, &m);
    arm_index_free(&l->index);
    pairs_reserve(l->load->pairs, b->n);
    int rc = add_rows(l, &m, err);
    free(m.order);
    free(m.of_b);
    free(m.again);
    return rc;
}

/* Launch configurations become tags, by the numbers of B's file. */
static int add_kernel_lists(const struct load_side *a, const struct load_side *b,
                            struct pairs *pairs, struct err *err)
{
    struct query *query;
    int32_t configs[4096], list = PAIR_UNKNOWN;
    int n = 0, rc;
    if (db_query(b->db, &query, "list_configs", err))
        return -1;
    query_bind_int(query, ":arm_a", a->db == b->db ? a->arm->arm_id : b->arm->arm_id);
    query_bind_int(query, ":arm_b", b->arm->arm_id);
    while ((rc = query_step(query, err)) > 0) {
        int32_t next = (int32_t)query_int(query, "kernel_list_id");
        if (next != list && n)
            pairs_kernel_list(pairs, list, configs, n);
        n = next == list ? n : 0;
        list = next;
        if (n < (int)(sizeof configs / sizeof *configs))
            configs[n++] = (int32_t)query_int(query, "config_id");
    }
    if (n)
        pairs_kernel_list(pairs, list, configs, n);
    query_free(query);
    return rc;
}

int load_pairs(const struct load_side *a, const struct load_side *b, struct load *out,
               struct err *err)
{
    struct loader *l = xcalloc(1, sizeof *l);
    int rc = -1;
    *out = (struct load){.pairs = pairs_new(NULL, 0)};
    l->load = out;
    if (lists_open(&l->lists[0], a->db, err) || lists_open(&l->lists[1], b->db, err) ||
        list_numbers_read(&l->list_numbers, a, b, err) || add_kernel_lists(a, b, out->pairs, err) ||
        scan_arms(a, b, l->rows, err))
        goto out;
    rc = pair_rows(l, err);
out:
    if (rc)
        load_free(out);
    for (int i = 0; i < 2; i++) {
        arm_rows_free(&l->rows[i]);
        lists_close(&l->lists[i]);
    }
    list_numbers_free(&l->list_numbers);
    free(l);
    return rc;
}

void load_free(struct load *load)
{
    pairs_free(load->pairs);
    free(load->flips);
    *load = (struct load){0};
}
