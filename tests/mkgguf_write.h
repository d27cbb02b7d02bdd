/* Writing of a planned model: keys, vocabulary and random weights, with all threads. Part of
 * tests/mkgguf. */
#ifndef NEARTIE_TESTS_MKGGUF_WRITE_H
#define NEARTIE_TESTS_MKGGUF_WRITE_H

#include <stdint.h>

struct err;
struct plan;

/* Largest vocabulary that there are different tokens for. */
int32_t vocab_max(void);

/* Write the file; on failure there is none. progress is called now and then, by one thread at a
 * time, with the bytes that are done. The bytes depend on the plan and the seed only. */
int model_write(const char *path, const struct plan *plan, uint64_t seed,
                void (*progress)(uint64_t done, uint64_t of), struct err *err);

#endif
