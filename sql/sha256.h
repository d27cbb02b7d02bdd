/* SHA-256 (FIPS 180-4): the identity of code that is stored, compared and read back years later. */
#ifndef NEARTIE_SQL_SHA256_H
#define NEARTIE_SQL_SHA256_H

#include <stddef.h>
#include <stdint.h>

struct sha256 {
    uint32_t state[8];
    uint64_t n; /* bytes so far */
    unsigned char block[64];
};

enum { SHA256_BYTES = 32, SHA256_HEX = 65 };

void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *data, size_t n);
void sha256_end(struct sha256 *s, unsigned char out[SHA256_BYTES]);

/* The same, as lower-case hex with a terminator. */
void sha256_end_hex(struct sha256 *s, char out[SHA256_HEX]);

#endif
