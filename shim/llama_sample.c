/* Which token was chosen after a row: libllama's own sampling names the row; a program that samples
 * by parts reads a row, lets samplers work on it, of which one chooses, and tells them what it
 * took, all in one thread. The last word counts. */
#include "config.h"

#include "shim/llama_sample.h"

#include "shim/llama_cache.h"
#include "shim/llama_lib.h"

const struct probe_ops *probe_abi_v1(uint32_t abi_version);

static __thread __attribute__((tls_model("initial-exec"))) struct {
    enum { NOTHING, READ, SAMPLED } state;
    int within;    /* libllama's own sampling, which calls the others */
    int32_t taken; /* the token that was told for the row; PROBE_NO_TOKEN: none yet */
    int64_t seq, pos;
} row;

void llama_sample_reset(void)
{
    row.state = NOTHING;
    row.within = 0; /* a sampler may have left by an exception */
}

/* All of them at once say which one only where there is one. */
static void read_row(const struct llama_context *ctx, int32_t i, bool all)
{
    row.state = NOTHING;
    struct cache *c = cache_lock(ctx);
    if (!c)
        return;
    const struct probe_row *r = all && c->n_rows != 1 ? NULL : cache_output(c, i);
    if (r) {
        row.seq = r->seq;
        row.pos = r->pos;
        row.taken = PROBE_NO_TOKEN;
        row.state = READ;
    }
    cache_unlock(c);
}

static void take(int32_t token)
{
    if (token < 0 || token == row.taken)
        return;
    row.taken = token;
    probe_abi_v1(PROBE_ABI_VERSION)->token(row.seq, row.pos, token);
}

/* Whether candidates are what we take them for: the library's greedy sampler chooses among three.
 */
static bool says_choice(struct llama_lib *lib)
{
    int known = atomic_load(&lib->choice);
    if (known || !lib->llama_sampler_init_greedy || !lib->llama_sampler_free)
        return known == 2;
    struct llama_candidate list[3] = {{7, 1, 0}, {9, 3, 0}, {8, 2, 0}};
    struct llama_candidates c = {list, 3, -1, false};
    row.within++;
    struct llama_sampler *greedy = lib->llama_sampler_init_greedy();
    if (greedy) {
        lib->llama_sampler_apply(greedy, &c);
        lib->llama_sampler_free(greedy);
    }
    row.within--;
    bool right = greedy && c.list == list && c.n == 3 && c.chosen == 1 && list[1].id == 9;
    atomic_store(&lib->choice, right ? 2 : 1);
    return right;
}

float *llama_get_logits(struct llama_context *ctx)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    float *logits = lib && lib->llama_get_logits ? lib->llama_get_logits(ctx) : NULL;
    if (logits && !row.within)
        read_row(ctx, -1, true);
    return logits;
}

float *llama_get_logits_ith(struct llama_context *ctx, int32_t i)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    float *logits = lib && lib->llama_get_logits_ith ? lib->llama_get_logits_ith(ctx, i) : NULL;
    if (logits && !row.within)
        read_row(ctx, i, false);
    return logits;
}

int32_t llama_sampler_sample(struct llama_sampler *sampler, struct llama_context *ctx, int32_t i)
{
    const struct llama_lib *lib = LLAMA_LIB(ctx);
    if (!lib || !lib->llama_sampler_sample)
        return PROBE_NO_TOKEN;
    row.within++;
    int32_t token = lib->llama_sampler_sample(sampler, ctx, i);
    row.within--;
    read_row(ctx, i, false);
    if (row.state == READ)
        take(token);
    return token;
}

void llama_sampler_apply(struct llama_sampler *sampler, struct llama_candidates *c)
{
    struct llama_lib *lib = LLAMA_LIB(NULL);
    if (!lib || !lib->llama_sampler_apply)
        return;
    lib->llama_sampler_apply(sampler, c);
    if (row.within || row.state == NOTHING)
        return;
    row.state = SAMPLED;
    if (c && says_choice(lib) && c->list && c->chosen >= 0 && (size_t)c->chosen < c->n)
        take(c->list[c->chosen].id);
}

void llama_sampler_accept(struct llama_sampler *sampler, int32_t token)
{
    const struct llama_lib *lib = LLAMA_LIB(NULL);
    if (!row.within && row.state == SAMPLED) {
        row.state = NOTHING; /* what is accepted from here on is another text */
        take(token);
    }
    if (lib && lib->llama_sampler_accept)
        lib->llama_sampler_accept(sampler, token);
}
