/* Fat binaries: the container in which a program or library carries device code for several
 * architectures, and the images in it. As nvcc writes them since CUDA 11; an image may be packed
 * with LZ4 (unpacked here) or Zstandard (through libzstd.so.1, opened when it is needed). */
#ifndef NEARTIE_SQL_FATBIN_H
#define NEARTIE_SQL_FATBIN_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"

enum { FATBIN_PTX = 1, FATBIN_CUBIN = 2 };

struct fatbin_image {
    int kind; /* FATBIN_...; others exist */
    int arch; /* 90 for sm_90 */
    uint64_t flags;
    const unsigned char *bytes; /* as they stand there; borrowed */
    size_t n_bytes;
    size_t n_unpacked; /* 0: not packed */
};

/* The next image in n bytes of one or more containers, from *at on; returns whether there is one.
 */
int fatbin_next(const void *data, size_t n, size_t *at, struct fatbin_image *out);

/* An image's plain bytes, owned by the caller. */
int fatbin_unpack(const struct fatbin_image *image, unsigned char **out, size_t *out_n,
                  struct err *err);

/* What a pointer that is given to the driver as code stands for: the address of a cubin or of a
 * container, and its size; size 0 for anything else, such as PTX. */
const void *fatbin_of_pointer(const void *code, size_t *size);

#endif
