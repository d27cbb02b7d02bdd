#include "config.h"

#include "shim/ring.h"

#include <stdatomic.h>
#include <string.h>

struct record *ring_reserve(struct spool *sp, uint64_t *out_n)
{
    struct spool_header *h = sp->head;
    uint64_t head = atomic_load_explicit(&h->head, memory_order_relaxed);
    do {
        /* The acquire pairs with ring_free's release: the consumer's reads of the slot that we are
         * about to overwrite are done. A head below the tail is stale: the exchange fails. */
        uint64_t tail = atomic_load_explicit(&h->tail, memory_order_acquire);
        if (head & SPOOL_CLOSED || (head >= tail && head - tail >= h->n_slots))
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&h->head, &head, head + 1, memory_order_relaxed,
                                                    memory_order_relaxed));
    *out_n = head;
    return spool_slot(sp, head);
}

void ring_publish(struct record *r, uint64_t n, enum record_kind kind, size_t n_bytes)
{
    r->kind = (uint16_t)kind;
    r->n_bytes = (uint16_t)n_bytes;
    r->check = record_check(r, n + 1);
    atomic_store_explicit(&r->seq, n + 1, memory_order_release);
}

bool ring_push(struct spool *sp, enum record_kind kind, const void *body, size_t body_bytes,
               const void *tail, size_t tail_bytes)
{
    uint64_t n;
    if (sizeof(struct record) + body_bytes + tail_bytes > sp->head->slot_bytes)
        return false;
    struct record *r = ring_reserve(sp, &n);
    if (!r)
        return false;
    memcpy(r->body, body, body_bytes);
    if (tail_bytes)
        memcpy((char *)r->body + body_bytes, tail, tail_bytes);
    ring_publish(r, n, kind, body_bytes + tail_bytes);
    return true;
}

struct record *ring_get(const struct spool *sp, uint64_t n)
{
    struct record *r = spool_slot(sp, n);
    return atomic_load_explicit(&r->seq, memory_order_acquire) == n + 1 ? r : NULL;
}

void ring_free(struct spool *sp, uint64_t n)
{
    atomic_store_explicit(&sp->head->tail, n, memory_order_release);
}

bool ring_close(struct spool *sp)
{
    uint64_t tail = atomic_load_explicit(&sp->head->tail, memory_order_relaxed), head = tail;
    return atomic_compare_exchange_strong(&sp->head->head, &head, tail | SPOOL_CLOSED) ||
           head & SPOOL_CLOSED;
}

uint64_t ring_used(const struct spool *sp)
{
    uint64_t head = atomic_load_explicit(&sp->head->head, memory_order_relaxed);
    uint64_t tail = atomic_load_explicit(&sp->head->tail, memory_order_relaxed);
    return head & SPOOL_CLOSED || head < tail ? 0 : head - tail;
}
