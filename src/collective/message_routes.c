/* SPDX-License-Identifier: Apache-2.0
 *
 * How notes travel: through channels in memory that both ranks can reach, and to the own rank.
 *
 * The channel from a to b lies in a's arena and is made when a first has something to say to b; its place is written into
 * the comm's table of channels.
 */
#include "base/status.h"
#include "collective/message_parts.h"

static _Atomic uint64_t *channel_word(const tutti_comm *comm, int from, int to)
{
    return &comm->channels[(size_t)to * (size_t)comm->size + (size_t)from];
}

bool tti_channel_is_there(const struct tti_messages *messages, int peer)
{
    const tutti_comm *comm = messages->comm;
    return comm->frames == NULL &&
           atomic_load_explicit(channel_word(comm, peer, comm->rank), memory_order_relaxed) != 0;
}

static tutti_status open_channel(struct tti_box *box, tutti_error *error)
{
    tutti_comm *comm = box->messages->comm;
    struct tti_channel *channel = tti_arena_alloc(&comm->world->arena, sizeof *channel, error);
    if (channel == NULL) return error->status;
    tti_ring_cells(&box->to, channel);
    tti_ring_answers(&box->answers_to, channel);
    uint64_t offset = (uint64_t)((char *)channel - comm->world->arena.mapping.base);
    atomic_store_explicit(channel_word(comm, comm->rank, box->peer), offset + 1, memory_order_release);
    return TUTTI_OK;
}

/* Whether the peer has made its channel to us yet. */
static bool find_channel(struct tti_box *box)
{
    const tutti_comm *comm = box->messages->comm;
    uint64_t word = atomic_load_explicit(channel_word(comm, box->peer, comm->rank), memory_order_acquire);
    if (word == 0) return false;
    int process = tti_info_of(comm, box->peer)->process;
    struct tti_channel *channel = tti_world_translate(comm->world, process, word - 1, sizeof *channel);
    if (channel == NULL) return false;
    tti_ring_cells(&box->from, channel);
    tti_ring_answers(&box->answers_from, channel);
    return true;
}

/* ---- Channels -------------------------------------------------------------------------------------------------- */

static bool put_answer(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    struct tti_answer *answer = tti_ring_reserve(&box->answers_from);
    if (answer == NULL) return false;
    answer->tag = note->tag;
    answer->type = note->type;
    answer->kind = note->kind;
    if (length > 0) memcpy(answer->data, data, length);
    tti_ring_commit(&box->answers_from);
    tti_comm_wake(box->messages->comm, box->peer);
    return true;
}

static bool put(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    if (note->kind == TTI_NOTE_ACCEPT || note->kind == TTI_NOTE_RECEIVED) return put_answer(box, note, data, length);
    struct tti_cell *cell = tti_ring_reserve(&box->to);
    if (cell == NULL) return false;
    cell->bytes = note->bytes;
    cell->tag = note->tag;
    cell->type = note->type;
    cell->kind = note->kind;
    if (note->kind == TTI_NOTE_LARGE)
        memcpy(cell->data, data, length);
    else
        tti_note_copy(cell->data, data, length);
    tti_ring_commit(&box->to);
    tti_comm_wake(box->messages->comm, box->peer);
    return true;
}

static bool look_at_answers(struct tti_box *box)
{
    bool any = false;
    const struct tti_answer *answer;
    for (int i = 0; i < TTI_ANSWERS && (answer = tti_ring_peek(&box->answers_to)) != NULL; i++) {
        struct tti_note note = {answer->kind, answer->type, answer->tag, 0};
        tti_note_arrived(box, &note, answer->data);
        tti_ring_take(&box->answers_to);
        any = true;
    }
    return any;
}

static bool look_at_cells(struct tti_box *box)
{
    bool any = false;
    const struct tti_cell *cell;
    for (int i = 0; i < TTI_CELLS && tti_box_listens(box) && (cell = tti_ring_peek(&box->from)) != NULL; i++) {
        struct tti_note note = {cell->kind, cell->type, cell->tag, cell->bytes};
        tti_note_arrived(box, &note, cell->data);
        tti_ring_take(&box->from);
        any = true;
    }
    return any;
}

static void look(struct tti_box *box)
{
    bool any = !tti_list_is_empty(&box->sending) && look_at_answers(box);
    if (box->from.slots != NULL || find_channel(box)) any |= look_at_cells(box);
    if (any) tti_comm_wake(box->messages->comm, box->peer);
}

const struct tti_route tti_route_channel = {
    .open = open_channel, .put = put, .move = tti_large_put_parts, .look = look};

/* ---- To the own rank ------------------------------------------------------------------------------------------- */

static bool hand_over(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    (void)length;
    tti_note_arrived(box, note, data);
    return true;
}

static void look_at_nothing(struct tti_box *box)
{
    (void)box;
}

/* Small messages are put aside at once, as far as that goes. */
static uint64_t count_early(const struct tti_box *box)
{
    return box->early_bytes;
}

const struct tti_route tti_route_self = {
    .put = hand_over, .move = tti_large_put_parts, .look = look_at_nothing, .unread = count_early};
