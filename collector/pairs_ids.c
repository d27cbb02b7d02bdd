/* What happens to each id: its differences, centred within the row, averaged by sequence. */
#include "config.h"

#include "collector/pairs_int.h"
#include "collector/xalloc.h"

#include <math.h>

static struct pair_token *find_slot(const struct pair_tokens *tokens, int32_t token)
{
    size_t slot = (uint32_t)token * 2654435761u; /* Knuth's multiplicative hash */
    for (;; slot++) {
        struct pair_token *at = &tokens->slots[slot & (tokens->n_slots - 1)];
        if (!at->n || at->token == token)
            return at;
    }
}

static void grow_slots(struct pair_tokens *tokens)
{
    struct pair_tokens larger = {.n_slots = tokens->n_slots ? 2 * tokens->n_slots : 64};
    larger.n_used = tokens->n_used;
    larger.slots = xcalloc(larger.n_slots, sizeof *larger.slots);
    for (size_t i = 0; i < tokens->n_slots; i++)
        if (tokens->slots[i].n)
            *find_slot(&larger, tokens->slots[i].token) = tokens->slots[i];
    free(tokens->slots);
    *tokens = larger;
}

void pair_tokens_add(struct pair_tokens *tokens, int32_t token, double value)
{
    if (tokens->n_used * 2 >= tokens->n_slots)
        grow_slots(tokens);
    struct pair_token *at = find_slot(tokens, token);
    tokens->n_used += !at->n;
    at->token = token;
    at->n++;
    at->sum += value;
    at->squares += value * value;
}

void pair_tokens_clear(struct pair_tokens *tokens)
{
    if (tokens->n_used)
        memset(tokens->slots, 0, tokens->n_slots * sizeof *tokens->slots);
    tokens->n_used = 0;
}

void pair_tokens_fini(struct pair_tokens *tokens)
{
    free(tokens->slots);
    *tokens = (struct pair_tokens){NULL, 0, 0};
}

/* By insertion: the lists are short, most of two values. */
static void sort_short(double *values, int n)
{
    for (int i = 1; i < n; i++) {
        double value = values[i];
        int k = i;
        for (; k > 0 && values[k - 1] > value; k--)
            values[k] = values[k - 1];
        values[k] = value;
    }
}

void pairs_add_ids(struct pairs *pairs, const struct pair_row *row)
{
    enum { MOST_SHARED = 64 };
    int32_t tokens[MOST_SHARED];
    double delta[MOST_SHARED], sorted[MOST_SHARED];
    int n = 0;
    for (int i = 0; i < row->a.n_topk && n < MOST_SHARED; i++) {
        struct pair_known b = pair_find(&row->b, row->a.topk[i].token);
        double d = b.value - row->a.topk[i].logit;
        if (b.exact && isfinite(d)) {
            tokens[n] = row->a.topk[i].token;
            delta[n++] = d;
        }
    }
    if (n < 2)
        return;
    memcpy(sorted, delta, (size_t)n * sizeof *sorted);
    sort_short(sorted, n);
    double median = (sorted[(n - 1) / 2] + sorted[n / 2]) / 2;
    for (int i = 0; i < n; i++)
        pair_tokens_add(&pairs->seq_ids, tokens[i], delta[i] - median);
}

void pairs_close(struct pairs *pairs)
{
    for (size_t i = 0; i < pairs->seq_ids.n_slots && pairs->seq_ids.n_used; i++) {
        const struct pair_token *at = &pairs->seq_ids.slots[i];
        if (at->n)
            pair_tokens_add(&pairs->ids, at->token, at->sum / at->n);
    }
    pair_tokens_clear(&pairs->seq_ids);
}
