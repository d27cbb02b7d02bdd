#include "config.h"

#include "collector/load.h"
#include "collector/xalloc.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LIST = 256 };

/* ---- contexts of arm A: an open hash table from (context, position) to a row ---- */

struct context {
    uint64_t hash;
    int64_t pos;
    int64_t row_id; /* 0 = free */
};

struct contexts {
    struct context *slots; /* (size), size a power of two */
    size_t size, n;
};

static struct context *context_slot(const struct contexts *c, uint64_t hash, int64_t pos)
{
    size_t i = (hash ^ (uint64_t)pos * 0x9e3779b97f4a7c15u) & (c->size - 1);
    while (c->slots[i].row_id && (c->slots[i].hash != hash || c->slots[i].pos != pos))
        i = (i + 1) & (c->size - 1);
    return c->slots + i;
}

static void contexts_grow(struct contexts *c)
{
    struct contexts old = *c;
    c->size = old.size ? 2 * old.size : 1024;
    c->slots = xcalloc(c->size, sizeof *c->slots);
    for (size_t i = 0; i < old.size; i++)
        if (old.slots[i].row_id)
            *context_slot(c, old.slots[i].hash, old.slots[i].pos) = old.slots[i];
    free(old.slots);
}

/* The first row of a context stays. */
static void contexts_add(struct contexts *c, uint64_t hash, int64_t pos, int64_t row_id)
{
    if (c->n * 3 >= c->size * 2)
        contexts_grow(c);
    struct context *slot = context_slot(c, hash, pos);
    if (slot->row_id)
        return;
    *slot = (struct context){hash, pos, row_id};
    c->n++;
}

/* The columns of q_arm_contexts, by number: the loop is the long one. */
enum { COL_ROW, COL_HASH, COL_POS, COL_SEQ };

static uint64_t context_of(const struct query *query)
{
    int n_bytes;
    return strtoull(query_column_text(query, COL_HASH, &n_bytes), NULL, 16);
}

static int contexts_load(const struct load_side *side, struct contexts *out, int64_t *n,
                         struct err *err)
{
    struct query *query;
    int rc;
    *n = 0;
    if (db_query(side->db, &query, "arm_contexts", err))
        return -1;
    query_bind_int(query, ":arm_id", side->arm->arm_id);
    query_bind_int(query, ":sorted", 0);
    contexts_grow(out);
    while ((rc = query_step(query, err)) > 0) {
        contexts_add(out, context_of(query), query_column_int(query, COL_POS),
                     query_column_int(query, COL_ROW));
        ++*n;
    }
    query_free(query);
    return rc;
}

/* ---- one row ---- */

/* The columns of q_side. */
enum {
    COL_TOPK,
    COL_LSE,
    COL_TOP1,
    COL_TOP1_LOGIT,
    COL_TOP2,
    COL_TOP2_LOGIT,
    COL_N_NAN,
    COL_N_POSINF,
    COL_FIRST_BAD,
    COL_EMITTED,
    COL_BATCH_ROW,
    COL_N_TOKENS,
    COL_N_SEQS,
    COL_UBATCH,
    COL_N_UBATCH,
    COL_N_PAST,
    COL_KERNEL_LIST
};

/* One side's statements and the lists of its row in hand. */
struct side {
    struct query *row, *exact;
    int32_t phase;
    struct pair_logit topk[MAX_LIST], extra[MAX_LIST];
    const char *text; /* of the list; borrowed */
    int n_text;
    int32_t top1, top2;
    double lse;
};

static int side_open(struct side *side, const struct load_side *from, struct err *err)
{
    static const char *const phases[] = {"prefill", "decode", "verify"};
    side->phase = PAIR_UNKNOWN;
    for (int i = 0; i < 3; i++)
        if (!strcmp(from->arm->phase, phases[i]))
            side->phase = i;
    return db_query(from->db, &side->row, "side", err) ||
                   db_query(from->db, &side->exact, "exact", err)
               ? -1
               : 0;
}

static void side_close(struct side *side)
{
    query_free(side->row);
    query_free(side->exact);
}

static int32_t known_int(const struct query *query, int column)
{
    return query_column_type(query, column) == QUERY_NULL
               ? PAIR_UNKNOWN
               : (int32_t)query_column_int(query, column);
}

static struct pair_place read_place(const struct side *side)
{
    const struct query *q = side->row;
    return (struct pair_place){
        .phase = side->phase,
        .batch_row = known_int(q, COL_BATCH_ROW),
        .n_tokens = known_int(q, COL_N_TOKENS),
        .n_seqs = known_int(q, COL_N_SEQS),
        .ubatch_index = known_int(q, COL_UBATCH),
        .n_ubatch = known_int(q, COL_N_UBATCH),
        .n_past = known_int(q, COL_N_PAST),
        .kernel_list = known_int(q, COL_KERNEL_LIST),
    };
}

/* Step to the row and read what is not a list. */
static int side_read(struct side *side, int64_t row_id, struct pair_side *out, struct err *err)
{
    query_reset(side->row);
    query_bind_int(side->row, ":row_id", row_id);
    int rc = query_step(side->row, err);
    if (rc < 0)
        return -1;
    if (rc == 0)
        return err_set(err, "row %lld: has no forward", (long long)row_id);
    side->text = query_column_text(side->row, COL_TOPK, &side->n_text);
    side->top1 = known_int(side->row, COL_TOP1);
    side->top2 = known_int(side->row, COL_TOP2);
    side->lse = query_column_real(side->row, COL_LSE);
    *out = (struct pair_side){
        .topk = side->topk,
        .extra = side->extra,
        .n_nan = query_column_int(side->row, COL_N_NAN),
        .n_posinf = query_column_int(side->row, COL_N_POSINF),
        .first_bad = known_int(side->row, COL_FIRST_BAD),
        .emitted = known_int(side->row, COL_EMITTED),
        .place = read_place(side),
    };
    return 0;
}

/* The first two entries, from the columns that repeat them. */
static void read_best(struct side *side, struct pair_side *out)
{
    const int ids[2] = {side->top1, side->top2}, columns[2] = {COL_TOP1_LOGIT, COL_TOP2_LOGIT};
    for (int i = 0; i < 2 && ids[i] >= 0; i++)
        side->topk[out->n_topk++] =
            (struct pair_logit){ids[i], (float)query_column_real(side->row, columns[i])};
}

/* [[id,logit],...] as the recorder prints it. */
static int read_list(struct side *side, int64_t row_id, struct pair_side *out, struct err *err)
{
    const char *p = side->text;
    out->n_topk = 0;
    for (char *end; (p = strpbrk(p, "-0123456789")) && out->n_topk < MAX_LIST; p = end) {
        long token = strtol(p, &end, 10);
        if (end == p || *end != ',')
            return err_set(err, "row %lld: its list is broken at byte %d", (long long)row_id,
                           (int)(p - side->text));
        p = end + 1;
        float logit = strtof(p, &end);
        if (end == p || isnan(logit))
            return err_set(err, "row %lld: its list is broken at byte %d", (long long)row_id,
                           (int)(p - side->text));
        side->topk[out->n_topk++] = (struct pair_logit){(int32_t)token, logit};
    }
    return 0;
}

static int read_extra(struct side *side, int64_t row_id, struct pair_side *out, struct err *err)
{
    int rc = 1;
    query_reset(side->exact);
    query_bind_int(side->exact, ":row_id", row_id);
    while (out->n_extra < MAX_LIST && (rc = query_step(side->exact, err)) > 0)
        side->extra[out->n_extra++] = (struct pair_logit){(int32_t)query_column_int(side->exact, 0),
                                                          (float)query_column_real(side->exact, 1)};
    return rc < 0 ? -1 : 0;
}

static bool same_best(const struct side *a, const struct side *b)
{
    return a->top1 >= 0 && a->top2 >= 0 &&
           ((a->top1 == b->top1 && a->top2 == b->top2) ||
            (a->top1 == b->top2 && a->top2 == b->top1));
}

static int bit_equal(const struct side *a, const struct side *b)
{
    if (isnan(a->lse) || isnan(b->lse))
        return PAIR_UNKNOWN;
    return a->lse == b->lse && a->n_text == b->n_text && !memcmp(a->text, b->text, a->n_text);
}

/* ---- the pairs ---- */

struct loader {
    struct side a, b;
    struct load *load;
};

static void keep_flip(struct load *load, const struct load_flip *flip)
{
    if (load->n_flips == load->flips_size) {
        load->flips_size = load->flips_size ? 2 * load->flips_size : 64;
        load->flips = xrealloc(load->flips, load->flips_size, sizeof *load->flips);
    }
    load->flips[load->n_flips++] = *flip;
}

static int add_pair(struct loader *l, const struct query *at, int64_t row_a, struct err *err)
{
    struct pair_row row = {
        .seq = query_column_int(at, COL_SEQ),
        .pos = (int32_t)query_column_int(at, COL_POS),
        .comparable = true,
    };
    int64_t row_b = query_column_int(at, COL_ROW);
    if (side_read(&l->a, row_a, &row.a, err) || side_read(&l->b, row_b, &row.b, err))
        return -1;
    row.bit_equal = bit_equal(&l->a, &l->b);
    if (same_best(&l->a, &l->b)) {
        read_best(&l->a, &row.a);
        read_best(&l->b, &row.b);
    } else if (read_list(&l->a, row_a, &row.a, err) || read_list(&l->b, row_b, &row.b, err) ||
               read_extra(&l->a, row_a, &row.a, err) || read_extra(&l->b, row_b, &row.b, err)) {
        return -1;
    }
    if (l->a.top1 != l->b.top1 || row.a.emitted != row.b.emitted)
        keep_flip(l->load, &(struct load_flip){row.seq, row.pos, row_a, row_b});
    return pairs_add(l->load->pairs, &row, err);
}

static int walk(struct loader *l, const struct load_side *b, const struct contexts *contexts,
                struct err *err)
{
    struct query *at;
    int rc;
    if (db_query(b->db, &at, "arm_contexts", err))
        return -1;
    query_bind_int(at, ":arm_id", b->arm->arm_id);
    query_bind_int(at, ":sorted", 1);
    while ((rc = query_step(at, err)) > 0) {
        const struct context *found =
            context_slot(contexts, context_of(at), query_column_int(at, COL_POS));
        l->load->n_b++;
        if (!found->row_id) {
            l->load->n_alone++;
        } else if (add_pair(l, at, found->row_id, err)) {
            rc = -1;
            break;
        }
    }
    query_free(at);
    return rc;
}

/* Launch configurations become tags where both arms' lists are numbered by one file. */
static int add_kernel_lists(const struct load_side *a, const struct load_side *b,
                            struct pairs *pairs, struct err *err)
{
    struct query *query;
    int32_t configs[4096], list = PAIR_UNKNOWN;
    int n = 0, rc;
    if (a->db != b->db)
        return 0;
    if (db_query(a->db, &query, "list_configs", err))
        return -1;
    query_bind_int(query, ":arm_a", a->arm->arm_id);
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
    struct contexts contexts = {0};
    struct loader *l = xcalloc(1, sizeof *l);
    int rc = -1;
    *out = (struct load){.pairs = pairs_new(NULL, 0)};
    l->load = out;
    if (contexts_load(a, &contexts, &out->n_a, err) || side_open(&l->a, a, err) ||
        side_open(&l->b, b, err) || add_kernel_lists(a, b, out->pairs, err))
        goto out;
    rc = walk(l, b, &contexts, err);
out:
    if (rc)
        load_free(out);
    side_close(&l->a);
    side_close(&l->b);
    free(contexts.slots);
    free(l);
    return rc;
}

void load_free(struct load *load)
{
    pairs_free(load->pairs);
    free(load->flips);
    *load = (struct load){0};
}
