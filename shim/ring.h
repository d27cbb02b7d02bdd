/* The ring of records between the hooks and the writer: any number of producers, one consumer,
 * over the slots of a spool. A producer reserves a slot with one compare-and-swap, fills it in
 * place, and publishes it by storing its sequence number last. No lock, no allocation, no system
 * call. A slot is used again only after the consumer has freed it, that is, when its record is in
 * the database. */
#ifndef NEARTIE_SHIM_RING_H
#define NEARTIE_SHIM_RING_H

#include <stdbool.h>
#include <stdint.h>

#include "sql/spool.h"

/* Reserve the next record; its number goes to out_n. Returns NULL where the ring is full or closed.
 * Whoever reserves must publish, and soon: the consumer waits for it. */
struct record *ring_reserve(struct spool *sp, uint64_t *out_n);

/* Publish reserved record n, whose body of n_bytes is filled. */
void ring_publish(struct record *r, uint64_t n, enum record_kind kind, size_t n_bytes);

/* Reserve, copy and publish: body_bytes of body, then tail_bytes of tail (may be NULL with 0),
 * together at most the slot's room. Returns false where nothing was recorded. */
bool ring_push(struct spool *sp, enum record_kind kind, const void *body, size_t body_bytes,
               const void *tail, size_t tail_bytes);

/* Record number n, or NULL when it has not been published yet. It stays valid until ring_free
 * passes it, so for the consumer only. */
struct record *ring_get(const struct spool *sp, uint64_t n);

/* Give the slots of the records below n back. Consumer only. */
void ring_free(struct spool *sp, uint64_t n);

/* Accept no further record if all are freed. Returns whether the ring is closed now. */
bool ring_close(struct spool *sp);

/* Records that wait for the consumer, out of n_slots. */
uint64_t ring_used(const struct spool *sp);

/* Whether more than half of the ring waits: the consumer should not sleep on. */
static inline bool ring_pressing(const struct spool *sp)
{
    return ring_used(sp) > sp->head->n_slots / 2;
}

#endif
