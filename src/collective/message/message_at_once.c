/* SPDX-License-Identifier: Apache-2.0
 *
 * Sends and receives small messages between ranks of one host that fit into their channel, or lie there already. They
 * end within the call, so they need no letter.
 *
 * Invariant: nothing of this comm is in flight, so no letter comes before them in the order of matching.
 */
#include "collective/message/message_parts.h"
#include "collective/peers/posts.h"

static struct tti_box *box_of(const tutti_comm *comm, int peer)
{
    bool usual = comm->lanes == NULL && !comm->messages->stopped && peer >= 0;
    return usual ? tti_box_at(comm->messages, peer) : NULL;
}

bool tti_send_at_once(const tutti_comm *comm, const void *in, uint64_t bytes, tutti_type type, int peer, int tag)
{
    struct tti_box *box = box_of(comm, peer);
    if (box == NULL || box->to.slots == NULL || !tti_list_is_empty(&box->queue) || box->trouble.any) return false;
    if (bytes > box->route->most || bytes > (uint64_t)comm->tuning.eager) return false;
    struct tti_note note = {TTI_NOTE_EAGER, (uint8_t)type, tag, bytes};
    if (!box->route->put(box, &note, in, bytes)) return false;
    tti_traffic_count(&box->messages->sent, bytes);
    return true;
}

static bool fits(const struct tti_cell *cell, const struct tti_recv *recv)
{
    const struct tti_letter *letter = &recv->letter;
    return cell->kind == TTI_NOTE_EAGER && cell->type == (uint8_t)letter->type && cell->bytes <= TTI_CELL_BYTES &&
           cell->bytes <= recv->capacity && (letter->tag == cell->tag || letter->tag == TUTTI_ANY_TAG);
}

bool tti_recv_at_once(struct tti_recv *recv)
{
    const tutti_comm *comm = recv->letter.comm;
    struct tti_box *box = box_of(comm, recv->letter.peer);
    if (box == NULL || box->from.slots == NULL || !tti_list_is_empty(&box->early)) return false;
    struct tti_cell *cell = tti_ring_peek(&box->from);
    if (cell == NULL || !fits(cell, recv)) return false;
    tti_ring_hurry(&box->from);
    recv->source = box->peer;
    recv->got = cell->tag;
    recv->came = (tutti_type)cell->type;
    recv->letter.bytes = cell->bytes;
    tti_note_copy(recv->out, tti_ring_data(&box->from, cell->bytes), cell->bytes);
    tti_ring_take(&box->from, cell->span);
    tti_traffic_count(&box->messages->received, recv->letter.bytes);
    tti_comm_wake(box->messages->comm, box->peer);
    return true;
}
