/* A context's fields, shared by forward.c (the models' arithmetic) and context.c (memory, checks,
 * chunks). Private to the engine. */
#ifndef NEARTIE_ENGINE_FORWARD_INT_H
#define NEARTIE_ENGINE_FORWARD_INT_H

#include "engine/backend.h"
#include "engine/forward.h"
#include "engine/kvcache.h"
#include "engine/model.h"

struct forward {
    const struct model *host_model; /* borrowed */
    struct model model;             /* the same with the weights where the device reads them */
    struct backend *backend;        /* borrowed */
    struct forward_params params;
    enum op_form form;
    bool fuses; /* use the operators that stand for several */
    struct kvcache cache;

    /* Input of the graph in hand, device memory; rows of (1, n). */
    enum forward_phase phase;
    struct tensor tokens, seqs, positions; /* int32, n = tokens of this chunk */
    struct tensor wanted;                  /* int32, n = rows of this chunk whose logits go out */
    struct tensor rope_frequencies;        /* (1, n_rot/2) double, radians per position */
    int64_t n_pairs;                       /* (query, key) pairs of one attention layer */
    struct tensor logits;                  /* output: (wanted, n_vocab) */

    /* Activations: a stack, measured once by running the largest graph without arithmetic. */
    bool is_measuring;
    char *arena;
    size_t arena_used, arena_peak;
    void *scratch;
    size_t scratch_bytes;

    /* Owned by context.c. */
    int32_t chunk;       /* most tokens of one graph */
    int32_t *input;      /* device: N_INPUT_ROWS rows of chunk ints */
    int32_t *staging;    /* host twin of input */
    struct tensor out;   /* device: (rows allocated, n_vocab) */
    bool keeps_logits;   /* on the device */
    float *host_logits;  /* the same on the host; NULL until it is asked for */
    int32_t *row_tokens; /* (n_batch) batch index of each row that went out */
    char text[160];      /* forward_describe */
};

/* Run the layers over the tokens in hand. */
void forward_graph(struct forward *f);

#endif
