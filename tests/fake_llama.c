/* A fake: a library that is none that we know. It has llama_decode alone, and a batch with more
 * members than we know of; it decodes nothing. */
#include <stdint.h>

struct batch {
    int32_t n_tokens;
    void *arrays[6];
    int32_t more[3];
};

__attribute__((visibility("default"))) int32_t llama_decode(void *ctx, struct batch batch);
__attribute__((visibility("default"))) int32_t fake_run(void *ctx, struct batch batch);
__attribute__((visibility("default"))) int32_t fake_pass(void *ctx, struct batch batch);

int32_t llama_decode(void *ctx, struct batch batch)
{
    (void)ctx;
    return batch.n_tokens + batch.more[0] + batch.more[1] + batch.more[2];
}

/* By way of the loader's table, where a preloaded function of the name comes first; and the same as
 * the last act, so that the caller's caller is who calls. */
int32_t fake_run(void *ctx, struct batch batch)
{
    volatile int32_t sum = llama_decode(ctx, batch);
    return sum;
}

int32_t fake_pass(void *ctx, struct batch batch)
{
    return llama_decode(ctx, batch);
}
