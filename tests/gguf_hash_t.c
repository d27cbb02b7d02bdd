/* The hash that names weights: the engine's own, and files that are cut short or changed. */
#include "config.h"

#include <unistd.h>

#include "err.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "shim/gguf_hash.h"
#include "tests/tap.h"

enum { F32 = 0, Q8_0 = 8, CHANGED_BYTES = 1 << 16 };

static int64_t values(int32_t type)
{
    return type == F32 ? 1 : type == Q8_0 ? 32 : 0;
}

static size_t bytes(int32_t type)
{
    return type == F32 ? 4 : type == Q8_0 ? 34 : 0;
}

static const struct gguf_types types = {values, bytes, 40};

static char *read_file(const char *path, size_t *out_n)
{
    FILE *f = fopen(path, "rb");
    char *data = NULL;
    if (f && !fseek(f, 0, SEEK_END)) {
        *out_n = (size_t)ftell(f);
        rewind(f);
        data = malloc(*out_n);
        if (data && fread(data, 1, *out_n, f) != *out_n)
            *out_n = 0;
    }
    if (f)
        fclose(f);
    return data;
}

static bool hash_bytes(const char *path, const char *data, size_t n, uint64_t *out)
{
    FILE *f = fopen(path, "wb");
    bool written = f && fwrite(data, 1, n, f) == n;
    if (f)
        fclose(f);
    return written && gguf_hash(path, &types, out);
}

/* Cut at n places, all of them before the last tensor's end. */
static void test_cut(const char *path, const char *data, size_t n, uint64_t whole)
{
    int wrong = 0;
    uint64_t hash = 0;
    for (size_t i = 0; i < 200; i++)
        wrong += hash_bytes(path, data, i * (n - 1) / 199, &hash);
    is_int(wrong, 0, "none of 200 files that are cut short has a hash");
    ok(hash_bytes(path, data, n, &hash) && hash == whole, "a whole copy has the file's");
}

static void test_changed(const char *path, char *data, size_t n, uint64_t whole)
{
    int same = 0, refused = 0;
    uint64_t hash;
    srand(1);
    for (int i = 0; i < 500; i++) {
        size_t at = (size_t)rand() % (i % 2 ? 64 : CHANGED_BYTES);
        char kept = data[at];
        data[at] = (char)(kept ^ (1 << rand() % 8));
        if (!hash_bytes(path, data, n, &hash))
            refused++;
        else
            same += hash == whole;
        data[at] = kept;
    }
    ok(refused > 100 && same > 10,
       "of 500 files with a changed bit %d are refused, %d are the same", refused, same);
}

int main(int argc, char **argv)
{
    char path[] = "/tmp/neartie-gguf-hash.XXXXXX";
    const char *folder = getenv("abs_top_srcdir");
    char model[4096];
    size_t n = 0;
    uint64_t hash = 0;
    snprintf(model, sizeof model, "%s/tests/data/tiny-qwen3-q8_0.gguf", folder ? folder : ".");
    if (argc > 1)
        snprintf(model, sizeof model, "%s", argv[1]);
    ok(gguf_hash(model, &types, &hash), "a model's file has a hash");
    struct err err;
    struct gguf *gguf = NULL;
    struct model *m = NULL;
    if (!gguf_open(model, &gguf, &err) && !model_open(gguf, &m, &err))
        ok(model_hash(m) == hash, "it is the engine's");
    else
        ok(0, "the engine opens it: %s", err.text);
    model_close(m);
    gguf_close(gguf);
    ok(!gguf_hash("/nonexistent", &types, &hash) && !gguf_hash("/dev/null", &types, &hash),
       "no file, and an empty one");
    char *data = read_file(model, &n);
    int fd = mkstemp(path);
    if (data && n > CHANGED_BYTES && fd >= 0) {
        gguf_hash(model, &types, &hash);
        test_cut(path, data, n, hash);
        test_changed(path, data, n, hash);
    } else
        ok(0, "a copy can be made");
    close(fd);
    unlink(path);
    free(data);
    return tap_done();
}
