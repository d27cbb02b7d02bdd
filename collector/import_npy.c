/* Whole logits from NumPy files, a row for each position. */
#include "config.h"

#include "collector/import.h"
#include "collector/npy.h"
#include "collector/xalloc.h"
#include "sql/context_hash.h"

#include <inttypes.h>
#include <stdlib.h>

struct input {
    const struct import *import;
    struct npy files[IMPORT_FILES];
    struct npy_tokens tokens; /* ids is NULL where none were given */
    int64_t n_rows;           /* of each sequence; they are its last positions */
    int64_t n_seqs;
    float *logits; /* (n_cols of the files) */
};

/* Where row number n stands, and the hash of what the model has seen there; prev: that of the
 * position before. */
static void place_row(const struct input *in, int64_t n, uint64_t seed, uint64_t *prev,
                      struct import_row *at)
{
    int64_t i = n % in->n_rows;
    at->seq = n / in->n_rows;
    if (!in->tokens.ids) {
        at->pos = i;
        at->input_token = -1;
        at->context = XXH3_64bits_withSeed(&at->pos, sizeof at->pos, seed) | 1;
        return;
    }
    const int32_t *ids = in->tokens.ids + at->seq * in->tokens.n_cols;
    at->pos = in->tokens.n_cols - in->n_rows + i;
    at->input_token = ids[at->pos];
    at->context =
        i ? context_hash(*prev, ids + at->pos, 1) : context_hash(0, ids, (size_t)at->pos + 1);
    *prev = at->context;
}

static int put_rows(struct run_writer *w, struct input *in, struct err *err)
{
    uint64_t prev = 0, seed = import_seed(in->import);
    struct import_row at = {.n_vocab = in->files[0].n_cols};
    for (int64_t n = 0; n < in->files[0].n_rows; n++) {
        const struct record_row *base = NULL, *row;
        import_progress(in->import, "row", n);
        place_row(in, n, seed, &prev, &at);
        for (int i = 0; i < in->import->n_files; i++) {
            struct record_forward forward = {
                .n_past = at.pos, .arm = i + 1, .n_tokens = 1, .n_seqs = 1, .n_ubatch = 1};
            if (npy_row(in->files + i, in->logits, err) || run_put_forward(w, &forward, err))
                return -1;
            at.arm = i + 1;
            at.forward_id = w->n_forwards;
            at.dtype = in->files[i].item_bytes == 2;
            if (import_put_row(w, &at, in->logits, base, &row, err))
                return -1;
            base = base ? base : row;
        }
    }
    return 0;
}

static int put_all(struct run_writer *w, void *input, struct err *err)
{
    struct input *in = input;
    uint64_t n = (uint64_t)in->files[0].n_rows * (uint64_t)in->import->n_files;
    if (import_put_head(w, in->import, 1, err) ||
        run_put_gap(w, "import", n,
                    in->tokens.ids
                        ? "npy: batches and kernels are unknown"
                        : "npy: rows are joined by their number; tokens, sequences, batches and "
                          "kernels are unknown",
                    err))
        return -1;
    return put_rows(w, in, err);
}

static int check_shapes(const struct input *in, struct err *err)
{
    const struct npy *a = in->files;
    for (int i = 1; i < in->import->n_files; i++) {
        const struct npy *b = in->files + i;
        if (a->n_rows != b->n_rows || a->n_cols != b->n_cols)
            return err_set(
                err, "%s and %s: shapes [%" PRId64 ", %d] and [%" PRId64 ", %d] are not equal",
                a->path, b->path, a->n_rows, a->n_cols, b->n_rows, b->n_cols);
    }
    return 0;
}

static int read_tokens(struct input *in, struct err *err)
{
    const struct npy *a = in->files;
    const char *path = in->import->tokens;
    in->n_seqs = 1;
    in->n_rows = a->n_rows;
    if (!path)
        return 0;
    if (npy_tokens_read(&in->tokens, path, a->n_cols, err))
        return -1;
    in->n_seqs = in->tokens.n_rows;
    in->n_rows = a->n_rows / in->n_seqs;
    if (a->n_rows % in->n_seqs || in->n_rows > in->tokens.n_cols)
        return err_set(err,
                       "%s and %s: %" PRId64 " rows of logits are not the last of each of %" PRId64
                       " sequences of %d tokens",
                       a->path, path, a->n_rows, in->n_seqs, in->tokens.n_cols);
    return 0;
}

int import_npy(const struct import *import, struct err *err)
{
    struct input in = {.import = import};
    int rc = 0;
    for (int i = 0; i < import->n_files && rc == 0; i++)
        rc = npy_open(in.files + i, import->files[i], err);
    if (rc == 0)
        rc = check_shapes(&in, err) || read_tokens(&in, err) ? -1 : 0;
    if (rc == 0) {
        in.logits = xcalloc((size_t)in.files[0].n_cols, sizeof(float));
        rc = run_write_file(import->path, put_all, &in, err);
        free(in.logits);
    }
    for (int i = 0; i < import->n_files; i++)
        npy_close(in.files + i);
    npy_tokens_free(&in.tokens);
    return rc;
}
