/* What a device implements: the calls of backend.h, as a table. A device's struct begins with a
 * struct backend. */
#ifndef NEARTIE_ENGINE_BACKEND_INT_H
#define NEARTIE_ENGINE_BACKEND_INT_H

#include "engine/backend.h"

struct backend_device {
    const char *name; /* as in backend_open */
    bool fuses;       /* backend_fuses */

    /* Open it; *out is set only on success. Returns -1 with the reason where it is not there. */
    int (*open)(struct backend **out, struct err *err);
    void (*close)(struct backend *b);

    int (*alloc)(struct backend *b, size_t size_bytes, void **out, struct err *err);
    void (*free)(struct backend *b, void *p);
    void *(*alloc_host)(size_t size_bytes); /* NULL when there is none left */
    void (*free_host)(void *p);
    int (*bind)(struct backend *b, const struct tensor *host, void **out, struct err *err);
    void (*upload)(struct backend *b, void *dst, const void *host, size_t size_bytes);
    void (*download)(struct backend *b, void *host, const void *src, size_t size_bytes);
    void (*copy)(struct backend *b, void *dst, const void *src, size_t size_bytes);
    void (*zero)(struct backend *b, void *dst, size_t size_bytes);
    const void *(*host_view)(struct backend *b, const void *p);
    void (*run)(struct backend *b, enum op op, const struct op_args *args);
    bool (*graph_begin)(struct backend *b, const struct graph_key *key);
    void (*graph_end)(struct backend *b);
    void (*graph_forget)(struct backend *b, const void *owner);
    void (*mark)(struct backend *b);
    int (*finish)(struct backend *b, struct err *err);
};

struct backend {
    const struct backend_device *device;
    void *stream;   /* backend_stream */
    char text[128]; /* backend_describe */
};

extern const struct backend_device backend_cpu, backend_cuda;

#endif
