/* SPDX-License-Identifier: Apache-2.0
 *
 * Callbacks of ops that have ended.
 *
 * Invariant: a callback is called exactly once for each end of its op, by a thread that holds neither a lock nor the
 * right to take ops forward: whoever ended the op puts the callback on the list of those that are due, and calls it, or
 * leaves it to the service thread, after it has given the right back. A comm is not freed before all its callbacks have
 * returned.
 */
#ifndef TTI_COLLECTIVE_CALLBACK_H
#define TTI_COLLECTIVE_CALLBACK_H

#include "collective/op/queue.h"

struct tti_callback {
    tutti_ended *ended;
    void *context;
    bool lasts;   /* for a prepared op: called at every end */
    bool pending; /* due, and not called yet; under the queue's lock */
    tutti_status status;
    tutti_error error;            /* set if the status is an error */
    struct tti_callback *sibling; /* the next callback of the same op */
    struct tti_callback *next;    /* the next one that is due */
};

/* How many callbacks this thread is in; counts those of all simulated ranks that it runs. */
extern _Thread_local int tti_callbacks_here __attribute__((tls_model("initial-exec"), visibility("hidden")));
bool tti_is_in_callback_now(void);
static inline bool tti_is_in_callback(void)
{
    return __builtin_expect(tti_callbacks_here != 0, 0) && tti_is_in_callback_now();
}
/* Refuses a call that would wait, made from a callback. */
tutti_status tti_callback_refuse(tutti_comm *comm, enum tti_kind kind);

/* Has `ended` called when the op ends, at once if it has ended. ERR_MEMORY. */
tutti_status tti_callback_add(struct tti_started *started, tutti_ended *ended, void *context);
/* Called when the op ends: makes its callbacks due. With the queue's lock held. */
void tti_callback_due(struct tti_started *started, tutti_status status);
/* To be called before a prepared op is started again: waits until its last end was told. */
void tti_callback_await(struct tti_started *started);
/* Called when the op's place is given back or reused: forgets its callbacks. With the queue's lock held. */
void tti_callback_forget(struct tti_started *started);

static inline bool tti_callbacks_are_due(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->queue.callbacks.due, memory_order_acquire) != 0;
}
/* Calls the callbacks that are due. The caller holds no lock, and makes no call on the comm. */
void tti_callbacks_call(tutti_comm *comm);
/* For a caller that holds a lock: takes them off the list, to be called without it. */
struct tti_callback *tti_callbacks_take(tutti_comm *comm);
void tti_callbacks_call_taken(tutti_comm *comm, struct tti_callback *callbacks);

#endif
