#include "config.h"
#include "engine/backend.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "err.h"

/* The CPU needs nothing of its own but a description. */
struct backend {
    char text[64];
};

static int n_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

int backend_open(const char *name, struct backend **out, struct err *err)
{
    if (strcmp(name, "cpu"))
        return err_set(err, "%s: no such device; known: cpu", name);
    struct backend *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(err, "%s: out of memory", name);
    snprintf(b->text, sizeof b->text, "cpu, %d threads, %s", n_threads(), kernels_isa());
    *out = b;
    return 0;
}

void backend_close(struct backend *b)
{
    free(b);
}

const char *backend_name(const struct backend *b)
{
    (void)b;
    return "cpu";
}

const char *backend_describe(const struct backend *b)
{
    return b->text;
}

int backend_alloc(struct backend *b, size_t size_bytes, void **out, struct err *err)
{
    (void)b;
    size_t rounded = (size_bytes + 63) / 64 * 64;
    void *p = rounded >= size_bytes ? aligned_alloc(64, rounded ? rounded : 64) : NULL;
    if (!p)
        return err_set(err, "cpu: out of memory: %zu bytes", size_bytes);
    memset(p, 0, rounded);
    *out = p;
    return 0;
}

void backend_free(struct backend *b, void *p)
{
    (void)b;
    free(p);
}

int backend_bind(struct backend *b, const void *host, size_t size_bytes, void **out,
                 struct err *err)
{
    (void)b, (void)size_bytes, (void)err;
    *out = (void *)host;
    return 0;
}

void backend_upload(struct backend *b, void *dst, const void *host, size_t size_bytes)
{
    (void)b;
    memcpy(dst, host, size_bytes);
}

void backend_download(struct backend *b, void *host, const void *src, size_t size_bytes)
{
    (void)b;
    memcpy(host, src, size_bytes);
}

void backend_copy(struct backend *b, void *dst, const void *src, size_t size_bytes)
{
    (void)b;
    memcpy(dst, src, size_bytes);
}

void backend_zero(struct backend *b, void *dst, size_t size_bytes)
{
    (void)b;
    memset(dst, 0, size_bytes);
}

const void *backend_host_view(struct backend *b, const void *p)
{
    (void)b;
    return p;
}

void backend_run(struct backend *b, enum op op, const struct op_args *args)
{
    (void)b;
    ops[op].fn[args->form](args);
}
