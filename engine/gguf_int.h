/* What the two halves of the GGUF reader share: gguf_parse.c checks a file's header and fills the
 * record tables, gguf.c maps files and answers look-ups. Nobody else includes this. */
#ifndef NEARTIE_ENGINE_GGUF_INT_H
#define NEARTIE_ENGINE_GGUF_INT_H

#include "engine/gguf.h"

struct gguf_key {
    struct gguf_str name;
    enum gguf_type type;
    const uint8_t *value; /* scalar, or a string's length field; NULL for arrays */
    struct gguf_arr arr;  /* arrays: borrowed data, owned offsets */
};

/* Names to record numbers: open addressing, at most half full. */
struct gguf_index {
    size_t mask;    /* slots - 1 */
    uint32_t *slot; /* record number + 1; 0 = free */
};

struct gguf {
    char *path;
    const uint8_t *map;
    size_t size;
    bool is_mapped;    /* by us, to be unmapped */
    struct gguf *next; /* that we have mapped */
    uint32_t version;
    uint64_t alignment;
    size_t n_keys, n_tensors;
    struct gguf_key *keys;
    struct gguf_tensor *tensors;
    struct gguf_index key_index, tensor_index;
};

/* Check the mapped bytes and fill the record tables; gguf_close frees them, also after a failure.
 */
int gguf_parse(struct gguf *g, struct err *err);

/* Fail with "PATH: MESSAGE"; a long path keeps its end, which is the telling part. */
__attribute__((format(printf, 3, 4))) int gguf_fail(const struct gguf *g, struct err *err,
                                                    const char *fmt, ...);

/* Bytes of one value of a type; 0 = no fixed size. */
size_t gguf_type_size(enum gguf_type type);

/* The slot of a name: its record's, or the free one where it belongs. name_at(g, i) gives the
 * name of record i. */
uint32_t *gguf_index_find(const struct gguf *g, const struct gguf_index *ix, const char *p,
                          size_t n, struct gguf_str (*name_at)(const struct gguf *, size_t));
struct gguf_str gguf_tensor_name_at(const struct gguf *g, size_t i);

#endif
