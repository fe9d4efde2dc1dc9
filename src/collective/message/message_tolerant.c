/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of a tolerant comm: a failure between two ranks ends the messages between them, and nothing else.
 *
 * No rank ever touches another's buffer there: all data are copied through channels or frames. So a letter can end at
 * any moment, for its own rank alone, and its buffer is its owner's again at once. What the peer was told before is
 * corrected: the rest of a message that was begun or announced is withdrawn by one more note (WITHDRAW), and data that
 * still come for a receive that has ended are dropped. Until that has happened it is a debt.
 *
 * Invariant: after WITHDRAW nothing more of that message comes, and nothing of another one comes between its notes and
 * it.
 */
#include "base/alloc.h"
#include "base/log.h"
#include "collective/message/message_parts.h"
#include "collective/message/message_request.h"
#include <stdarg.h>
#include <stdio.h>

/* ---- Trouble with a peer ------------------------------------------------------------------------------------------- */

static void fail(struct tti_box *box, tutti_status status, const char *why)
{
    struct tti_trouble *trouble = &box->trouble;
    if (trouble->failed != TUTTI_OK) return;
    trouble->any = true;
    trouble->failed = status;
    trouble->why = why == NULL ? NULL : tti_calloc(1, strlen(why) + 1);
    if (trouble->why != NULL) memcpy(trouble->why, why, strlen(why));
    tti_box_activate(box);
}

void tti_box_fault(struct tti_box *box, enum tti_kind kind, tutti_status status, int peer, const char *format, ...)
{
    tutti_comm *comm = box->messages->comm;
    char text[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    if (!comm->traits.tolerant) {
        box->messages->failure = tti_comm_break_apart(comm, kind, status, peer, "%s", text);
        return;
    }
    tti_log(TUTTI_WARN, "%s; they exchange no more messages on this comm", text);
    fail(box, status, text);
}

void tti_trouble_poll(struct tti_box *box)
{
    fail(box, TUTTI_ERR_PEER_LOST, NULL);
    box->trouble.lost = box->trouble.failed == TUTTI_ERR_PEER_LOST;
}

/* Returns true if the transport still uses the letter's buffer. If the peer is lost, the transport itself ends that
 * soon. */
static bool is_held(struct tti_box *box, struct tti_letter *letter)
{
    if (!tti_letter_is_carried(letter, box)) return false;
    return box->trouble.lost || !tti_letter_take_back(letter, box);
}

static void end_letter(struct tti_box *box, struct tti_letter *letter, tutti_status status)
{
    if (is_held(box, letter)) return;
    if (letter->peer == TUTTI_ANY_SOURCE)
        tti_recv_poll_again(letter); /* another rank may send */
    else
        tti_letter_end(letter, status);
}

static void end_list(struct tti_box *box, struct tti_link *list, tutti_status status)
{
    TTI_LIST_EACH(link, list) end_letter(box, TTI_LETTER_ON(link), status);
}

static void forget_debts(struct tti_box *box);

void tti_trouble_end(struct tti_box *box)
{
    struct tti_link *lists[] = {&box->posted, &box->queue, &box->sending, &box->taking};
    box->given_to = NULL;
    if (box->lane == NULL) tti_given_withdrawn(box);
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) end_list(box, lists[i], box->trouble.failed);
    TTI_LIST_EACH(link, &box->early)
    {
        struct tti_aside *early = TTI_EARLY_ON(link);
        if (tti_early_is_large(early)) tti_early_free(box, early); /* its data will not come */
    }
    forget_debts(box);
}

/* ---- Peers that left ----------------------------------------------------------------------------------------------- */

static void end_asked(struct tti_link *list, tutti_status status)
{
    TTI_LIST_EACH(link, list)
    {
        struct tti_letter *letter = TTI_LETTER_ON(link);
        if (letter->asked && letter->state <= TTI_LETTER_ANNOUNCED) tti_letter_end(letter, status);
    }
}

static bool is_any_lost(const tutti_comm *comm)
{
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && comm->peers->presence(comm, rank) == TTI_PEER_LOST) return true;
    return false;
}

void tti_tolerant_check_left(struct tti_messages *messages, bool alone)
{
    TTI_LIST_EACH(link, &messages->active)
    {
        struct tti_box *box = TTI_LIST_OF(link, struct tti_box, active);
        struct tti_link *begun[] = {&box->queue, &box->sending, &box->taking};
        for (size_t i = 0; box->left && i < sizeof begun / sizeof *begun; i++)
            end_list(box, begun[i], TUTTI_ERR_MISMATCH);
        if (box->left) forget_debts(box);
        if (!box->leaving) continue;
        end_asked(&box->posted, TUTTI_ERR_MISMATCH);
        end_asked(&box->queue, TUTTI_ERR_MISMATCH);
        end_asked(&box->sending, TUTTI_ERR_MISMATCH);
    }
    if (alone) end_asked(&messages->any, is_any_lost(messages->comm) ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_MISMATCH);
}

/* ---- Debts --------------------------------------------------------------------------------------------------------- */

static void owe(struct tti_box *box, struct tti_debt *debt, struct tti_link *list)
{
    debt->box = box;
    tti_list_append(list, &debt->on);
    box->messages->owed++;
    atomic_fetch_add_explicit(&box->messages->comm->queue.count, 1, memory_order_release);
    tti_box_activate(box);
}

void tti_debt_owe(struct tti_box *box, struct tti_debt *debt)
{
    owe(box, debt, &box->trouble.debts);
}

void tti_debt_settle(struct tti_debt *debt)
{
    struct tti_messages *messages = debt->box->messages;
    tti_list_remove(&debt->on);
    debt->box = NULL;
    messages->owed--;
    atomic_fetch_sub_explicit(&messages->comm->queue.count, 1, memory_order_release);
    if (debt->allocated) tti_free(debt);
}

void tti_debt_came(struct tti_box *box, uint32_t number, uint64_t bytes)
{
    TTI_LIST_EACH(link, &box->trouble.debts)
    {
        struct tti_debt *debt = TTI_LIST_OF(link, struct tti_debt, on);
        if (!debt->allocated || debt->number != number) continue; /* the debt of a copy ends when the copy has left */
        debt->left -= bytes < debt->left ? bytes : debt->left;
        if (debt->left == 0) tti_debt_settle(debt);
        return;
    }
}

static void forget_debts(struct tti_box *box)
{
    struct tti_link *lists[] = {&box->trouble.withdrawals, &box->trouble.debts};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++)
        TTI_LIST_EACH(link, lists[i]) tti_debt_settle(TTI_LIST_OF(link, struct tti_debt, on));
}

/* Makes a debt. NULL: there is no memory for it, and the two ranks exchange no more messages. */
static struct tti_debt *new_debt(struct tti_box *box, uint32_t number, uint64_t left)
{
    struct tti_debt *debt = tti_calloc(1, sizeof *debt);
    int rank = box->messages->comm->rank;
    if (debt != NULL)
        *debt = (struct tti_debt){.number = number, .left = left, .allocated = true};
    else
        tti_box_fault(box, TTI_SEND, TUTTI_ERR_MEMORY, rank,
                      "rank %d has no memory to give up a message from or to rank %d", rank, box->peer);
    return debt;
}

bool tti_trouble_say(struct tti_box *box)
{
    struct tti_trouble *trouble = &box->trouble;
    TTI_LIST_EACH(link, &trouble->withdrawals)
    {
        struct tti_debt *debt = TTI_LIST_OF(link, struct tti_debt, on);
        struct tti_note note = {TTI_NOTE_WITHDRAW, 0, (int32_t)debt->number, 0};
        if (!box->route->put(box, &note, NULL, 0)) return false;
        tti_debt_settle(debt);
    }
    trouble->any = trouble->failed != TUTTI_OK;
    return true;
}

static void withdraw(struct tti_box *box, uint32_t number)
{
    struct tti_debt *debt = new_debt(box, number, 0);
    if (debt == NULL) return;
    box->trouble.any = true;
    owe(box, debt, &box->trouble.withdrawals);
    tti_trouble_say(box);
}

/* Records that the rest of a message comes, and is dropped. */
static void discard(struct tti_box *box, uint32_t number, uint64_t left)
{
    struct tti_debt *debt = left == 0 ? NULL : new_debt(box, number, left);
    if (debt != NULL) owe(box, debt, &box->trouble.debts);
}

void tti_trouble_free(struct tti_box *box)
{
    forget_debts(box);
    tti_free(box->trouble.why);
}

void tti_messages_forget(tutti_comm *comm)
{
    tti_messages_lock(comm);
    TTI_TABLE_EACH(place, &comm->messages->boxes) forget_debts(comm->messages->boxes.values[place]);
    tti_messages_unlock(comm);
}

/* ---- Giving up ----------------------------------------------------------------------------------------------------- */

/* Puts back a message that was announced and not answered: it waits for another receive, before those that came after
 * it. */
static void put_back(struct tti_box *box, const struct tti_recv *recv)
{
    const struct tti_letter *letter = &recv->letter;
    struct tti_note note = {TTI_NOTE_LARGE, (uint8_t)recv->came, recv->got, letter->bytes};
    struct tti_aside *early = tti_early_new(box, &note);
    if (early == NULL) return;
    memcpy(early->data, &letter->place, sizeof letter->place);
    early->head.sequence = letter->number;
    tti_list_append(box->early.next, &early->on);
    box->messages->early++;
}

static void give_up_recv(struct tti_box *box, const struct tti_recv *recv)
{
    const struct tti_letter *letter = &recv->letter;
    if (letter->state == TTI_LETTER_ACCEPTING) put_back(box, recv);
    if (letter->state != TTI_LETTER_MOVING) return;
    if (box->given_to == recv) box->trouble.drops_given = true;
    if (box->given_to == recv) box->given_to = NULL;
    discard(box, letter->number, letter->number == 0 ? UINT64_MAX : letter->bytes - letter->done);
}

/* Gives up a send. If it was sent in place, its data have left, or will leave out of a copy. */
static void give_up_send(struct tti_box *box, const struct tti_letter *letter)
{
    if (letter->packet != NULL) tti_packet_owe(box, letter->packet);
    bool begun = letter->state == TTI_LETTER_ANNOUNCED || letter->state == TTI_LETTER_MOVING;
    if (begun && box->trouble.failed == TUTTI_OK && box->peer != letter->comm->rank) withdraw(box, letter->number);
}

bool tti_letter_give_up(struct tti_letter *letter, tutti_status status)
{
    struct tti_box *box = letter->waiting_for < 0 ? NULL : tti_box_at(letter->comm->messages, letter->waiting_for);
    if (letter->status != TUTTI_IN_PROGRESS) return false;
    if (box != NULL && is_held(box, letter)) return false;
    if (box != NULL && box->peer == letter->comm->rank && tti_letter_cancel(letter, true)) return true;
    if (box != NULL && letter->is_send) give_up_send(box, letter);
    if (box != NULL && !letter->is_send) give_up_recv(box, TTI_RECV_OF(letter));
    tti_letter_end(letter, status);
    return true;
}

/* ---- Words --------------------------------------------------------------------------------------------------------- */

static void explain_lost(const tutti_comm *comm, int peer, char *text, size_t bytes)
{
    char who[160] = "lost";
    if (peer < 0) {
        snprintf(text, bytes, "all others have left or are lost");
        return;
    }
    comm->peers->find_lost(comm, peer, false, who, sizeof who);
    snprintf(text, bytes, "rank %d died or ended without leaving (%s); the comm goes on with the others", peer, who);
}

static void explain_late(const tutti_comm *comm, int peer, int64_t deadline_ms, char *text, size_t bytes)
{
    bool stopped = peer >= 0 && comm->lanes == NULL && tti_world_is_stopped(comm->world, tti_member(comm, peer));
    snprintf(text, bytes, "its deadline of %lld ms passed%s; the comm is as good as before", (long long)deadline_ms,
             stopped ? "; the process of that rank is stopped" : "");
}

static void explain_mismatch(const struct tti_letter *letter, int peer, char *text, size_t bytes)
{
    const struct tti_recv *recv = letter->is_send ? NULL : TTI_RECV_OF(letter);
    if (recv != NULL && recv->source != TUTTI_NOBODY)
        snprintf(text, bytes, "rank %d has sent %s, not %s; the message can still be received as that", recv->source,
                 tutti_type_name(recv->came), tutti_type_name(letter->type));
    else if (peer < 0)
        snprintf(text, bytes, "all others have left");
    else
        snprintf(text, bytes, "rank %d has left", peer);
}

void tti_letter_explain(const struct tti_letter *letter, enum tti_kind kind, int64_t deadline_ms, tutti_error *error)
{
    const tutti_comm *comm = letter->comm;
    int peer = letter->waiting_for;
    const struct tti_box *box = peer < 0 ? NULL : tti_box_at(comm->messages, peer);
    char what[200], why[280];
    tti_letter_describe(letter, what, sizeof what);
    if (box != NULL && box->trouble.failed == letter->status && box->trouble.why != NULL)
        snprintf(why, sizeof why, "%s", box->trouble.why);
    else if (letter->status == TUTTI_ERR_PEER_LOST)
        explain_lost(comm, peer, why, sizeof why);
    else if (letter->status == TUTTI_ERR_TIMEOUT)
        explain_late(comm, peer, deadline_ms, why, sizeof why);
    else if (letter->status == TUTTI_ERR_MISMATCH)
        explain_mismatch(letter, peer, why, sizeof why);
    else
        snprintf(why, sizeof why, "%s", tutti_status_text(letter->status));
    tti_comm_describe(comm, error, kind, letter->status, "rank %d: %s: %s", comm->rank, what, why);
    error->peer = peer;
}
