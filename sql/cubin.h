/* What a loaded device code image (a cubin, an ELF file) says of its kernels: the facts and hashes
 * in `modules` and `kernels`. The recorder and `neartie inspect` share it, so that both give the
 * same. libelf is opened when it is first needed; without it there are no such facts.
 *
 * A kernel's code hash is SHA-256 over what decides its results: architecture, name, machine code,
 * that of the functions it refers to, relocations by symbol name, registers, stack, static shared
 * memory, cluster. It stays the same with -lineinfo and wherever the file was compiled. */
#ifndef NEARTIE_SQL_CUBIN_H
#define NEARTIE_SQL_CUBIN_H

#include <stddef.h>
#include <stdint.h>

#include "err.h"
#include "sql/sha256.h"

#define CUBIN_UNKNOWN (-1)

struct cubin_kernel {
    char *name; /* mangled */
    char code_hash[SHA256_HEX];
    int32_t registers;
    int32_t static_smem; /* bytes, as the driver counts them */
    int32_t stack;       /* bytes of a thread */
    int32_t max_threads; /* launch bound: of a block */
    int32_t cluster[3];  /* compiled in; 0 = none */
};

struct cubin {
    char hash[SHA256_HEX];       /* of the whole image */
    char const_hash[SHA256_HEX]; /* of its constant data; "" = there is none */
    int32_t arch;                /* 90 for sm_90 */
    int32_t n;
    struct cubin_kernel *kernels; /* (n), by name */
};

/* Read the image; name stands in messages. Pair with cubin_free, also after failure. */
int cubin_read(struct cubin *out, const char *name, const void *image, size_t size,
               struct err *err);
void cubin_free(struct cubin *c);

/* The kernel of that name, or NULL. */
const struct cubin_kernel *cubin_find(const struct cubin *c, const char *name);

#endif
