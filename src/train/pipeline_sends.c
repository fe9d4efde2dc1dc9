/* SPDX-License-Identifier: Apache-2.0
 *
 * The sends of a run. A large message goes over while both sides take part, but its sender computes by then. The
 * service thread polls a send for which no thread waits only now and then: a receiver that waits already, which is when
 * a send matters most, would be kept waiting. So a task of the runner waits for each send, for a moment, and does its
 * part at once; if the receiver comes later, the service threads move the message meanwhile. The task does not stay in
 * the wait, since a thread that posts a message has to take the comm from a thread that waits.
 *
 * Invariant: the thread that claims a send waits for it, and no other does. The task claims them in order, each for a
 * moment; the rank claims those whose memory it needs. They do not end in order: one may have to wait for a slot that
 * becomes free only after a later one was received.
 */
#define TUTTI_NO_CALL_SITES
#include "train/pipeline_run.h"

#include "base/alloc.h"
#include "base/status.h"

#define LOOK_NS INT64_C(1000000000) /* a missed bell costs no more than this */
enum { MOMENT_MS = 1, FOR_EVER = -1 };

/* Waits for a send, for a while or until it has ended, unless another thread waits for it. */
static void claim(struct tti_pipeline_sends *sends, struct tti_pipeline_send *send, int64_t timeout_ms)
{
    if (atomic_exchange_explicit(&send->claimed, true, memory_order_acquire)) return;
    tutti_status status = tutti_wait_for(send->op, timeout_ms);
    atomic_store_explicit(&send->status, (int)status, memory_order_release);
    if (status == TUTTI_IN_PROGRESS) atomic_store_explicit(&send->claimed, false, memory_order_release);
    tti_bell_ring(&sends->progress, false);
}

static void *wait_for_sends(void *argument)
{
    struct tti_pipeline_sends *sends = argument;
    for (;;) {
        uint32_t seen = atomic_load_explicit(&sends->work, memory_order_acquire);
        uint32_t ended = atomic_load_explicit(&sends->ended, memory_order_relaxed);
        if (ended < atomic_load_explicit(&sends->started, memory_order_acquire)) {
            claim(sends, &sends->list[ended], MOMENT_MS);
            atomic_store_explicit(&sends->ended, ended + 1, memory_order_release);
            tti_bell_ring(&sends->progress, false);
        } else if (atomic_load_explicit(&sends->stop, memory_order_acquire) != 0) {
            return NULL;
        } else {
            tti_bell_sleep(&sends->work, seen, LOOK_NS, false);
        }
    }
}

tutti_status tti_pipeline_sends_create(struct tti_pipeline_sends *sends, size_t most, tutti_error *error)
{
    sends->list = tti_calloc(most + 1, sizeof *sends->list);
    if (sends->list == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for %zu sends", most);
    TTI_TRY(tti_task_start(&sends->task, wait_for_sends, sends, error));
    sends->runs = true;
    return TUTTI_OK;
}

void tti_pipeline_sends_free(struct tti_pipeline_sends *sends)
{
    if (sends->runs) {
        atomic_store_explicit(&sends->stop, 1, memory_order_release);
        tti_bell_ring(&sends->work, false);
        tti_task_join(&sends->task);
    }
    tti_free(sends->list);
}

void tti_pipeline_sends_begin(struct tti_pipeline_sends *sends)
{
    /* the task reads `started` after `ended`, so that it never sees more started than there are */
    atomic_store_explicit(&sends->started, 0, memory_order_release);
    atomic_store_explicit(&sends->ended, 0, memory_order_release);
}

uint32_t tti_pipeline_sends_add(struct tti_pipeline_sends *sends, tutti_op op)
{
    uint32_t at = atomic_load_explicit(&sends->started, memory_order_relaxed);
    struct tti_pipeline_send *send = &sends->list[at];
    send->op = op;
    atomic_store_explicit(&send->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    atomic_store_explicit(&send->claimed, false, memory_order_relaxed);
    atomic_store_explicit(&sends->started, at + 1, memory_order_release);
    tti_bell_ring(&sends->work, false);
    return at + 1;
}

tutti_status tti_pipeline_sends_await(struct tti_pipeline_sends *sends, uint32_t number)
{
    struct tti_pipeline_send *send = &sends->list[number - 1];
    for (;;) {
        uint32_t seen = atomic_load_explicit(&sends->progress, memory_order_acquire);
        claim(sends, send, FOR_EVER);
        int status = atomic_load_explicit(&send->status, memory_order_acquire);
        if (status != TUTTI_IN_PROGRESS) return (tutti_status)status;
        tti_bell_sleep(&sends->progress, seen, LOOK_NS, false);
    }
}

tutti_status tti_pipeline_sends_await_all(struct tti_pipeline_sends *sends)
{
    uint32_t started = atomic_load_explicit(&sends->started, memory_order_relaxed);
    tutti_status first = TUTTI_OK;
    for (uint32_t number = 1; number <= started; number++) {
        tutti_status status = tti_pipeline_sends_await(sends, number);
        if (first == TUTTI_OK) first = status;
    }
    for (;;) { /* until the task has seen it, too, and is in no call on the comm any more */
        uint32_t seen = atomic_load_explicit(&sends->progress, memory_order_acquire);
        if (atomic_load_explicit(&sends->ended, memory_order_acquire) == started) return first;
        tti_bell_sleep(&sends->progress, seen, LOOK_NS, false);
    }
}
