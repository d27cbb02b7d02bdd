/* Files of llama-perplexity --kl-divergence-base, an arm each. */
#include "config.h"

#include "collector/import.h"
#include "collector/kld.h"
#include "collector/xalloc.h"
#include "sql/context_hash.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

struct input {
    const struct import *import;
    struct kld files[IMPORT_FILES];
    float *values; /* (n_vocab) */
};

static int put_chunk(struct run_writer *w, struct input *in, int32_t chunk, struct err *err)
{
    const struct kld *a = in->files;
    const int32_t *tokens = a->tokens + (size_t)chunk * (size_t)a->n_ctx;
    uint64_t forwards[IMPORT_FILES];
    struct import_row at = {
        .seq = chunk,
        .n_vocab = a->n_vocab,
        .context = context_hash(0, tokens, (size_t)a->first),
    };
    for (int i = 0; i < in->import->n_files; i++) {
        struct record_forward forward = {
            .arm = i + 1, .n_tokens = a->n_ctx, .n_seqs = 1, .n_ubatch = 1};
        if (run_put_forward(w, &forward, err))
            return -1;
        forwards[i] = w->n_forwards;
    }
    for (at.pos = a->first; at.pos < a->first + a->n_rows; at.pos++) {
        const struct record_row *base = NULL, *row;
        at.input_token = tokens[at.pos];
        at.context = context_hash(at.context, tokens + at.pos, 1);
        for (int i = 0; i < in->import->n_files; i++) {
            at.arm = i + 1;
            at.forward_id = forwards[i];
            if (kld_row(in->files + i, in->values, err) ||
                import_put_row(w, &at, in->values, base, &row, err))
                return -1;
            base = base ? base : row;
        }
    }
    return 0;
}

static int put_facts(struct run_writer *w, const struct input *in, struct err *err)
{
    char text[160];
    uint64_t n_clipped = 0, n_rows = 0;
    float step = 0;
    for (int i = 0; i < in->import->n_files; i++) {
        const struct kld *f = in->files + i;
        n_clipped += f->n_clipped;
        n_rows += (uint64_t)f->n_chunk * (uint64_t)f->n_rows;
        step = f->step > step ? f->step : step;
    }
    snprintf(text, sizeof text, "%.9g", (double)step);
    if (run_put_setting(w, "kld_step", text, err) ||
        run_put_setting(w, "kld_least", "16 below the best", err))
        return -1;
    snprintf(text, sizeof text,
             "kld: log-probabilities in steps of up to %.3g, equal within a step; a BOS that took "
             "the place of a chunk's first token, batches and kernels are unknown",
             (double)step);
    if (run_put_gap(w, "import", n_rows, text, err))
        return -1;
    return n_clipped
               ? run_put_gap(w, "import_clipped", n_clipped,
                             "rows whose least value, 16 below the best, stands for all below", err)
               : 0;
}

static int put_all(struct run_writer *w, void *input, struct err *err)
{
    struct input *in = input;
    if (import_put_head(w, in->import, 0, err) || put_facts(w, in, err))
        return -1;
    for (int32_t chunk = 0; chunk < in->files[0].n_chunk; chunk++) {
        import_progress(in->import, "chunk", chunk);
        if (put_chunk(w, in, chunk, err))
            return -1;
    }
    return 0;
}

static int check_texts(const struct input *in, struct err *err)
{
    const struct kld *a = in->files;
    size_t n = (size_t)a->n_chunk * (size_t)a->n_ctx;
    for (int i = 1; i < in->import->n_files; i++) {
        const struct kld *b = in->files + i;
        if (a->n_ctx != b->n_ctx || a->n_vocab != b->n_vocab || a->n_chunk != b->n_chunk)
            return err_set(err,
                           "%s and %s: contexts of %d and %d, vocabularies of %d and %d, %d and %d "
                           "chunks: not of one text and model",
                           a->path, b->path, a->n_ctx, b->n_ctx, a->n_vocab, b->n_vocab, a->n_chunk,
                           b->n_chunk);
        for (size_t t = 0; t < n; t++)
            if (a->tokens[t] != b->tokens[t])
                return err_set(err, "%s and %s: token %zu is %d and %d: not of one text", a->path,
                               b->path, t, a->tokens[t], b->tokens[t]);
    }
    return 0;
}

int import_kld(const struct import *import, struct err *err)
{
    struct input in = {.import = import};
    int rc = 0;
    for (int i = 0; i < import->n_files && rc == 0; i++)
        rc = kld_open(in.files + i, import->files[i], err);
    if (rc == 0)
        rc = check_texts(&in, err);
    if (rc == 0) {
        in.values = xcalloc((size_t)in.files[0].n_vocab, sizeof *in.values);
        rc = run_write_file(import->path, put_all, &in, err);
        free(in.values);
    }
    for (int i = 0; i < import->n_files; i++)
        kld_close(in.files + i);
    return rc;
}
