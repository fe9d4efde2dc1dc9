/* SPDX-License-Identifier: Apache-2.0
 *
 * What a comm keeps for staging (staging.h): streams for copies, and slots of pinned memory.
 */
#ifndef TTI_COLLECTIVE_STAGER_H
#define TTI_COLLECTIVE_STAGER_H

#include "collective/comm/comm.h"
#include "device/ops.h"

struct tti_pinned;
enum { TTI_STAGER_SLOTS = 3 };

/* Copies of a comm: a stream for each direction, and how far it is. */
struct tti_stager {
    struct tti_device *device;
    struct tti_stream *in, *out;
    struct tti_word *came, *went; /* raised to a copy's number when the copy is done */
    uint64_t in_copies, out_copies;
    tutti_comm *comm; /* the slots are in its arena: ranks that are processes read them there */
    struct tti_pinned *slots[TTI_STAGER_SLOTS]; /* kept from op to op */
    uint64_t sure[TTI_STAGER_SLOTS];            /* bytes of each that every rank has, as all ranks know */
};

/* Makes sure that a slot is large enough. No copy uses it: it is free. A failure leaves it as it was. */
tutti_status tti_stager_ensure(struct tti_stager *stager, int i, size_t bytes, tutti_error *error);

#endif
