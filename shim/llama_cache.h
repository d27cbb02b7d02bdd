/* What the caches of the process's llama contexts hold, kept beside the wrappers of llama.c. A
 * context's record is found and locked by one call; while it is, nobody frees the context. */
#ifndef NEARTIE_SHIM_LLAMA_CACHE_H
#define NEARTIE_SHIM_LLAMA_CACHE_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "shim/lineage.h"
#include "shim/llama_abi.h"
#include "shim/probe.h"

enum { CACHE_SEQS = 256 };

/* What was asked for when a context was made, in libllama's numbers. */
struct cache_made {
    bool known;
    int32_t kind; /* 0: the model itself; else a part of it, as a head that drafts */
    int32_t flash_attention, type_k, type_v;
};

struct cache {
    pthread_mutex_t lock;
    const struct llama_context *ctx;   /* NULL: free */
    const struct llama_memory *memory; /* NULL: it keeps nothing from one batch to the next */
    int64_t number;                    /* of this use of the record, from 1 */
    int name;                          /* from 1, in the order of their first batches; 0: none */
    struct cache_made made;
    int32_t model;          /* number of its model; 0: it has not decoded yet */
    uint64_t added[2];      /* hashes of what was added to the weights, of each kind; 0: nothing */
    int32_t adapters;       /* number of that; 0: nothing */
    uint64_t encoded;       /* hash of what an encoder was given last; 0: nothing */
    bool is_unordered;      /* a token sees later ones too: what came before it tells too little */
    bool is_warming_up;     /* other arithmetic, of no interest */
    struct probe_row *rows; /* the outputs of the last batch, in its order */
    int32_t n_rows, room;
    struct lineage seqs[CACHE_SEQS];
};

/* Find a context's record and lock it; NULL: there is none. cache_lock_new makes it at need, NULL:
 * there are too many. */
struct cache *cache_lock(const struct llama_context *ctx);
struct cache *cache_lock_new(const struct llama_context *ctx, const struct llama_memory *memory);
struct cache *cache_lock_memory(const struct llama_memory *memory);
void cache_unlock(struct cache *c);

/* The context is gone: nothing remains. Locked; unlocks. */
void cache_forget(struct cache *c);

/* A batch before it is decoded. */
struct cache_batch {
    int32_t n_seqs;         /* different sequences */
    int64_t n_past;         /* positions that the first one holds */
    enum probe_phase phase; /* by what is asked of it */
};

/* How many positions the cache holds of a sequence, as libllama says. */
typedef int32_t (*cache_length_fn)(void *user, int32_t seq);

/* Bring what is known in line with the cache, for the sequences of a batch. Returns false, with
 * nothing done, where a sequence id is out of range. */
bool cache_prepare(struct cache *c, cache_length_fn length, void *user, const struct llama_batch *b,
                   struct cache_batch *out);

/* The batch was decoded: advance the sequences, and describe its outputs in rows. Returns false,
 * with all contexts unknown, without memory. */
bool cache_advance(struct cache *c, const struct llama_batch *b, const struct probe_ops *ops);

/* The output of the last batch that libllama calls i; NULL: there is none. */
const struct probe_row *cache_output(const struct cache *c, int32_t i);

/* The hash before a sequence's first token: 0 for the first model as it is. What else the logits
 * depend on enters, so that no two contexts are alike whose logits have no reason to be. */
uint64_t cache_start(const struct cache *c);

/* How many outputs a batch has. */
int32_t cache_count_outputs(const struct llama_batch *b);

/* A sequence was read from elsewhere, with its tokens; n 0: they are not known. */
void cache_load(struct cache *c, int32_t seq, const int32_t *tokens, int32_t n);

/* What stands from position p0 on is not known any more; or it was moved by delta. A negative seq,
 * here and of remove: all of them. */
void cache_spoil(struct cache *c, int32_t seq, int32_t p0);
void cache_shift(struct cache *c, int32_t seq, int32_t p0, int32_t delta);
void cache_remove(struct cache *c, int32_t seq, int32_t p0, int32_t p1);
void cache_copy(struct cache *c, int32_t from, int32_t to, int32_t p0, int32_t p1);
void cache_keep(struct cache *c, int32_t seq);

#endif
