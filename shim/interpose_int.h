/* Shared by interpose.c (the wrapped functions), interpose_ask.c (the loader, and what the driver
 * is asked) and llama_lib.c (libllama's functions); nobody else's. */
#ifndef NEARTIE_SHIM_INTERPOSE_INT_H
#define NEARTIE_SHIM_INTERPOSE_INT_H

#include <stdbool.h>

struct tags_thread;

/* A function of the driver that the process has loaded; NULL: none. */
void *interpose_driver(const char *name);

/* What dlsym would give without us. RTLD_NEXT: behind us. */
void *interpose_past(void *handle, const char *name);

/* What dlsym gives for a name in a library; for the two special handles, in the driver. */
void *interpose_in(void *handle, const char *name);

/* The wrapper that dlsym shall give for this name; NULL: what it gives by itself. */
void *interpose_named(void *handle, const char *name);

/* Whether the library stands before the C library in the program's scope. */
bool interpose_preloaded(void);

/* Remember the architecture of the current device, which says which of several images the driver
 * takes. */
void interpose_note_device(void);

/* Whether the stream is capturing a graph. */
bool interpose_captures(void *stream);

/* Let the tagger know a CUkernel's CUfunction too, by which graphs name it. */
void interpose_alias(void *kernel);

/* Add the kernels of a graph, and those of its children, to the exec that is forming. */
void interpose_scan(struct tags_thread *t, void *graph);

/* Give the code that a call has loaded to the tagger. */
void interpose_image(struct tags_thread *t, const void *code);
void interpose_file(struct tags_thread *t, const char *path);

#endif
