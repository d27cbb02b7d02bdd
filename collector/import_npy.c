#include "config.h"

#include "collector/import_npy.h"
#include "collector/xalloc.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { HEADER_MAX = 65536, VOCAB_MAX = 1 << 20 };

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

static int read_type(struct npy *npy, const char *header, struct err *err)
{
    const char *type = value_of(header, "'descr'"), *order = value_of(header, "'fortran_order'");
    if (!type || !order)
        return err_set(err, "%s: the header names no type or no order", npy->path);
    if (!strncmp(type, "'<f4'", 5))
        npy->item_bytes = 4;
    else if (!strncmp(type, "'<f2'", 5))
        npy->item_bytes = 2;
    else
        return err_set(err, "%s: type %.16s: only '<f4' and '<f2' are read", npy->path, type);
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
            return err_set(err, "%s: the shape is not [rows, vocabulary]", npy->path);
        dims[n++] = dim;
        for (at = end; *at == ',' || *at == ' ';)
            at++;
    }
    if (!n)
        return err_set(err, "%s: the shape is not [rows, vocabulary]", npy->path);
    npy->n_rows = n == 2 ? dims[0] : 1;
    if (dims[n - 1] > VOCAB_MAX)
        return err_set(err, "%s: vocabulary of %" PRId64 ": more than %d", npy->path, dims[n - 1],
                       VOCAB_MAX);
    npy->n_vocab = (int32_t)dims[n - 1];
    return 0;
}

static int check_size(struct npy *npy, struct err *err)
{
    struct stat st;
    int64_t at = ftell(npy->file), want, row = (int64_t)npy->n_vocab * npy->item_bytes;
    if (fstat(fileno(npy->file), &st))
        return err_set(err, "%s: %s", npy->path, strerror(errno));
    if (__builtin_mul_overflow(npy->n_rows, row, &want) || __builtin_add_overflow(want, at, &want))
        return err_set(err, "%s: %" PRId64 " rows of %d: too large", npy->path, npy->n_rows,
                       npy->n_vocab);
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

int npy_open(struct npy *npy, const char *path, struct err *err)
{
    *npy = (struct npy){.path = path, .file = fopen(path, "rb")};
    if (!npy->file)
        return err_set(err, "%s: %s", path, strerror(errno));
    char *header = xcalloc(HEADER_MAX, 1);
    int rc = read_header(npy, header, err) || read_type(npy, header, err) ||
                     read_shape(npy, header, err) || check_size(npy, err)
                 ? -1
                 : 0;
    free(header);
    if (rc)
        npy_close(npy);
    else
        npy->raw = xcalloc((size_t)npy->n_vocab, (size_t)npy->item_bytes);
    return rc;
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

int npy_row(struct npy *npy, float *out, struct err *err)
{
    size_t n = (size_t)npy->n_vocab;
    if (fread(npy->raw, (size_t)npy->item_bytes, n, npy->file) != n)
        return err_set(err, "%s: %s", npy->path, ferror(npy->file) ? strerror(errno) : "cut off");
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
