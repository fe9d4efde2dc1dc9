/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that were started, for queue.c, handle.c and api_message.c.
 */
#ifndef TTI_COLLECTIVE_QUEUE_MESSAGE_H
#define TTI_COLLECTIVE_QUEUE_MESSAGE_H

#include "collective/api_message.h"

struct tti_mail {
    enum tti_kind kind;
    bool sends, receives;
    struct tti_send send_given, send; /* as it was asked for, and on its way */
    struct tti_recv recv_given, recv;
    size_t *received;
    tutti_message *message;
    struct tti_site site;
    int waiting_for;
};

/* Starts what the call is about, or prepares it; the handle goes to comm->starting. */
tutti_status tti_queue_mail(tutti_comm *comm, const struct tti_mail *given);

/* Around a blocking message: while ops are in flight on the comm, its caller is the one who takes them forward. The second
 * returns `status`, with its error in the comm. */
void tti_queue_hold(tutti_comm *comm);
tutti_status tti_queue_let_go(tutti_comm *comm, tutti_status status);

/* For whoever is busy with the comm: */
bool tti_queue_drive_mail(tutti_comm *comm);
void tti_queue_look_at_mail(tutti_comm *comm);
void tti_queue_await_mail(struct tti_started *started, int64_t until_ns);

void tti_queue_post_mail(struct tti_started *started);

#endif
