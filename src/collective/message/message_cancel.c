/* SPDX-License-Identifier: Apache-2.0
 *
 * Takes back messages: those of which this rank has said nothing yet, or which it can still withdraw, and those that a
 * peer withdraws.
 */
#include "collective/message/message_parts.h"

/* Takes back a message that was announced to the own rank, unless it was answered. */
static bool take_back(struct tti_letter *letter)
{
    if (letter->state != TTI_LETTER_ANNOUNCED || letter->peer != letter->comm->rank) return false;
    struct tti_box *box = tti_box_at(letter->comm->messages, letter->peer);
    TTI_LIST_EACH(link, &box->early)
    {
        struct tti_aside *early = TTI_EARLY_ON(link);
        if (!tti_early_is_large(early) || early->head.sequence != letter->number) continue;
        tti_early_free(box, early);
        return true;
    }
    return false;
}

static bool withdraw(struct tti_letter *letter)
{
    if (letter->state != TTI_LETTER_ANNOUNCED) return false;
    struct tti_box *box = tti_box_at(letter->comm->messages, letter->peer);
    if (box->route->withdraw == NULL || !box->route->withdraw(box, letter->number)) return false;
    box->withdrew = true;
    return true;
}

bool tti_letter_cancel(struct tti_letter *letter, bool gently)
{
    if (letter->status != TUTTI_IN_PROGRESS) return false;
    if (letter->comm->traits.tolerant && !gently) return tti_letter_give_up(letter, TUTTI_ERR_CANCELLED);
    if (letter->state != TTI_LETTER_POSTED && !take_back(letter) && (gently || !withdraw(letter))) return false;
    tti_letter_end(letter, TUTTI_ERR_CANCELLED);
    return true;
}

void tti_recv_poll_again(struct tti_letter *letter)
{
    tti_list_remove(&letter->work);
    tti_list_remove(&letter->on);
    letter->state = TTI_LETTER_POSTED;
    letter->done = 0;
    TTI_RECV_OF(letter)->source = TUTTI_NOBODY;
    letter->waiting_for = letter->peer == TUTTI_ANY_SOURCE ? -1 : letter->peer;
    tti_recv_poll(TTI_RECV_OF(letter));
}

void tti_message_withdrawn(struct tti_box *box, uint32_t number)
{
    box->messages->quiet = 0;
    if (box->messages->stopped || box->messages->failure != TUTTI_OK) return;
    if (number == 0) {
        tti_given_withdrawn(box);
        return;
    }
    tti_debt_came(box, number, UINT64_MAX);
    TTI_LIST_EACH(link, &box->early)
    {
        struct tti_aside *early = TTI_EARLY_ON(link);
        if (tti_early_is_large(early) && early->head.sequence == number) tti_early_free(box, early);
    }
    TTI_LIST_EACH(link, &box->taking)
    if (TTI_LETTER_ON(link)->number == number) {
        tti_recv_poll_again(TTI_LETTER_ON(link));
        return;
    }
}
