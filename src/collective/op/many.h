/* SPDX-License-Identifier: Apache-2.0
 *
 * Many pieces in one op (tutti_all_reduce_many and the like). It runs in rounds, each an operation of the comm like any
 * other: small pieces are packed, as many as fit the comm's pack, and unpacked when the round has ended; every larger
 * one is a round of its own, on its own buffers.
 *
 * Invariant: which pieces make a round follows from their counts alone, and every round's signature covers all counts.
 * So ranks run the same rounds, or see in the first one that they differ. Ops of a comm run one at a time: one pack is
 * enough.
 */
#ifndef TTI_COLLECTIVE_MANY_H
#define TTI_COLLECTIVE_MANY_H

#include "collective/comm/comm.h"

enum { TTI_PACK_BYTES = 512 << 10 }; /* the most bytes that travel together */

struct tti_many {
    uint64_t in_bytes, out_bytes; /* bytes of all pieces on this rank */
    size_t small, large;          /* where the search for the next round's pieces begins */
    size_t first, last;           /* the round: the small pieces among these, */
    uint64_t elements;            /* with so many elements together; */
    size_t alone;                 /* or this large piece only; TTI_PACKED: packed */
    bool ended;
    size_t count;
    tutti_piece pieces[];
};
#define TTI_PACKED SIZE_MAX

/* Returns true if some round will be packed. */
bool tti_many_packs(const struct tti_op *op);
/* Returns the first piece of a packed round. */
const tutti_piece *tti_many_first(const struct tti_op *op);
/* Prepares the first round. */
void tti_many_begin(struct tti_op *op);
/* Called when a round has ended: prepares the next one. Returns false if all have ended, also if it is called again. */
bool tti_many_next(struct tti_op *op);

#endif
