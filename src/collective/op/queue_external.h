/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that a layer above carries out: it starts one, and ends it when it likes, from any thread. Such an op is in no
 * queue, but everything that takes a handle works for it: waiting, testing, cancelling, dropping, callbacks.
 *
 * Invariants: the layer's record, of which struct tti_external is a part, stays until `release` was called for its
 * handle and for every `hold`. The thread that ends the op holds the record, and ends it once. Until then the op counts
 * as in flight on its comm.
 */
#ifndef TTI_COLLECTIVE_QUEUE_EXTERNAL_H
#define TTI_COLLECTIVE_QUEUE_EXTERNAL_H

#include "collective/op/queue.h"

struct tti_external;

struct tti_external_ops {
    /* Add and remove a user of the record. May be called with locks held: they neither wait nor end anything. */
    void (*hold)(struct tti_external *external);
    void (*release)(struct tti_external *external);
    /* Asks for its end, with ERR_CANCELLED, unless it ends otherwise. No lock is held. */
    void (*cancel)(struct tti_external *external);
    /* Returns OK if the calling thread may wait for it, or why not, with the sentence in `error`. */
    tutti_status (*may_wait)(struct tti_external *external, tutti_error *error);
};

struct tti_external {
    const struct tti_external_ops *ops;
    struct tti_started *started; /* its handle; for the thread that ends it */
    tti_bell bell;               /* rung at its end, if */
    _Atomic uint32_t sleepers;   /* threads sleep on it */
};

/* Starts it. Returns its handle, or 0 if there is no memory. May be called by any thread. The comm must be ready
 * (tti_queue_ready). */
tutti_op tti_external_start(struct tti_external *external, tutti_comm *comm, enum tti_kind kind);
/* Ends it. `error` (NULL: success) says why. Calls its callbacks, unless the caller is in one and calls them later. */
void tti_external_end(struct tti_external *external, const tutti_error *error);

/* For queue.c and api_handle.c. */
tutti_status tti_external_may_wait(struct tti_started *started);
tutti_status tti_external_await(struct tti_started *started, int64_t until_ns);
void tti_external_ask(struct tti_started *started, bool polls);

#endif
