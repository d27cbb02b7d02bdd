/* What the host side and the device side of the CUDA capture share: the kernel's arguments and the
 * result it leaves for each row. C and CUDA C; plain data only. */
#ifndef NEARTIE_SHIM_CAPTURE_CUDA_H
#define NEARTIE_SHIM_CAPTURE_CUDA_H

#include <stdint.h>

#define CAPTURE_CUDA_THREADS 256        /* threads of a block */
#define CAPTURE_CUDA_MAX_K   64         /* longest top-k list, and longest watch list */
#define CAPTURE_CUDA_TILE    (16 * 256) /* f32 elements that a block reads at a time */
#define CAPTURE_CUDA_SPLITS  64         /* most blocks that share one row */

/* One row's result, written to host-mapped memory; `done` is written last. */
struct capture_cuda_row {
    float
        logit[CAPTURE_CUDA_MAX_K]; /* best first; bit-equal to the row's elements, widened to f32 */
    int32_t token[CAPTURE_CUDA_MAX_K]; /* -1 past the end of a row with fewer than k numbers */
    float watch[CAPTURE_CUDA_MAX_K];   /* logits at the watch list; NaN for an id out of range */
    float lse; /* log of the sum of exp, NaN left out; +inf if any is +inf */
    int32_t n_nan, n_posinf, n_neginf;
    int32_t first_bad; /* lowest id that is NaN or +inf, or -1 */
    int32_t row;       /* row of the launch */
    uint32_t launch;   /* capture_cuda_args.launch */
    uint32_t done;     /* which replay of the launch this is, from 1; 0 = not written yet */
};

/* What the blocks of one row hand to the one that finishes it: block b writes column b. */
struct capture_cuda_partials {
    uint64_t top[CAPTURE_CUDA_MAX_K][CAPTURE_CUDA_SPLITS];    /* sort keys, best first, 0 = none */
    float sum[CAPTURE_CUDA_SPLITS], max[CAPTURE_CUDA_SPLITS]; /* see the kernel's sum_exp */
    int32_t n_nan[CAPTURE_CUDA_SPLITS], n_posinf[CAPTURE_CUDA_SPLITS];
    int32_t n_neginf[CAPTURE_CUDA_SPLITS], first_bad[CAPTURE_CUDA_SPLITS];
};

struct capture_cuda_args {
    const void *data;              /* (n_rows, row_stride), device memory */
    int64_t row_stride;            /* elements */
    int32_t n_vocab;               /* columns, at most 2^30 */
    int32_t k;                     /* 1 ... CAPTURE_CUDA_MAX_K */
    int32_t n_watch;               /* 0 ... CAPTURE_CUDA_MAX_K */
    uint32_t launch;               /* copied to the results */
    const int32_t *watch;          /* (n_rows, n_watch), device-readable; NULL where n_watch is 0 */
    struct capture_cuda_row *rows; /* (n_slots, n_rows), device-writable host memory */
    int32_t n_slots;               /* replays that can wait to be read; 1 for a plain launch */
    uint32_t *replays; /* (n_rows), device memory: replays so far; NULL for a plain launch */
    struct capture_cuda_partials *partials; /* (n_rows), device memory; NULL with one split */
    uint32_t
        *arrived; /* (n_rows), device memory, 0 before the first launch; kept at 0 by the kernel */
};

#endif
