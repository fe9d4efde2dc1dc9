/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages that were started, for queue.c, handle.c and api_message.c.
 */
#ifndef TTI_COLLECTIVE_PENDING_H
#define TTI_COLLECTIVE_PENDING_H

#include "collective/message/message_parts.h"
#include "collective/message/message_request.h"
#include "collective/op/queue.h"

/* The messages of one op. */
struct tti_pending {
    struct tti_started *started;
    struct tti_link on; /* queue.pending */
    struct tti_batch batch;
    enum tti_kind kind;
    int waiting_for;
    bool asked;                            /* its letters know that somebody asks for it */
    bool late;                             /* tolerant comms: its deadline has passed, and it is to end */
    bool hopeless;                         /* those that were cancelled would have waited for ever */
    bool come;                             /* all streams that it is put on have come to it */
    int on_devices;                        /* messages that are put on streams */
    int count, ended;                      /* all before this one have */
    uint64_t traced;                       /* ticks at its start */
    struct tti_site group_site;            /* of a group: where that ends */
    struct tti_message_request requests[]; /* (count) as they were asked for; persistent: and (count) on their way */
};

static inline struct tti_pending *tti_pending_on(struct tti_link *link)
{
    return TTI_LIST_OF(link, struct tti_pending, on);
}

/* Where it was called. All messages of a call that is no group have its site. */
static inline struct tti_site *tti_pending_site(struct tti_pending *pending)
{
    return pending->kind == TTI_GROUP ? &pending->group_site : &pending->requests[0].site;
}

/* True if it is put on a stream; of messages, some of them. */
static inline bool tti_started_is_on_stream(const struct tti_started *started)
{
    return started->turn != NULL || (started->pending != NULL && started->pending->on_devices > 0);
}

/* A place with these messages, which are not started; NULL: no memory. */
struct tti_started *tti_pending_new(tutti_comm *comm, enum tti_kind kind, const struct tti_message_request *requests,
                                    int count);

/* Puts those of its messages that are on devices on their streams. After a failure it must not be started. */
tutti_status tti_pending_put(struct tti_pending *pending, tutti_error *error);
/* True while a stream that it is put on has not come: its deadline does not count yet. */
static inline bool tti_pending_awaits_stream(const struct tti_pending *pending)
{
    return pending->on_devices > 0 && !pending->come;
}

/* Starts what the call is about, or only prepares it, and gives its handle. What the messages have of devices is taken over in any
 * case. */
tutti_status tti_queue_pending(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests, int count,
                               tutti_op *handle);

/* One of them was longer than its buffer, or taken back: the sentence for it. */
void tti_pending_explain(struct tti_pending *pending, tutti_error *error);
/* Describes the first one that failed, and says which call of its group it was. */
int tti_pending_failed(struct tti_pending *pending, char *text, size_t bytes);

/* Around a blocking message: while ops are in flight on the comm, its caller is the one who takes them forward. The second
 * returns `status`, with its error in the comm. */
void tti_queue_hold(tutti_comm *comm);
tutti_status tti_queue_let_go(tutti_comm *comm, tutti_status status);

/* For whoever is busy with the comm: */
bool tti_queue_drive_pending(tutti_comm *comm);
void tti_queue_poll_pending(tutti_comm *comm);
void tti_queue_expire(tutti_comm *comm,
                      int64_t now_ns); /* tolerant comms: those whose deadline has passed are to end */
void tti_queue_await_pending(struct tti_started *started, int64_t until_ns);

/* What was called, and where: of a message or a collective. */
enum tti_kind tti_started_kind(const struct tti_started *started);
struct tti_site *tti_started_site(struct tti_started *started);

/* Ends messages to and from the own rank that have found no partner: its thread waits, and will post none. */
void tti_pending_end_hopeless(struct tti_started *started);

uint64_t tti_pending_bytes(const struct tti_pending *pending);
/* The place has no messages any more. */
void tti_pending_put_by(struct tti_started *started);
/* Whether any message is in flight then. */
bool tti_queue_post_pending(struct tti_started *started);

#endif
