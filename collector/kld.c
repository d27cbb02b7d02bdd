#include "config.h"

#include "collector/kld.h"
#include "collector/xalloc.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { VOCAB_MAX = 1 << 20, CTX_MAX = 1 << 24, CHUNKS_MAX = 1 << 24, HEAD_BYTES = 8 + 3 * 4 };

/* A row begins with two floats, the step and the least value; the values follow. */
enum { ROW_HEAD_BYTES = 8 };

static int read_head(struct kld *kld, struct err *err)
{
    char magic[8];
    int32_t n[3];
    if (fread(magic, 1, sizeof magic, kld->file) != sizeof magic ||
        memcmp(magic, "_logits_", sizeof magic) != 0)
        return err_set(err, "%s: not a file of llama-perplexity --kl-divergence-base", kld->path);
    if (fread(n, sizeof *n, 3, kld->file) != 3)
        return err_set(err, "%s: the header is cut off", kld->path);
    kld->n_ctx = n[0];
    kld->n_vocab = n[1];
    kld->n_chunk = n[2];
    if (n[0] < 4 || n[0] > CTX_MAX || n[1] < 2 || n[1] > VOCAB_MAX || n[2] < 1 || n[2] > CHUNKS_MAX)
        return err_set(err, "%s: a context of %d, a vocabulary of %d, %d chunks: out of range",
                       kld->path, n[0], n[1], n[2]);
    kld->first = kld->n_ctx / 2;
    kld->n_rows = kld->n_ctx - 1 - kld->first;
    kld->row_bytes = 2 * (2 * (((size_t)kld->n_vocab + 1) / 2) + 4);
    return 0;
}

static int check_size(const struct kld *kld, struct err *err)
{
    struct stat st;
    int64_t want, rows, chunk = (int64_t)kld->n_rows * (int64_t)kld->row_bytes;
    if (fstat(fileno(kld->file), &st))
        return err_set(err, "%s: %s", kld->path, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return err_set(err, "%s: not a regular file", kld->path);
    if (__builtin_mul_overflow(chunk, (int64_t)kld->n_chunk, &rows) ||
        __builtin_add_overflow(rows, (int64_t)kld->n_chunk * kld->n_ctx * 4 + HEAD_BYTES, &want))
        return err_set(err, "%s: %d chunks of %d: too large", kld->path, kld->n_chunk, kld->n_ctx);
    if (st.st_size != want)
        return err_set(err,
                       "%s: %" PRId64 " bytes, but %d chunks of %d tokens, %d the vocabulary, take "
                       "%" PRId64,
                       kld->path, (int64_t)st.st_size, kld->n_chunk, kld->n_ctx, kld->n_vocab,
                       want);
    return 0;
}

static int read_tokens(struct kld *kld, struct err *err)
{
    size_t n = (size_t)kld->n_chunk * (size_t)kld->n_ctx;
    kld->tokens = xcalloc(n, sizeof *kld->tokens);
    if (fread(kld->tokens, sizeof *kld->tokens, n, kld->file) != n)
        return err_set(err, "%s: %s", kld->path, ferror(kld->file) ? strerror(errno) : "cut off");
    for (size_t i = 0; i < n; i++)
        if (kld->tokens[i] < 0 || kld->tokens[i] >= kld->n_vocab)
            return err_set(err, "%s: token %zu is %d: the vocabulary has %d", kld->path, i,
                           kld->tokens[i], kld->n_vocab);
    return 0;
}

/* Look at each row's step and least value, and go back to the first row. */
static int check_rows(struct kld *kld, struct err *err)
{
    off_t begin = ftello(kld->file);
    int64_t n = (int64_t)kld->n_chunk * kld->n_rows;
    for (int64_t r = 0; r < n; r++) {
        float head[2];
        if (fseeko(kld->file, begin + (off_t)r * (off_t)kld->row_bytes, SEEK_SET) ||
            fread(head, 1, sizeof head, kld->file) != sizeof head)
            return err_set(err, "%s: %s", kld->path, strerror(errno));
        if (head[0] < 0 || head[1] > 1)
            return err_set(err,
                           "%s: row %" PRId64 ": step %g, least value %g: no log-probabilities",
                           kld->path, r, (double)head[0], (double)head[1]);
        if (!isfinite(head[0]) || !isfinite(head[1]))
            continue;
        /* The tool takes 65,535 steps from the least value to the best, 16 apart at most. */
        kld->n_clipped += head[0] * 65535 > 15.999f;
        kld->step = head[0] > kld->step ? head[0] : kld->step;
    }
    if (fseeko(kld->file, begin, SEEK_SET))
        return err_set(err, "%s: %s", kld->path, strerror(errno));
    return 0;
}

int kld_open(struct kld *kld, const char *path, struct err *err)
{
    *kld = (struct kld){.path = path, .file = fopen(path, "rb")};
    if (!kld->file)
        return err_set(err, "%s: %s", path, strerror(errno));
    if (read_head(kld, err) || check_size(kld, err) || read_tokens(kld, err) ||
        check_rows(kld, err))
        return -1;
    kld->raw = xcalloc(kld->row_bytes, 1);
    return 0;
}

int kld_row(struct kld *kld, float *out, struct err *err)
{
    float head[2];
    if (fread(kld->raw, 1, kld->row_bytes, kld->file) != kld->row_bytes)
        return err_set(err, "%s: %s", kld->path, ferror(kld->file) ? strerror(errno) : "cut off");
    memcpy(head, kld->raw, sizeof head);
    bool is_finite = isfinite(head[0]) && isfinite(head[1]);
    for (int32_t i = 0; i < kld->n_vocab; i++) {
        uint16_t value;
        memcpy(&value, kld->raw + ROW_HEAD_BYTES + 2 * (size_t)i, sizeof value);
        out[i] = is_finite ? head[0] * (float)value + head[1] : NAN;
    }
    return 0;
}

void kld_close(struct kld *kld)
{
    if (kld->file)
        fclose(kld->file);
    free(kld->tokens);
    free(kld->raw);
    *kld = (struct kld){0};
}
