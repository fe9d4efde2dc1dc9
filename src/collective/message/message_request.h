/* SPDX-License-Identifier: Apache-2.0
 *
 * A message of a call: what is posted, and where its results go.
 */
#ifndef TTI_COLLECTIVE_MESSAGE_REQUEST_H
#define TTI_COLLECTIVE_MESSAGE_REQUEST_H

#include "collective/message/message.h"

/* One message of a call, and where its results go. */
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

/* To or from the own rank, and nobody else. */
bool tti_letter_is_own(const struct tti_letter *letter);

/* Receives before sends, each in their order: matching depends on no other order, and what comes then finds its place at
 * once. From here to their end they must stay where they are. */
void tti_message_requests_post(struct tti_message_request *requests, int count);

/* What they have of devices is freed; they were not posted, or somebody else has copies of them. */
void tti_message_requests_forget(struct tti_message_request *requests, int count);

/* Fills the outputs of a receive that succeeded. */
void tti_recv_results(const struct tti_recv *recv, size_t *received, tutti_message *message);

/* "send of 400 bytes to rank 1 with tag 7 at x.c:12" */
void tti_letter_describe(const struct tti_letter *letter, char *text, size_t bytes);

/* " with tag 7" of a call for one message; of several, " (send with tag 7)" of the first that has not ended. */
void tti_letter_detail(const struct tti_letter *letter, enum tti_kind kind, char *text, size_t bytes);

/* The sentence for a message of a group that failed. Returns its status. */
tutti_status tti_group_explain(struct tti_message_request *request, tutti_error *error);

#endif
