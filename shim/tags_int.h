/* The tagger's state, shared by tags.c (threads, configurations, lists), tags_graph.c, tags_code.c
 * and tags_write.c; nobody else's. Everything but the counters is under the one lock. */
#ifndef NEARTIE_SHIM_TAGS_INT_H
#define NEARTIE_SHIM_TAGS_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "shim/map.h"
#include "shim/tags.h"

enum {
    TAGS_CONFIGS = 1 << 18,       /* launch configurations of a process */
    TAGS_KERNELS = 1 << 16,       /* kernels */
    TAGS_NUMBERED = 1 << 18,      /* lists */
    TAGS_PASS = 1 << 20,          /* launches of a forward */
    TAGS_LOOSE = 4096,            /* launches after which a forward that nobody marks is ended */
    TAGS_CACHE = 1024,            /* configurations that a thread knows without the lock */
    TAGS_IMAGE_BYTES = 512 << 20, /* code images that wait for the writer */
    TAGS_GRAPH_ROWS = 1 << 16,    /* rows in graph_execs */
    TAGS_LABEL = 64
};

/* An entry of a list is a configuration's number, or that of a graph's list with this bit. */
#define TAGS_GRAPH_BIT (UINT32_C(1) << 31)
/* In place of a configuration's number: a conditional node. */
#define TAGS_CONDITION (UINT32_C(1) << 30)

struct tags_config {
    struct tags_key key; /* with f cleared */
    uint32_t kernel;     /* number, from 1 */
};

struct tags_kernel {
    const char *name; /* never freed */
    uint32_t owner;   /* number, from 1; 0 = not known */
};

struct tags_owner {
    uint32_t n;
    uint32_t *images; /* CUPTI's module ids */
};

struct tags_list {
    uint64_t check;    /* the upper half of its hash; the lower is the key */
    uint32_t n;        /* entries */
    uint32_t n_kernel; /* launches, those of graphs counted one by one */
    bool is_graph;
    uint32_t *entries; /* NULL once it is in the database, but for a graph's */
};

struct tags_exec {
    uint32_t n, list; /* list 0: changed since it was numbered */
    uint32_t version;
    bool lost, conditional;
    char label[TAGS_LABEL];
    struct map index; /* node -> 1 + item */
    struct tags_item {
        const void *original;
        uint32_t config;
        bool off;
    } * items;
};

/* A version of a graph that was launched: a row of graph_execs. */
struct tags_graph {
    uint32_t list, version;
    int64_t created_ns;
    char label[TAGS_LABEL];
};

struct tags_image {
    struct tags_image *next;
    uint32_t id;
    size_t size;
    const unsigned char *there; /* not copied; else NULL */
    unsigned char bytes[];
};

struct tags_thread {
    struct tags_thread *next; /* in the list of all */
    _Atomic bool taken;       /* by a thread that lives */
    _Atomic bool busy;        /* in a callback */
    uint32_t generation;      /* of the handles that the cache knows */
    uint32_t current;         /* configuration of the call in progress; 0 = none */
    bool launching, captured; /* it is a launch; it became a node of a graph instead */
    void *missed;             /* its handle, where the cache did not know it */
    uint32_t before;          /* entries before it */
    const void *load_owner;   /* see tags_load_begin; */
    uint32_t load_number;     /* the owner's number, once there is one */
    struct tags_exec *forming;
    uint64_t forward;  /* 0 = none is open */
    uint32_t switches; /* tags.switches when its list began */
    bool unknown;      /* its list will not be whole */
    uint32_t n, room;
    uint32_t *entries;
    struct tags_cached {
        struct tags_key key;
        uint32_t config;
    } cache[TAGS_CACHE];
};

struct tags {
    pthread_mutex_t lock;
    _Atomic bool closed, forked;
    _Atomic uint32_t generation, image_id;
    _Atomic uint32_t switches; /* of the recording of launches: odd while it is paused */
    _Atomic int arch;          /* 90 for sm_90; 0 = not known */
    _Atomic uint64_t gaps[N_TAGS_GAPS];
    _Atomic(const char *) refused, version;
    struct tags_thread *threads;

    uint32_t n_configs, n_kernels, n_owners, n_lists, n_graphs;
    struct tags_config *configs;
    struct tags_kernel *kernels;
    struct tags_owner *owners;
    struct tags_list *lists;
    struct tags_graph *graphs;
    struct map config_of, list_of, kernel_of; /* by hash */
    struct map by_handle, by_owner;           /* handle -> kernel, owner's handle -> owner */
    struct map library_kernels;               /* handles that are CUkernels */
    struct map node_config;                   /* node -> configuration, or TAGS_CONDITION */
    struct map exec_of;                       /* exec -> 1 + index */
    uint32_t n_execs;
    struct tags_exec **execs; /* NULL: free */

    struct tags_image *images, **images_end;
    size_t image_bytes;
};

extern struct tags tags;

/* Room for one more in a list that grows by doubling; NULL without memory, or at most. */
void *tags_grow(void *list, uint32_t n, uint32_t most, size_t bytes);

/* With the lock held. */
uint32_t tags_config_of(const struct tags_key *key, const char *symbol); /* 0 = no room */
uint32_t tags_list_of(const uint32_t *entries, uint32_t n, bool is_graph);
uint32_t tags_kernel_of(const void *handle, const char *symbol);
uint32_t tags_exec_list(void *exec, bool *conditional); /* 0 = not known */

#endif
