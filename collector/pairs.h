/* The rows of two arms, side by side, reduced to what the calibrated verdict needs: an input for
 * collector/calibrated.h that knows nothing of SQLite. The caller adds one struct pair_row per pair
 * of rows, sequence by sequence (rows of one sequence follow each other, by position); the lists
 * are borrowed for the call, and what is kept is about 40 bytes a row, so that ten million fit.
 *
 * Arm A is the base: i is its best id, v its runner-up, m = a_i - a_v its margin. The contrast of a
 * row is x = (b_v - a_v) - (b_i - a_i), the change of the gap; it is the same for
 * log-probabilities, and B prefers v to i exactly if x > m (or x = m and v < i). An id missing from
 * a list is bounded by that list's last logit: the row is then marked as bounded, and never
 * dropped; where i itself is missing from B's list, the contrast of B's choice stands for the
 * runner-up's. */
#ifndef NEARTIE_COLLECTOR_PAIRS_H
#define NEARTIE_COLLECTOR_PAIRS_H

#include "err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PAIR_UNKNOWN  (-1) /* any count, index or id below that the record does not hold */
#define PAIR_MAX_TAGS 8    /* tags of the caller's own */

struct pair_logit {
    int32_t token;
    float logit;
};

/* Where and how one side was computed; PAIR_UNKNOWN where the record does not say. */
struct pair_place {
    int32_t phase;        /* 0 prefill, 1 decode, 2 verify */
    int32_t batch_row;    /* row of the batch */
    int32_t n_tokens;     /* width: input tokens of the forward, over all sequences */
    int32_t n_seqs;       /* sequences of the forward */
    int32_t ubatch_index; /* which micro-batch, from 0 */
    int32_t n_ubatch;     /* micro-batches of the batch */
    int32_t n_past;       /* positions in the cache before the forward */
    int32_t kernel_list;  /* the caller's number of the kernel list */
};

#define PAIR_PLACE_UNKNOWN                                                                         \
    ((struct pair_place){PAIR_UNKNOWN, PAIR_UNKNOWN, PAIR_UNKNOWN, PAIR_UNKNOWN, PAIR_UNKNOWN,     \
                         PAIR_UNKNOWN, PAIR_UNKNOWN, PAIR_UNKNOWN})

/* One arm's row. Two entries of the list are enough where both arms have the same first two ids;
 * otherwise give the whole list, and as `extra` what is known exactly of the other arm's ids. */
struct pair_side {
    const struct pair_logit *topk;  /* (n_topk) best first, ties by lowest id; borrowed */
    const struct pair_logit *extra; /* (n_extra) exact logits of further ids, any order; borrowed */
    int n_topk, n_extra;
    int64_t n_nan, n_posinf; /* entries of the row that are NaN or +inf */
    int32_t first_bad;       /* lowest id of these, or PAIR_UNKNOWN */
    int32_t emitted;         /* what the sampler chose after this row, or PAIR_UNKNOWN */
    struct pair_place place;
};

struct pair_row {
    int64_t seq; /* the caller's number of the sequence: the unit of every permutation */
    int32_t pos; /* position of the input token */
    bool repeat; /* an earlier row of B had this context and other logits: it tells of B's noise,
                    but not of another context, and counts to that row's sequence, first_seq */
    int64_t first_seq;
    bool comparable; /* equal context hash and equal position */
    int bit_equal; /* whole rows equal (top-k, log-sum-exp): 1, 0, or PAIR_UNKNOWN: decided from the
                      lists */
    struct pair_side a, b;
    const int32_t *tags; /* (n_tags of pairs_new) values of the caller's tags, or NULL */
};

/* A flip: i is A's choice, j is B's. Bounded gaps are lower bounds. */
struct pair_flip {
    int64_t seq;
    int32_t pos;
    int32_t token_a, token_b; /* i, j */
    float a_i, a_j, b_i, b_j; /* the four logits; NaN where one is only bounded */
    float gap_a;              /* a_i - a_j, at least */
    float gap_b;              /* b_j - b_i, at least */
    float margin_a, margin_b; /* top-2 margins of the arms */
    float contrast;           /* gap_a + gap_b */
    bool bounded;             /* an id was missing from the other list */
    bool emitted_only;        /* equal argmax, another emitted id of the same logit: a tie rule */
    size_t row;               /* index among the comparable rows */
};

/* The first row of its kind that ends a comparison, with what was wrong in it. */
struct pair_fault {
    int64_t seq;
    int32_t pos;
    int side; /* 0 A, 1 B, 2 both */
    int64_t n_nan, n_posinf;
    int32_t first_bad;
    int32_t emitted, argmax; /* for a sampler mismatch */
};

struct pairs; /* opaque to callers; collector/pairs_int.h for the tests of the rule itself */

/* Make an empty set; tag_names are copied. Never fails: out of memory ends the program. */
struct pairs *pairs_new(const char *const *tag_names, int n_tags);
void pairs_free(struct pairs *pairs);

/* Make room for n rows in all, where that is known. */
void pairs_reserve(struct pairs *pairs, size_t n);

/* Add one row; a repeat stands behind the other rows of first_seq. Fails on a list that is empty
 * without a NaN, not in order, or a NaN in a list. */
int pairs_add(struct pairs *pairs, const struct pair_row *row, struct err *err);

/* Say which launch configurations a kernel list uses, so that each of them becomes a tag. */
void pairs_kernel_list(struct pairs *pairs, int32_t kernel_list, const int32_t *configs, int n);

/* What was added. */
size_t pairs_n_rows(const struct pairs *pairs); /* comparable, finite rows */
size_t pairs_n_sequences(const struct pairs *pairs);
size_t pairs_n_refused(const struct pairs *pairs); /* rows that were not comparable */
size_t pairs_n_bit_equal(const struct pairs *pairs);
size_t pairs_n_nonfinite(const struct pairs *pairs); /* rows with NaN or +inf on either side */
size_t pairs_flips(const struct pairs *pairs, const struct pair_flip **out); /* borrowed */

#endif
