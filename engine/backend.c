#include "config.h"
#include "engine/backend_int.h"

#include <string.h>

#include "err.h"

/* Best first: what "auto" tries. */
static const struct backend_device *const devices[] = {
#ifdef HAVE_CUDA
    &backend_cuda,
#endif
    &backend_cpu,
};
enum { N_DEVICES = sizeof devices / sizeof *devices };

static int open_one(const struct backend_device *device, struct backend **out, struct err *err)
{
    if (device->open(out, err) < 0)
        return -1;
    (*out)->device = device;
    return 0;
}

int backend_open(const char *name, struct backend **out, struct err *err)
{
    for (int i = 0; i < N_DEVICES; i++) {
        if (!strcmp(name, devices[i]->name))
            return open_one(devices[i], out, err);
        if (!strcmp(name, "auto") && open_one(devices[i], out, err) == 0)
            return 0;
    }
    if (!strcmp(name, "cuda"))
        return err_set(err, "cuda: not built in: configured without the CUDA Toolkit");
    return err_set(err, "%s: no such device; known: auto, cpu, cuda", name);
}

void backend_close(struct backend *b)
{
    if (b)
        b->device->close(b);
}

const char *backend_name(const struct backend *b)
{
    return b->device->name;
}

const char *backend_describe(const struct backend *b)
{
    return b->text;
}

int backend_alloc(struct backend *b, size_t size_bytes, void **out, struct err *err)
{
    return b->device->alloc(b, size_bytes, out, err);
}

void backend_free(struct backend *b, void *p)
{
    if (b)
        b->device->free(b, p);
}

void *backend_alloc_host(struct backend *b, size_t size_bytes)
{
    return b->device->alloc_host(size_bytes);
}

void backend_free_host(struct backend *b, void *p)
{
    if (b)
        b->device->free_host(p);
}

int backend_bind(struct backend *b, const struct tensor *host, void **out, struct err *err)
{
    return b->device->bind(b, host, out, err);
}

void backend_upload(struct backend *b, void *dst, const void *host, size_t size_bytes)
{
    b->device->upload(b, dst, host, size_bytes);
}

void backend_download(struct backend *b, void *host, const void *src, size_t size_bytes)
{
    b->device->download(b, host, src, size_bytes);
}

void backend_copy(struct backend *b, void *dst, const void *src, size_t size_bytes)
{
    b->device->copy(b, dst, src, size_bytes);
}

void backend_zero(struct backend *b, void *dst, size_t size_bytes)
{
    b->device->zero(b, dst, size_bytes);
}

const void *backend_host_view(struct backend *b, const void *p)
{
    return b->device->host_view(b, p);
}

void *backend_stream(const struct backend *b)
{
    return b->stream;
}

bool backend_fuses(const struct backend *b)
{
    return b->device->fuses;
}

void backend_run(struct backend *b, enum op op, const struct op_args *args)
{
    b->device->run(b, op, args);
}

bool backend_graph_begin(struct backend *b, const struct graph_key *key)
{
    return b->device->graph_begin(b, key);
}

void backend_graph_end(struct backend *b)
{
    b->device->graph_end(b);
}

void backend_graph_forget(struct backend *b, const void *owner)
{
    if (b)
        b->device->graph_forget(b, owner);
}

void backend_mark(struct backend *b)
{
    b->device->mark(b);
}

int backend_finish(struct backend *b, struct err *err)
{
    return b->device->finish(b, err);
}
