/* SPDX-License-Identifier: Apache-2.0
 *
 * Ends letters for peers that have left: messages to or from them will never come.
 */
#include "collective/message/message_parts.h"

#include <stdio.h>

bool tti_message_somebody(struct tti_messages *messages)
{
    int size = messages->comm->size;
    for (int i = 0; i < size; i++) {
        int peer = (messages->present + i) % size;
        if (peer == messages->comm->rank || messages->comm->peers->presence(messages->comm, peer) != TTI_PEER_HERE)
            continue;
        messages->present = peer;
        return true;
    }
    return size == 1; /* otherwise only this rank could ever send */
}

bool tti_messages_deserted(const tutti_comm *comm, int peer)
{
    tti_messages_lock(comm);
    bool left = peer != comm->rank && peer != TUTTI_ANY_SOURCE && comm->peers->presence(comm, peer) != TTI_PEER_HERE;
    bool alone = peer == TUTTI_ANY_SOURCE && !tti_message_somebody(comm->messages);
    tti_messages_unlock(comm);
    return left || alone;
}

static tutti_status nothing_will_come(const struct tti_letter *letter)
{
    char site[112], tag[24] = "any tag", from[64] = "any rank, and all others have left";
    tti_site_describe(letter->site, site, sizeof site);
    if (letter->tag != TUTTI_ANY_TAG) snprintf(tag, sizeof tag, "tag %d", letter->tag);
    if (letter->peer != TUTTI_ANY_SOURCE)
        snprintf(from, sizeof from, "rank %d, which has left and sent no such message", letter->peer);
    bool probes = TTI_RECV_OF(letter)->probes;
    return tti_comm_break(letter->comm, probes ? TTI_PROBE : TTI_RECV, TUTTI_ERR_MISMATCH, letter->waiting_for,
                          "rank %d %s with %s%s from %s", letter->comm->rank, probes ? "probes" : "receives", tag, site,
                          from);
}

static tutti_status nobody_takes(const struct tti_letter *letter)
{
    char site[112];
    tti_site_describe(letter->site, site, sizeof site);
    return tti_comm_break(letter->comm, TTI_SEND, TUTTI_ERR_MISMATCH, letter->peer,
                          "rank %d sends %llu bytes with tag %d%s to rank %d, which has left", letter->comm->rank,
                          (unsigned long long)letter->bytes, letter->tag, site, letter->peer);
}

/* Reports a letter that can never end. A rank that is lost has not left: then its loss is reported. */
static tutti_status in_vain(const struct tti_letter *letter)
{
    tutti_status status = tti_comm_health(letter->comm, letter->is_send ? TTI_SEND : TTI_RECV, false);
    if (status != TUTTI_OK) return status;
    return letter->is_send ? nobody_takes(letter) : nothing_will_come(letter);
}

/* Returns a letter without a match for which a thread waits. Others do no harm before that: they may be taken back
 * until then, or be received by a receive of messages that this rank sends to itself. */
static const struct tti_letter *find_asked(const struct tti_link *letters)
{
    TTI_LIST_EACH(link, letters)
    if (TTI_LETTER_ON(link)->asked && TTI_LETTER_ON(link)->state <= TTI_LETTER_ANNOUNCED) return TTI_LETTER_ON(link);
    return NULL;
}

/* Finds letters that a leaving peer has not begun: also small messages for which there is no room. */
static const struct tti_letter *find_asked_of(const struct tti_box *box)
{
    const struct tti_link *lists[] = {&box->posted, &box->queue, &box->sending};
    const struct tti_letter *asked = NULL;
    for (size_t i = 0; asked == NULL && i < sizeof lists / sizeof *lists; i++) asked = find_asked(lists[i]);
    return asked;
}

bool tti_messages_have_answered(const tutti_comm *comm)
{
    bool all = true;
    tti_messages_lock(comm);
    TTI_LIST_EACH(link, &comm->messages->work)
    all = all && TTI_LIST_OF(link, const struct tti_letter, work)->state != TTI_LETTER_ACCEPTING;
    tti_messages_unlock(comm);
    return all;
}

tutti_status tti_message_check_left(const struct tti_messages *messages)
{
    TTI_LIST_EACH(link, &messages->active)
    {
        const struct tti_box *box = TTI_LIST_OF(link, struct tti_box, active);
        const struct tti_link *lists[] = {&box->queue, &box->sending, &box->taking};
        for (size_t i = 0; box->left && i < sizeof lists / sizeof *lists; i++)
            if (!tti_list_is_empty(lists[i])) return in_vain(TTI_LETTER_ON(lists[i]->next));
        const struct tti_letter *asked = box->leaving ? find_asked_of(box) : NULL;
        if (asked != NULL) return in_vain(asked);
    }
    return TUTTI_OK;
}

tutti_status tti_message_check_alone(const struct tti_messages *messages)
{
    const struct tti_letter *asked = find_asked(&messages->any);
    return asked != NULL ? in_vain(asked) : tti_message_check_left(messages);
}
