/* The forward pass of every architecture, written once against backend.h: tokens in, logits out,
 * with a KV cache and recurrent state per sequence. Not thread-safe: one thread drives a context;
 * the operators use threads inside. The result does not depend on their number.
 *
 * Two honest arithmetics: FORWARD_PREFILL runs tiled matrix products over the tokens of one
 * sequence; FORWARD_DECODE runs matrix-vector products, one token of each sequence. */
#ifndef NEARTIE_ENGINE_FORWARD_H
#define NEARTIE_ENGINE_FORWARD_H

#include <stdbool.h>
#include <stdint.h>

#include "engine/knobs.h"

struct backend;
struct err;
struct forward;
struct model;

enum forward_phase { FORWARD_PREFILL, FORWARD_DECODE };

struct forward_params {
    int32_t n_ctx;      /* positions per sequence, at least 1 */
    int32_t n_seqs;     /* sequences, at least 1 */
    int32_t n_batch;    /* most tokens of one call; 0 = n_ctx or n_seqs */
    struct knobs knobs; /* copied */
};

/* Input of one call. The position of a token is the number of tokens its sequence has already
 * seen, so positions are never given. */
struct forward_batch {
    enum forward_phase phase;
    int32_t n_tokens;      /* at least 1 */
    const int32_t *tokens; /* (n_tokens) ids */
    const int32_t *seqs;   /* (n_tokens) sequence of each token. PREFILL: all equal. DECODE: all
                              different. NULL = sequence 0 (PREFILL), 0 ... n_tokens-1 (DECODE) */
    const bool *wanted;    /* (n_tokens) rows whose logits are wanted; NULL = the last token
                              (PREFILL), every token (DECODE) */
};

/* Output of one call: borrowed until the next call on the same context. */
struct forward_logits {
    int32_t n_rows;        /* wanted rows, in batch order */
    int32_t n_vocab;       /* columns */
    const float *data;     /* (n_rows, n_vocab), host memory; NULL: they stay on the device */
    const int32_t *tokens; /* (n_rows) index into the batch that each row belongs to */
    const float *device;   /* the same on the device, in the order of stream; NULL on a host */
    void *stream;          /* backend_stream */
};

/* Make a context: everything that a call needs is allocated here, except that the logits buffer
 * grows when a call wants more rows than any before (n_seqs rows are there from the start).
 * Errors: a size below 1; n_batch above n_ctx; n_ctx * n_seqs too large to allocate; a knob that
 * this model cannot honour (KV=q8_0 with a head width that is no multiple of 32, Q80_G2=1 without
 * Q8_0 matrices, ...). The model and the backend are borrowed until forward_free. */
int forward_new(const struct model *m, struct backend *backend, const struct forward_params *params,
                struct forward **out, struct err *err);
void forward_free(struct forward *f); /* NULL is fine */

/* Run one batch and advance its sequences. On an error nothing has changed. Errors, each with
 * both values: n_tokens below 1 or above n_batch; a token id outside 0 ... n_vocab-1; a sequence
 * number outside 0 ... n_seqs-1; two sequences in a PREFILL batch, or one twice in a DECODE batch;
 * a sequence that would grow beyond n_ctx; no row wanted; out of memory for the logits. */
int forward_run(struct forward *f, const struct forward_batch *batch, struct forward_logits *out,
                struct err *err);

/* Whether the logits are brought to the host, as they are at first, or stay on the device. */
void forward_fetch_logits(struct forward *f, bool fetch);

/* forward_run in two halves. After forward_start a device may still be at work: *out is whole but
 * for data, which only a host has by then. forward_finish waits, and fetches data if it is asked
 * for; it must follow. */
int forward_start(struct forward *f, const struct forward_batch *batch, struct forward_logits *out,
                  struct err *err);
int forward_finish(struct forward *f, struct forward_logits *out, struct err *err);

/* Sequences. seq, dst and src are in 0 ... n_seqs-1 (asserted). */
int32_t forward_n_past(const struct forward *f, int32_t seq);       /* tokens seen */
void forward_seq_reset(struct forward *f, int32_t seq);             /* forget them all */
void forward_seq_copy(struct forward *f, int32_t dst, int32_t src); /* dst becomes src's twin */

/* What the context was made with, n_batch filled in. */
const struct forward_params *forward_params_of(const struct forward *f);
const struct model *forward_model(const struct forward *f);

/* One line on what engaged, for reports: back end, instruction set, KV type and size. Borrowed. */
const char *forward_describe(const struct forward *f);

#endif
