/* The context hashes of a cache's sequences: cases by hand, and random operations beside a model
 * that keeps the tokens. A hash is right or 0. */
#include "config.h"

#include "sql/context_hash.h"
#include "shim/lineage.h"
#include "tests/tap.h"

enum { SEQS = 3, ROOM = 600, STEPS = 200000, HOLE = -1 };

static void test_by_hand(void)
{
    const int32_t text[6] = {5, 0, 7, 7, 2, 9};
    struct lineage l = {0}, m = {0};
    int right = 1;
    for (int32_t i = 0; i < 4; i++)
        right &= lineage_push(&l, 0, i, text[i]) == context_hash(0, text, (size_t)i + 1);
    ok(right, "tokens in order");
    lineage_remove(&l, 2, -1);
    ok(lineage_push(&l, 0, 2, 2) == context_hash(0, (int32_t[]){5, 0, 2}, 3),
       "another way behind two tokens");
    l.number = 8;
    lineage_copy(&l, &m, -1, -1);
    is_int(m.parent, 8, "a copy knows where it is from");
    ok(lineage_push(&m, 0, 3, 1) == context_hash(0, (int32_t[]){5, 0, 2, 1}, 4),
       "a copy goes on by itself");
    lineage_remove(&m, 1, 3);
    ok(!lineage_push(&m, 0, 4, 1), "behind a hole nothing is known");
    lineage_remove(&m, 1, -1);
    ok(lineage_push(&m, 0, 1, 3) == context_hash(0, (int32_t[]){5, 3}, 2),
       "before it everything is");
    ok(!lineage_push(&m, 0, 7, 3), "a position is left out");
    lineage_agree(&l, 7);
    ok(!lineage_push(&l, 0, 7, 1), "a length that is not ours: somebody else was here");
    lineage_remove(&l, -1, -1);
    ok(lineage_push(&l, 99, 0, 4) == context_hash(99, (int32_t[]){4}, 1), "a start of its own");
    ok(!lineage_push(&l, 99, 1, -1) && !lineage_push(&l, 99, 2, 4), "an unknown token");
    lineage_clear(&l);
    lineage_clear(&m);
}

/* What a cache would hold, by position. */
struct model {
    int32_t tokens[ROOM];
    int32_t n; /* behind the last one that is held */
};

static uint64_t hash_of(const struct model *m, int32_t pos)
{
    uint64_t hash = 0;
    for (int32_t i = 0; i <= pos; i++) {
        if (m->tokens[i] == HOLE)
            return 0;
        hash = context_hash(hash, &m->tokens[i], 1);
    }
    return hash;
}

static void set(struct model *m, int32_t p0, int32_t p1, const int32_t *from)
{
    for (int32_t i = p0; i < p1; i++)
        if (!from || from[i] != HOLE)
            m->tokens[i] = from ? from[i] : HOLE;
    for (m->n = ROOM; m->n && m->tokens[m->n - 1] == HOLE; m->n--)
        ;
}

static void test_random(void)
{
    static struct model models[SEQS];
    struct lineage l[SEQS] = {0};
    int64_t wrong = 0, known = 0, unknown = 0;
    srand(1);
    for (int i = 0; i < SEQS; i++)
        set(&models[i], 0, ROOM, NULL);
    for (int step = 0; step < STEPS; step++) {
        int a = rand() % SEQS, b = rand() % SEQS;
        int32_t n = models[a].n, p = n ? rand() % n : 0, q = n ? p + rand() % (n - p) + 1 : 0;
        int what = rand() % 40;
        if (what == 0 || n == ROOM) {
            lineage_remove(&l[a], -1, -1);
            set(&models[a], 0, ROOM, NULL);
        } else if (what <= 2) {
            lineage_remove(&l[a], p, what == 1 ? -1 : q);
            set(&models[a], p, what == 1 ? ROOM : q, NULL);
        } else if (what == 3 && a != b) {
            lineage_copy(&l[a], &l[b], p, q);
            set(&models[b], p, q, models[a].tokens);
        } else {
            int32_t token = rand() % 4;
            lineage_agree(&l[a], n);
            uint64_t got = lineage_push(&l[a], 0, n, token);
            models[a].tokens[n] = token;
            models[a].n = n + 1;
            wrong += got && got != hash_of(&models[a], n);
            known += got != 0;
            unknown += got == 0;
        }
    }
    is_int(wrong, 0, "of %d operations none gives a wrong hash", STEPS);
    ok(known > STEPS / 8 && unknown > STEPS / 100, "%lld tokens in known contexts, %lld not",
       (long long)known, (long long)unknown);
    for (int i = 0; i < SEQS; i++)
        lineage_clear(&l[i]);
}

int main(void)
{
    test_by_hand();
    test_random();
    return tap_done();
}
