/* SPDX-License-Identifier: Apache-2.0
 *
 * Requests between ranks: frames on the actors' own tolerant comm. A frame is a head and, if they are few, its data;
 * otherwise the data follow as a message of their own, with a tag that the head names. One receive from any rank is
 * posted at all times; its callback handles the frame and starts the receive again. For each rank that was asked
 * something one more receive is posted, for which no message ever comes: it ends with the loss of that rank.
 *
 * Invariants: frames of one rank are handled in the order in which it has sent them: one whose data have not come holds
 * up those of the same rank, and of no other. A rank that shuts down its actors has sent all its answers before it says
 * BYE; a rank that hears BYE ends its requests to that rank.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/actors.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "base/table.h"
#include "collective/comm/epoch.h"
#include "collective/op/callback.h"
#include <string.h>

enum { FRAME_BYTES = 4096, CLOSE_MS = 1000 };
enum { TAG_FRAME, TAG_NEVER, TAG_DATA, TAG_DATA_COUNT = 1 << 30 };
enum frame_kind { FRAME_ASK = 1, FRAME_TELL, FRAME_WATCH, FRAME_ANSWER, FRAME_BYE };

struct frame {
    uint32_t kind;
    int32_t data_tag; /* 0: the data are in the frame */
    uint64_t number;  /* the number of the request on the rank that asked */
    uint64_t bytes;   /* bytes of data; for an error, of its sentence */
    int32_t status;   /* the status of an answer */
    int32_t peer;     /* the rank that its error is about */
    char name[TUTTI_ACTOR_NAME_BYTES];
};
enum { INLINE_BYTES = FRAME_BYTES - sizeof(struct frame) };

/* What this rank knows of another one. Under the actors' lock. */
struct peer {
    int rank;
    bool watched;         /* a receive is posted that ends when the rank is lost */
    bool gone;            /* the rank answers no more */
    tutti_error why;      /* the error that requests to it get then */
    struct tti_link held; /* its frames from the first one on whose data have not come */
    bool dealing;         /* a thread handles them */
};

struct tti_remote {
    tutti_actors *actors;
    tutti_comm *comm;
    _Atomic bool retired;     /* the comm is of an earlier epoch */
    _Atomic uint32_t losing;  /* threads that report a loss */
    _Atomic uint32_t calls;   /* a lock: calls on the comm are made one at a time */
    _Atomic uint32_t sending; /* messages under way */
    struct tti_table peers;
    bool closing; /* nothing is received any more; under `calls` */
    int32_t data_tag;
    bool ended; /* the receive was given back; under `calls` */
    tutti_op receive;
    tutti_message came;
    char nothing;
    alignas(16) unsigned char frame[FRAME_BYTES];
};

/* A frame that is being sent. */
struct outgoing {
    struct tti_remote *remote;
    int peer;
    _Atomic uint32_t parts;
    struct frame head; /* the data follow right behind the head */
    unsigned char data[];
};

/* A frame that waits for its data, or for earlier frames. */
struct incoming {
    struct tti_link on;
    struct tti_remote *remote;
    struct peer *peer;
    bool ready;
    bool failed; /* its data will not come */
    struct frame head;
    alignas(16) unsigned char data[];
};

/* ---- Peers ----------------------------------------------------------------------------------------------------- */

/* Returns what is known of a rank; NULL: no memory. The lock is held. */
static struct peer *peer_at(struct tti_remote *remote, int rank)
{
    struct peer *peer = tti_table_get(&remote->peers, rank);
    if (peer != NULL) return peer;
    peer = tti_calloc(1, sizeof *peer);
    if (peer == NULL) return NULL;
    peer->rank = rank;
    tti_list_init(&peer->held);
    if (tti_table_set(&remote->peers, rank, peer)) return peer;
    tti_free(peer);
    return NULL;
}

/* Explains that this rank is in a later epoch: this is the reason, whatever else is seen of other ranks in it. */
static void describe_epoch(const struct tti_remote *remote, int rank, tutti_error *why)
{
    tutti_error error;
    tti_epoch_describe(remote->comm, TTI_ACTOR_ASK, &error);
    tti_actors_describe(remote->actors, why, TTI_ACTOR_ASK, TUTTI_ERR_EPOCH, rank, "rank %d cannot be reached: %.300s",
                        rank, error.text);
}

bool tti_remote_is_there(tutti_actors *actors, int rank, tutti_error *error)
{
    struct peer *peer = peer_at(actors->remote, rank);
    if (peer == NULL) {
        tti_actors_describe(actors, error, TTI_ACTOR_ASK, TUTTI_ERR_MEMORY, rank, "no memory to ask rank %d", rank);
        return false;
    }
    if (peer->gone && tti_epoch_is_old(actors->remote->comm))
        describe_epoch(actors->remote, rank, error);
    else if (peer->gone)
        *error = peer->why;
    return !peer->gone;
}

/* Notes that the rank answers nothing any more. */
static void lose_rank(struct tti_remote *remote, int rank, const tutti_error *why)
{
    tutti_actors *actors = remote->actors;
    tti_actors_lock(actors);
    struct peer *peer = peer_at(remote, rank);
    if (peer != NULL && !peer->gone) {
        peer->gone = true;
        peer->why = *why;
        peer->why.rank = actors->comm->rank;
        peer->why.peer = rank;
    }
    tti_actors_unlock(actors);
    tti_requests_end_pending(actors, rank, why);
}

/* Reports a loss, but not for a comm of an earlier epoch: pending requests use another comm by then. */
static void lose(struct tti_remote *remote, int rank, const tutti_error *why)
{
    atomic_fetch_add_explicit(&remote->losing, 1, memory_order_seq_cst);
    if (!atomic_load_explicit(&remote->retired, memory_order_seq_cst)) lose_rank(remote, rank, why);
    atomic_fetch_sub_explicit(&remote->losing, 1, memory_order_release);
}

/* Turns a comm's error about a message into one about an actor. */
static void describe_loss(const struct tti_remote *remote, int rank, tutti_status status, const tutti_error *error,
                          tutti_error *why)
{
    const tutti_actors *actors = remote->actors;
    if (tti_epoch_is_old(remote->comm))
        describe_epoch(remote, rank, why);
    else if (status == TUTTI_ERR_MISMATCH)
        tti_actors_describe(actors, why, TTI_ACTOR_ASK, TUTTI_ERR_ACTOR, rank, "rank %d has shut down its actors",
                            rank);
    else if (status == TUTTI_ERR_PEER_LOST)
        tti_actors_describe(actors, why, TTI_ACTOR_ASK, status, rank, "rank %d is lost, and answers no more: %.300s",
                            rank, error->text);
    else
        tti_actors_describe(actors, why, TTI_ACTOR_ASK, status, rank, "rank %d cannot be reached: %.300s", rank,
                            error->text);
}

struct sentinel {
    struct tti_remote *remote;
    int rank;
};

static void was_lost(void *context, tutti_status status, const tutti_error *error)
{
    struct sentinel *sentinel = context;
    struct tti_remote *remote = sentinel->remote;
    tutti_error why;
    if (status < 0 && status != TUTTI_ERR_CANCELLED) {
        describe_loss(remote, sentinel->rank, status, error, &why);
        lose(remote, sentinel->rank, &why);
    }
    tti_free(sentinel);
}

static tutti_status watch(struct tti_remote *remote, int rank)
{
    tutti_actors *actors = remote->actors;
    tti_actors_lock(actors);
    struct peer *peer = peer_at(remote, rank);
    bool begins = peer != NULL && !peer->watched;
    if (begins) peer->watched = true;
    tti_actors_unlock(actors);
    if (!begins) return TUTTI_OK;
    struct sentinel *sentinel = tti_calloc(1, sizeof *sentinel);
    if (sentinel == NULL) return TUTTI_ERR_MEMORY;
    *sentinel = (struct sentinel){remote, rank};
    tutti_op op;
    tti_lock(&remote->calls);
    tutti_status status = tutti_recv_start(remote->comm, &remote->nothing, 1, TUTTI_U8, rank, TAG_NEVER, NULL, &op);
    tti_unlock(&remote->calls);
    if (status == TUTTI_OK) status = tutti_when_ended(op, was_lost, sentinel);
    if (status != TUTTI_OK) {
        tti_free(sentinel);
        return status;
    }
    return tutti_drop(op);
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static bool is_request(const struct frame *head)
{
    return head->kind >= FRAME_ASK && head->kind <= FRAME_WATCH;
}

/* Returns the request with this number, held; NULL: there is none any more. */
static struct tti_request *find_pending(tutti_actors *actors, uint64_t number, int peer)
{
    tti_actors_lock(actors);
    struct tti_request *request = tti_number_find(actors, number);
    bool there = request != NULL && request->pending == number && request->peer == peer;
    if (there) tti_request_hold(request);
    tti_actors_unlock(actors);
    return there ? request : NULL;
}

static void end_pending(tutti_actors *actors, uint64_t number, int peer, const tutti_error *error, const void *data,
                        size_t bytes)
{
    struct tti_request *request = find_pending(actors, number, peer);
    if (request == NULL) return; /* its deadline has passed, or it was cancelled */
    tti_request_end(request, error, data, bytes);
    tti_request_release(request);
}

static void part_ended(struct outgoing *out)
{
    struct tti_remote *remote = out->remote;
    if (atomic_fetch_sub_explicit(&out->parts, 1, memory_order_acq_rel) == 1) tti_free(out);
    atomic_fetch_sub_explicit(&remote->sending, 1, memory_order_release);
}

static void was_sent(void *context, tutti_status status, const tutti_error *error)
{
    struct outgoing *out = context;
    tutti_error why;
    if (status < 0 && is_request(&out->head)) {
        describe_loss(out->remote, out->peer, status, error, &why);
        end_pending(out->remote->actors, out->head.number, out->peer, &why, NULL, 0);
    }
    part_ended(out);
}

/* Starts the frame's messages. `calls` is held. */
static tutti_status start_parts(struct outgoing *out, tutti_op ops[2])
{
    tutti_comm *comm = out->remote->comm;
    bool apart = out->head.data_tag != 0;
    size_t bytes = sizeof out->head + (apart ? 0 : out->head.bytes);
    ops[1].id = 0;
    TTI_TRY(tutti_send_start(comm, &out->head, bytes, TUTTI_U8, out->peer, TAG_FRAME, &ops[0]));
    if (!apart) return TUTTI_OK;
    return tutti_send_start(comm, out->data, out->head.bytes, TUTTI_U8, out->peer, out->head.data_tag, &ops[1]);
}

static tutti_status send(struct tti_remote *remote, int peer, const struct frame *head, const void *data)
{
    struct outgoing *out = tti_malloc(1, sizeof *out + head->bytes);
    if (out == NULL) return TUTTI_ERR_MEMORY;
    *out = (struct outgoing){.remote = remote, .peer = peer, .head = *head};
    if (head->bytes > 0) memcpy(out->data, data, head->bytes);
    tutti_op ops[2];
    tti_lock(&remote->calls);
    if (head->bytes > INLINE_BYTES) out->head.data_tag = TAG_DATA + remote->data_tag++ % TAG_DATA_COUNT;
    if (remote->data_tag == TAG_DATA_COUNT) remote->data_tag = 0;
    uint32_t parts = out->head.data_tag != 0 ? 2 : 1;
    atomic_store_explicit(&out->parts, parts, memory_order_relaxed);
    atomic_fetch_add_explicit(&remote->sending, parts, memory_order_relaxed);
    tutti_status status = start_parts(out, ops);
    tti_unlock(&remote->calls);
    if (status !=
        /* the first has not begun; or there is no memory for the second, and the frame that was sent has no data */
        TUTTI_OK) {
        while (parts-- > 0) part_ended(out);
        return status;
    }
    for (int i = 0; i < 2; i++) {
        if (ops[i].id == 0) continue;
        tutti_when_ended(ops[i], was_sent, out);
        tutti_drop(ops[i]);
    }
    return TUTTI_OK;
}

void tti_remote_ask(struct tti_request *request, enum tti_kind kind)
{
    struct tti_remote *remote = request->actors->remote;
    struct frame head = {
        .kind = FRAME_ASK + (uint32_t)(kind - TTI_ACTOR_ASK), .number = request->pending, .bytes = request->seen.bytes};
    tutti_error error;
    memcpy(head.name, request->name, sizeof head.name);
    tutti_status status = watch(remote, request->peer);
    if (status == TUTTI_OK) status = send(remote, request->peer, &head, request->data);
    if (status == TUTTI_OK) return;
    tti_actors_describe(request->actors, &error, kind, status, request->peer,
                        "the request to actor '%s' of rank %d could not be sent: %s", request->name, request->peer,
                        tutti_status_text(status));
    tti_request_end(request, &error, NULL, 0);
}

void tti_remote_answer(struct tti_request *request, const tutti_error *error, const void *data, size_t bytes)
{
    struct frame head = {.kind = FRAME_ANSWER, .number = request->source_number, .bytes = bytes, .peer = -1};
    if (error != NULL) {
        head.status = error->status;
        head.peer = error->peer;
        data = error->text;
        head.bytes = strlen(error->text);
    }
    /* the rank that asked has been told */
    if (atomic_load_explicit(&request->remote->retired, memory_order_acquire)) return;
    tutti_status status = send(request->remote, request->source, &head, data);
    if (status != TUTTI_OK && status != TUTTI_ERR_PEER_LOST)
        tti_log(TUTTI_WARN, "the answer of actor '%s' of rank %d to rank %d could not be sent: %s", request->name,
                request->actors->comm->rank, request->source, tutti_status_text(status));
}

/* ---- Dealing with frames --------------------------------------------------------------------------------------- */

static void take_answer(struct tti_remote *remote, int source, const struct frame *head, const void *data)
{
    tutti_actors *actors = remote->actors;
    tutti_error error;
    if (head->status == TUTTI_OK) {
        end_pending(actors, head->number, source, NULL, data, head->bytes);
        return;
    }
    tutti_status status = head->status < 0 ? (tutti_status)head->status : TUTTI_ERR_ACTOR;
    tti_actors_describe(actors, &error, TTI_ACTOR_ASK, status, head->peer, "%.*s", (int)head->bytes,
                        (const char *)data);
    end_pending(actors, head->number, source, &error, NULL, 0);
}

static void take_request(struct tti_remote *remote, int source, const struct frame *head, const void *data)
{
    static const tutti_request_kind kinds[] = {TUTTI_ASKED, TUTTI_TOLD, TUTTI_ENDED};
    tutti_actors *actors = remote->actors;
    struct tti_request *request = tti_request_new(actors, kinds[head->kind - FRAME_ASK], head->name, data, head->bytes);
    tutti_error error;
    if (request == NULL) { /* the deadline of the rank that asked ends it */
        tti_log(TUTTI_ERROR, "rank %d has no memory for a request of rank %d", actors->comm->rank, source);
        return;
    }
    request->source = source;
    request->remote = remote;
    request->source_number = head->number;
    request->seen.rank = source;
    tti_request_hold(request);
    tti_actors_lock(actors);
    tutti_status status = tti_request_deliver(request, TTI_ACTOR_ASK + (enum tti_kind)(head->kind - FRAME_ASK), &error);
    tti_actors_unlock(actors);
    if (status != TUTTI_OK) {
        tti_request_end(request, &error, NULL, 0);
        tti_request_release(request);
    } else if (head->kind == FRAME_TELL) {
        tti_request_end(request, NULL, NULL, 0);
    }
    tti_request_release(request);
}

static void take(struct tti_remote *remote, int source, const struct frame *head, const void *data)
{
    tutti_error why;
    if (is_request(head)) {
        take_request(remote, source, head, data);
    } else if (head->kind == FRAME_ANSWER) {
        take_answer(remote, source, head, data);
    } else {
        tti_actors_describe(remote->actors, &why, TTI_ACTOR_ASK, TUTTI_ERR_ACTOR, source,
                            "rank %d has shut down its actors", source);
        lose(remote, source, &why);
    }
}

/* Takes the first held frame if its data have come. Otherwise this thread stops handling them: another one does, or a
 * later one. */
static struct incoming *take_held(tutti_actors *actors, struct peer *peer)
{
    struct incoming *first = NULL;
    tti_actors_lock(actors);
    if (!tti_list_is_empty(&peer->held)) first = TTI_LIST_OF(peer->held.next, struct incoming, on);
    if (first != NULL && !first->ready) first = NULL;
    if (first != NULL) tti_list_remove(&first->on);
    if (first == NULL) peer->dealing = false;
    tti_actors_unlock(actors);
    return first;
}

static void deal(struct tti_remote *remote, struct peer *peer)
{
    struct incoming *in;
    tti_actors_lock(remote->actors);
    bool other = peer->dealing;
    peer->dealing = true;
    tti_actors_unlock(remote->actors);
    if (other) return;
    while ((in = take_held(remote->actors, peer)) != NULL) {
        if (!in->failed) take(remote, peer->rank, &in->head, in->data);
        tti_free(in);
    }
}

static void data_came(void *context, tutti_status status, const tutti_error *error)
{
    struct incoming *in = context;
    struct tti_remote *remote = in->remote;
    struct peer *peer = in->peer;
    (void)error; /* the sender is lost, or shuts down: nobody needs to be told */
    tti_actors_lock(remote->actors);
    in->failed = status != TUTTI_OK;
    in->ready = true;
    tti_actors_unlock(remote->actors);
    deal(remote, peer);
}

static void receive_data(struct incoming *in)
{
    tutti_comm *comm = in->remote->comm;
    tutti_op op;
    tutti_error error = {0};
    tti_lock(&in->remote->calls);
    tutti_status status = tutti_recv_start(comm, in->data, in->head.bytes, TUTTI_U8, in->peer->rank, in->head.data_tag,
                                           NULL, &op);
    tti_unlock(&in->remote->calls);
    if (status != TUTTI_OK) {
        data_came(in, status, &error);
        return;
    }
    tutti_when_ended(op, data_came, in);
    tutti_drop(op);
}

/* Holds a frame behind other held frames of the same rank. */
static void hold(struct tti_remote *remote, struct peer *peer, const struct frame *head, const void *data)
{
    struct incoming *in = tti_malloc(1, sizeof *in + head->bytes);
    if (in == NULL) {
        tti_log(TUTTI_ERROR, "rank %d has no memory for %llu bytes from rank %d", remote->actors->comm->rank,
                (unsigned long long)head->bytes, peer->rank);
        return;
    }
    bool apart = head->data_tag != 0;
    *in = (struct incoming){.remote = remote, .peer = peer, .ready = !apart, .head = *head};
    if (!apart && head->bytes > 0) memcpy(in->data, data, head->bytes);
    tti_actors_lock(remote->actors);
    tti_list_append(&peer->held, &in->on);
    tti_actors_unlock(remote->actors);
    if (apart)
        receive_data(in);
    else
        deal(remote, peer);
}

static bool makes_sense(const tutti_actors *actors, const struct frame *head, size_t bytes)
{
    if (bytes < sizeof *head || head->kind < FRAME_ASK || head->kind > FRAME_BYE) return false;
    if (head->bytes > actors->options.payload_bytes && head->bytes > sizeof(((tutti_error *)0)->text)) return false;
    if (head->data_tag != 0 && (head->data_tag < TAG_DATA || head->bytes <= INLINE_BYTES)) return false;
    if (bytes != sizeof *head + (head->data_tag != 0 ? 0 : head->bytes)) return false;
    return memchr(head->name, '\0', sizeof head->name) != NULL;
}

static void take_frame(struct tti_remote *remote)
{
    tutti_actors *actors = remote->actors;
    struct frame head;
    int source = remote->came.source;
    if (remote->came.count >= sizeof head) memcpy(&head, remote->frame, sizeof head);
    if (!makes_sense(actors, &head, remote->came.count)) {
        tti_log(TUTTI_ERROR, "rank %d has got %zu bytes from rank %d that are no request to an actor; they are dropped",
                actors->comm->rank, remote->came.count, source);
        return;
    }
    tti_actors_lock(actors);
    struct peer *peer = peer_at(remote, source);
    bool at_once = peer == NULL || (head.data_tag == 0 && tti_list_is_empty(&peer->held) && !peer->dealing);
    tti_actors_unlock(actors);
    if (at_once)
        take(remote, source, &head, remote->frame + sizeof head);
    else
        hold(remote, peer, &head, remote->frame + sizeof head);
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

static void stop_receiving(struct tti_remote *remote, const tutti_error *error)
{
    tutti_error why;
    tti_actors_describe(remote->actors, &why, TTI_ACTOR_ASK, error->status, error->peer,
                        "no answers come any more: %.360s", error->text);
    for (int rank = 0; rank < remote->comm->size; rank++)
        if (rank != remote->comm->rank) lose(remote, rank, &why);
}

/* The callback of the receive. It never runs twice at a time: it is due once for each start of the receive, and starts
 * it again. */
static void came(void *context, tutti_status status, const tutti_error *error)
{
    struct tti_remote *remote = context;
    tutti_error why = {.status = TUTTI_OK, .peer = -1};
    bool goes_on = status == TUTTI_OK || status == TUTTI_ERR_TRUNCATED;
    if (goes_on) take_frame(remote);
    tti_lock(&remote->calls);
    bool closing = remote->closing;
    /* ends this round of the receive; in an earlier epoch it ends the receive itself */
    if (!closing) remote->ended = tutti_test(remote->receive) == TUTTI_ERR_EPOCH;
    if (!closing && goes_on) why.status = tutti_start(remote->receive);
    tti_unlock(&remote->calls);
    if (closing || (goes_on && why.status == TUTTI_OK)) return;
    snprintf(why.text, sizeof why.text, "%s", tutti_status_text(why.status));
    stop_receiving(remote, goes_on ? &why : error);
}

tutti_status tti_remote_open(tutti_actors *actors, tutti_comm *comm, struct tti_remote **made, tutti_error *error)
{
    *made = NULL;
    if (comm->size == 1) return TUTTI_OK;
    struct tti_remote *remote = tti_calloc(1, sizeof *remote);
    if (remote == NULL)
        return tti_actors_describe(actors, error, TTI_ACTORS, TUTTI_ERR_MEMORY, -1,
                                   "no memory for requests of other ranks");
    remote->actors = actors;
    remote->comm = comm;
    remote->peers = TTI_TABLE(comm->size);
    *made = remote;
    tutti_status status = tutti_recv_start(tutti_prepared(comm), remote->frame, FRAME_BYTES, TUTTI_U8, TUTTI_ANY_SOURCE,
                                           TAG_FRAME, &remote->came, &remote->receive);
    if (status == TUTTI_OK) status = tutti_when_ended(remote->receive, came, remote);
    tti_lock(&remote->calls); /* held, since a frame may come before this call has ended */
    if (status == TUTTI_OK) status = tutti_start(remote->receive);
    if (status != TUTTI_OK) *error = comm->errors.call;
    tti_unlock(&remote->calls);
    if (status != TUTTI_OK) error->status = status;
    return status;
}

static void say_bye(struct tti_remote *remote)
{
    const tutti_comm *comm = remote->comm;
    struct frame head = {.kind = FRAME_BYE};
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank) send(remote, rank, &head, NULL);
}

/* Waits for a moment until the last messages have left, before the comm is freed. */
static void await_sent(struct tti_remote *remote)
{
    tutti_comm *comm = remote->comm;
    int64_t until = tti_now_ns() + CLOSE_MS * TTI_MS;
    while (atomic_load_explicit(&remote->sending, memory_order_acquire) != 0 && tti_now_ns() < until) {
        if (!tti_queue_help(comm, true)) tti_wait_turn();
        tti_callbacks_call(comm);
    }
}

static void stop(struct tti_remote *remote)
{
    await_sent(remote);
    tti_lock(&remote->calls);
    remote->closing = true;
    if (!remote->ended) tutti_drop(remote->receive);
    tti_unlock(&remote->calls);
}

void tti_remote_close(struct tti_remote *remote)
{
    if (remote == NULL || atomic_load_explicit(&remote->retired, memory_order_relaxed)) return;
    say_bye(remote);
    stop(remote);
}

void tti_remote_retire(struct tti_remote *remote, const tutti_error *why)
{
    if (remote == NULL || atomic_load_explicit(&remote->retired, memory_order_relaxed)) return;
    for (int rank = 0; rank < remote->comm->size; rank++)
        if (rank != remote->comm->rank) lose_rank(remote, rank, why);
    atomic_store_explicit(&remote->retired, true, memory_order_seq_cst);
    while (atomic_load_explicit(&remote->losing, memory_order_acquire) != 0) tti_wait_turn();
    stop(remote);
}

/* Frees the rest after the comm was freed: no callback runs any more. */
void tti_remote_free(struct tti_remote *remote)
{
    if (remote == NULL) return;
    TTI_TABLE_EACH(place, &remote->peers)
    {
        struct peer *peer = remote->peers.values[place];
        TTI_LIST_EACH(link, &peer->held) tti_free(TTI_LIST_OF(link, struct incoming, on));
        tti_free(peer);
    }
    tti_table_free(&remote->peers);
    tti_free(remote);
}
