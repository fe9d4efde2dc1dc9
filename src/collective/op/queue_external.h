/* SPDX-License-Identifier: Apache-2.0
 *
 * Ops that a layer above carries out: it starts one, and ends it when it likes, from any thread. Such an op is in no queue, but
 * everything that takes a handle holds for it: waiting, testing, cancelling, dropping, callbacks.
 *
 * Invariants: the layer's record, of which struct tti_external is a part, stays until `release` was called for its handle and for
 * every `hold`. Whoever ends the op holds the record, and ends it once. The op counts as one in flight of its comm until then.
 */
#ifndef TTI_COLLECTIVE_QUEUE_EXTERNAL_H
#define TTI_COLLECTIVE_QUEUE_EXTERNAL_H

#include "collective/op/queue.h"

struct tti_external;

struct tti_external_ops {
    /* One more user of the record, and one less. May be called with locks held: neither waits nor ends anything. */
    void (*hold)(struct tti_external *external);
    void (*release)(struct tti_external *external);
    /* Somebody wants it to end: with ERR_CANCELLED, unless it ends otherwise. No lock is held. */
    void (*cancel)(struct tti_external *external);
    /* Whether the calling thread may wait for it: OK, or why not, with the sentence in `error`. */
    tutti_status (*may_wait)(struct tti_external *external, tutti_error *error);
};

struct tti_external {
    const struct tti_external_ops *ops;
    struct tti_started *started; /* its handle; for the one who ends it */
    tti_bell bell;               /* rung at its end if */
    _Atomic uint32_t sleepers;   /* somebody sleeps on it */
};

/* Starts it: its handle, or 0 when there is no memory. By any thread. The comm must be ready (tti_queue_ready). */
tutti_op tti_external_start(struct tti_external *external, tutti_comm *comm, enum tti_kind kind);
/* Ends it. `error` (NULL: success) says why. Calls its callbacks, unless the caller is in one, who calls them later. */
void tti_external_end(struct tti_external *external, const tutti_error *error);

/* For queue.c and api_handle.c. */
tutti_status tti_external_may_wait(struct tti_started *started);
tutti_status tti_external_await(struct tti_started *started, int64_t until_ns);
void tti_external_ask(struct tti_started *started, bool polls);

#endif
