/* SPDX-License-Identifier: Apache-2.0
 *
 * What the entry points for messages share.
 */
#ifndef TTI_COLLECTIVE_API_MESSAGE_H
#define TTI_COLLECTIVE_API_MESSAGE_H

#include "collective/api.h"
#include "collective/message.h"

/* One message of a call, and where its results go. */
struct tti_parcel {
    bool sends;
    union {
        struct tti_send send;
        struct tti_recv recv;
    };
    size_t *received;
    tutti_message *message;
    struct tti_site site;
};

static inline struct tti_letter *tti_letter_of(struct tti_parcel *parcel)
{
    return parcel->sends ? &parcel->send.letter : &parcel->recv.letter;
}

/* Receives before sends, each in their order: matching depends on no other order, and what comes then finds its place at
 * once. From here to their end they must stay where they are. */
void tti_parcels_post(struct tti_parcel *parcels, int count);

/* Waits until all have ended, or the comm has broken and nobody can touch their buffers any more. Statuses of single
 * letters are the caller's to look at. */
tutti_status tti_letters_wait(tutti_comm *comm, enum tti_kind kind, struct tti_letter *const *letters, int count,
                              int64_t deadline_ms);

/* Fills the outputs of a receive that succeeded. */
void tti_recv_results(const struct tti_recv *recv, size_t *received, tutti_message *message);

/* "send of 400 bytes to rank 1 with tag 7 at x.c:12" */
void tti_letter_describe(const struct tti_letter *letter, char *text, size_t bytes);

/* " with tag 7" of a call for one message; of several, " (send with tag 7)" of the first that has not ended. */
void tti_letter_detail(const struct tti_letter *letter, enum tti_kind kind, char *text, size_t bytes);

/* The sentence for message `number` of a group, from 0, that failed. Returns its status. */
tutti_status tti_group_explain(tutti_comm *comm, struct tti_letter *letter, int number);

/* Puts a copy of a checked message into the comm's group. */
tutti_status tti_group_add(tutti_comm *comm, const struct tti_parcel *parcel);
/* A message of the group was refused: so will be the group. Returns `status`. */
tutti_status tti_group_spoil(tutti_comm *comm, tutti_status status);

#endif
