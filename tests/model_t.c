/* Model files that cannot be run: each is one of the project's models with a few bytes changed,
 * and each is refused with a line that names the key or tensor and both values. */
#include "config.h"

#include "kernels/quant.h"
#include "tests/logits.h"
#include "tests/tap.h"

static char *original;
static size_t size_bytes;

/* Replace the first `from` (n bytes) by `to`; in place of the file's own copy. */
static char *patched(const void *from, const void *to, size_t n)
{
    char *copy = malloc(size_bytes);
    memcpy(copy, original, size_bytes);
    char *at = memmem(copy, size_bytes, from, n);
    if (!at) {
        err_set(&err, "the bytes to change are not in the file");
        die();
    }
    memcpy(at, to, n);
    return copy;
}

static void is_refused(char *file, const char *want, const char *name)
{
    struct gguf *g = NULL;
    struct model *m = NULL;
    err.text[0] = '\0';
    int rc = gguf_open_bytes(file, size_bytes, "m.gguf", &g, &err);
    if (rc == 0)
        rc = model_open(g, &m, &err);
    ok(rc == -1 && !m, "refused: %s", name);
    is_str(err.text, want, "and says so");
    gguf_close(g);
    free(file);
}

#define TEXT(from, to) patched(from, to, sizeof from - 1)

/* A u32 value under a key: its bytes follow the name and the type. */
static char *key_u32(const char *key, uint32_t from, uint32_t to)
{
    char a[128], b[128];
    size_t n = strlen(key);
    uint32_t type = GGUF_U32;
    memcpy(a, key, n);
    memcpy(a + n, &type, 4);
    memcpy(b, a, n + 4);
    memcpy(a + n + 4, &from, 4);
    memcpy(b + n + 4, &to, 4);
    return patched(a, b, n + 8);
}

/* The two dimensions and the type that follow a tensor's name. */
static char *tensor_shape(const char *name, const uint64_t from[2], const uint64_t to[2],
                          uint32_t from_type, uint32_t to_type)
{
    char a[128], b[128];
    size_t n = strlen(name);
    uint32_t n_dims = 2;
    memcpy(a, name, n);
    memcpy(a + n, &n_dims, 4);
    memcpy(b, a, n + 4);
    memcpy(a + n + 4, from, 16);
    memcpy(b + n + 4, to, 16);
    memcpy(a + n + 20, &from_type, 4);
    memcpy(b + n + 20, &to_type, 4);
    return patched(a, b, n + 24);
}

int main(void)
{
    char path[512];
    const char *top = getenv("abs_top_srcdir");
    snprintf(path, sizeof path, "%s/tests/data/tiny-qwen3-q8_0.gguf", top ? top : ".");
    original = file_read(path, &size_bytes);
    if (!original) {
        err_set(&err, "%s: not there", path);
        die();
    }
    static const uint64_t shape[2] = {128, 256}, other[2] = {256, 128};
    is_refused(key_u32("qwen3.attention.head_count", 4, 3),
               "m.gguf: 3 query heads are no multiple of 2 key heads", "heads that do not divide");
    is_refused(key_u32("qwen3.attention.head_count", 4, 0),
               "m.gguf: qwen3.attention.head_count is 0, not in 1 ... 16777216", "no heads");
    is_refused(key_u32("qwen3.attention.key_length", 64, 1024),
               "m.gguf: key heads of 1024 and value heads of 64; must be equal, at most 512",
               "heads of two widths");
    is_refused(key_u32("qwen3.block_count", 6, 7),
               "m.gguf: tensor blk.6.attn_norm.weight: not in the file", "a layer too many");
    is_refused(key_u32("qwen3.block_count", 6, 0xffffffff),
               "m.gguf: qwen3.block_count is 4294967295, not in 1 ... 16777216",
               "four thousand million layers");
    is_refused(key_u32("qwen3.embedding_length", 128, 160),
               "m.gguf: tensor token_embd.weight: dimension 0 is 128, the keys say 160",
               "another width than the tensors have");
    is_refused(TEXT("qwen3.embedding_length", "qwen3.embedding_lengtx"),
               "m.gguf: key qwen3.embedding_length: missing", "a key that is not there");
    is_refused(TEXT("blk.0.attn_q.weight", "blk.0.attn_x.weight"),
               "m.gguf: tensor blk.0.attn_q.weight: not in the file", "a tensor that is not there");
    is_refused(TEXT("blk.5.attn_q_norm.weight", "blk.5.attn_q_scale.wei__"),
               "m.gguf: tensor blk.5.attn_q_norm.weight: not in the file", "a renamed tensor");
    is_refused(tensor_shape("blk.0.attn_q.weight", shape, other, QUANT_Q8_0, QUANT_Q8_0),
               "m.gguf: tensor blk.0.attn_q.weight: dimension 0 is 256, the keys say 128",
               "a tensor on its side");
    is_refused(tensor_shape("blk.0.attn_q.weight", shape, shape, QUANT_Q8_0, QUANT_I8),
               "m.gguf: tensor blk.0.attn_q.weight: type I8 (24) is not supported here",
               "a type without kernels");
    free(original);
    return tap_done();
}
