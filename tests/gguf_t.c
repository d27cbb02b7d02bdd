/* GGUF reader: what it refuses, with one line each, and what it gives back. */
#include "config.h"

#include "engine/gguf.h"
#include "err.h"
#include "gguf_buf.h"
#include "tap.h"

#include <errno.h>
#include <unistd.h>

/* A correct file with every kind of value and two tensors. */
static void put_whole(struct buf *b)
{
    put_head(b, 3, 2, 7);
    put_str(b, "general.architecture"), put_u32(b, GGUF_STR), put_str(b, "llama");
    put_key_u32(b, "k.u32", 4294967295u);
    put_str(b, "k.i8"), put_u32(b, GGUF_I8), put(b, "\xff", 1);
    put_str(b, "k.f64"), put_u32(b, GGUF_F64), put(b, &(double){1.5}, 8);
    put_str(b, "k.bool"), put_u32(b, GGUF_BOOL), put(b, "\1", 1);
    put_str(b, "k.strs"), put_u32(b, GGUF_ARR), put_u32(b, GGUF_STR), put_u64(b, 2);
    put_str(b, "one"), put_str(b, "");
    put_str(b, "k.i16s"), put_u32(b, GGUF_ARR), put_u32(b, GGUF_I16), put_u64(b, 3);
    put(b, "\1\0\377\377\3\0", 6);
    put_tensor(b, "a.weight", 0, 8, 2, 0);
    put_tensor(b, "b.weight", 8, 32, 1, 64);
    put_padding(b, 64 + 34);
}

static int open_buf(const struct buf *b, struct gguf **out, struct err *err)
{
    /* A copy of exactly the file's size, so that a sanitizer sees a read beyond its end. */
    unsigned char *copy = malloc(b->n ? b->n : 1);
    if (b->n)
        memcpy(copy, b->p, b->n);
    err->text[0] = 0;
    int rc = gguf_open_bytes(copy, b->n, "x.gguf", out, err);
    if (rc)
        free(copy);
    return rc;
}

/* The bytes are refused with one line that holds the text. */
static void refuse(const struct buf *b, const char *text, const char *name)
{
    struct gguf *g = NULL;
    struct err err;
    int rc = open_buf(b, &g, &err);
    if (!ok(rc == -1 && strstr(err.text, text) && !strchr(err.text, '\n') &&
                !strncmp(err.text, "x.gguf: ", 8),
            "%s: \"%s\"", name, text))
        diag("rc %d, message \"%s\"", rc, err.text);
}

static void test_whole(void)
{
    struct buf b = {0};
    struct gguf *g;
    struct err err;
    struct gguf_arr a;
    struct gguf_str s;
    uint64_t u = 0;
    double d = 0;
    bool flag = false;
    put_whole(&b);
    if (!ok(!gguf_open_bytes(b.p, b.n, "x.gguf", &g, &err), "a correct file opens"))
        return diag("%s", err.text);
    is_int(gguf_n_keys(g), 7, "keys");
    is_int(gguf_n_tensors(g), 2, "tensors");
    ok(!gguf_get_str(g, "general.architecture", &s, &err) && s.n == 5 && !memcmp(s.p, "llama", 5),
       "str");
    ok(!gguf_get_u64(g, "k.u32", &u, &err) && u == 4294967295u, "u32");
    ok(gguf_get_u64(g, "k.i8", &u, &err) && strstr(err.text, "-1, must not be negative"),
       "a negative integer is no u64");
    ok(!gguf_get_f64(g, "k.i8", &d, &err) && d == -1, "an integer is a number");
    ok(!gguf_get_f64(g, "k.f64", &d, &err) && d == 1.5, "f64");
    ok(!gguf_get_bool(g, "k.bool", &flag, &err) && flag, "bool");
    ok(!gguf_get_arr(g, "k.strs", &a, &err) && a.n == 2 && gguf_arr_str(g, &a, 0).n == 3 &&
           gguf_arr_str(g, &a, 1).n == 0,
       "array of strings");
    ok(!gguf_get_arr(g, "k.i16s", &a, &err) && a.n == 3 && gguf_arr_int(&a, 1) == -1 &&
           gguf_arr_f64(&a, 2) == 3,
       "array of i16");
    ok(gguf_get_u64(g, "absent", &u, &err) && strstr(err.text, "key absent: missing"),
       "missing key");
    ok(gguf_get_str(g, "k.u32", &s, &err) && strstr(err.text, "type u32, must be str"),
       "key of another type");
    const struct gguf_tensor *t = gguf_tensor_find(g, "b.weight");
    ok(t && t == gguf_tensor_at(g, 1) && t->size_bytes == 34 &&
           (const unsigned char *)t->data + 34 == b.p + b.n,
       "tensor found, its data ends with the file");
    ok(!gguf_tensor_find(g, "c.weight"), "no such tensor");
    gguf_close(g);
    free(b.p);
}

/* Every prefix of a correct file is refused, and says so in one line. */
static void test_truncated(void)
{
    struct buf whole = {0}, b = {0};
    struct err err;
    struct gguf *g;
    int n_bad = 0;
    put_whole(&whole);
    for (size_t n = 0; n < whole.n; n++) {
        b.n = 0;
        put(&b, whole.p, n);
        bool refused = open_buf(&b, &g, &err) == -1;
        if (!refused || !err.text[0] || strchr(err.text, '\n')) {
            n_bad++;
            diag("%zu of %zu bytes: \"%s\"", n, whole.n, err.text);
        }
    }
    is_int(n_bad, 0, "each of %zu prefixes is refused", whole.n);
    free(whole.p);
    free(b.p);
}

/* Random bytes behind a correct start, and a correct file with bytes flipped: no crash, and a
 * refusal has a message. */
static void test_random(void)
{
    struct buf whole = {0}, b = {0};
    struct err err;
    uint64_t state = 88172645463325252u;
    int n_bad = 0;
    put_whole(&whole);
    for (int i = 0; i < 20000; i++) {
        struct gguf *g = NULL;
        b.n = 0;
        put(&b, whole.p, whole.n);
        size_t from = i % 2 ? b.n : noise(&state) % 32;
        for (size_t k = from; k < b.n; k++)
            b.p[k] = (unsigned char)noise(&state);
        for (int k = 0; k < 1 + i % 5; k++)
            b.p[noise(&state) % b.n] = (unsigned char)noise(&state);
        if (gguf_open_bytes(b.p, b.n, "x.gguf", &g, &err) == 0)
            gguf_close(g);
        else
            n_bad += !err.text[0] || strchr(err.text, '\n');
    }
    is_int(n_bad, 0, "20,000 damaged files");
    free(whole.p);
    free(b.p);
}

static void test_head(void)
{
    struct buf b = {0};
    put_head(&b, 3, 0, 0), memcpy(b.p, "GGML", 4);
    refuse(&b, "not a GGUF file: magic", "wrong magic");
    put_head(&b, 1, 0, 0);
    refuse(&b, "version 1, supported are 2 and 3", "version 1");
    put_head(&b, 0x03000000, 0, 0);
    refuse(&b, "big-endian", "big-endian file");
    put_head(&b, 3, UINT64_MAX, 0);
    refuse(&b, "claims 18446744073709551615 tensors", "too many tensors");
    put_head(&b, 3, 0, (uint64_t)1 << 62);
    refuse(&b, "claims 4611686018427387904 keys", "too many keys");
    free(b.p);
}

static void test_keys(void)
{
    struct buf b = {0};
    put_head(&b, 3, 0, 1), put_str(&b, "k"), put_u32(&b, 13), put_u64(&b, 0);
    refuse(&b, "key k: unknown value type 13", "unknown value type");
    put_head(&b, 3, 0, 1), put_str(&b, "k"), put_u32(&b, GGUF_STR), put_u64(&b, UINT64_MAX);
    refuse(&b, "key k: truncated: needs 18446744073709551615 bytes", "string of 2^64-1 bytes");
    put_head(&b, 3, 0, 1), put_str(&b, "k"), put_u32(&b, GGUF_ARR), put_u32(&b, GGUF_F64);
    put_u64(&b, (uint64_t)1 << 61);
    refuse(&b, "key k: claims 2305843009213693952 numbers", "array whose bytes overflow");
    put_head(&b, 3, 0, 1), put_str(&b, "k"), put_u32(&b, GGUF_ARR), put_u32(&b, GGUF_ARR);
    put_u64(&b, 0);
    refuse(&b, "key k: array of arrays", "nested array");
    put_head(&b, 3, 0, 1), put_str(&b, "k"), put_u32(&b, GGUF_BOOL), put(&b, "\2", 1);
    refuse(&b, "key k: bool of value 2", "bool of 2");
    put_head(&b, 3, 0, 2), put_key_u32(&b, "k", 1), put_key_u32(&b, "k", 1);
    refuse(&b, "key k: stands twice, as number 1 and 2", "key twice");
    put_head(&b, 3, 0, 1), put_key_u32(&b, "", 1), put_u64(&b, 0);
    refuse(&b, "key 1 of 1: name of 0 bytes", "empty name");
    put_head(&b, 3, 0, 1), put_key_u32(&b, "general.alignment", 24);
    refuse(&b, "key general.alignment: 24, must be a power of two", "alignment 24");
    put_head(&b, 3, 0, 1), put_key_u32(&b, "general.alignment", 0);
    refuse(&b, "key general.alignment: 0, must be a power of two", "alignment 0");
    free(b.p);
}

/* A file of one tensor, and its data. */
static void put_one(struct buf *b, uint32_t type, uint64_t cols, uint64_t rows, uint64_t offset)
{
    put_head(b, 3, 1, 0);
    put_tensor(b, "t", type, cols, rows, offset);
    put_padding(b, 128);
}

static void test_tensors(void)
{
    struct buf b = {0};
    put_one(&b, 99, 32, 1, 0);
    refuse(&b, "tensor t: unknown weight type 99", "unknown weight type");
    put_one(&b, 4, 32, 1, 0);
    refuse(&b, "tensor t: unknown weight type 4", "weight type that was withdrawn");
    put_one(&b, 0, (uint64_t)1 << 63, 1, 0);
    refuse(&b, "tensor t: dimensions 9223372036854775808 x 1", "2^63 columns");
    put_one(&b, 0, 32, (uint64_t)1 << 63, 0);
    refuse(&b, "more than the address space", "2^63 rows");
    put_one(&b, 0, (uint64_t)1 << 32, (uint64_t)1 << 32, 0);
    refuse(&b, "more than the address space", "2^32 times 2^32");
    put_one(&b, 0, 0, 1, 0);
    refuse(&b, "tensor t: dimension 0 is 0", "no columns");
    put_one(&b, 8, 33, 1, 0);
    refuse(&b, "tensor t: 33 columns, not a multiple", "columns that split a block");
    put_one(&b, 0, 32, 1, 4);
    refuse(&b, "tensor t: offset 4, not a multiple", "unaligned data");
    put_one(&b, 0, 33, 1, 0);
    refuse(&b, "tensor t: 132 bytes at data offset 0, the file holds 128", "beyond the end");
    put_one(&b, 0, 1, 1, UINT64_MAX - 31);
    refuse(&b, "tensor t: 4 bytes at data offset 18446744073709551584", "offset that overflows");
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "t", 0, 16, 1, 0), put_tensor(&b, "u", 0, 16, 1, 32), put_padding(&b, 96);
    refuse(&b, "tensor u: begins at data offset 32, inside t, which ends at 64", "overlap");
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "t", 0, 8, 1, 0), put_tensor(&b, "t", 0, 8, 1, 32), put_padding(&b, 64);
    refuse(&b, "tensor t: stands twice", "tensor twice");
    put_head(&b, 3, 1, 0);
    put_str(&b, "t"), put_u32(&b, 5), put_padding(&b, 64);
    refuse(&b, "tensor t: 5 dimensions", "five dimensions");
    put_head(&b, 3, 1, 0);
    put_str(&b, "a\n\x1b[31m"), put_u32(&b, 0), put_padding(&b, 64);
    refuse(&b, "tensor a??[31m: 0 dimensions", "a name that would drive the terminal");
    free(b.p);
}

static void refuse_path(const char *path, const char *text, const char *name)
{
    struct gguf *g;
    struct err err = {""};
    if (!ok(gguf_open(path, &g, &err) == -1 && strstr(err.text, text), "%s: \"%s\"", name, text))
        diag("message \"%s\"", err.text);
}

static void test_paths(void)
{
    char path[] = "/tmp/gguf_t.XXXXXX";
    int fd = mkstemp(path);
    refuse_path("/no/such.gguf", "/no/such.gguf: No such file", "missing");
    refuse_path("/tmp", "/tmp: is a directory", "a directory");
    refuse_path("/dev/null", "/dev/null: is not a regular file", "a device");
    refuse_path(path, "is empty", "empty");
    ok(write(fd, "GGUF", 4) == 4, "four bytes are written");
    refuse_path(path, "header: truncated", "four bytes");
    close(fd);
    unlink(path);
}

static void test_model(const char *name)
{
    char path[4096];
    const char *top = getenv("abs_top_srcdir");
    struct gguf *g;
    struct gguf_str s;
    struct err err;
    snprintf(path, sizeof path, "%s/tests/data/%s", top ? top : ".", name);
    if (!ok(!gguf_open(path, &g, &err), "%s opens", name))
        return diag("%s", err.text);
    ok(!gguf_get_str(g, "tokenizer.ggml.model", &s, &err) && s.n == 4, "%s: tokenizer", name);
    ok(gguf_tensor_find(g, "token_embd.weight") != NULL, "%s: embedding", name);
    gguf_close(g);
}

int main(void)
{
    test_whole();
    test_truncated();
    test_random();
    test_head();
    test_keys();
    test_tensors();
    test_paths();
    test_model("tiny-qwen3-q8_0.gguf");
    test_model("tiny-qwen35-q8_0.gguf");
    return tap_done();
}
