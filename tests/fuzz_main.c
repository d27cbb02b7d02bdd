/* One target under libFuzzer: compiled with -DFUZZ_TARGET=fuzz_gguf and so on. The corpus begins
 * with the target's own seeds. */
#include "config.h"

#include "fuzz.h"

#include <stdint.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t n_max, unsigned seed);
size_t LLVMFuzzerMutate(uint8_t *data, size_t n, size_t n_max); /* libFuzzer's own */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    FUZZ_TARGET.run(data, n);
    return 0;
}

/* Mutate as libFuzzer does; what is too short to be a mutant of a seed becomes a seed first. */
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t n, size_t n_max, unsigned seed)
{
    struct buf b = {0};
    FUZZ_TARGET.seed((int)(seed % (unsigned)FUZZ_TARGET.n_seeds), &b);
    if ((n < 4 || seed % 1000 == 0) && b.n <= n_max) {
        memcpy(data, b.p, b.n);
        n = b.n;
    }
    free(b.p);
    return LLVMFuzzerMutate(data, n, n_max);
}
