/* A device: memory, copies and the dispatch of operators. Knows no model; forward.c knows no
 * device. A pointer from backend_alloc or backend_bind belongs to the device and is only ever
 * handed to the calls here. The CPU's device memory is host memory.
 *
 * Calls are in order: what one backend_run writes, the next reads. */
#ifndef NEARTIE_ENGINE_BACKEND_H
#define NEARTIE_ENGINE_BACKEND_H

#include <stddef.h>

#include "kernels/kernels.h"

struct err;
struct backend;

/* Open a device by name: "cpu". Errors: unknown name (lists the known ones); a device that is not
 * there. */
int backend_open(const char *name, struct backend **out, struct err *err);
void backend_close(struct backend *b); /* NULL is fine */

const char *backend_name(const struct backend *b);
const char *backend_describe(const struct backend *b); /* one line: threads, instruction set */

/* Device memory, zeroed, aligned to 64 bytes. */
int backend_alloc(struct backend *b, size_t size_bytes, void **out, struct err *err);
void backend_free(struct backend *b, void *p); /* NULL is fine */

/* Make host memory (a weight) readable by the device; *out is host itself on the CPU. Valid until
 * backend_close; the host memory must live as long. Binding the same pointer twice is one copy. */
int backend_bind(struct backend *b, const void *host, size_t size_bytes, void **out,
                 struct err *err);

void backend_upload(struct backend *b, void *dst, const void *host, size_t size_bytes);
void backend_download(struct backend *b, void *host, const void *src, size_t size_bytes);
void backend_copy(struct backend *b, void *dst, const void *src, size_t size_bytes);
void backend_zero(struct backend *b, void *dst, size_t size_bytes);

/* The same memory as the host sees it, or NULL where it cannot. */
const void *backend_host_view(struct backend *b, const void *p);

/* Run one operator. */
void backend_run(struct backend *b, enum op op, const struct op_args *args);

#endif
