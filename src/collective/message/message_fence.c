/* SPDX-License-Identifier: Apache-2.0
 *
 * After a failure a buffer is its owner's again only when no peer can touch it.
 *
 * A rank that failed says in its post that it touches no other's memory any more, and fences for all ranks. A rank that
 * learns of a buffer after that sees the broken comm before it touches the buffer (message_large.c); one that learned
 * of it before is seen here, and waited for.
 */
#include "base/clock.h"
#include "collective/message/message_parts.h"

enum { KILL_MS = 1000 };

void tti_messages_stop(tutti_comm *comm)
{
    struct tti_messages *messages = comm->messages;
    tti_messages_lock(comm);
    messages->stopped = true;
    TTI_LIST_EACH(link, &messages->work) tti_list_remove(link);
    tti_messages_unlock(comm);
    if (comm->lanes != NULL) return;
    int64_t until = tti_now_ns() + comm->world->options.fence_ms * 1000000;
    if (!tti_copiers_await(atomic_load_explicit(&messages->copiers, memory_order_acquire), until)) return;
    atomic_store_explicit(&comm->memory->posts[comm->rank].stopped, 1, memory_order_release);
    tti_comm_ring(comm, true);
    tti_fence_rare();
}

static bool has_stopped(const tutti_comm *comm, int peer)
{
    if (atomic_load_explicit(&tti_info_of(comm, peer)->state, memory_order_acquire) != TTI_RANK_JOINED) return true;
    if (comm->peers->presence(comm, peer) == TTI_PEER_LEFT) return true;
    return atomic_load_explicit(&comm->memory->posts[peer].stopped, memory_order_acquire) != 0;
}

/* Returns true if the peer may touch the letter's buffer. Only a sender with a half to copy writes, and only after it
 * took the acceptance. Only a receiver of this process reads a buffer in place; what one of another process reads is
 * thrown away. */
static bool may_be_touched(const struct tti_letter *letter)
{
    const tutti_comm *comm = letter->comm;
    int peer = letter->waiting_for;
    if (letter->state == TTI_LETTER_LIFTED) return false;
    if (comm->lanes != NULL) return peer >= 0 && tti_letter_is_carried(letter, tti_box_at(comm->messages, peer));
    if (letter->state < TTI_LETTER_MOVING || letter->way == TTI_WAY_PARTS || letter->other_done) return false;
    if (peer == comm->rank || has_stopped(comm, peer)) return false;
    if (letter->is_send) return tti_info_of(comm, peer)->pid == tti_info_of(comm, comm->rank)->pid;
    const struct tti_box *box = tti_box_at(comm->messages, peer);
    return letter->way == TTI_WAY_HALVES && tti_ring_was_taken(&box->answers_from, letter->position);
}

static void end_untouched(struct tti_link *list, tutti_status status)
{
    TTI_LIST_EACH(link, list)
    {
        struct tti_letter *letter = TTI_LETTER_ON(link);
        if (!may_be_touched(letter)) tti_letter_end(letter, status);
    }
}

bool tti_messages_fence(tutti_comm *comm, tutti_status status)
{
    struct tti_messages *messages = comm->messages;
    tti_messages_lock(comm);
    tti_messages_pump(comm, TTI_ANYBODY);
    end_untouched(&messages->any, status);
    end_untouched(&messages->lifted, status);
    TTI_TABLE_EACH(place, &messages->boxes)
    {
        struct tti_box *box = messages->boxes.values[place];
        if (messages->pending == 0) break;
        box->route->poll(box); /* takes what the peer said before it stopped */
        struct tti_link *lists[] = {&box->posted, &box->queue, &box->sending, &box->taking};
        for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) end_untouched(lists[i], status);
    }
    bool none = messages->pending == 0;
    tti_messages_unlock(comm);
    return none;
}

/* Kills a peer that has not stopped by now, if possible. A transport goes on without the buffers. */
static void end_by_force(struct tti_box *box, struct tti_link *list, tutti_status status)
{
    tutti_comm *comm = box->messages->comm;
    int peer = box->peer;
    TTI_LIST_EACH(link, list)
    {
        struct tti_letter *letter = TTI_LETTER_ON(link);
        bool frames = comm->lanes != NULL;
        if (may_be_touched(letter) && !(frames ? tti_letter_take_back(letter, box)
                                               : tti_world_kill(comm->world, tti_member(comm, peer), KILL_MS)))
            tti_comm_quarantine(comm, letter->is_send ? TTI_SEND : TTI_RECV, peer,
                                letter->is_send ? TTI_SEND_OF(letter)->in : NULL,
                                letter->is_send ? NULL : TTI_RECV_OF(letter)->out);
        tti_letter_end(letter, status);
    }
}

void tti_messages_fail(tutti_comm *comm, tutti_status status)
{
    struct tti_messages *messages = comm->messages;
    int64_t until = tti_now_ns() + comm->world->options.fence_ms * 1000000;
    tti_messages_stop(comm);
    while (!tti_messages_fence(comm, status) && tti_now_ns() < until) {
        if (!comm->traits.all_threads) tti_world_check_alive(comm->world);
        tti_wait_turn();
    }
    tti_messages_lock(comm);
    TTI_TABLE_EACH(place, &messages->boxes)
    {
        struct tti_box *box = messages->boxes.values[place];
        end_by_force(box, &box->sending, status);
        end_by_force(box, &box->taking, status);
    }
    tti_messages_unlock(comm);
}
