/* The device code of a file: of a cubin, or of the fat binaries in a program, library or object
 * file; read without running it, and the same facts that a recording has. */
#ifndef NEARTIE_COLLECTOR_IMAGES_H
#define NEARTIE_COLLECTOR_IMAGES_H

#include <stdbool.h>

#include "err.h"
#include "sql/cubin.h"

struct images {
    struct cubin *list; /* (n), in the order of the file */
    int n;
    bool is_cubin; /* the file itself is one */
    int n_other;   /* images that are no machine code (PTX), or could not be read */
    struct err why;
};

/* A file without device code gives no images. */
int images_read(const char *path, struct images *out, struct err *err);
void images_free(struct images *images);

#endif
