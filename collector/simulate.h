/* Synthetic rows of two arms, clean or with one named defect: what the false-alarm and power tests
 * run on, and what `neartie simulate` writes. Margins are exponential, 0.1 per logit at 0 with a
 * median of 6.9; both arms are the same hidden logits plus noise of their own, and a common shift
 * of 3 s a row that a contrast must not see. Arm A prefills in chunks, arm B decodes in a batch.
 * The same seed gives the same rows. */
#ifndef NEARTIE_COLLECTOR_SIMULATE_H
#define NEARTIE_COLLECTOR_SIMULATE_H

#include "collector/pairs.h"
#include "collector/stat_perm.h"

enum {
    SIMULATE_TOPK = 8,
    SIMULATE_VOCAB = 2000 /* small, so that ids come back in many sequences */
};

/* How the noise is shaped; s is 1.4826 times the median contrast in every shape. */
enum simulate_noise {
    NOISE_NORMAL,
    NOISE_T4,       /* t with 4 degrees of freedom */
    NOISE_POSITION, /* normal, the scale log-normal over rows (sigma 0.5) */
    NOISE_SEQUENCE, /* normal, the scale log-normal over sequences (sigma 0.5) */
    NOISE_MEAN,     /* normal, with a mean of each sequence's own (half of s) */
    NOISE_N
};

enum simulate_defect {
    DEFECT_NONE,
    DEFECT_ALL,         /* every row's noise times size */
    DEFECT_HALF,        /* half of the rows */
    DEFECT_RARE,        /* one row in a hundred */
    DEFECT_TEMPERATURE, /* logits of B times 1 / (1 + size / 100): size in per cent */
    DEFECT_SHIFT,       /* B's runner-up raised by size times s in every row */
    DEFECT_ID,          /* one id raised by size times s wherever it stands in the list */
    DEFECT_BATCH_ROW,   /* noise times size where B's batch row is not 0 */
    DEFECT_LATE,        /* noise times size from the middle of each sequence on */
    DEFECT_RESIDUE,     /* noise times size where the position is 63 mod 64 */
    DEFECT_BOUNDARY,    /* noise times size in the three rows after a chunk boundary */
    DEFECT_SEQUENCE,    /* noise times size in one sequence of eight */
    DEFECT_UBATCH_NAN,  /* noise times size in micro-batches after the first, one row of NaN */
    DEFECT_N
};

struct simulate_named {
    const char *name, *words;
    double size; /* of a defect, where none is given */
};

extern const struct simulate_named simulate_noises[NOISE_N];
extern const struct simulate_named simulate_defects[DEFECT_N];

struct simulate_options {
    uint64_t seed;
    int n_seqs, n_rows; /* sequences, rows of each; 0: 20 of 100 */
    double scale;       /* s of the contrasts; 0: 0.1 */
    enum simulate_noise noise;
    enum simulate_defect defect;
    double size;        /* of the defect; 0: its own */
    bool bf16;          /* round both arms' logits to bf16 */
    double equal_share; /* each sequence begins with bit-equal rows, up to this share of it */
    int chunk, batch;   /* prefill chunk of A and decode batch of B; 0: 32 and 8 */
};

/* A source of rows; the lists of the row last given live in it. */
struct simulate {
    struct simulate_options options;
    struct stat_rng rng;
    int seq, pos, equal_until;
    double seq_scale, seq_mean;
    struct pair_logit a[SIMULATE_TOPK], b[SIMULATE_TOPK];
};

void simulate_init(struct simulate *simulate, const struct simulate_options *options);

/* Give the next row; its lists are valid until the next call. Returns false after the last. */
bool simulate_row(struct simulate *simulate, struct pair_row *out);

/* All rows as a set of pairs; the caller frees it. */
struct pairs *simulate_pairs(const struct simulate_options *options);

/* Find by name; NOISE_N or DEFECT_N when there is none. */
enum simulate_noise simulate_noise_find(const char *name);
enum simulate_defect simulate_defect_find(const char *name);

#endif
