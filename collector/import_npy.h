/* A matrix of logits in NumPy's .npy format, read row by row. */
#ifndef NEARTIE_COLLECTOR_IMPORT_NPY_H
#define NEARTIE_COLLECTOR_IMPORT_NPY_H

#include "err.h"

#include <stdint.h>
#include <stdio.h>

struct npy {
    const char *path; /* borrowed */
    FILE *file;
    int64_t n_rows;
    int32_t n_vocab;
    int item_bytes; /* 4: f32, 2: f16 */
    void *raw;      /* one row as it stands in the file */
};

/* Open a matrix [rows, vocab] (or one row [vocab]) of little-endian f32 or f16 in C order. The
 * file's size must be what its header says. */
int npy_open(struct npy *npy, const char *path, struct err *err);

/* Read the next row into out (n_vocab). */
int npy_row(struct npy *npy, float *out, struct err *err);

void npy_close(struct npy *npy);

#endif
