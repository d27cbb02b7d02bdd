#include "config.h"

#include "engine/gguf_int.h"
#include "err.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

static const struct {
    const char *name;
    uint8_t size; /* bytes; 0 = no fixed size */
} value_types[] = {
    [GGUF_U8] = {"u8", 1},   [GGUF_I8] = {"i8", 1},     [GGUF_U16] = {"u16", 2},
    [GGUF_I16] = {"i16", 2}, [GGUF_U32] = {"u32", 4},   [GGUF_I32] = {"i32", 4},
    [GGUF_F32] = {"f32", 4}, [GGUF_BOOL] = {"bool", 1}, [GGUF_STR] = {"str", 0},
    [GGUF_ARR] = {"arr", 0}, [GGUF_U64] = {"u64", 8},   [GGUF_I64] = {"i64", 8},
    [GGUF_F64] = {"f64", 8},
};
#define N_VALUE_TYPES (sizeof value_types / sizeof *value_types)

const char *gguf_type_name(enum gguf_type type)
{
    return (size_t)type < N_VALUE_TYPES ? value_types[type].name : "unknown";
}

size_t gguf_type_size(enum gguf_type type)
{
    return value_types[type].size;
}

/* Fail with "PATH: MESSAGE"; a long path keeps its end, which is the telling part. */
__attribute__((format(printf, 3, 4))) int gguf_fail(const struct gguf *g, struct err *err,
                                                    const char *fmt, ...)
{
    char text[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    size_t n = strlen(g->path);
    return err_set(err, "%s%s: %s", n > 100 ? "..." : "", n > 100 ? g->path + n - 97 : g->path,
                   text);
}

const char *gguf_printable(struct gguf_str s, char buf[static GGUF_NAME_MAX_BYTES + 4])
{
    size_t n = s.n < GGUF_NAME_MAX_BYTES ? s.n : GGUF_NAME_MAX_BYTES;
    for (size_t i = 0; i < n; i++)
        buf[i] = s.p[i] >= ' ' && s.p[i] <= '~' ? s.p[i] : '?';
    memcpy(buf + n, "...", 4);
    if (s.n <= GGUF_NAME_MAX_BYTES)
        buf[n] = 0;
    return buf;
}

uint32_t *gguf_index_find(const struct gguf *g, const struct gguf_index *ix, const char *p,
                          size_t n, struct gguf_str (*name_at)(const struct gguf *, size_t))
{
    for (size_t i = XXH3_64bits(p, n);; i++) {
        uint32_t *slot = &ix->slot[i & ix->mask];
        if (!*slot)
            return slot;
        struct gguf_str other = name_at(g, *slot - 1);
        if (other.n == n && !memcmp(other.p, p, n))
            return slot;
    }
}

struct gguf_str gguf_tensor_name_at(const struct gguf *g, size_t i)
{
    return g->tensors[i].name;
}

/* Files that are mapped; opened and closed by one thread. */
static struct gguf *volatile mapped;

const struct gguf *gguf_mapped_at(const void *address)
{
    const struct gguf *g = mapped;
    while (g && (uintptr_t)address - (uintptr_t)g->map >= g->size)
        g = g->next;
    return g;
}

static void forget(const struct gguf *g)
{
    if (mapped == g) {
        mapped = g->next;
        return;
    }
    for (struct gguf *at = mapped; at; at = at->next)
        if (at->next == g)
            at->next = g->next;
}

static int map_file(struct gguf *g, struct err *err)
{
    int rc = -1;
    struct stat st;
    /* O_NONBLOCK: a FIFO must not hang the open. */
    int fd = open(g->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return gguf_fail(g, err, "%s", strerror(errno));
    if (fstat(fd, &st)) {
        gguf_fail(g, err, "%s", strerror(errno));
        goto out;
    }
    if (!S_ISREG(st.st_mode)) {
        gguf_fail(g, err, S_ISDIR(st.st_mode) ? "is a directory" : "is not a regular file");
        goto out;
    }
    if (st.st_size == 0) {
        gguf_fail(g, err, "is empty");
        goto out;
    }
    void *map = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (map == MAP_FAILED) {
        gguf_fail(g, err, "cannot map %lld bytes: %s", (long long)st.st_size, strerror(errno));
        goto out;
    }
    g->map = map;
    g->size = (size_t)st.st_size;
    g->is_mapped = true;
    g->next = mapped;
    mapped = g;
    rc = 0;
out:
    close(fd);
    return rc;
}

static struct gguf *gguf_new(const char *path, struct err *err)
{
    struct gguf *g = calloc(1, sizeof *g);
    if (g)
        g->path = strdup(path);
    if (g && g->path)
        return g;
    free(g);
    err_set(err, "%s: out of memory", path);
    return NULL;
}

static int finish_open(struct gguf *g, struct gguf **out, struct err *err)
{
    if (gguf_parse(g, err)) {
        gguf_close(g);
        return -1;
    }
    *out = g;
    return 0;
}

int gguf_open(const char *path, struct gguf **out, struct err *err)
{
    struct gguf *g = gguf_new(path, err);
    if (!g)
        return -1;
    if (map_file(g, err)) {
        gguf_close(g);
        return -1;
    }
    return finish_open(g, out, err);
}

int gguf_open_bytes(const void *data, size_t size, const char *name, struct gguf **out,
                    struct err *err)
{
    struct gguf *g = gguf_new(name, err);
    if (!g)
        return -1;
    g->map = data;
    g->size = size;
    return finish_open(g, out, err);
}

void gguf_close(struct gguf *g)
{
    if (!g)
        return;
    for (size_t i = 0; i < g->n_keys; i++)
        free((void *)g->keys[i].arr.offset);
    free(g->keys);
    free(g->tensors);
    free(g->key_index.slot);
    free(g->tensor_index.slot);
    if (g->is_mapped) {
        forget(g);
        munmap((void *)g->map, g->size);
    }
    free(g->path);
    free(g);
}
const char *gguf_path(const struct gguf *g)
{
    return g->path;
}

uint32_t gguf_version(const struct gguf *g)
{
    return g->version;
}

size_t gguf_size_bytes(const struct gguf *g)
{
    return g->size;
}

size_t gguf_n_tensors(const struct gguf *g)
{
    return g->n_tensors;
}

const struct gguf_tensor *gguf_tensor_at(const struct gguf *g, size_t i)
{
    return &g->tensors[i];
}

const struct gguf_tensor *gguf_tensor_find(const struct gguf *g, const char *name)
{
    uint32_t slot = *gguf_index_find(g, &g->tensor_index, name, strlen(name), gguf_tensor_name_at);
    return slot ? &g->tensors[slot - 1] : NULL;
}

size_t gguf_n_keys(const struct gguf *g)
{
    return g->n_keys;
}

struct gguf_str gguf_key_at(const struct gguf *g, size_t i)
{
    return g->keys[i].name;
}

enum gguf_type gguf_key_type(const struct gguf *g, size_t i)
{
    return g->keys[i].type;
}

static const struct gguf_key *key_find(const struct gguf *g, const char *name)
{
    uint32_t slot = *gguf_index_find(g, &g->key_index, name, strlen(name), gguf_key_at);
    return slot ? &g->keys[slot - 1] : NULL;
}

bool gguf_has(const struct gguf *g, const char *key)
{
    return key_find(g, key) != NULL;
}

/* The key, or NULL and a message. */
static const struct gguf_key *key_need(const struct gguf *g, const char *name, struct err *err)
{
    const struct gguf_key *k = key_find(g, name);
    if (!k)
        gguf_fail(g, err, "key %s: missing", name);
    return k;
}

static int wrong_type(const struct gguf *g, const struct gguf_key *k, const char *want,
                      struct err *err)
{
    char buf[GGUF_NAME_MAX_BYTES + 4];
    return gguf_fail(g, err, "key %s: type %s, must be %s", gguf_printable(k->name, buf),
                     gguf_type_name(k->type), want);
}

#define LOAD(ctype, p)                                                                             \
    ({                                                                                             \
        ctype v_;                                                                                  \
        memcpy(&v_, (p), sizeof v_);                                                               \
        v_;                                                                                        \
    })

static bool is_int(enum gguf_type t)
{
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

/* The bits of any integer or bool as 64 bits, sign-extended where its type has a sign. */
static uint64_t load_int(enum gguf_type t, const void *p)
{
    switch (t) {
    case GGUF_U8:
    case GGUF_BOOL:
        return LOAD(uint8_t, p);
    case GGUF_I8:
        return (uint64_t)LOAD(int8_t, p);
    case GGUF_U16:
        return LOAD(uint16_t, p);
    case GGUF_I16:
        return (uint64_t)LOAD(int16_t, p);
    case GGUF_U32:
        return LOAD(uint32_t, p);
    case GGUF_I32:
        return (uint64_t)LOAD(int32_t, p);
    default:
        return LOAD(uint64_t, p);
    }
}

static bool is_signed(enum gguf_type t)
{
    return t == GGUF_I8 || t == GGUF_I16 || t == GGUF_I32 || t == GGUF_I64;
}

static double load_f64(enum gguf_type t, const void *p)
{
    if (t == GGUF_F32)
        return (double)LOAD(float, p);
    if (t == GGUF_F64)
        return LOAD(double, p);
    return is_signed(t) ? (double)(int64_t)load_int(t, p) : (double)load_int(t, p);
}

int gguf_get_u64(const struct gguf *g, const char *key, uint64_t *out, struct err *err)
{
    const struct gguf_key *k = key_need(g, key, err);
    if (!k)
        return -1;
    if (!is_int(k->type))
        return wrong_type(g, k, "an integer", err);
    uint64_t v = load_int(k->type, k->value);
    if (is_signed(k->type) && v > INT64_MAX)
        return gguf_fail(g, err, "key %s: value %lld, must not be negative", key, (long long)v);
    *out = v;
    return 0;
}

int gguf_get_f64(const struct gguf *g, const char *key, double *out, struct err *err)
{
    const struct gguf_key *k = key_need(g, key, err);
    if (!k)
        return -1;
    if (!is_int(k->type) && k->type != GGUF_F32 && k->type != GGUF_F64)
        return wrong_type(g, k, "a number", err);
    double v = load_f64(k->type, k->value);
    if (!isfinite(v))
        return gguf_fail(g, err, "key %s: value %g, must be finite", key, v);
    *out = v;
    return 0;
}

int gguf_get_bool(const struct gguf *g, const char *key, bool *out, struct err *err)
{
    const struct gguf_key *k = key_need(g, key, err);
    if (!k)
        return -1;
    if (k->type != GGUF_BOOL)
        return wrong_type(g, k, "bool", err);
    *out = *k->value;
    return 0;
}

/* The string behind a length field that was checked when the file was opened. */
static struct gguf_str str_behind(const uint8_t *p)
{
    return (struct gguf_str){(const char *)p + 8, LOAD(uint64_t, p)};
}

int gguf_get_str(const struct gguf *g, const char *key, struct gguf_str *out, struct err *err)
{
    const struct gguf_key *k = key_need(g, key, err);
    if (!k)
        return -1;
    if (k->type != GGUF_STR)
        return wrong_type(g, k, "str", err);
    *out = str_behind(k->value);
    return 0;
}

int gguf_get_arr(const struct gguf *g, const char *key, struct gguf_arr *out, struct err *err)
{
    const struct gguf_key *k = key_need(g, key, err);
    if (!k)
        return -1;
    if (k->type != GGUF_ARR)
        return wrong_type(g, k, "arr", err);
    *out = k->arr;
    return 0;
}

struct gguf_str gguf_arr_str(const struct gguf *g, const struct gguf_arr *a, uint64_t i)
{
    return str_behind(g->map + a->offset[i]);
}

int64_t gguf_arr_int(const struct gguf_arr *a, uint64_t i)
{
    return (int64_t)load_int(a->type, (const uint8_t *)a->data + i * value_types[a->type].size);
}

double gguf_arr_f64(const struct gguf_arr *a, uint64_t i)
{
    return load_f64(a->type, (const uint8_t *)a->data + i * value_types[a->type].size);
}
