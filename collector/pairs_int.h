/* What a set of pairs holds: one column per figure, filled by pairs.c and read by the statistics.
 * Only comparable rows with finite lists on both sides stand in the columns. */
#ifndef NEARTIE_COLLECTOR_PAIRS_INT_H
#define NEARTIE_COLLECTOR_PAIRS_INT_H

#include "collector/intern.h"
#include "collector/pairs.h"

enum pair_flag {
    PAIR_EQUAL = 1,      /* the whole rows are bit-equal */
    PAIR_FLIPPED = 2,    /* the arms choose different ids */
    PAIR_BOUNDED = 4,    /* contrast is a bound: its size is at least this */
    PAIR_LOWER = 8,      /* the runner-up has the lower id: a contrast equal to the margin flips */
    PAIR_KERNELS = 16,   /* both kernel lists are known and differ */
    PAIR_SAME_LIST = 32, /* both kernel lists are known and equal */
    PAIR_REPEAT = 64     /* another row of this context stands before it */
};

/* Everything that names where a row was computed, interned: rows refer to it by number. n_past is
 * kept as the row's offset in its forward, which repeats. */
struct pair_where {
    struct pair_place a, b; /* n_past is PAIR_UNKNOWN here */
    int32_t tags[PAIR_MAX_TAGS];
};

/* Whether one arm's logits lie on the grid of a narrow type. */
struct pair_grid {
    size_t n_logits;
    size_t n_off_bf16, n_off_f16; /* logits that the type cannot hold */
    double step;                  /* largest power of two that divides every gap; 0: no gap seen */
    double max_abs;               /* largest |logit| */
    float gaps[3];                /* the first distinct gaps that are not zero */
    int n_gaps;
    double sum_ulp_bf16; /* over rows, the unit in the last place of the best logit */
    size_t n_rows;
};

/* Sums by id, open addressing; an entry of n = 0 is free. */
struct pair_tokens {
    struct pair_token {
        int32_t token;
        uint32_t n;
        double sum, squares;
    } * slots;
    size_t n_slots, n_used;
};

struct pair_kernel {
    int32_t kernel_list, config;
};

struct pairs {
    size_t n, cap;      /* rows */
    size_t n_repeats;   /* of these, PAIR_REPEAT */
    uint32_t *seq;      /* (n) index of the sequence, ascending */
    int32_t *pos;       /* (n) */
    float *margin;      /* (n) a_i - a_v */
    float *contrast;    /* (n) x of the runner-up, signed */
    float *peak;        /* (n) largest size of the contrasts of the runner-up and of B's choice */
    uint32_t *where;    /* (n) index into wheres */
    int32_t *offset[2]; /* (n) pos - n_past of side A and B, or PAIR_UNKNOWN */
    uint8_t *flags;     /* (n) enum pair_flag */

    size_t n_seqs, cap_seqs;
    int64_t *seq_number; /* (n_seqs) the caller's */
    size_t *seq_first;   /* (n_seqs) first row; the last ends at n */

    struct intern wheres; /* struct pair_where */

    size_t n_flips, cap_flips;
    struct pair_flip *flips;

    struct pair_tokens seq_ids; /* centred differences of the sequence at hand, by row */
    struct pair_tokens ids;     /* of all sequences: n of them, sums of their means */

    size_t n_kernels, cap_kernels;
    struct pair_kernel *kernels;

    int n_tags;
    char *tag_names[PAIR_MAX_TAGS];

    struct pair_grid grid[2];
    size_t n_refused, n_equal, n_nonfinite[2], n_nonfinite_rows;
    size_t n_mismatch, n_tie_rule; /* emitted ids that are not the best; that tie with the best */
    struct pair_fault nonfinite, mismatch; /* the first of each */
};

/* End the sequence at hand: what is kept per sequence becomes complete. pairs_add does so when a
 * new sequence begins; readers call it once before they read. */
void pairs_close(struct pairs *pairs);

/* Add one value to an id's sums. */
void pair_tokens_add(struct pair_tokens *tokens, int32_t token, double value);
void pair_tokens_clear(struct pair_tokens *tokens); /* keeps the memory */
void pair_tokens_fini(struct pair_tokens *tokens);

/* Add each shared id's difference, minus the median over the shared ids, to the sequence's sums. */
void pairs_add_ids(struct pairs *pairs, const struct pair_row *row);

/* A logit as one side knows it: exact, or at most this. */
struct pair_known {
    double value;
    bool exact;
};
struct pair_known pair_find(const struct pair_side *side, int32_t token);

/* A place by its number. */
static inline const struct pair_where *pairs_where(const struct pairs *pairs, size_t number)
{
    return (const struct pair_where *)pairs->wheres.items + number;
}

/* Rows of sequence s: from seq_first[s] up to this. */
size_t pairs_seq_end(const struct pairs *pairs, size_t s);

/* The unit in the last place of a bfloat16 (7 stored bits) and of a half (10) at this size. */
double pairs_ulp_bf16(double x);
double pairs_ulp_f16(double x);

/* Whether a value lies on the grid of the type. */
bool pairs_is_bf16(float x);
bool pairs_is_f16(float x);

#endif
