/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that are announced, and moved when they are received. Each letter is a state machine: posted, announced or
 * accepting, moving, closing, said, ended. Notes for which a letter waits arrive through tti_large_heard; what it can
 * do by itself it does in tti_large_step, as long as it is on the list of work.
 *
 * No rank touches the other's memory before its ACCEPT is said (receiver) or taken (sender), and then only if it has
 * seen that the comm is not broken after that: so a peer that broke it, and has fenced, knows for which ranks it must
 * wait.
 */
#include "collective/comm/epoch.h"
#include "collective/message/message_parts.h"
#include "collective/reduce/copy.h"
#include <assert.h>

enum { PIECE_BYTES = 1 << 20, ATTACHED_HALVES_BYTES = 32 << 10 };

static struct tti_messages *messages_of(const struct tti_letter *letter)
{
    return letter->comm->messages;
}

/* Returns the box of a letter that has a peer. */
static struct tti_box *box_of(const struct tti_letter *letter)
{
    return tti_box_at(messages_of(letter), letter->waiting_for);
}

/* Moves a letter to a later state, and puts it on the list of work. A letter whose message was withdrawn begins again
 * (tti_recv_poll_again). */
static void goes_on(struct tti_letter *letter, enum tti_letter_state state)
{
    assert(letter->state < state);
    letter->state = (uint8_t)state;
    if (tti_list_is_empty(&letter->work)) tti_list_append(&messages_of(letter)->work, &letter->work);
}

static void waits(struct tti_letter *letter, enum tti_letter_state state)
{
    assert(letter->state < state);
    letter->state = (uint8_t)state;
    tti_list_remove(&letter->work);
}

static bool say(const struct tti_letter *letter, enum tti_note_kind kind, uint8_t way, const struct tti_place *place)
{
    struct tti_note note = {(uint8_t)kind, way, (int32_t)letter->number, 0};
    struct tti_box *box = box_of(letter);
    return box->route->put(box, &note, place, place != NULL ? sizeof *place : 0);
}

/* ---- Beginning ------------------------------------------------------------------------------------------------- */

bool tti_large_announce(struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    struct tti_box *box = box_of(letter);
    struct tti_place place = letter->device != NULL ? tti_device_place_of(send)
                                                    : tti_place_of(letter->comm, send->in, letter->bytes);
    if (letter->comm->world->options.direct == 0 || letter->comm->traits.tolerant) place.reach = TTI_NOWHERE;
    struct tti_note note = {TTI_NOTE_LARGE, (uint8_t)letter->type, letter->tag, letter->bytes};
    if (!box->route->put(box, &note, &place, sizeof place)) return false;
    letter->number = ++box->announced;
    letter->state = TTI_LETTER_ANNOUNCED;
    tti_list_remove(&letter->on);
    tti_list_append(&box->sending, &letter->on);
    return true;
}

void tti_large_accept(struct tti_recv *recv, struct tti_box *box, uint32_t number, const void *place)
{
    struct tti_letter *letter = &recv->letter;
    letter->waiting_for = box->peer;
    letter->number = number;
    memcpy(&letter->place, place, sizeof letter->place);
    tti_list_remove(&letter->on);
    tti_list_append(&box->taking, &letter->on);
    goes_on(letter, TTI_LETTER_ACCEPTING);
}

/* Returns where the other side's buffer lies here; NULL: it cannot be reached. */
static char *resolve(const struct tti_letter *letter, int peer)
{
    return tti_place_resolve(letter->comm, letter->place, tti_is_of_this_process(letter->comm, peer));
}

/* Chooses the way. By attach, too, both sides copy a half if the cost to begin that is small against the data. */
static enum tti_way way_of(const struct tti_letter *letter, struct tti_place target)
{
    const tutti_comm *comm = letter->comm;
    int peer = letter->waiting_for;
    if (letter->place.reach == TTI_DEVICE) return TTI_WAY_PARTS;
    if (letter->place.reach == TTI_NOWHERE || comm->world->options.direct == 0 || comm->traits.tolerant)
        return TTI_WAY_PARTS;
    if (peer == comm->rank) return TTI_WAY_FETCH;
    const struct tti_rank_info *other = tti_info_of(comm, peer);
    bool reach = resolve(letter, peer) != NULL;
    bool reaches = other->pid == tti_info_of(comm, comm->rank)->pid || target.reach == TTI_ARENA;
    bool writes = atomic_load_explicit(&other->attaches, memory_order_relaxed) != 0;
    if (reach && reaches) return TTI_WAY_HALVES;
    if (!reach && !comm->traits.can_attach) return TTI_WAY_PARTS;
    return (reaches || writes) && letter->bytes >= ATTACHED_HALVES_BYTES ? TTI_WAY_HALVES : TTI_WAY_FETCH;
}

static bool say_accept(struct tti_recv *recv)
{
    struct tti_letter *letter = &recv->letter;
    struct tti_box *box = box_of(letter);
    bool copies = letter->place.reach == TTI_DEVICE && tti_device_reaches(recv, box->peer, letter->place);
    if (!copies && !tti_device_make_room(recv)) return false;
    struct tti_place target = tti_place_of(letter->comm, recv->out, letter->bytes);
    letter->way = (uint8_t)(copies ? TTI_WAY_COPY : way_of(letter, target));
    if (tti_place_is_old(letter->comm, letter->place)) {
        messages_of(letter)->failure = tti_epoch_refuse(letter->comm, TTI_RECV, box->peer, "a buffer",
                                                        letter->place.epoch);
        return false;
    }
    letter->position = box->answers_from.next;
    if (!say(letter, TTI_NOTE_ACCEPT, letter->way, &target)) return false;
    if (letter->way == TTI_WAY_PARTS)
        waits(letter, TTI_LETTER_MOVING);
    else
        letter->state = TTI_LETTER_MOVING;
    return true;
}

/* ---- Moving ---------------------------------------------------------------------------------------------------- */

static uint64_t half_of(uint64_t bytes)
{
    return bytes / 2 / 64 * 64;
}

/* Moves the next piece of a share of `bytes` that begins at both addresses; returns false if the comm is broken. */
static bool copy_piece(struct tti_letter *letter, char *target, const char *source, uint64_t bytes)
{
    if (tti_comm_is_broken(letter->comm)) return false;
    uint64_t footprint = 4 * bytes,
             fits = (uint64_t)letter->comm->tuning.stream; /* half of the message, in two buffers */
    enum tti_store store = footprint < fits ? TTI_CACHED : tti_store_past(footprint, fits);
    if (store == TTI_MIXED &&
        letter->way == TTI_WAY_HALVES) /* the receiver's share stays in its cache, the sender's leaves it */
        store = letter->is_send ? TTI_STREAMED : TTI_CACHED;
    uint64_t rest = bytes - letter->done, length = rest < PIECE_BYTES ? rest : PIECE_BYTES;
    if (tti_move(length)) tti_copy(target + letter->done, source + letter->done, length, store);
    tti_moved();
    letter->done += length;
    if (letter->done == bytes) letter->state = TTI_LETTER_CLOSING;
    return true;
}

bool tti_large_put_parts(struct tti_box *box, struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    uint64_t before = letter->done;
    do { /* sends at least one note: the receiver waits for what a stream sends, even if that is nothing */
        uint64_t rest = letter->bytes - letter->done, length = rest < box->route->most ? rest : box->route->most;
        struct tti_note note = {TTI_NOTE_PART, 0, (int32_t)letter->number, length};
        if (!box->route->put(box, &note, send->in + letter->done, length)) return letter->done > before;
        letter->done += length;
    } while (letter->done < letter->bytes);
    tti_letter_end(letter, TUTTI_OK);
    return true;
}

/* Does the same by attach: from or to the other side's buffer, whose share begins at `offset`. */
static bool attach_piece(struct tti_letter *letter, uint64_t offset, char *here, uint64_t bytes)
{
    if (tti_comm_is_broken(letter->comm)) return false;
    uint64_t rest = bytes - letter->done, length = rest < PIECE_BYTES ? rest : PIECE_BYTES;
    uint64_t there = offset + letter->done;
    here += letter->done;
    int peer = letter->waiting_for;
    tutti_status status = letter->is_send
                              ? tti_place_store(letter->comm, TTI_SEND, peer, letter->place, there, here, length)
                              : tti_place_fetch(letter->comm, TTI_RECV, peer, letter->place, there, here, length);
    messages_of(letter)->failure = status;
    if (status != TUTTI_OK) return false;
    letter->done += length;
    if (letter->done == bytes) letter->state = TTI_LETTER_CLOSING;
    return true;
}

static bool move_out(struct tti_send *send)
{
    struct tti_letter *letter = &send->letter;
    struct tti_box *box = box_of(letter);
    if (letter->way == TTI_WAY_COPY) {
        if (!tti_device_letter_has_come(letter->device)) return false;
        letter->state = TTI_LETTER_CLOSING;
        return true;
    }
    if (letter->device != NULL && !tti_device_fetch(send)) return false;
    if (letter->way == TTI_WAY_PARTS) return box->route->move(box, send);
    uint64_t half = half_of(letter->bytes), share = letter->bytes - half;
    char *target = resolve(letter, letter->peer);
    if (target == NULL) return attach_piece(letter, half, (char *)(uintptr_t)send->in + half, share);
    return copy_piece(letter, target + half, send->in + half, share);
}

static bool move_in(struct tti_recv *recv)
{
    struct tti_letter *letter = &recv->letter;
    if (letter->way == TTI_WAY_COPY) {
        if (!letter->other_done || !tti_device_copy(recv)) return false;
        letter->state = TTI_LETTER_CLOSING;
        return true;
    }
    const char *source = resolve(letter, letter->waiting_for);
    uint64_t share = letter->way == TTI_WAY_HALVES ? half_of(letter->bytes) : letter->bytes;
    return source == NULL ? attach_piece(letter, 0, recv->out, share) : copy_piece(letter, recv->out, source, share);
}

/* Called when the own share is done: tells the peer. The letter ends when the other's share is done, too; a receiver
 * that fetches does all of it. */
static bool close_share(struct tti_letter *letter)
{
    if (!say(letter, letter->is_send ? TTI_NOTE_SENT : TTI_NOTE_RECEIVED, 0, NULL)) return false;
    if (letter->other_done || letter->way == TTI_WAY_FETCH)
        tti_letter_end(letter, TUTTI_OK);
    else
        waits(letter, TTI_LETTER_SAID);
    return true;
}

bool tti_large_step(struct tti_letter *letter)
{
    bool moved = letter->state == TTI_LETTER_ACCEPTING && say_accept(TTI_RECV_OF(letter));
    if (letter->state == TTI_LETTER_MOVING && !tti_list_is_empty(&letter->work))
        moved |= letter->is_send ? move_out(TTI_SEND_OF(letter)) : move_in(TTI_RECV_OF(letter));
    if (letter->state == TTI_LETTER_CLOSING) moved |= close_share(letter);
    if (letter->state == TTI_LETTER_LIFTED && tti_device_lift(TTI_RECV_OF(letter))) {
        tti_letter_end(letter, TUTTI_OK);
        return true;
    }
    return moved;
}

/* ---- Hearing --------------------------------------------------------------------------------------------------- */

struct tti_letter *tti_large_find(const struct tti_link *list, uint32_t number)
{
    TTI_LIST_EACH(link, list)
    {
        struct tti_letter *letter = TTI_LETTER_ON(link);
        if (letter->number == number) return letter;
    }
    return NULL;
}

static void was_accepted(struct tti_letter *letter, const struct tti_note *note, const void *data)
{
    letter->way = note->type;
    memcpy(&letter->place, data, sizeof letter->place);
    if (letter->way == TTI_WAY_FETCH)
        letter->state = TTI_LETTER_SAID;
    else
        goes_on(letter, TTI_LETTER_MOVING);
}

/* Returns true if a letter in its present state can be sent this note. */
static bool makes_sense(const struct tti_letter *letter, const struct tti_note *note)
{
    if (letter == NULL) return false;
    switch (note->kind) {
    case TTI_NOTE_ACCEPT: return letter->state == TTI_LETTER_ANNOUNCED && note->type <= TTI_WAY_COPY;
    case TTI_NOTE_PART:
        return letter->state == TTI_LETTER_MOVING && letter->way == TTI_WAY_PARTS &&
               note->bytes <= letter->bytes - letter->done;
    default: return letter->state >= TTI_LETTER_MOVING && letter->way != TTI_WAY_PARTS && !letter->other_done;
    }
}

/* Returns the letter that a note is about, or NULL: the comm is broken then, unless this rank has failed anyhow. */
static struct tti_letter *subject(struct tti_box *box, const struct tti_note *note)
{
    tutti_comm *comm = box->messages->comm;
    bool about_send = note->kind == TTI_NOTE_ACCEPT || note->kind == TTI_NOTE_RECEIVED;
    struct tti_letter *letter = tti_large_find(about_send ? &box->sending : &box->taking, (uint32_t)note->tag);
    if (makes_sense(letter, note)) return letter;
    if (box->messages->stopped) return NULL;                        /* about a letter that has failed */
    if (letter == NULL && about_send && box->withdrew) return NULL; /* about one that was withdrawn */
    if (letter == NULL && comm->traits.tolerant) return NULL;       /* about one that was given up */
    tti_box_fault(box, TTI_RECV, TUTTI_ERR_MISMATCH, box->peer,
                  "rank %d got a note of kind %d about large message %u of rank %d that makes no sense; do all ranks "
                  "use the same version?",
                  comm->rank, note->kind, (unsigned)note->tag, box->peer);
    return NULL;
}

struct tti_recv *tti_large_receive(struct tti_box *box, const struct tti_note *note)
{
    struct tti_letter *letter = subject(box, note);
    return letter == NULL ? NULL : TTI_RECV_OF(letter);
}

void tti_large_part(struct tti_box *box, const struct tti_note *note)
{
    struct tti_letter *letter = subject(box, note);
    if (letter == NULL) return;
    letter->done += note->bytes;
    assert(letter->done <= letter->bytes);
    if (letter->done == letter->bytes) tti_letter_end(letter, TUTTI_OK);
}

void tti_large_heard(struct tti_box *box, const struct tti_note *note, const void *data)
{
    struct tti_letter *letter = subject(box, note);
    if (letter == NULL && note->kind == TTI_NOTE_PART) tti_debt_came(box, (uint32_t)note->tag, note->bytes);
    if (letter == NULL) return;
    if (note->kind == TTI_NOTE_ACCEPT) {
        was_accepted(letter, note, data);
    } else if (note->kind == TTI_NOTE_PART) {
        tti_note_copy(TTI_RECV_OF(letter)->out + letter->done, data, note->bytes);
        tti_large_part(box, note);
    } else {
        letter->other_done = true;
        if (letter->state == TTI_LETTER_SAID) tti_letter_end(letter, TUTTI_OK);
    }
}
