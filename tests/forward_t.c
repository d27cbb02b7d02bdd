/* The forward pass: against PyTorch's and llama.cpp's logits, in both phases, and its
 * invariances bit for bit: rerun, threads, chunk, a sequence alone or in a batch. */
#include "config.h"

#ifdef _OPENMP
#include <omp.h>
#endif

#include "tests/logits.h"
#include "tests/tap.h"

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

/* The models that come with the project, and 40 ids that both know. */
static struct subject data_open(const char *name)
{
    char path[512];
    const char *top = getenv("abs_top_srcdir");
    snprintf(path, sizeof path, "%s/tests/data/%s", top ? top : ".", name);
    return subject_open(path);
}

enum { N_IDS = 40 };
static void ids_fill(int32_t ids[N_IDS], int32_t n_vocab)
{
    uint32_t state = 7;
    for (int i = 0; i < N_IDS; i++) {
        state = state * 1664525 + 1013904223;
        ids[i] = (int32_t)((state >> 8) % (uint32_t)n_vocab);
    }
}

static bool same(const float *a, const float *b, size_t n)
{
    return memcmp(a, b, n * sizeof *a) == 0;
}

static void test_reruns(const struct subject *s, const char *name, const char *knobs)
{
    int32_t ids[N_IDS];
    size_t n = N_IDS * (size_t)s->m->hp.n_vocab;
    ids_fill(ids, s->m->hp.n_vocab);
    for (int phase = FORWARD_PREFILL; phase <= FORWARD_DECODE; phase++) {
        float *first = logits_of(s, knobs, (enum forward_phase)phase, ids, N_IDS);
        float *again = logits_of(s, knobs, (enum forward_phase)phase, ids, N_IDS);
        ok(same(first, again, n), "%s %s %s: bit-equal rerun", name, knobs, phase_names[phase]);
        free(again);
#ifdef _OPENMP
        int n_threads = omp_get_max_threads(), n_different = 0;
        for (int t = 1; t <= 3; t += 2) {
            omp_set_num_threads(t);
            again = logits_of(s, knobs, (enum forward_phase)phase, ids, N_IDS);
            n_different += !same(first, again, n);
            free(again);
        }
        omp_set_num_threads(n_threads);
        is_int(n_different, 0, "%s %s %s: bit-equal with 1 and 3 threads", name, knobs,
               phase_names[phase]);
#endif
        free(first);
    }
}

static void test_chunks(const struct subject *s, const char *name, const char *knobs)
{
    static const int chunks[] = {1, 7, 32};
    int32_t ids[N_IDS];
    ids_fill(ids, s->m->hp.n_vocab);
    float *whole = logits_of(s, knobs, FORWARD_PREFILL, ids, N_IDS);
    for (int i = 0; i < 3; i++) {
        char with[96];
        snprintf(with, sizeof with, "%s PRIME_CHUNK=%d", knobs, chunks[i]);
        float *cut = logits_of(s, with, FORWARD_PREFILL, ids, N_IDS);
        ok(same(whole, cut, N_IDS * (size_t)s->m->hp.n_vocab), "%s %s: bit-equal to one chunk",
           name, with);
        free(cut);
    }
    free(whole);
}

static struct forward_logits step(struct forward *f, enum forward_phase phase, int32_t n,
                                  const int32_t *tokens, const int32_t *seqs)
{
    struct forward_logits l;
    struct forward_batch b = {phase, n, tokens, seqs, NULL};
    if (forward_run(f, &b, &l, &err) < 0)
        die();
    return l;
}

/* Sequences of different lengths, decoded alone and together; one a copy of another. */
static void test_batch(const struct subject *s, const char *name, const char *knobs)
{
    enum { n_steps = 4 };
    static const int32_t prompt[3] = {21, 3, 12};
    size_t n_vocab = (size_t)s->m->hp.n_vocab;
    int32_t ids[N_IDS], n_different = 0;
    struct forward *together = context(s, knobs, N_IDS, 4), *alone = context(s, knobs, N_IDS, 4);
    ids_fill(ids, s->m->hp.n_vocab);
    for (int32_t q = 0; q < 3; q++) {
        int32_t seqs[N_IDS];
        for (int i = 0; i < N_IDS; i++)
            seqs[i] = q;
        step(together, FORWARD_PREFILL, prompt[q], ids + q, seqs);
        step(alone, FORWARD_PREFILL, prompt[q], ids + q, seqs);
    }
    forward_seq_copy(together, 3, 1);
    forward_seq_copy(alone, 3, 1);
    for (int i = 0; i < n_steps; i++) {
        static const int32_t order[4] = {2, 0, 3, 1};
        int32_t tokens[4] = {ids[i], ids[i + 9], ids[i + 20], ids[i + 20]};
        struct forward_logits all = step(together, FORWARD_DECODE, 4, tokens, order);
        ok(i > 0 || all.n_rows == 4, "%s %s: a row for each sequence", name, knobs);
        for (int q = 0; q < 4; q++) {
            struct forward_logits one = step(alone, FORWARD_DECODE, 1, &tokens[q], &order[q]);
            n_different += !same(all.data + (size_t)q * n_vocab, one.data, n_vocab);
        }
        n_different += !same(all.data + 2 * n_vocab, all.data + 3 * n_vocab, n_vocab);
    }
    is_int(n_different, 0, "%s %s: a sequence alone, in a batch and copied: bit-equal", name,
           knobs);
    is_int(forward_n_past(together, 1), prompt[1] + n_steps, "%s: positions are counted", name);

    float *before = malloc(n_vocab * sizeof *before);
    forward_seq_reset(together, 2);
    struct forward_logits l = step(together, FORWARD_DECODE, 1, ids, (int32_t[]){2});
    memcpy(before, l.data, n_vocab * sizeof *before);
    struct forward *fresh = context(s, knobs, N_IDS, 1);
    l = step(fresh, FORWARD_DECODE, 1, ids, NULL);
    ok(same(before, l.data, n_vocab), "%s %s: a reset sequence is a new one", name, knobs);
    free(before);
    forward_free(fresh);
    forward_free(together);
    forward_free(alone);
}

/* The arithmetics differ, but only by rounding. */
static void test_forms(const struct subject *s, const char *name)
{
    int32_t ids[N_IDS];
    size_t n = N_IDS * (size_t)s->m->hp.n_vocab;
    ids_fill(ids, s->m->hp.n_vocab);
    float *ref = logits_of(s, "REF=1", FORWARD_PREFILL, ids, N_IDS);
    float *ref_decode = logits_of(s, "REF=1", FORWARD_DECODE, ids, N_IDS);
    static const struct {
        const char *knobs;
        double limit; /* measured on both models, doubled */
    } rows[] = {{"FAST=0", 1e-3},
                {"FAST=0 KV=f16", 0.1},
                {"FAST=1 KV=f32", 2},
                {"FAST=1", 2},
                {"FAST=0 KV=q8_0", 2}};
    double d = max_difference(ref, ref_decode, n);
    ok(d < 1e-4, "%s REF=1: the phases agree to float rounding", name);
    diag("largest difference %.3g", d);
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        float *prefill = logits_of(s, rows[i].knobs, FORWARD_PREFILL, ids, N_IDS);
        float *decode = logits_of(s, rows[i].knobs, FORWARD_DECODE, ids, N_IDS);
        double a = max_difference(ref, prefill, n), b = max_difference(ref, decode, n);
        ok(a < rows[i].limit && b < rows[i].limit, "%s %s: near REF=1", name, rows[i].knobs);
        diag("largest difference: prefill %.3g, decode %.3g", a, b);
        ok(!same(prefill, decode, n), "%s %s: two arithmetics", name, rows[i].knobs);
        free(prefill);
        free(decode);
    }
    free(ref);
    free(ref_decode);
}

/* Each decode knob changes the arithmetic it names. */
static void test_knobs_act(const struct subject *s, const char *name)
{
    static const char *const knobs[] = {"FA_SPLIT=3", "Q80_G2=1", "KV=f32", "KV=q8_0"};
    int32_t ids[N_IDS];
    size_t n = N_IDS * (size_t)s->m->hp.n_vocab;
    ids_fill(ids, s->m->hp.n_vocab);
    float *plain = logits_of(s, "FAST=1", FORWARD_DECODE, ids, N_IDS);
    for (int i = 0; i < 4; i++) {
        float *other = logits_of(s, knobs[i], FORWARD_DECODE, ids, N_IDS);
        ok(!same(plain, other, n), "%s: %s acts", name, knobs[i]);
        free(other);
    }
    free(plain);
}

static void is_error(struct forward *f, struct forward_batch b, const char *want)
{
    struct forward_logits l;
    int32_t before = forward_n_past(f, 0);
    err.text[0] = '\0';
    ok(forward_run(f, &b, &l, &err) < 0 && forward_n_past(f, 0) == before, "refused: %s", want);
    is_str(err.text, want, "and says so");
}

static void test_errors(const struct subject *s)
{
    struct forward_params p = {.n_ctx = 8, .n_seqs = 2, .n_batch = 6, .knobs = knobs_of("FAST=0")};
    static const bool none[8];
    static const int32_t ids[8], bad[2] = {0, 99999}, negative[1] = {-1}, far[1] = {2},
                                 mixed[2] = {0, 1}, twice[2] = {1, 1};
    struct forward *f;
    if (forward_new(s->m, backend, &p, &f, &err) < 0)
        die();
    is_error(f, (struct forward_batch){FORWARD_PREFILL, 0, ids, NULL, NULL},
             "batch of 0 tokens: not in 1 ... 6");
    is_error(f, (struct forward_batch){FORWARD_PREFILL, 7, ids, NULL, NULL},
             "batch of 7 tokens: not in 1 ... 6");
    is_error(f, (struct forward_batch){FORWARD_PREFILL, 2, bad, NULL, NULL},
             "token 1: id 99999 is not in 0 ... 2047");
    is_error(f, (struct forward_batch){FORWARD_DECODE, 1, negative, NULL, NULL},
             "token 0: id -1 is not in 0 ... 2047");
    is_error(f, (struct forward_batch){FORWARD_DECODE, 1, ids, far, NULL},
             "token 0: sequence 2 is not in 0 ... 1");
    is_error(f, (struct forward_batch){FORWARD_PREFILL, 2, ids, mixed, NULL},
             "token 1: sequence 1 in a prefill of sequence 0");
    is_error(f, (struct forward_batch){FORWARD_DECODE, 2, ids, twice, NULL},
             "tokens 0 and 1: both of sequence 1 in one decode step");
    is_error(f, (struct forward_batch){FORWARD_PREFILL, 2, ids, NULL, none},
             "batch of 2 tokens: no row wanted");
    step(f, FORWARD_PREFILL, 6, ids, NULL);
    is_error(f, (struct forward_batch){FORWARD_PREFILL, 3, ids, NULL, NULL},
             "sequence 0: 6 + 3 tokens do not fit a context of 8");
    forward_free(f);
    p.n_batch = 9;
    is_int(forward_new(s->m, backend, &p, &f, &err), -1, "a batch above the context is refused");
    is_str(err.text, "batches of 9 tokens in a context of 8 positions, 2 sequences", "with both");
}

static void test_data_model(const char *name)
{
    struct subject s = data_open(name);
    test_forms(&s, name);
    test_knobs_act(&s, name);
    static const char *const knobs[] = {"FAST=0", "FAST=1", "REF=1",
                                        "FAST=1 KV=q8_0 FA_SPLIT=3 Q80_G2=1"};
    for (int i = 0; i < 4; i++) {
        test_reruns(&s, name, knobs[i]);
        test_chunks(&s, name, knobs[i]);
        test_batch(&s, name, knobs[i]);
    }
    test_errors(&s);
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
        test_llama_cpp(shared, "random", "tiny-qwen3moe-f32");
        test_llama_cpp(shared, "random", "tiny-qwen35-f32");
        test_llama_cpp(shared, "random", "tiny-qwen35moe-f32");
    } else {
        skip("logits against PyTorch and llama.cpp", "NEARTIE_SHARED is not set");
    }
    test_data_model("tiny-qwen3-q8_0.gguf");
    test_data_model("tiny-qwen35-q8_0.gguf");
    backend_close(backend);
    return tap_done();
}
