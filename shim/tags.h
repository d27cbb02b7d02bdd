/* The kernels of each forward: what a back end (cupti.h, interpose.h) saw being launched becomes
 * numbered launch configurations, ordered lists of them, and one list number for each forward.
 *
 * Every call but those of the writer comes from a host thread, out of a driver call, and may not
 * call the driver or CUPTI. A launch costs a look into the thread's own table. What is new takes
 * one lock, which is never held over anything but memory work. All memory is bounded: beyond the
 * bounds, things are left out and counted in `gaps`. */
#ifndef NEARTIE_SHIM_TAGS_H
#define NEARTIE_SHIM_TAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "shim/cupti_abi.h"

struct record;
struct store;
struct tags_thread;

/* What was not tagged; names and explanations are in tags_write.c. */
enum tags_gap {
    TAGS_OUTSIDE,     /* launches of no recorded forward, where the engine marks its forwards */
    TAGS_UNMARKED,    /* forwards that were made up, where it does not */
    TAGS_GRAPH,       /* launches of graphs that were built before the tagger saw it */
    TAGS_CONDITIONAL, /* launches of graphs with conditional nodes */
    TAGS_UNSEEN,      /* launches through a function whose arguments are not read */
    TAGS_LISTS,       /* forwards whose list found no room */
    TAGS_MODULES,     /* code images that found no room */
    TAGS_AMBIGUOUS,   /* kernels whose code could be one of several */
    TAGS_UNREAD,      /* code images that could not be read */
    TAGS_PAUSED,      /* forwards while launches were not to be recorded */
    N_TAGS_GAPS
};
void tags_count(enum tags_gap gap, uint64_t n);

/* Why the first choice of a back end is not in use; kept for `gaps`. */
void tags_refused(const char *why);
/* The back end in use: its library's version, "" = none. */
void tags_version(const char *version);

/* One way of launching; no padding, for it is compared as bytes. */
struct tags_key {
    void *f; /* CUfunction or CUkernel */
    struct cu_geometry geometry;
    uint32_t cluster;    /* 10 bits each for x, y, z from the lowest; 0 = not given */
    uint64_t attributes; /* tags_attributes; 0 = none */
};

/* The attributes that are configuration, packed; the cluster goes to *cluster. */
uint64_t tags_attributes(const struct cu_attribute *list, uint32_t n, uint32_t *cluster);
/* The same as text, "" = none. */
void tags_attributes_text(uint64_t packed, char out[120]);

/* Record no launches from now on, in any thread; or record them again. */
void tags_pause(bool pause);
bool tags_paused(void);

/* The calling thread's state, or NULL where nothing is to be tagged: the process exits, it is the
 * child of a fork, or the probe itself is calling the driver. start: begin to record at need. */
struct tags_thread *tags_self(bool start);

/* A launch begins; and returns, failed or not. symbol is the kernel's name, for one whose handle
 * was not seen; may be NULL. */
void tags_launch(struct tags_thread *t, const struct tags_key *key, const char *symbol);
void tags_launch_graph(struct tags_thread *t, void *exec);
void tags_returned(struct tags_thread *t, bool failed);
/* The handle of the launch in progress, where this thread had not launched it like this before;
 * NULL else. */
void *tags_new_kernel(const struct tags_thread *t);
void tags_captured(struct tags_thread *t); /* before it returns: it became a graph's node instead */

/* Results went to the host: where the engine marks no forwards, one ends here. */
void tags_read(struct tags_thread *t);

/* Forwards, marked by the engine's hooks on their own thread. tags_end gives the list's number, 0
 * where it is not known. */
void tags_begin(uint64_t forward);
uint32_t tags_end(uint64_t forward);

/* Graph nodes. tags_node_begin: a call that creates or changes a kernel node has begun, key NULL
 * for a conditional one; tags_node_created, tags_node_set: it did. tags_returned ends the call. */
void tags_node_begin(struct tags_thread *t, const struct tags_key *key);
void tags_node_created(struct tags_thread *t, const void *node);
void tags_node_cloned(struct tags_thread *t, const void *node, const void *original);
void tags_node_set(struct tags_thread *t, const void *node); /* in its graph, not in an exec */
void tags_node_destroyed(const void *node);

/* Executable graphs. Between begin and end the nodes that are cloned, and those that are named (key
 * NULL: a conditional one), belong to the new one. */
void tags_exec_begin(struct tags_thread *t);
void tags_exec_created(struct tags_thread *t, void *exec);
void tags_exec_end(struct tags_thread *t);
void tags_exec_item(struct tags_thread *t, const void *node, const struct tags_key *key,
                    const char *symbol);
void tags_exec_replaced(struct tags_thread *t, void *exec); /* its kernels: by those that form */
void tags_exec_node_from(void *exec, const void *node, const void *new_node);
void tags_exec_node_set(struct tags_thread *t, void *exec, const void *node);
void tags_exec_enable(void *exec, const void *original, bool enabled);
void tags_exec_lost(void *exec); /* it was changed in a way that was not seen */
void tags_exec_destroyed(void *exec);
void tags_exec_label(void *exec, const char *label);

/* Code. An owner is a CUmodule or a CUlibrary; a handle is a CUfunction or a CUkernel. Images that
 * are loaded between tags_load_begin and tags_load_end belong to the owner that is named, by itself
 * or by one of its handles; NULL: not known before tags_load_end names it. */
void tags_load_begin(struct tags_thread *t, const void *owner_or_handle);
void tags_load_end(struct tags_thread *t, const void *new_owner);
void tags_image(struct tags_thread *t, uint32_t id, const void *image, size_t size);
/* The same, of a cubin or fat binary that stays where it is: it is read only if it is launched. */
void tags_image_there(struct tags_thread *t, const void *image, size_t size);
uint32_t tags_image_id(void); /* a number for an image that has none */
void tags_arch(int sm);       /* which images of a fat binary count */
bool tags_arch_known(void);
bool tags_known(const void *handle);
bool tags_is_library_kernel(const void *handle); /* a CUkernel, not a CUfunction */
void tags_kernel(const void *handle, const void *owner, const char *name, bool of_library);
void tags_alias(const void *new_handle, const void *handle); /* the same kernel or owner */
void tags_unload(const void *owner);

/* The process exits: take no more, and record what is not recorded. In the child of a fork: take no
 * more, for CUDA does not work there. */
void tags_stop(void);
void tags_forked(void);

/* The writer's side. tags_put: store what a record's list number stands for; within a transaction.
 * tags_settle: the transaction is in the file. tags_forget: what was stored may not be in the file.
 * tags_state: state gaps and graphs. tags_read_images: read what code was loaded, outside of any
 * transaction. */
int tags_put(struct store *s, const struct record *r, struct err *err);
int tags_state(struct store *s, struct err *err);
void tags_settle(void);
void tags_forget(void);
void tags_read_images(void);

#endif
