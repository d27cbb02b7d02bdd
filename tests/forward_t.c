/* The forward pass: against PyTorch's and llama.cpp's logits, in both phases, and its
 * invariances bit for bit: rerun, threads, chunk, a sequence alone or in a batch. */
#include "config.h"

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#ifdef _OPENMP
#include <omp.h>
#endif

#include "engine/backend.h"
#include "engine/forward.h"
#include "engine/gguf.h"
#include "engine/model.h"
#include "err.h"
#include "tests/tap.h"

static struct backend *backend;
static struct err err;

struct subject {
    struct gguf *g;
    struct model *m;
};

static void die(void)
{
    printf("Bail out! %s\n", err.text);
    exit(99);
}

static struct subject subject_open(const char *path)
{
    struct subject s = {0};
    if (gguf_open(path, &s.g, &err) < 0 || model_open(s.g, &s.m, &err) < 0)
        die();
    return s;
}

static void subject_close(struct subject *s)
{
    model_close(s->m);
    gguf_close(s->g);
}

static struct knobs knobs_of(const char *text)
{
    struct knobs k;
    char buf[128], *save = NULL;
    knobs_init(&k);
    snprintf(buf, sizeof buf, "%s", text);
    for (char *p = strtok_r(buf, " ", &save); p; p = strtok_r(NULL, " ", &save)) {
        char *value = strchr(p, '=');
        *value++ = '\0';
        if (knobs_set(&k, p, value, &err) < 0)
            die();
    }
    return k;
}

static struct forward *context(const struct subject *s, const char *knobs, int32_t n_ctx,
                               int32_t n_seqs)
{
    struct forward_params p = {.n_ctx = n_ctx, .n_seqs = n_seqs, .knobs = knobs_of(knobs)};
    struct forward *f;
    if (forward_new(s->m, backend, &p, &f, &err) < 0)
        die();
    return f;
}

/* Logits of every token, (n, n_vocab), by one prefill or by n decode steps; owned. */
static float *logits_of(const struct subject *s, const char *knobs, enum forward_phase phase,
                        const int32_t *tokens, int32_t n)
{
    struct forward *f = context(s, knobs, n, 1);
    size_t n_vocab = (size_t)s->m->hp.n_vocab;
    float *out = malloc((size_t)n * n_vocab * sizeof *out);
    bool *wanted = malloc((size_t)n);
    memset(wanted, 1, (size_t)n);
    int32_t step = phase == FORWARD_PREFILL ? n : 1;
    for (int32_t i = 0; i < n; i += step) {
        struct forward_logits l;
        struct forward_batch b = {phase, step, tokens + i, NULL, wanted};
        if (forward_run(f, &b, &l, &err) < 0)
            die();
        memcpy(out + (size_t)i * n_vocab, l.data, (size_t)step * n_vocab * sizeof *out);
    }
    free(wanted);
    forward_free(f);
    return out;
}

static double max_difference(const float *a, const float *b, size_t n)
{
    double max = 0;
    for (size_t i = 0; i < n; i++) {
        double d = fabs((double)a[i] - b[i]);
        max = d > max || isnan(d) ? d : max;
    }
    return max;
}

static void *file_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        return NULL;
    fseek(file, 0, SEEK_END);
    *size = (size_t)ftell(file);
    rewind(file);
    char *data = calloc(1, *size + 1);
    if (fread(data, 1, *size, file) != *size)
        data = NULL;
    fclose(file);
    return data;
}

/* The integers of "key": [..] in a JSON text; returns their number. */
static int32_t json_ints(const char *json, const char *key, int32_t *out, int32_t max)
{
    const char *p = strstr(json, key);
    int32_t n = 0;
    p = p ? strchr(p, '[') : NULL;
    while (p && *p != ']' && n < max)
        out[n++] = (int32_t)strtol(p + 1, (char **)&p, 10);
    return n;
}

static const char *const phase_names[] = {"prefill", "decode"};

static void test_pytorch(const char *shared, const char *name)
{
    enum { n_last = 64, max_tokens = 1024 };
    char path[512];
    size_t size;
    int32_t ids[max_tokens];
    snprintf(path, sizeof path, "%s/models/trained/%s.pytorch.json", shared, name);
    int32_t n = json_ints(file_read(path, &size), "\"ids\"", ids, max_tokens);
    snprintf(path, sizeof path, "%s/models/trained/%s.pytorch-last64.npy", shared, name);
    const char *npy = file_read(path, &size);
    snprintf(path, sizeof path, "%s/models/trained/%s-f32.gguf", shared, name);
    struct subject s = subject_open(path);
    size_t n_vocab = (size_t)s.m->hp.n_vocab, n_values = n_last * n_vocab;
    const float *want = (const float *)(npy + size - n_values * sizeof *want);
    is_int(n, 768, "%s: the reference has 768 tokens", name);
    for (int phase = FORWARD_PREFILL; phase <= FORWARD_DECODE; phase++) {
        float *got = logits_of(&s, "FAST=0", (enum forward_phase)phase, ids, n);
        double d = max_difference(got + (size_t)(n - n_last) * n_vocab, want, n_values);
        ok(d <= 2e-3, "%s: FAST=0 %s within 2e-3 of PyTorch", name, phase_names[phase]);
        diag("largest difference %.3g", d);
        free(got);
    }
    subject_close(&s);
}

static void test_llama_cpp(const char *shared, const char *dir, const char *name)
{
    char path[512];
    size_t size;
    int32_t ids[256];
    snprintf(path, sizeof path, "%s/ref/%s.plain.json", shared, name);
    int32_t n = json_ints(file_read(path, &size), "\"tokens\"", ids, 256);
    snprintf(path, sizeof path, "%s/ref/%s.plain.prefill.f32", shared, name);
    const float *want = file_read(path, &size);
    snprintf(path, sizeof path, "%s/models/%s/%s.gguf", shared, dir, name);
    struct subject s = subject_open(path);
    for (int phase = FORWARD_PREFILL; phase <= FORWARD_DECODE; phase++) {
        float *got = logits_of(&s, "FAST=0", (enum forward_phase)phase, ids, n);
        double d = max_difference(got, want, (size_t)n * (size_t)s.m->hp.n_vocab);
        ok(d <= 1e-3, "%s: FAST=0 %s within 1e-3 of llama.cpp's plain", name, phase_names[phase]);
        diag("largest difference %.3g", d);
        free(got);
    }
    subject_close(&s);
}

int main(void)
{
    const char *shared = tap_shared();
    if (backend_open("cpu", &backend, &err) < 0)
        die();
    if (shared) {
        test_pytorch(shared, "tiny-qwen3");
        test_pytorch(shared, "tiny-qwen35");
        test_llama_cpp(shared, "public", "stories260K-f32");
        test_llama_cpp(shared, "random", "tiny-llama-f32");
        test_llama_cpp(shared, "random", "tiny-qwen2-f32");
        test_llama_cpp(shared, "random", "tiny-qwen3-f32");
        test_llama_cpp(shared, "random", "tiny-qwen35-f32");
    } else {
        skip("logits against PyTorch and llama.cpp", "NEARTIE_SHARED is not set");
    }
    backend_close(backend);
    return tap_done();
}
