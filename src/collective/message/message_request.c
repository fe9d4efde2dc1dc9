/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "collective/message/message_request.h"

#include "collective/comm/comm.h"
#include "collective/message/message_device.h"
#include <stdio.h>

bool tti_letter_is_own(const struct tti_letter *letter)
{
    return letter->peer == letter->comm->rank || (letter->peer == TUTTI_ANY_SOURCE && letter->comm->size == 1);
}

void tti_message_requests_post(struct tti_message_request *requests, int count)
{
    for (int i = 0; i < count; i++) {
        if (requests[i].sends) continue;
        requests[i].recv.letter.site = &requests[i].site;
        tti_recv_post(&requests[i].recv);
    }
    for (int i = 0; i < count; i++) {
        if (!requests[i].sends) continue;
        requests[i].send.letter.site = &requests[i].site;
        tti_send_post(&requests[i].send);
    }
}

void tti_message_requests_forget(struct tti_message_request *requests, int count)
{
    for (int i = 0; i < count; i++) {
        struct tti_letter *letter = tti_letter_of(&requests[i]);
        tti_device_letter_free(letter->device);
        letter->device = NULL;
    }
}

static const char *what_it_is(const struct tti_letter *letter)
{
    if (letter->is_send) return "send";
    return TTI_RECV_OF(letter)->probes ? "probe" : "recv";
}

static const char *tag_text(const struct tti_letter *letter, char text[24])
{
    if (letter->tag == TUTTI_ANY_TAG) return "any tag";
    snprintf(text, 24, "tag %d", letter->tag);
    return text;
}

void tti_letter_describe(const struct tti_letter *letter, char *text, size_t bytes)
{
    char site[112], peer[24] = "any rank", tag[24];
    tti_site_describe(letter->site, site, sizeof site);
    if (letter->peer != TUTTI_ANY_SOURCE) snprintf(peer, sizeof peer, "rank %d", letter->peer);
    snprintf(text, bytes, "%s %s %s with %s%s", what_it_is(letter), letter->is_send ? "to" : "from", peer,
             tag_text(letter, tag), site);
}

void tti_letter_detail(const struct tti_letter *letter, enum tti_kind kind, char *text, size_t bytes)
{
    char tag[24];
    if (kind == TTI_SENDRECV || kind == TTI_GROUP)
        snprintf(text, bytes, " (%s with %s)", what_it_is(letter), tag_text(letter, tag));
    else
        snprintf(text, bytes, " with %s", tag_text(letter, tag));
}

void tti_recv_results(const struct tti_recv *recv, size_t *received, tutti_message *message)
{
    size_t count = recv->letter.bytes / tutti_type_bytes(recv->came);
    if (received != NULL) *received = count;
    if (message != NULL)
        *message = (tutti_message){.source = recv->source, .tag = recv->got, .type = recv->came, .count = count};
}

tutti_status tti_group_explain(struct tti_message_request *request, tutti_error *error)
{
    struct tti_letter *letter = tti_letter_of(request);
    char what[200], prefix[256];
    tti_letter_describe(letter, what, sizeof what);
    snprintf(prefix, sizeof prefix, "call %d of the group, %s: ", request->number, what);
    if (letter->status == TUTTI_ERR_TRUNCATED) return tti_recv_explain(TTI_RECV_OF(letter), TTI_GROUP, prefix, error);
    if (letter->status == TUTTI_ERR_CANCELLED)
        return tti_comm_describe(letter->comm, error, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                                 "%sthe group has no counterpart for it, and would have waited for ever", prefix);
    return tti_comm_describe(letter->comm, error, TTI_GROUP, letter->status, "%s%s", prefix,
                             tutti_status_text(letter->status));
}
