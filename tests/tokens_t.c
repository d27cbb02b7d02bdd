/* Token ids under a key: one to one, there and back, the same for the same key. */
#include "config.h"

#include <stdlib.h>

#include "shim/tokens.h"
#include "tests/tap.h"

static int by_value(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

int main(void)
{
    enum { N = 248320 };
    static int32_t hidden[N];
    struct tokens t, same, other, plain;
    tokens_init(&t, true, "a secret");
    tokens_init(&same, true, "a secret");
    tokens_init(&other, true, "another");
    tokens_init(&plain, false, "a secret");
    int back = 1, in_range = 1, equal = 1, n_as_before = 0, n_as_other = 0;
    for (int32_t id = 0; id < N; id++) {
        hidden[id] = tokens_hide(&t, id);
        in_range &= hidden[id] >= 0;
        back &= tokens_show(&t, hidden[id]) == id;
        equal &= tokens_hide(&same, id) == hidden[id];
        n_as_before += hidden[id] == id;
        n_as_other += tokens_hide(&other, id) == hidden[id];
    }
    ok(in_range, "a hidden id is not negative");
    ok(back, "and can be shown again with the key");
    ok(equal, "the same secret gives the same ids");
    ok(n_as_before < 5 && n_as_other < 5, "another secret gives others");
    qsort(hidden, N, sizeof *hidden, by_value);
    int distinct = 1;
    for (int32_t i = 1; i < N; i++)
        distinct &= hidden[i] != hidden[i - 1];
    ok(distinct, "no two ids of a vocabulary become the same");
    ok(hidden[N / 2] > 1 << 29 && hidden[N / 2] < 3 << 29, "they are spread over 31 bits");
    ok(tokens_hide(&t, -1) == -1 && tokens_hide(&t, INT32_MIN) == INT32_MIN,
       "an unknown id stays unknown");
    ok(tokens_hide(&plain, 77) == 77 && tokens_hide_context(&plain, 77) == 77,
       "not hidden: nothing changes");
    ok(tokens_hide_context(&t, 0) == 0, "an unknown context stays unknown");
    ok(tokens_hide_context(&t, 5) != 5 && tokens_hide_context(&t, 5) != 0 &&
           tokens_hide_context(&t, 5) == tokens_hide_context(&same, 5) &&
           tokens_hide_context(&t, 5) != tokens_hide_context(&other, 5),
       "a context hash depends on the secret");
    struct tokens r1, r2;
    tokens_init(&r1, true, "");
    tokens_init(&r2, true, "");
    ok(tokens_hide(&r1, 1) != tokens_hide(&r2, 1) || tokens_hide(&r1, 2) != tokens_hide(&r2, 2),
       "without a secret the key is random");
    return tap_done();
}
