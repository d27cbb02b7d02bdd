/* The file that llama-perplexity writes with --kl-divergence-base: log-probabilities of the second
 * half of each chunk of a text, 16 bits each. Native byte order, as the tool writes it. */
#ifndef NEARTIE_COLLECTOR_KLD_H
#define NEARTIE_COLLECTOR_KLD_H

#include "err.h"

#include <stdint.h>
#include <stdio.h>

struct kld {
    const char *path; /* borrowed */
    FILE *file;
    int32_t n_ctx, n_vocab, n_chunk;
    int32_t first;      /* position of the first row of a chunk */
    int32_t n_rows;     /* rows of a chunk */
    int32_t *tokens;    /* (n_chunk, n_ctx) */
    float step;         /* the largest step between two values of a row */
    uint64_t n_clipped; /* rows whose least value stands for all below it */
    unsigned char *raw; /* one row as it stands in the file */
    size_t row_bytes;
};

/* Open a file whose size is what its header says, and look at every row's head. */
int kld_open(struct kld *kld, const char *path, struct err *err);

/* Read the next row into out (n_vocab): NaN throughout where the tool met NaN or infinity. */
int kld_row(struct kld *kld, float *out, struct err *err);

void kld_close(struct kld *kld);

#endif
