/* Fuzz targets: what each does with any bytes, and a few good inputs to start from. fuzz_main.c
 * runs one under libFuzzer (`make fuzz`); fuzz_t.c runs all for a moment in `make check`. */
#ifndef NEARTIE_TESTS_FUZZ_H
#define NEARTIE_TESTS_FUZZ_H

#include "gguf_buf.h"

struct fuzz_target {
    const char *name;
    void (*run)(const uint8_t *data, size_t n); /* aborts on a finding */
    int n_seeds;
    void (*seed)(int i, struct buf *out); /* good input number i < n_seeds, appended */
};
extern const struct fuzz_target fuzz_gguf, fuzz_tokenizer, fuzz_prompt, fuzz_import;

/* A whole file: vocabulary and model of one tiny llama ("llama" tokenizer) or qwen2 (byte-level
 * BPE with the named pre-tokenizer). */
void fuzz_put_model(struct buf *b, const char *pre);

/* End the process unless the condition holds. */
#define FUZZ_CHECK(condition)                                                                      \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

#endif
