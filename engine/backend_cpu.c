#include "config.h"
#include "engine/backend_int.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "err.h"

static int n_threads(void)
{
#ifdef _OPENMP
    return omp_get_max_threads();
#else
    return 1;
#endif
}

static int cpu_open(struct backend **out, struct err *err)
{
    struct backend *b = calloc(1, sizeof *b);
    if (!b)
        return err_set(err, "cpu: out of memory");
    snprintf(b->text, sizeof b->text, "cpu, %d threads, %s", n_threads(), kernels_isa());
    *out = b;
    return 0;
}

static void cpu_close(struct backend *b)
{
    free(b);
}

static int cpu_alloc(struct backend *b, size_t size_bytes, void **out, struct err *err)
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

static void cpu_free(struct backend *b, void *p)
{
    (void)b;
    free(p);
}

static int cpu_bind(struct backend *b, const struct tensor *host, void **out, struct err *err)
{
    (void)b, (void)err;
    *out = host->data;
    return 0;
}

static void cpu_upload(struct backend *b, void *dst, const void *host, size_t size_bytes)
{
    (void)b;
    memcpy(dst, host, size_bytes);
}

static void cpu_download(struct backend *b, void *host, const void *src, size_t size_bytes)
{
    (void)b;
    memcpy(host, src, size_bytes);
}

static void cpu_copy(struct backend *b, void *dst, const void *src, size_t size_bytes)
{
    (void)b;
    memcpy(dst, src, size_bytes);
}

static void cpu_zero(struct backend *b, void *dst, size_t size_bytes)
{
    (void)b;
    memset(dst, 0, size_bytes);
}

static const void *cpu_host_view(struct backend *b, const void *p)
{
    (void)b;
    return p;
}

static void cpu_run(struct backend *b, enum op op, const struct op_args *args)
{
    (void)b;
    ops[op].fn[args->form](args);
}

static bool cpu_graph_begin(struct backend *b, const struct graph_key *key)
{
    (void)b, (void)key;
    return false;
}

static void cpu_graph_end(struct backend *b)
{
    (void)b;
}

static void cpu_graph_forget(struct backend *b, const void *owner)
{
    (void)b, (void)owner;
}

/* Every call has done its work when it returns. */
static void cpu_mark(struct backend *b)
{
    (void)b;
}

static int cpu_finish(struct backend *b, struct err *err)
{
    (void)b, (void)err;
    return 0;
}

const struct backend_device backend_cpu = {
    .name = "cpu",
    .open = cpu_open,
    .close = cpu_close,
    .alloc = cpu_alloc,
    .free = cpu_free,
    .alloc_host = malloc,
    .free_host = free,
    .bind = cpu_bind,
    .upload = cpu_upload,
    .download = cpu_download,
    .copy = cpu_copy,
    .zero = cpu_zero,
    .host_view = cpu_host_view,
    .run = cpu_run,
    .graph_begin = cpu_graph_begin,
    .graph_end = cpu_graph_end,
    .graph_forget = cpu_graph_forget,
    .mark = cpu_mark,
    .finish = cpu_finish,
};
