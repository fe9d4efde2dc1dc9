/* SPDX-License-Identifier: Apache-2.0
 *
 * Routes of notes: through channels in memory that both ranks can reach, and to the own rank.
 *
 * The channel from a to b lies in a's arena and is made when a first sends a note to b; its place is written into the
 * comm's table of channels. It is given back when both have freed their side of the comm. The rank that frees its side
 * first marks the place of a channel that was not made as closed: the channel would have no reader.
 */
#include "base/alloc.h"
#include "collective/message/message_parts.h"

#define CLOSED UINT64_MAX

struct memory {
    struct tti_retired retired;
    uint32_t epoch; /* the comm's epoch */
    struct tti_channel channel;
};

static _Atomic uint64_t *channel_word(const tutti_comm *comm, int from, int to)
{
    return &comm->memory->channels[(size_t)to * (size_t)comm->size + (size_t)from];
}

bool tti_channel_is_there(const struct tti_messages *messages, int peer)
{
    const tutti_comm *comm = messages->comm;
    return comm->lanes == NULL && atomic_load_explicit(channel_word(comm, peer, comm->rank), memory_order_relaxed) != 0;
}

static tutti_status open_channel(struct tti_box *box, tutti_error *error)
{
    tutti_comm *comm = box->messages->comm;
    struct memory *memory = tti_arena_alloc(comm->world->arena, sizeof *memory, error);
    if (memory == NULL) return error->status;
    tti_ring_cells(&box->to, &memory->channel);
    tti_ring_answers(&box->answers_to, &memory->channel);
    uint64_t nothing = 0, place = (uint64_t)((char *)memory - comm->world->arena->mapping.base) + 1;
    memory->epoch = comm->traits.era.made;
    atomic_store_explicit(&memory->retired.users, 2, memory_order_relaxed);
    if (!atomic_compare_exchange_strong_explicit(channel_word(comm, comm->rank, box->peer), &nothing, place,
                                                 memory_order_acq_rel, memory_order_acquire))
        atomic_store_explicit(&memory->retired.users, 1, memory_order_relaxed);
    box->made = &memory->retired;
    return TUTTI_OK;
}

static struct memory *memory_of(const tutti_comm *comm, int peer, uint64_t place)
{
    int process = tti_info_of(comm, peer)->process;
    return tti_world_translate(comm->world, process, place - 1, sizeof(struct memory));
}

/* Returns true if the peer has made its channel to us, and finds it. */
static bool find_channel(struct tti_box *box)
{
    const tutti_comm *comm = box->messages->comm;
    uint64_t word = atomic_load_explicit(channel_word(comm, box->peer, comm->rank), memory_order_acquire);
    if (word == 0) return false;
    struct memory *memory = memory_of(comm, box->peer, word);
    if (memory == NULL || box->trouble.failed != TUTTI_OK) return false;
    if (memory->epoch != comm->traits.era.made) {
        tti_box_fault(
            box, TTI_RECV, TUTTI_ERR_EPOCH, box->peer,
            "the channel of rank %d is of epoch %u, and this comm of epoch %u; what was made before the world "
            "was rebuilt has to be made again",
            box->peer, memory->epoch, comm->traits.era.made);
        return false;
    }
    tti_ring_cells(&box->from, &memory->channel);
    tti_ring_answers(&box->answers_from, &memory->channel);
    return true;
}

void tti_channels_leave(struct tti_messages *messages)
{
    tutti_comm *comm = messages->comm;
    if (comm->memory == NULL || comm->lanes != NULL || comm->world == NULL) return;
    for (int peer = 0; peer < comm->size; peer++) {
        const struct tti_box *box = tti_box_at(messages, peer);
        if (peer == comm->rank) continue;
        uint64_t word = atomic_exchange_explicit(channel_word(comm, peer, comm->rank), CLOSED, memory_order_acq_rel);
        struct memory *memory = word == 0 || word == CLOSED ? NULL : memory_of(comm, peer, word);
        if (memory != NULL) tti_retired_leave(comm->world, &memory->retired, false);
        if (box != NULL && box->made != NULL) tti_retired_leave(comm->world, box->made, true);
    }
}

/* ---- Channels -------------------------------------------------------------------------------------------------- */

static bool put_answer(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    struct tti_answer *answer = tti_ring_reserve(&box->answers_from, 1);
    if (answer == NULL) return false;
    answer->tag = note->tag;
    answer->type = note->type;
    answer->kind = note->kind;
    if (length > 0) memcpy(answer->data, data, length);
    tti_ring_commit(&box->answers_from, 1);
    tti_comm_wake(box->messages->comm, box->peer);
    return true;
}

static void carry(struct tti_messages *messages, void *target, const void *data, size_t length)
{
    if (tti_move(length)) tti_copy_across(&messages->staged_copy, target, data, length, TTI_CELL_BYTES);
    tti_moved();
}

/* If ranks share a cache, data cross in half the time as long as all data of a ring fill at most half of the writer's
 * first cache: so large notes use only every other cell. */
static unsigned span_for(const struct tti_messages *messages, size_t length)
{
    return length > TTI_CELL_BYTES / 2 && tti_staged_copy_pace(&messages->staged_copy) == TTI_FAST ? 2 : 1;
}

static bool put(struct tti_box *box, const struct tti_note *note, const void *data, size_t length)
{
    if (note->kind == TTI_NOTE_ACCEPT || note->kind == TTI_NOTE_RECEIVED) return put_answer(box, note, data, length);
    unsigned span = span_for(box->messages, length);
    struct tti_cell *cell = tti_ring_reserve(&box->to, span);
    if (cell == NULL) return false;
    cell->bytes = note->bytes;
    cell->tag = note->tag;
    cell->type = note->type;
    cell->kind = note->kind;
    cell->span = (uint8_t)span;
    unsigned char *place = tti_ring_data(&box->to, length);
    if (note->kind == TTI_NOTE_LARGE)
        memcpy(place, data, length);
    else if (length > 0)
        carry(box->messages, place, data, length);
    tti_ring_commit(&box->to, span);
    tti_comm_wake(box->messages->comm, box->peer);
    return true;
}

/* ---- Messages of a few notes ----------------------------------------------------------------------------------- */

enum { GIVEN_CELLS = 4 }; /* half of what fits */

/* Returns more for memory that others can read by attach only: it gets there sooner through the channel, without being
 * announced. */
static int gives(const struct tti_box *box, const struct tti_send *send)
{
    const tutti_comm *comm = box->messages->comm;
    bool apart = tti_info_of(comm, box->peer)->pid != tti_info_of(comm, comm->rank)->pid;
    return apart && tti_place_of(comm, send->in, send->letter.bytes).reach == TTI_PRIVATE ? GIVEN_CELLS : 1;
}

/* Continues where there was no more room the last time. From the first note on it is too late to cancel it. */
static bool give(struct tti_box *box, struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    letter->number = 0;
    letter->way = TTI_WAY_PARTS;
    while (letter->done < letter->bytes) {
        uint64_t rest = letter->bytes - letter->done, length = rest < TTI_CELL_BYTES ? rest : TTI_CELL_BYTES;
        struct tti_note note = {TTI_NOTE_EAGER, (uint8_t)letter->type, letter->tag, letter->bytes};
        if (letter->done > 0) note = (struct tti_note){TTI_NOTE_PART, 0, 0, length};
        if (!put(box, &note, send->in + letter->done, length)) return false;
        letter->state = TTI_LETTER_MOVING;
        letter->done += length;
    }
    tti_letter_end(letter, TUTTI_OK);
    return true;
}

static void end_given(struct tti_box *box)
{
    struct tti_aside *early = box->given_aside;
    struct tti_recv *recv = box->given_to;
    struct tti_note note = box->given;
    box->given_to = NULL;
    box->given_aside = NULL;
    box->given.bytes = box->given_done = 0;
    if (recv != NULL)
        tti_letter_end(&recv->letter, TUTTI_OK);
    else
        tti_message_deliver(box, &note, early->data, early);
}

/* Takes a piece of the message that comes in several notes, unless the comm has failed: the receive has ended then. */
static void take_given(struct tti_box *box, const void *data, uint64_t bytes)
{
    struct tti_aside *early = box->given_aside;
    if (box->messages->stopped) return;
    if (bytes > box->given.bytes - box->given_done ||
        (box->given_to == NULL && early == NULL && !box->trouble.drops_given)) {
        tti_box_fault(
            box, TTI_RECV, TUTTI_ERR_MISMATCH, box->peer,
            "rank %d got more of a message of rank %d than it was to have; do all ranks use the same version?",
            box->messages->comm->rank, box->peer);
        return;
    }
    if (box->trouble.drops_given) {
        box->given_done += bytes;
        if (box->given_done == box->given.bytes) tti_given_withdrawn(box);
        return;
    }
    char *target = box->given_to != NULL ? box->given_to->out : (char *)early->data;
    tti_note_copy(target + box->given_done, data, bytes);
    box->given_done += bytes;
    box->messages->quiet = 0;
    if (box->given_done == box->given.bytes) end_given(box);
}

void tti_given_withdrawn(struct tti_box *box)
{
    struct tti_recv *recv = box->given_to;
    tti_free(box->given_aside);
    box->given_to = NULL;
    box->given_aside = NULL;
    box->given.bytes = box->given_done = 0;
    if (box->trouble.drops_given) tti_debt_came(box, 0, UINT64_MAX);
    box->trouble.drops_given = false;
    if (recv != NULL) tti_recv_poll_again(&recv->letter);
}

static void begin_given(struct tti_box *box, const struct tti_note *note, const void *data)
{
    if (box->messages->stopped) return;
    box->given = *note;
    box->given_done = 0;
    box->given_to = tti_message_claim(box, note);
    if (box->given_to == NULL) {
        box->given_aside = tti_early_new(box, note);
        if (box->given_aside == NULL) return;
    }
    take_given(box, data, TTI_CELL_BYTES);
}

static bool look_at_answers(struct tti_box *box)
{
    bool any = false;
    const struct tti_answer *answer;
    for (int i = 0; i < TTI_ANSWERS && (answer = tti_ring_peek(&box->answers_to)) != NULL; i++) {
        struct tti_note note = {answer->kind, answer->type, answer->tag, 0};
        tti_note_arrived(box, &note, answer->data);
        tti_ring_take(&box->answers_to, 1);
        any = true;
    }
    return any;
}

static bool look_at_cells(struct tti_box *box)
{
    bool any = false;
    struct tti_cell *cell;
    for (int i = 0; i < TTI_CELLS && tti_box_listens(box) && (cell = tti_ring_peek(&box->from)) != NULL; i++) {
        tti_ring_hurry(&box->from);
        struct tti_note note = {cell->kind, cell->type, cell->tag, cell->bytes};
        const void *data = tti_ring_data(&box->from,
                                         note.kind == TTI_NOTE_LARGE ? sizeof(struct tti_place) : note.bytes);
        if (note.kind == TTI_NOTE_EAGER && note.bytes > TTI_CELL_BYTES)
            begin_given(box, &note, data);
        else if (note.kind == TTI_NOTE_PART && note.tag == 0)
            take_given(box, data, note.bytes);
        else if (note.kind == TTI_NOTE_WITHDRAW)
            tti_message_withdrawn(box, (uint32_t)note.tag);
        else
            tti_note_arrived(box, &note, data);
        tti_ring_take(&box->from, cell->span);
        any = true;
    }
    return any;
}

static void poll_box(struct tti_box *box)
{
    bool any = !tti_list_is_empty(&box->sending) && look_at_answers(box);
    if (box->from.slots != NULL || find_channel(box)) any |= look_at_cells(box);
    if (any) tti_comm_wake(box->messages->comm, box->peer);
}

const struct tti_route tti_route_channel = {.most = TTI_CELL_BYTES,
                                            .open = open_channel,
                                            .put = put,
                                            .give = give,
                                            .gives = gives,
                                            .move = tti_large_put_parts,
                                            .poll = poll_box};

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

/* Small messages are put aside at once, as long as there is room. */
static bool has_room(const struct tti_box *box, uint64_t bytes)
{
    return box->early_bytes + bytes <= TTI_EARLY_BYTES;
}

const struct tti_route tti_route_self = {.most = TTI_EAGER_BYTES,
                                         .put = hand_over,
                                         .move = tti_large_put_parts,
                                         .poll = look_at_nothing,
                                         .has_room = has_room};
