/* SPDX-License-Identifier: Apache-2.0
 *
 * A transport between the threads of one process, for the tests of messages: frames in order per pair, received in pieces
 * of random sizes, so that everything can happen in the middle of one.
 */
#include "collective/message/message.h"
#include "collective/op/queue.h"
#include "collective/peers/net.h"
#include "collective/peers/posts.h"
#include "messages.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

struct queue {
    struct tti_outgoing *first, *last;
};

struct endpoint {
    struct tti_transport base;
    tutti_comm *comm;
    pthread_mutex_t lock; /* of the queues */
    struct queue inbox[FAULT_RANKS], done;
    struct {
        bool begun;
        char *target;
        void *cookie;
    } now[FAULT_RANKS]; /* the first frame of each inbox */
    struct tti_net *net;
    uint64_t random;
};

static struct endpoint endpoints[FAULT_RANKS];
static _Atomic int finished, emptied;

static void append(struct endpoint *owner, struct queue *queue, struct tti_outgoing *outgoing)
{
    pthread_mutex_lock(&owner->lock);
    outgoing->next = NULL;
    if (queue->first == NULL)
        queue->first = outgoing;
    else
        queue->last->next = outgoing;
    queue->last = outgoing;
    pthread_mutex_unlock(&owner->lock);
}

static struct tti_outgoing *first_of(struct endpoint *owner, struct queue *queue, bool take)
{
    pthread_mutex_lock(&owner->lock);
    struct tti_outgoing *outgoing = queue->first;
    if (take && outgoing != NULL) queue->first = outgoing->next;
    pthread_mutex_unlock(&owner->lock);
    return outgoing;
}

static bool wire_send(struct tti_transport *transport, int peer, struct tti_outgoing *outgoing)
{
    outgoing->sent = 0;
    append(&endpoints[peer], &endpoints[peer].inbox[transport->rank], outgoing);
    tti_comm_wake(endpoints[transport->rank].comm, peer);
    return false;
}

static size_t some_of(struct endpoint *self, uint64_t bytes)
{
    uint64_t random = fault_random(&self->random);
    return random % 4 == 0 ? (size_t)(random / 4 % (bytes + 1)) : (size_t)bytes;
}

/* Takes the first frame of a peer forward; true when it has ended. */
static bool receive(struct endpoint *self, int peer)
{
    struct tti_outgoing *outgoing = first_of(self, &self->inbox[peer], false);
    const struct tti_sink *sink = &self->base.sink;
    if (outgoing == NULL) return false;
    if (!self->now[peer].begun)
        self->now[peer].target = sink->begin(sink->context, peer, &outgoing->head, &self->now[peer].cookie);
    self->now[peer].begun = true;
    size_t length = some_of(self, outgoing->head.bytes - outgoing->sent);
    if (self->now[peer].target != NULL && length > 0)
        memcpy(self->now[peer].target + outgoing->sent, (const char *)outgoing->data + outgoing->sent, length);
    outgoing->sent += length;
    if (outgoing->sent < outgoing->head.bytes) return false;
    self->now[peer].begun = false;
    sink->end(sink->context, peer, &outgoing->head, self->now[peer].cookie);
    first_of(self, &self->inbox[peer], true);
    append(&endpoints[peer], &endpoints[peer].done, outgoing);
    tti_comm_wake(self->comm, peer);
    return true;
}

static bool wire_progress(struct tti_transport *transport, int awaited)
{
    (void)awaited;
    struct endpoint *self = &endpoints[transport->rank];
    struct tti_outgoing *outgoing;
    bool moved = false;
    for (int peer = 0; peer < transport->size; peer++)
        for (int i = 0; i < 4 && receive(self, peer); i++) moved = true;
    while ((outgoing = first_of(self, &self->done, true)) != NULL) outgoing->done(outgoing, TUTTI_OK);
    return moved;
}

/* What comes for a letter that has failed goes nowhere. */
static void wire_drop(struct tti_transport *transport, int peer)
{
    endpoints[transport->rank].now[peer].target = NULL;
}

/* Nobody sleeps on it: who waits looks again. */
static int wire_sleep_begin(struct tti_transport *transport)
{
    (void)transport;
    return -1;
}

static void wire_do_nothing(struct tti_transport *transport)
{
    (void)transport;
}

static void wire_close(struct tti_transport *transport, int64_t timeout_ns)
{
    (void)transport, (void)timeout_ns;
}

static const struct tti_transport_ops wire = {.name = "wire",
                                              .send = wire_send,
                                              .progress = wire_progress,
                                              .drop = wire_drop,
                                              .sleep_begin = wire_sleep_begin,
                                              .sleep_end = wire_do_nothing,
                                              .wake = wire_do_nothing,
                                              .close = wire_close};

/* Who waits for whom proves nothing here: posts show it before messages that are on their way have come. */
static void show_nothing(tutti_comm *comm, const struct tti_wait_record *now, uint64_t stand)
{
    (void)comm, (void)now, (void)stand;
}

static struct tti_peers_ops peers;
static pthread_once_t peers_once = PTHREAD_ONCE_INIT;

static void make_peers(void)
{
    peers = tti_peers_posts;
    peers.show_wait = show_nothing;
}

void message_wire_open(tutti_comm *comm)
{
    pthread_once(&peers_once, make_peers);
    comm->peers = &peers;
    struct endpoint *self = &endpoints[tutti_rank(comm)];
    self->base = (struct tti_transport){.ops = &wire, .rank = tutti_rank(comm), .size = tutti_size(comm)};
    self->comm = comm;
    self->random = (uint64_t)tutti_rank(comm) + 1;
    tutti_error error;
    CHECK(tti_net_create(&self->base, &self->net, &error) == TUTTI_OK);
    CHECK(tti_lanes_create(comm, self->net, 1, &tti_letter_sink, &error) == TUTTI_OK);
    pthread_mutex_init(&self->lock, NULL);
    fault_meet(comm);
}

static bool await(struct endpoint *self, _Atomic int *count)
{
    int64_t until = fault_now_ns() + INT64_C(45000000000);
    atomic_fetch_add(count, 1);
    while (atomic_load(count) < self->base.size) {
        wire_progress(&self->base, TTI_ANYBODY);
        if (fault_now_ns() > until) return false;
        sched_yield();
    }
    return true;
}

static bool is_none(tutti_comm *comm, void *context)
{
    (void)comm, (void)context;
    return false;
}

/* When nobody sends any more, what has not arrived is given back to its sender. */
void message_wire_close(tutti_comm *comm)
{
    struct endpoint *self = &endpoints[tutti_rank(comm)];
    if (!CHECK(await(self, &finished))) return;
    for (int peer = 0; peer < self->base.size; peer++) {
        struct tti_outgoing *outgoing;
        self->base.sink.lost(self->base.sink.context, peer, true, 0, "");
        self->now[peer].begun = false;
        while ((outgoing = first_of(self, &self->inbox[peer], true)) != NULL)
            append(&endpoints[peer], &endpoints[peer].done, outgoing);
    }
    if (!CHECK(await(self, &emptied))) return;
    wire_progress(&self->base, TTI_ANYBODY);
    CHECK_THAT(tti_messages_pending(comm) == 0, "%d are pending", tti_messages_pending(comm));
    tti_service_find(is_none, NULL); /* the service thread does not look at it any more: nothing is in flight */
    tti_lanes_free(comm->lanes);
    tti_net_release(self->net);
    comm->lanes = NULL;
}
