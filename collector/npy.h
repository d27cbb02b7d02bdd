/* Matrices in NumPy's .npy format: logits, read row by row, and token ids, read whole. */
#ifndef NEARTIE_COLLECTOR_NPY_H
#define NEARTIE_COLLECTOR_NPY_H

#include "err.h"

#include <stdint.h>
#include <stdio.h>

struct npy {
    const char *path; /* borrowed */
    FILE *file;
    int64_t n_rows;
    int32_t n_cols;
    int item_bytes; /* of an entry in the file */
    char item_type; /* f: IEEE 754, i: signed, u: unsigned */
    void *raw;      /* one row as it stands in the file */
};

/* Token ids, (n_rows, n_cols). */
struct npy_tokens {
    int64_t n_rows;
    int32_t n_cols;
    int32_t *ids;
};

/* Open a matrix [rows, columns] (or one row [columns]) of little-endian f32 or f16 in C order. The
 * file's size must be what its header says. */
int npy_open(struct npy *npy, const char *path, struct err *err);

/* Read the next row into out (n_cols). */
int npy_row(struct npy *npy, float *out, struct err *err);

void npy_close(struct npy *npy);

/* Read ids, [tokens] or [sequences, tokens], of 2 to 8 bytes. Each must be at least 0 and below
 * n_vocab. */
int npy_tokens_read(struct npy_tokens *out, const char *path, int32_t n_vocab, struct err *err);
void npy_tokens_free(struct npy_tokens *tokens);

#endif
