#include "config.h"

#include "shim/tokens.h"

#include <string.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { ROUNDS = 4 };

static uint64_t rotate(uint64_t x, int n)
{
    return x << n | x >> (64 - n);
}

static void sip_round(uint64_t v[4])
{
    v[0] += v[1];
    v[2] += v[3];
    v[1] = rotate(v[1], 13) ^ v[0];
    v[3] = rotate(v[3], 16) ^ v[2];
    v[0] = rotate(v[0], 32);
    v[2] += v[1];
    v[0] += v[3];
    v[1] = rotate(v[1], 17) ^ v[2];
    v[3] = rotate(v[3], 21) ^ v[0];
    v[2] = rotate(v[2], 32);
}

/* SipHash-2-4 of eight bytes (Aumasson and Bernstein, "SipHash: a fast short-input PRF"). */
static uint64_t sip_hash(const uint64_t key[2], uint64_t m)
{
    uint64_t v[4] = {key[0] ^ UINT64_C(0x736f6d6570736575), key[1] ^ UINT64_C(0x646f72616e646f6d),
                     key[0] ^ UINT64_C(0x6c7967656e657261), key[1] ^ UINT64_C(0x7465646279746573)};
    const uint64_t last = UINT64_C(8) << 56; /* the length, which ends the message */
    const uint64_t words[2] = {m, last};
    for (int i = 0; i < 2; i++) {
        v[3] ^= words[i];
        sip_round(v);
        sip_round(v);
        v[0] ^= words[i];
    }
    v[2] ^= 255;
    for (int i = 0; i < 4; i++)
        sip_round(v);
    return v[0] ^ v[1] ^ v[2] ^ v[3];
}

/* A permutation of the 32-bit words: a Feistel network over its halves. */
static uint32_t permute(const uint64_t key[2], uint32_t x, bool back)
{
    uint32_t left = x >> 16, right = x & 0xffff;
    for (int i = 0; i < ROUNDS; i++) {
        uint32_t round = (uint32_t)(back ? ROUNDS - 1 - i : i);
        uint32_t other = back ? left : right;
        uint32_t mixed =
            (back ? right : left) ^ (sip_hash(key, (uint64_t)(round + 1) << 32 | other) & 0xffff);
        left = back ? mixed : right;
        right = back ? other : mixed;
    }
    return left << 16 | right;
}

/* Of the 31-bit words: on until one comes up. */
static int32_t walk(const struct tokens *t, int32_t id, bool back)
{
    uint32_t x = (uint32_t)id;
    if (!t->hidden || id < 0)
        return id;
    do
        x = permute(t->key, x, back);
    while (x > INT32_MAX);
    return (int32_t)x;
}

void tokens_init(struct tokens *t, bool hidden, const char *secret)
{
    *t = (struct tokens){.hidden = hidden};
    if (secret[0]) {
        XXH128_hash_t h = XXH3_128bits(secret, strlen(secret));
        t->key[0] = h.low64;
        t->key[1] = h.high64;
    } else if (getrandom(t->key, sizeof t->key, GRND_NONBLOCK) != sizeof t->key) {
        struct timespec now;
        clock_gettime(CLOCK_REALTIME, &now);
        t->key[0] = (uint64_t)now.tv_nsec << 32 ^ (uint64_t)now.tv_sec;
        t->key[1] = (uint64_t)getpid() ^ (uint64_t)(uintptr_t)&now;
    }
}

int32_t tokens_hide(const struct tokens *t, int32_t id)
{
    return walk(t, id, false);
}

int32_t tokens_show(const struct tokens *t, int32_t id)
{
    return walk(t, id, true);
}

uint64_t tokens_hide_context(const struct tokens *t, uint64_t context_hash)
{
    if (!t->hidden || !context_hash)
        return context_hash;
    uint64_t hidden = sip_hash(t->key, context_hash);
    return hidden ? hidden : 1;
}
