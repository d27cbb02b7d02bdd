/* Kernels, launch configurations and lists of them into the database. All are content-addressed:
 * one that is there already keeps its id. Every call stands within a transaction of the store; ids
 * are the file's, and stay valid until a store_rollback. */
#ifndef NEARTIE_SQL_STORE_KERNELS_H
#define NEARTIE_SQL_STORE_KERNELS_H

#include "sql/store.h"

struct store_kernel {
    const char *name;
    const char *code_hash, *const_hash; /* hex; NULL = unknown */
    const char *resolve;                /* see the schema; NULL = not found */
    const char *module_hash;            /* hex; NULL = unknown, and then the next three too */
    int64_t module_bytes, first_seen_ns;
    int32_t arch;
    int32_t registers, static_smem, stack, max_threads; /* negative = unknown */
};

struct store_config {
    int64_t kernel_id;
    uint32_t grid[3], block[3], dynamic_smem;
    uint32_t cluster[3];    /* 0: not given */
    const char *attributes; /* "" = none */
};

int store_kernel(struct store *s, const struct store_kernel *k, int64_t *out_id, struct err *err);
int store_config(struct store *s, const struct store_config *c, int64_t *out_id, struct err *err);

/* Store a list of n configurations under its hash, and under the number by which records of this
 * run name it. */
int store_list(struct store *s, uint32_t number, const char *hash, const int64_t *config_ids,
               uint32_t n, struct err *err);

/* A row of graph_execs; number is its list's. */
int store_graph_exec(struct store *s, uint32_t number, const char *label, uint32_t version,
                     int64_t created_ns, struct err *err);

#endif
