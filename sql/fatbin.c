#include "config.h"

#include "sql/fatbin.h"

#include <dlfcn.h>
#include <elf.h>
#include <stdlib.h>
#include <string.h>

enum { CONTAINER = 16, LZ4 = 0x2000, ZSTD = 0x8000, UNPACKED_MAX = 1 << 30 };
static const uint32_t container_magic = 0xba55ed50, wrapper_magic = 0x466243b1;

static uint64_t get(const unsigned char *p, size_t n)
{
    uint64_t value = 0;
    memcpy(&value, p, n);
    return value;
}

/* An image's header, 64 bytes and more: kind (2), version (2), its own size (4), size of what
 * follows (8), packed size (4), unknown (8), architecture (4), name (8), flags (8), unknown (8),
 * unpacked size (8). */
static int read_image(const unsigned char *p, size_t n, struct fatbin_image *out, size_t *size)
{
    if (n < 64)
        return 0;
    size_t header = get(p + 4, 4), payload = get(p + 8, 8), packed = get(p + 16, 4);
    if (header < 64 || header > n || payload > n - header)
        return 0;
    uint64_t flags = get(p + 40, 8);
    int is_packed = (flags & (LZ4 | ZSTD)) != 0;
    if (packed > payload)
        return 0;
    *out = (struct fatbin_image){
        (int)get(p, 2), (int)get(p + 28, 4),          flags,
        p + header,     is_packed ? packed : payload, is_packed ? get(p + 56, 8) : 0};
    *size = header + payload;
    return 1;
}

int fatbin_next(const void *data, size_t n, size_t *at, struct fatbin_image *out)
{
    const unsigned char *p = data;
    while (*at + CONTAINER <= n) {
        size_t size;
        if (get(p + *at, 4) == container_magic) {
            size_t header = get(p + *at + 6, 2);
            *at += header >= CONTAINER ? header : CONTAINER;
        } else if (read_image(p + *at, n - *at, out, &size) && out->kind >= 1 && out->kind <= 64) {
            *at += size;
            return 1;
        } else
            *at += 8; /* padding between containers */
    }
    return 0;
}

/* LZ4's block format: runs of literals, and copies of what came before. Returns whether exactly n
 * bytes came out. */
static int unpack_lz4(const unsigned char *in, size_t n_in, unsigned char *out, size_t n)
{
    size_t i = 0, o = 0;
    while (i < n_in) {
        unsigned token = in[i++], more;
        size_t literals = token >> 4, copy = (token & 15) + 4;
        if (literals == 15)
            do {
                if (i >= n_in)
                    return 0;
                literals += more = in[i++];
            } while (more == 255);
        if (literals > n_in - i || literals > n - o)
            return 0;
        memcpy(out + o, in + i, literals);
        i += literals, o += literals;
        if (i == n_in)
            break;
        if (n_in - i < 2)
            return 0;
        size_t back = (size_t)in[i] | (size_t)in[i + 1] << 8;
        i += 2;
        if (copy == 19)
            do {
                if (i >= n_in)
                    return 0;
                copy += more = in[i++];
            } while (more == 255);
        if (!back || back > o || copy > n - o)
            return 0;
        for (; copy; copy--, o++)
            out[o] = out[o - back];
    }
    return o == n;
}

static int unpack_zstd(const unsigned char *in, size_t n_in, unsigned char *out, size_t n,
                       struct err *err)
{
    static size_t (*decompress)(void *, size_t, const void *, size_t);
    if (!decompress) {
        void *lib = dlopen("libzstd.so.1", RTLD_NOW | RTLD_LOCAL);
        if (!lib || !(*(void **)&decompress = dlsym(lib, "ZSTD_decompress")))
            return err_set(err, "libzstd.so.1: not found, and the code is packed with it");
    }
    if (decompress(out, n, in, n_in) != n)
        return err_set(err, "device code of %zu packed bytes does not unpack", n_in);
    return 0;
}

int fatbin_unpack(const struct fatbin_image *image, unsigned char **out, size_t *out_n,
                  struct err *err)
{
    size_t n = image->n_unpacked ? image->n_unpacked : image->n_bytes;
    *out = n <= UNPACKED_MAX ? malloc(n + 1) : NULL;
    *out_n = n;
    if (!*out)
        return err_set(err, "out of memory for device code of %zu bytes", n);
    int rc = 0;
    if (!image->n_unpacked)
        memcpy(*out, image->bytes, n);
    else if (image->flags & ZSTD)
        rc = unpack_zstd(image->bytes, image->n_bytes, *out, n, err);
    else if (!unpack_lz4(image->bytes, image->n_bytes, *out, n))
        rc = err_set(err, "device code of %zu packed bytes does not unpack", image->n_bytes);
    if (rc) {
        free(*out);
        *out = NULL;
    }
    return rc;
}

/* The size of an ELF file in memory: what its headers reach to. */
static size_t elf_size(const unsigned char *p)
{
    Elf64_Ehdr h;
    memcpy(&h, p, sizeof h);
    size_t sections = h.e_shoff + (size_t)h.e_shnum * h.e_shentsize;
    size_t segments = h.e_phoff + (size_t)h.e_phnum * h.e_phentsize;
    size_t n = sections > segments ? sections : segments;
    return h.e_ident[EI_CLASS] == ELFCLASS64 && h.e_shnum && n < UNPACKED_MAX ? n : 0;
}

const void *fatbin_of_pointer(const void *code, size_t *size)
{
    const unsigned char *p = code;
    *size = 0;
    if (p && get(p, 4) == wrapper_magic) {
        memcpy(&p, p + 8, sizeof p);
        if (!p)
            return NULL;
    }
    if (p && get(p, 4) == container_magic)
        *size = get(p + 6, 2) + get(p + 8, 8);
    else if (p && !memcmp(p, ELFMAG, SELFMAG))
        *size = elf_size(p);
    return p;
}
