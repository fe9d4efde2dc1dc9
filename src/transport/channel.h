/* SPDX-License-Identifier: Apache-2.0
 *
 * A channel carries messages from one rank to one other through memory that both can reach: a ring of cells, written by
 * the sender and freed by the receiver, and a place where the two agree on a large message.
 *
 * Invariant: cell i (counted from 0) lies at i % TTI_CELLS and is full exactly when its number is i + 1 and the receiver
 * has not yet taken it; the sender writes cell i only when taken > i - TTI_CELLS.
 */
#ifndef TTI_TRANSPORT_CHANNEL_H
#define TTI_TRANSPORT_CHANNEL_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TTI_CELLS = 8, TTI_CELL_BYTES = 4096 };

enum tti_cell_kind {
    TTI_CELL_EAGER, /* the whole message */
    TTI_CELL_LARGE, /* announces one that is moved when it is received */
    TTI_CELL_PART   /* a piece of the large message that was accepted */
};

struct tti_cell {
    _Alignas(64) _Atomic uint64_t number;
    uint64_t bytes; /* of the message; of the piece in a PART */
    int32_t tag;
    uint8_t type, kind;
    unsigned char data[TTI_CELL_BYTES]; /* begins in the first cache line: small messages cross in one */
};

/* How both sides move a large message. */
enum tti_large_way {
    TTI_WAY_HALVES, /* both can reach both buffers: each copies half */
    TTI_WAY_FETCH,  /* the receiver reads the sender's memory */
    TTI_WAY_PARTS   /* through cells */
};

struct tti_channel {
    _Alignas(64) _Atomic uint64_t taken; /* by the receiver: cells */
    _Alignas(
        64) _Atomic uint64_t accepted; /* by the receiver: number of the large message; then the fields below hold */
    uint32_t way, target_reach;
    int32_t target_process;
    uint64_t target_value;
    _Alignas(64) _Atomic uint64_t received; /* by the receiver: has done its share of that large message */
    _Alignas(64) _Atomic uint64_t sent;     /* by the sender: likewise, or has stopped */
    _Alignas(64) uint32_t source_reach;     /* by the sender, with the cell that announces a large message */
    int32_t source_process;
    uint64_t source_value;
    struct tti_cell cells[TTI_CELLS];
};

/* One side's position. */
struct tti_channel_end {
    struct tti_channel *channel;
    uint64_t next;  /* cell to write or to take */
    uint64_t taken; /* sender: last known */
    uint64_t large; /* large messages so far */
};

/* The cell to write next, or NULL when the ring is full. */
struct tti_cell *tti_channel_reserve(struct tti_channel_end *end);
void tti_channel_commit(struct tti_channel_end *end);
/* The oldest full cell, or NULL. */
struct tti_cell *tti_channel_peek(struct tti_channel_end *end);
void tti_channel_take(struct tti_channel_end *end);

#endif
