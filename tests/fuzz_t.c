/* The fuzz targets on their seeds and on a fixed number of damaged ones, so that they keep working
 * where there is no fuzzer. */
#include "config.h"

#include "engine/model.h"
#include "engine/tokenizer.h"
#include "err.h"
#include "fuzz.h"
#include "tap.h"

static void mutate(struct buf *b, uint64_t *state)
{
    for (uint64_t k = noise(state) % 8; k > 0 && b->n; k--) {
        size_t at = noise(state) % b->n;
        switch (noise(state) % 4) {
        case 0:
            b->p[at] = (unsigned char)noise(state);
            break;
        case 1:
            b->p[at] ^= (unsigned char)(1u << noise(state) % 8);
            break;
        case 2:
            b->n = at;
            break;
        default:
            memmove(b->p + at, b->p + at / 2, (b->n - at) / 2);
        }
    }
}

static void test_target(const struct fuzz_target *target, int n_runs)
{
    uint64_t state = 88172645463325252u;
    struct buf b = {0};
    for (int i = 0; i < n_runs; i++) {
        b.n = 0;
        target->seed(i % target->n_seeds, &b);
        if (i >= target->n_seeds)
            mutate(&b, &state);
        unsigned char *exact = malloc(b.n ? b.n : 1); /* a sanitizer sees its end */
        if (b.n)
            memcpy(exact, b.p, b.n);
        target->run(exact, b.n);
        free(exact);
    }
    free(b.p);
    ok(1, "%s: %d seeds and %d damaged inputs", target->name, target->n_seeds,
       n_runs - target->n_seeds);
}

/* The files that mutants are made from are good ones, or the target would see refusals only. */
static void test_seeds(void)
{
    for (int i = 0; i < fuzz_gguf.n_seeds; i++) {
        struct buf b = {0};
        struct gguf *g = NULL;
        struct model *m = NULL;
        struct tokenizer *t = NULL;
        struct err err = {""};
        fuzz_gguf.seed(i, &b);
        if (!ok(!gguf_open_bytes(b.p, b.n, "seed", &g, &err) && !model_open(g, &m, &err) &&
                    !tokenizer_open(g, &t, &err),
                "seed %d of gguf is a model with a tokenizer", i))
            diag("%s", err.text);
        tokenizer_close(t);
        model_close(m);
        gguf_close(g);
        free(b.p);
    }
}

int main(void)
{
    test_seeds();
    test_target(&fuzz_gguf, 1000);
    test_target(&fuzz_tokenizer, 3000);
    test_target(&fuzz_prompt, 3000);
    test_target(&fuzz_import, 2000);
    return tap_done();
}
