/* A GGUF file (version 2 or 3): metadata and tensor views over one read-only mapping. Every
 * offset, count, type and dimension is checked against the file when it is opened; after that a
 * view can be used without further checks. Called by model.c, tokenizer.c and the info command.
 *
 * Ownership: strings, arrays and tensor data are borrowed from the mapping and valid until
 * gguf_close. Format: the GGUF specification in ggml's docs/gguf.md. */
#ifndef NEARTIE_ENGINE_GGUF_H
#define NEARTIE_ENGINE_GGUF_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct err;
struct gguf;

/* Value types as the file numbers them. */
enum gguf_type {
    GGUF_U8 = 0,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STR,
    GGUF_ARR,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
};

/* A string of the file: not NUL-terminated, any bytes. */
struct gguf_str {
    const char *p;
    size_t n;
};

#define GGUF_NAME_MAX_BYTES 64 /* tensor names, by the specification */

struct gguf_tensor {
    struct gguf_str name;
    uint32_t type;     /* number of the weight type, as in kernels/quant.h */
    uint32_t n_dims;   /* 1 ... 4 */
    uint64_t dim[4];   /* dim[0] is contiguous (columns); unused ones are 1 */
    const void *data;  /* borrowed, at a multiple of the file's alignment (8 or more) */
    size_t size_bytes; /* of data */
};

/* Map and check a file. *out is set only on success. */
int gguf_open(const char *path, struct gguf **out, struct err *err);

/* The same for bytes in memory, borrowed until gguf_close; name stands for the path in messages. */
int gguf_open_bytes(const void *data, size_t size, const char *name, struct gguf **out,
                    struct err *err);
void gguf_close(struct gguf *g); /* NULL is fine */

/* A string of the file for a message, in buf: control bytes and what is not ASCII become '?', and
 * after GGUF_NAME_MAX_BYTES comes "...". Returns buf. */
const char *gguf_printable(struct gguf_str s, char buf[static GGUF_NAME_MAX_BYTES + 4]);

/* The file that gguf_open has mapped at an address, or NULL. A signal handler may ask. */
const struct gguf *gguf_mapped_at(const void *address);

const char *gguf_path(const struct gguf *g);
uint32_t gguf_version(const struct gguf *g);
size_t gguf_size_bytes(const struct gguf *g);

/* Tensors, in file order. gguf_tensor_find returns NULL where there is none of that name. */
size_t gguf_n_tensors(const struct gguf *g);
const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i);
const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name);

/* Keys, in file order. gguf_type_name gives "u32", "str" and so on. */
size_t gguf_n_keys(const struct gguf *g);
struct gguf_str gguf_key_at(const struct gguf *g, size_t i);
enum gguf_type gguf_key_type(const struct gguf *g, size_t i);
const char *gguf_type_name(enum gguf_type type);
bool gguf_has(const struct gguf *g, const char *key);

/* Typed look-ups: 0 and *out, or -1 when the key is absent or of another type (err names the key
 * and both types). Integer look-ups accept every integer type whose value fits. */
int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct err *err);
int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct err *err);
int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *err);
int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err *err);

/* Arrays: the element type, the count, and for numbers a borrowed pointer to packed, possibly
 * unaligned elements. String arrays are read with gguf_arr_str (constant time). */
struct gguf_arr {
    enum gguf_type type;
    uint64_t n;
    const void *data;       /* packed numbers, unaligned; NULL for strings */
    const uint64_t *offset; /* strings: file offset of each length field; NULL for numbers */
};
int gguf_get_arr(const struct gguf *g, const char *key, struct gguf_arr *out, struct err *err);
struct gguf_str gguf_arr_str(const struct gguf *g, const struct gguf_arr *a, uint64_t i);
int64_t gguf_arr_int(const struct gguf_arr *a, uint64_t i); /* any integer or bool type */
double gguf_arr_f64(const struct gguf_arr *a, uint64_t i);  /* any number type */

#endif
