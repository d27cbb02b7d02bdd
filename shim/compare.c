#include "config.h"

#include "shim/compare.h"

#include <string.h>

#include "sql/reference.h"

enum { PHASES = 4, ARM = -1 /* that of every row here: none of this run's */ };

/* The table's key, with the phase in it; the last one stands for an unknown phase. */
static int64_t key_of(int64_t pos, int phase)
{
    return pos * PHASES + (phase >= 0 && phase < PHASES - 1 ? phase : PHASES - 1);
}

static void keep(struct compare *c, const struct reference *about, const struct tokens *tokens,
                 struct reference_row *row)
{
    struct baseline_row known;
    struct record_top top[RECORD_TOP_MAX];
    int64_t key = key_of(row->pos, row->phase);
    if (baseline_find(c->rows, row->context_hash, key, 0, &known, top))
        return; /* a newer one of the same context */
    for (int i = 0; i < row->n_top; i++)
        row->top[i].token = tokens_show(tokens, row->top[i].token);
    baseline_put(c->rows,
                 &(struct baseline_row){row->context_hash, key, row->row_id, ARM,
                                        about->n_vocab - row->n_nan, row->n_top, row->top});
}

int compare_load(struct compare *c, const char *path, const struct tokens *tokens, struct err *err)
{
    struct reference about = {.n_rows = 0};
    struct reference_reader *r;
    struct reference_row row;
    int rc;
    *c = (struct compare){0};
    if (reference_open(&r, path, &about, err))
        return -1;
    int64_t room = about.n_rows < COMPARE_ROWS_MAX ? about.n_rows : COMPARE_ROWS_MAX;
    /* More than that: nothing must be pushed out because its part of the table is a full one. */
    c->rows = baseline_new((int32_t)(room + room / 2 + 4096), about.k);
    rc = c->rows ? 0 : err_set(err, "%s: out of memory for %lld rows", path, (long long)room);
    for (int64_t n = 0; rc == 0 && (rc = reference_next(r, &row, err)) == 1; n++, rc = 0)
        if (n < room)
            keep(c, &about, tokens, &row);
        else
            c->n_left_out++;
    reference_close(r);
    if (rc) {
        baseline_free(c->rows);
        c->rows = NULL;
        return -1;
    }
    c->k = about.k;
    memcpy(c->run_uuid, about.run_uuid, sizeof c->run_uuid);
    return 0;
}

bool compare_find(const struct compare *c, uint64_t context_hash, int64_t pos, int phase,
                  struct baseline_row *out, struct record_top *top)
{
    for (int i = -1; i < PHASES; i++)
        if (i != phase &&
            baseline_find(c->rows, context_hash, key_of(pos, i < 0 ? phase : i), 0, out, top))
            return true;
    return false;
}
