/* A device: memory, copies and the dispatch of operators. Knows no model; forward.c knows no
 * device. A pointer from backend_alloc or backend_bind belongs to the device and is only ever
 * handed to the calls here. The CPU's device memory is host memory.
 *
 * Calls are in order: what one backend_run writes, the next reads. A device may still be at work
 * when they return; what goes wrong there is told by backend_finish. */
#ifndef NEARTIE_ENGINE_BACKEND_H
#define NEARTIE_ENGINE_BACKEND_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/kernels.h"

struct err;
struct backend;

/* Open a device by name: "cpu", "cuda", or "auto" for the best that is there. Errors: unknown name
 * (lists the known ones); a device that is not there. */
int backend_open(const char *name, struct backend **out, struct err *err);
void backend_close(struct backend *b); /* NULL is fine */

const char *backend_name(const struct backend *b);
const char *backend_describe(const struct backend *b); /* one line: threads, instruction set */

/* Device memory, zeroed, aligned to 64 bytes. */
int backend_alloc(struct backend *b, size_t size_bytes, void **out, struct err *err);
void backend_free(struct backend *b, void *p); /* NULL is fine */

/* Host memory that the device copies to and from fast; NULL when there is none left. */
void *backend_alloc_host(struct backend *b, size_t size_bytes);
void backend_free_host(struct backend *b, void *p); /* NULL is fine */

/* Make a weight in host memory readable by the device; *out is the tensor's own data on the CPU.
 * Valid until backend_close; the host memory must live as long. Binding the same memory twice is
 * one copy. */
int backend_bind(struct backend *b, const struct tensor *host, void **out, struct err *err);

void backend_upload(struct backend *b, void *dst, const void *host, size_t size_bytes);
void backend_download(struct backend *b, void *host, const void *src, size_t size_bytes);
void backend_copy(struct backend *b, void *dst, const void *src, size_t size_bytes);
void backend_zero(struct backend *b, void *dst, size_t size_bytes);

/* The same memory as the host sees it, or NULL where it cannot. */
const void *backend_host_view(struct backend *b, const void *p);

/* The CUstream that the calls stand in; NULL on a host. */
void *backend_stream(const struct backend *b);

/* Is a call so dear here that operators which stand for several are worth their while? */
bool backend_fuses(const struct backend *b);

/* Run one operator. */
void backend_run(struct backend *b, enum op op, const struct op_args *args);

/* A sequence of backend_run calls that is made again and again, every time with the same arguments:
 * only what the memory holds differs. Two sequences differ in their keys. */
struct graph_key {
    const void *owner; /* who forgets it */
    const void *out;
    int32_t n_tokens, n_wanted;
};

/* Returns true where the device has run the whole sequence by itself, false where the calls have
 * to be made; backend_graph_end follows them. */
bool backend_graph_begin(struct backend *b, const struct graph_key *key);
void backend_graph_end(struct backend *b);

/* Forget an owner's sequences: memory that they use is about to go. */
void backend_graph_forget(struct backend *b, const void *owner);

/* The result that is waited for is complete here: what is put into the stream from now on, the next
 * backend_finish need not wait for. */
void backend_mark(struct backend *b);

/* Wait until everything is done, or everything before the mark. Returns -1 with the first thing
 * that went wrong since the last call. */
int backend_finish(struct backend *b, struct err *err);

#endif
