/* SPDX-License-Identifier: Apache-2.0
 *
 * A channel carries notes from one rank to one other, and short answers back, through memory that both can reach: two
 * rings of slots, each written by one side and freed by the other. The layer above knows what notes and answers mean.
 *
 * Invariant of a ring: slot i (counted from 0) lies at i % count and is full exactly when its number is i + 1 and the
 * reader has not yet taken it; the writer writes slot i only when taken > i - count. A note may count as several slots,
 * of which all but the first stay empty.
 */
#ifndef TTI_TRANSPORT_CHANNEL_H
#define TTI_TRANSPORT_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TTI_CELLS = 8, TTI_CELL_BYTES = 2048, TTI_BESIDE_BYTES = 41, TTI_ANSWERS = 16, TTI_ANSWER_BYTES = 40 };

struct tti_cell {
    _Alignas(64) _Atomic uint64_t number;
    uint64_t bytes;
    int32_t tag;
    uint8_t type, kind, span;               /* span: counted in slots */
    unsigned char beside[TTI_BESIDE_BYTES]; /* small messages cross in one cache line */
};

/* The data lie apart from the heads: a reader's processor also fetches the lines behind the data, and a head must not
 * be there. */
struct tti_cells {
    struct tti_cell heads[TTI_CELLS];
    unsigned char data[TTI_CELLS][TTI_CELL_BYTES];
};

struct tti_answer {
    _Alignas(64) _Atomic uint64_t number;
    int32_t tag;
    uint8_t type, kind;
    unsigned char data[TTI_ANSWER_BYTES];
};

struct tti_channel {
    _Alignas(64) _Atomic uint64_t cells_taken;   /* written by the receiver */
    _Alignas(64) _Atomic uint64_t answers_taken; /* written by the sender */
    struct tti_answer answers[TTI_ANSWERS];
    struct tti_cells cells;
};

/* One side's position in one ring. */
struct tti_ring {
    char *slots; /* NULL: not there yet; each slot begins with its number */
    size_t stride;
    uint64_t count;
    _Atomic uint64_t *taken;
    uint64_t next; /* the slot to write or to take next */
    uint64_t seen; /* writer: the last known value of `taken` */
};

void tti_ring_cells(struct tti_ring *ring, struct tti_channel *channel);
void tti_ring_answers(struct tti_ring *ring, struct tti_channel *channel);

static inline void *tti_ring_slot(const struct tti_ring *ring)
{
    return ring->slots + (ring->next & (ring->count - 1)) * ring->stride; /* counts are powers of two */
}

/* For cells: returns where the `length` bytes of the next one lie. */
static inline unsigned char *tti_ring_data(const struct tti_ring *ring, size_t length)
{
    struct tti_cells *cells = (struct tti_cells *)(void *)ring->slots;
    uint64_t index = ring->next & (TTI_CELLS - 1);
    return length <= TTI_BESIDE_BYTES ? cells->heads[index].beside : cells->data[index];
}

/* Returns the slot to write next, which counts as `span`, or NULL if the ring is too full. */
static inline void *tti_ring_reserve(struct tti_ring *ring, unsigned span)
{
    if (ring->next + span - ring->seen > ring->count)
        ring->seen = atomic_load_explicit(ring->taken, memory_order_acquire);
    return ring->next + span - ring->seen <= ring->count ? tti_ring_slot(ring) : NULL;
}

static inline void tti_ring_commit(struct tti_ring *ring, unsigned span)
{
    _Atomic uint64_t *number = tti_ring_slot(ring);
    atomic_store_explicit(number, ring->next + 1, memory_order_release);
    ring->next += span;
}

/* Returns the oldest full slot, or NULL. */
static inline void *tti_ring_peek(const struct tti_ring *ring)
{
    _Atomic uint64_t *number = tti_ring_slot(ring);
    return atomic_load_explicit(number, memory_order_acquire) == ring->next + 1 ? (void *)number : NULL;
}

/* Prefetches the next slot while this one is read, for times when many come at once. */
static inline void tti_ring_hurry(const struct tti_ring *ring)
{
    __builtin_prefetch(ring->slots + ((ring->next + 1) & (ring->count - 1)) * ring->stride);
}

static inline void tti_ring_take(struct tti_ring *ring, unsigned span)
{
    ring->next += span;
    atomic_store_explicit(ring->taken, ring->next, memory_order_release);
}

/* For the writer: returns true if the reader has taken the slot with this position. */
static inline bool tti_ring_was_taken(const struct tti_ring *ring, uint64_t position)
{
    return atomic_load_explicit(ring->taken, memory_order_acquire) > position;
}

#endif
