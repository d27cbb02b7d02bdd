#include "config.h"

#include "collector/npy.h"
#include "collector/xalloc.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_MAX = 65536, COLUMNS_MAX = 1 << 20 };

/* What stands behind 'key': in the header's dictionary. */
static const char *value_of(const char *header, const char *key)
{
    const char *at = strstr(header, key);
    if (!at)
        return NULL;
    at += strlen(key);
    while (isspace((unsigned char)*at) || *at == ':')
        at++;
    return at;
}

/* '<f4' and the like; types: the letters that the caller can read. */
static int read_type(struct npy *npy, const char *header, const char *types, struct err *err)
{
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    if (!type || !order)
        return err_set(err, "%s: the header names no type or no order", npy->path);
    if (strncmp(type, "'<", 2) != 0 || !type[2] || !strchr(types, type[2]) ||
        !strchr(type[2] == 'f' ? "24" : "248", type[3]) || !type[3] || type[4] != '\'')
        return err_set(err, "%s: type %.5s: only %s are read", npy->path, type,
                       *types == 'f' ? "'<f4' and '<f2'" : "'<i2' to '<i8' and '<u2' to '<u8'");
    npy->item_type = type[2];
    npy->item_bytes = type[3] - '0';
    if (strncmp(order, "False", 5) != 0)
        return err_set(err, "%s: Fortran order: only C order is read", npy->path);
    return 0;
}

static int read_shape(struct npy *npy, const char *header, struct err *err)
{
    const char *at = value_of(header, "'shape'");
    int64_t dims[2];
    int n = 0;
    if (!at || *at++ != '(')
        return err_set(err, "%s: the header names no shape", npy->path);
    while (*at && *at != ')') {
        char *end;
        errno = 0;
        int64_t dim = strtoll(at, &end, 10);
        if (end == at || errno || dim < 1 || n == 2)
            return err_set(err, "%s: the shape is not [rows, columns]", npy->path);
        dims[n++] = dim;
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    if (!n)
        return err_set(err, "%s: the shape is not [rows, columns]", npy->path);
    npy->n_rows = n == 2 ? dims[0] : 1;
    if (dims[n - 1] > COLUMNS_MAX)
        return err_set(err, "%s: %" PRId64 " columns: more than %d", npy->path, dims[n - 1],
                       COLUMNS_MAX);
    npy->n_cols = (int32_t)dims[n - 1];
    return 0;
}

static int check_size(struct npy *npy, struct err *err)
{
    struct stat st;
    int64_t at = ftell(npy->file), want, row = (int64_t)npy->n_cols * npy->item_bytes;
    if (fstat(fileno(npy->file), &st))
        return err_set(err, "%s: %s", npy->path, strerror(errno));
    if (__builtin_mul_overflow(npy->n_rows, row, &want) || __builtin_add_overflow(want, at, &want))
        return err_set(err, "%s: %" PRId64 " rows of %d: too large", npy->path, npy->n_rows,
                       npy->n_cols);
    if (st.st_size != want)
        return err_set(err, "%s: %" PRId64 " bytes, but the header's shape takes %" PRId64,
                       npy->path, (int64_t)st.st_size, want);
    return 0;
}

static int read_header(struct npy *npy, char *header, struct err *err)
{
    unsigned char head[12];
    if (fread(head, 1, 8, npy->file) != 8 || memcmp(head, "\x93NUMPY", 6) != 0)
        return err_set(err, "%s: not a .npy file", npy->path);
    size_t n_len = head[6] == 1 ? 2 : 4;
    if (head[6] < 1 || head[6] > 3)
        return err_set(err, "%s: .npy version %d: only 1 to 3 are read", npy->path, head[6]);
    if (fread(head + 8, 1, n_len, npy->file) != n_len)
        return err_set(err, "%s: the header is cut off", npy->path);
    uint32_t n = head[8] | (uint32_t)head[9] << 8;
    if (n_len == 4)
        n |= (uint32_t)head[10] << 16 | (uint32_t)head[11] << 24;
    if (n >= HEADER_MAX)
        return err_set(err, "%s: a header of %u bytes: more than %d", npy->path, n, HEADER_MAX);
    if (fread(header, 1, n, npy->file) != n)
        return err_set(err, "%s: the header is cut off", npy->path);
    header[n] = '\0';
    return 0;
}

static int open_matrix(struct npy *npy, const char *path, const char *types, struct err *err)
{
    *npy = (struct npy){.path = path, .file = fopen(path, "rb")};
    if (!npy->file)
        return err_set(err, "%s: %s", path, strerror(errno));
    char *header = xcalloc(HEADER_MAX, 1);
    int rc = read_header(npy, header, err) || read_type(npy, header, types, err) ||
                     read_shape(npy, header, err) || check_size(npy, err)
                 ? -1
                 : 0;
    free(header);
    if (rc)
        npy_close(npy);
    else
        npy->raw = xcalloc((size_t)npy->n_cols, (size_t)npy->item_bytes);
    return rc;
}

int npy_open(struct npy *npy, const char *path, struct err *err)
{
    return open_matrix(npy, path, "f", err);
}

/* IEEE 754 half to float, exactly. */
static float half_value(uint16_t half)
{
    int exponent = half >> 10 & 31, mantissa = half & 1023;
    float size = exponent == 31 ? (mantissa ? NAN : INFINITY)
                 : exponent     ? ldexpf((float)(mantissa + 1024), exponent - 25)
                                : ldexpf((float)mantissa, -24);
    return half >> 15 ? -size : size;
}

static int read_raw(struct npy *npy, struct err *err)
{
    size_t n = (size_t)npy->n_cols;
    if (fread(npy->raw, (size_t)npy->item_bytes, n, npy->file) != n)
        return err_set(err, "%s: %s", npy->path, ferror(npy->file) ? strerror(errno) : "cut off");
    return 0;
}

int npy_row(struct npy *npy, float *out, struct err *err)
{
    size_t n = (size_t)npy->n_cols;
    if (read_raw(npy, err))
        return -1;
    if (npy->item_bytes == 4)
        memcpy(out, npy->raw, n * sizeof *out);
    else
        for (size_t i = 0; i < n; i++)
            out[i] = half_value(((const uint16_t *)npy->raw)[i]);
    return 0;
}

void npy_close(struct npy *npy)
{
    if (npy->file)
        fclose(npy->file);
    free(npy->raw);
    *npy = (struct npy){0};
}

/* An entry of a row of integers; what does not fit reads as negative. */
static int64_t integer_at(const struct npy *npy, int32_t i)
{
    const unsigned char *at = (const unsigned char *)npy->raw + (size_t)i * (size_t)npy->item_bytes;
    uint64_t value = 0;
    for (int b = npy->item_bytes; b-- > 0;)
        value = value << 8 | at[b];
    int spare = 64 - 8 * npy->item_bytes;
    return npy->item_type == 'i' ? (int64_t)(value << spare) >> spare : (int64_t)value;
}

int npy_tokens_read(struct npy_tokens *out, const char *path, int32_t n_vocab, struct err *err)
{
    struct npy npy;
    int rc = 0;
    if (open_matrix(&npy, path, "iu", err))
        return -1;
    *out = (struct npy_tokens){.n_rows = npy.n_rows, .n_cols = npy.n_cols};
    out->ids = xcalloc((size_t)npy.n_rows * (size_t)npy.n_cols, sizeof *out->ids);
    for (int64_t r = 0; r < npy.n_rows && rc == 0; r++) {
        rc = read_raw(&npy, err);
        for (int32_t i = 0; i < npy.n_cols && rc == 0; i++) {
            int64_t id = integer_at(&npy, i);
            out->ids[r * npy.n_cols + i] = (int32_t)id;
            if (id < 0 || id >= n_vocab)
                rc = err_set(err, "%s: id %" PRId64 " at [%" PRId64 ", %d]: the vocabulary has %d",
                             path, id, r, i, n_vocab);
        }
    }
    npy_close(&npy);
    if (rc)
        npy_tokens_free(out);
    return rc;
}

void npy_tokens_free(struct npy_tokens *tokens)
{
    free(tokens->ids);
    *tokens = (struct npy_tokens){0};
}
