#include "config.h"

#include "collector/import.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

uint64_t import_seed(const struct import *import)
{
    uint64_t seed;
    if (import->key)
        return XXH3_64bits(import->key, strlen(import->key));
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        seed = XXH3_64bits(&now, sizeof now);
    }
    return seed;
}

void import_progress(const struct import *import, const char *what, int64_t n)
{
    if (n && n % 100 == 0 && isatty(STDERR_FILENO))
        fprintf(stderr, "neartie: %s: %s %" PRId64 "\033[K\r", import->path, what, n);
}

int import_put_source(struct run_writer *w, const struct import *import, struct err *err)
{
    char engine[32];
    snprintf(engine, sizeof engine, "neartie import %s", import->kind);
    if (run_put_setting(w, "engine", engine, err) ||
        (import->key && run_put_setting(w, "import_key", import->key, err)) ||
        (import->tokens && run_put_setting(w, "import_tokens", import->tokens, err)))
        return -1;
    for (int i = 0; i < import->n_files; i++) {
        char name[16];
        snprintf(name, sizeof name, "import_%c", 'a' + i);
        if (run_put_setting(w, name, import->files[i], err))
            return -1;
    }
    return 0;
}

int import_put_head(struct run_writer *w, const struct import *import, uint32_t phase,
                    struct err *err)
{
    if (import_put_source(w, import, err))
        return -1;
    for (int i = 0; i < import->n_files; i++)
        if (run_put_arm(w, i + 1, import->labels[i], phase, import->cls, err))
            return -1;
    return 0;
}

/* Put (token, logit) into the list, best first, ties by the lowest id; ids come ascending. */
static void list_add(struct record_row *row, int32_t token, float logit)
{
    int at = row->n_top;
    if (at == IMPORT_TOP && !(logit > row->top[at - 1].logit))
        return;
    at -= at == IMPORT_TOP;
    for (; at > 0 && logit > row->top[at - 1].logit; at--)
        row->top[at] = row->top[at - 1];
    row->top[at] = (struct record_top){token, logit};
    row->n_top += row->n_top < IMPORT_TOP;
}

static void fill_row(struct record_row *row, const float *logits)
{
    for (int32_t i = 0; i < row->n_vocab; i++) {
        row->n_nan += isnan(logits[i]);
        row->n_posinf += logits[i] == INFINITY;
        row->n_neginf += logits[i] == -INFINITY;
        if (row->first_bad < 0 && (isnan(logits[i]) || logits[i] == INFINITY))
            row->first_bad = i;
        if (!isnan(logits[i]))
            list_add(row, i, logits[i]);
    }
    row->lse = row->n_top ? (double)row->top[0].logit : -INFINITY;
    if (!isfinite(row->lse))
        return;
    double sum = 0;
    for (int32_t i = 0; i < row->n_vocab; i++)
        if (!isnan(logits[i]))
            sum += exp((double)logits[i] - (double)row->top[0].logit);
    row->lse += log(sum);
}

static void fill_base(struct record_row *row, const float *logits, const struct record_row *base)
{
    struct record_base *at = record_row_base(row);
    row->base_row_id = base->row_id;
    row->base_whole = base->n_top == base->n_vocab;
    row->base_last = base->n_top ? base->top[base->n_top - 1].logit : 0;
    for (int i = 0; i < base->n_top; i++)
        at[row->n_base++] = (struct record_base){base->top[i].token, logits[base->top[i].token],
                                                 base->top[i].logit};
}

int import_put_row(struct run_writer *w, const struct import_row *at, const float *logits,
                   const struct record_row *base, const struct record_row **out, struct err *err)
{
    struct record_row *row = run_next_body(w);
    *row = (struct record_row){
        .row_id = ++w->n_rows,
        .forward_id = at->forward_id,
        .context_hash = at->context,
        .seq = at->seq,
        .pos = at->pos,
        .input_token = at->input_token,
        .n_vocab = at->n_vocab,
        .first_bad = -1,
        .dtype = at->dtype,
    };
    fill_row(row, logits);
    if (base)
        fill_base(row, logits, base);
    *out = row;
    return run_put(w, RECORD_ROW, record_row_bytes(row->n_top, row->n_base), err);
}
