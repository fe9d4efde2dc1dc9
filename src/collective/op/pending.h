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
    struct tti_link on; /* in queue.pending */
    struct tti_batch batch;
    enum tti_kind kind;
    int waiting_for;
    bool asked;                            /* its letters were told that somebody asks for it */
    bool late;                             /* tolerant comms: its deadline has passed, so it must end */
    bool hopeless;                         /* its cancelled messages would have waited for ever */
    bool come;                             /* all its streams have come to it */
    int on_devices;                        /* how many messages are put on streams */
    int count, ended;                      /* `ended`: all messages before this one have ended */
    uint64_t traced;                       /* ticks at its start */
    struct tti_site group_site;            /* for a group: where it ends */
    struct tti_message_request requests[]; /* (count) as given; persistent: then (count) on their way */
};

static inline struct tti_pending *tti_pending_on(struct tti_link *link)
{
    return TTI_LIST_OF(link, struct tti_pending, on);
}

/* Returns where it was called. All messages of a call that is not a group have its site. */
static inline struct tti_site *tti_pending_site(struct tti_pending *pending)
{
    return pending->kind == TTI_GROUP ? &pending->group_site : &pending->requests[0].site;
}

/* Returns true if the op is put on a stream, or some of its messages are. */
static inline bool tti_started_is_on_stream(const struct tti_started *started)
{
    return started->turn != NULL || (started->pending != NULL && started->pending->on_devices > 0);
}

/* Returns a place with these messages, which are not started; NULL: no memory. */
struct tti_started *tti_pending_new(tutti_comm *comm, enum tti_kind kind, const struct tti_message_request *requests,
                                    int count);

/* Puts its messages in device memory on their streams. If that fails the op must not be started. */
tutti_status tti_pending_put(struct tti_pending *pending, tutti_error *error);
/* Returns true while one of its streams has not come: its deadline does not count yet. */
static inline bool tti_pending_awaits_stream(const struct tti_pending *pending)
{
    return pending->on_devices > 0 && !pending->come;
}

/* Starts the call's messages, or only prepares them, and gives a handle. It owns the messages' device state in any
 * case. */
tutti_status tti_queue_pending(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests, int count,
                               tutti_op *handle);

/* Writes the sentence for a message that was longer than its buffer, or taken back. */
void tti_pending_explain(struct tti_pending *pending, tutti_error *error);
/* Describes the first message that failed, and says which call of its group it was. */
int tti_pending_failed(struct tti_pending *pending, char *text, size_t bytes);

/* To be called around a blocking message: while ops are in flight on the comm, its caller takes them forward. The
 * second one returns `status`, with its error in the comm. */
void tti_queue_hold(tutti_comm *comm);
tutti_status tti_queue_let_go(tutti_comm *comm, tutti_status status);

/* For the thread that is busy with the comm: */
bool tti_queue_drive_pending(tutti_comm *comm);
void tti_queue_poll_pending(tutti_comm *comm);
void tti_queue_expire(tutti_comm *comm, int64_t now_ns); /* tolerant comms: ends those whose deadline has passed */
void tti_queue_await_pending(struct tti_started *started, int64_t until_ns);

/* Return the kind and the site of the call, of a message or a collective. */
enum tti_kind tti_started_kind(const struct tti_started *started);
struct tti_site *tti_started_site(struct tti_started *started);

/* Ends messages to and from the own rank that have found no partner: its thread waits, and will post none. */
void tti_pending_end_hopeless(struct tti_started *started);

uint64_t tti_pending_bytes(const struct tti_pending *pending);
/* Takes the messages from the place, and keeps their memory for the next ones. */
void tti_pending_put_by(struct tti_started *started);
/* Posts the messages of an op. Returns true if any is in flight then. */
bool tti_queue_post_pending(struct tti_started *started);

#endif
