#include "config.h"

#include "engine/mem.h"
#include "engine/tokenizer_int.h"

/* A merge that may be done: stale once either side has changed. */
struct candidate {
    float cost;
    int32_t left, right; /* symbols */
    int32_t id;          /* token of the two together */
    uint32_t n;          /* bytes of the two together when this was found */
};

/* A binary heap: the next merge on top. */
struct heap {
    struct candidate *items;
    size_t n, n_max;
};

static bool is_before(const struct candidate *a, const struct candidate *b)
{
    return a->cost != b->cost ? a->cost < b->cost : a->left < b->left;
}

static void heap_push(struct heap *h, struct candidate c)
{
    if (h->n == h->n_max) {
        h->n_max = h->n_max ? 2 * h->n_max : 64;
        h->items = xreallocarray(h->items, h->n_max, sizeof *h->items);
    }
    size_t i = h->n++;
    for (; i && is_before(&c, &h->items[(i - 1) / 2]); i = (i - 1) / 2)
        h->items[i] = h->items[(i - 1) / 2];
    h->items[i] = c;
}

static struct candidate heap_pop(struct heap *h)
{
    struct candidate top = h->items[0], last = h->items[--h->n];
    size_t i = 0;
    for (;;) {
        size_t child = 2 * i + 1;
        if (child >= h->n)
            break;
        if (child + 1 < h->n && is_before(&h->items[child + 1], &h->items[child]))
            child++;
        if (!is_before(&h->items[child], &last))
            break;
        h->items[i] = h->items[child];
        i = child;
    }
    h->items[i] = last;
    return top;
}

/* Queue the merge of a symbol with the one after it, if there is one and they may. */
static void consider(const struct tokenizer *t, const char *text, const struct symbol *symbols,
                     int32_t left, merge_fn may_merge, struct heap *h)
{
    if (left < 0 || symbols[left].next < 0)
        return;
    int32_t right = symbols[left].next;
    struct candidate c = {.left = left, .right = right, .n = symbols[left].n + symbols[right].n};
    if (may_merge(t, text, &symbols[left], &symbols[right], &c.id, &c.cost))
        heap_push(h, c);
}

/* Symbols only grow, so unchanged neighbours are those whose joint size is unchanged. */
static bool is_current(const struct symbol *symbols, const struct candidate *c)
{
    const struct symbol *l = &symbols[c->left];
    return l->n && l->next == c->right && l->n + symbols[c->right].n == c->n;
}

void tokenizer_merge(const struct tokenizer *t, const char *text, struct symbol *symbols,
                     int32_t n_symbols, merge_fn may_merge)
{
    struct heap heap = {0};
    for (int32_t i = 0; i < n_symbols; i++) {
        symbols[i].prev = i - 1;
        symbols[i].next = i + 1 < n_symbols ? i + 1 : -1;
    }
    for (int32_t i = 0; i < n_symbols; i++)
        consider(t, text, symbols, i, may_merge, &heap);
    while (heap.n) {
        struct candidate c = heap_pop(&heap);
        if (!is_current(symbols, &c))
            continue;
        struct symbol *l = &symbols[c.left], *r = &symbols[c.right];
        l->n = c.n;
        l->id = c.id;
        l->next = r->next;
        r->n = 0;
        if (l->next >= 0)
            symbols[l->next].prev = c.left;
        consider(t, text, symbols, l->prev, may_merge, &heap);
        consider(t, text, symbols, c.left, may_merge, &heap);
    }
    free(heap.items);
}
