/* SPDX-License-Identifier: Apache-2.0
 *
 * A message of a call: the letter that is posted, and where its results go.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_REQUEST_H
#define TTI_COLLECTIVE_MESSAGE_REQUEST_H

#include "collective/message/message.h"

struct tti_message_request {
    bool sends;
    union {
        struct tti_send send;
        struct tti_recv recv;
    };
    size_t *received;
    tutti_message *message;
    struct tti_site site;
    int number; /* which call of its group it is, from 1 */
};

static inline struct tti_letter *tti_letter_of(struct tti_message_request *request)
{
    return request->sends ? &request->send.letter : &request->recv.letter;
}

/* Returns true if the message can only be to or from the own rank. */
bool tti_letter_is_own(const struct tti_letter *letter);

/* Posts receives before sends, each in their order: matching depends on no other order, and messages that come then
 * find their place at once. From here to their end they must stay where they are. */
void tti_message_requests_post(struct tti_message_request *requests, int count);

/* Frees the device parts of requests that were not posted, or that were copied. */
void tti_message_requests_forget(struct tti_message_request *requests, int count);

/* Fills the outputs of a receive that succeeded. */
void tti_recv_results(const struct tti_recv *recv, size_t *received, tutti_message *message);

/* Writes "send of 400 bytes to rank 1 with tag 7 at x.c:12". */
void tti_letter_describe(const struct tti_letter *letter, char *text, size_t bytes);

/* Writes " with tag 7" for a call for one message; for several messages " (send with tag 7)" for the first that has not
 * ended. */
void tti_letter_detail(const struct tti_letter *letter, enum tti_kind kind, char *text, size_t bytes);

/* Writes the sentence for a message of a group that failed. Returns its status. */
tutti_status tti_group_explain(struct tti_message_request *request, tutti_error *error);

#endif
