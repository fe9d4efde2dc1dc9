/* SPDX-License-Identifier: Apache-2.0
 *
 * Implements send, recv, sendrecv and probe: checks arguments, posts, waits. Groups are in api_group.c.
 */
#define TUTTI_NO_CALL_SITES
#include "collective/api/api_message.h"
#include "collective/message/message_parts.h"

#include "base/clock.h"
#include "base/status.h"
#include "collective/comm/trace.h"
#include "collective/op/callback.h"
#include "collective/op/handle.h"
#include "collective/op/pending.h"
#include "device/stream.h"

/* Begins a call. A call that waits is refused in a callback. */
static tutti_status begin(tutti_comm *comm, enum tti_kind kind, const tutti_op *handle)
{
    TTI_TRY(tti_api_begin(comm, kind));
    bool waits = comm->caller.group == NULL && handle == NULL;
    return waits && tti_is_in_callback() ? tti_callback_refuse(comm, kind) : TUTTI_OK;
}

/* ---- Checks ---------------------------------------------------------------------------------------------------- */

static tutti_status check_tag(tutti_comm *comm, enum tti_kind kind, int tag, bool any)
{
    if (tag >= 0 || (any && tag == TUTTI_ANY_TAG)) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT, "%s: tag %d is negative; tags are 0 or larger%s",
                           tti_kind_name(kind), tag, any ? ", or TUTTI_ANY_TAG" : "");
}

static tutti_status check_buffer(tutti_comm *comm, enum tti_kind kind, struct tti_buffer *buffer, size_t count,
                                 tutti_type type)
{
    TTI_TRY(tti_api_check_type(comm, kind, type));
    TTI_TRY(tti_api_bytes(comm, kind, count, tutti_type_bytes(type), 1, &buffer->bytes));
    return tti_api_check_buffer(comm, kind, buffer);
}

static tutti_status check_peer(tutti_comm *comm, enum tti_kind kind, const char *what, int peer)
{
    if (peer == TUTTI_NOBODY) return TUTTI_OK;
    return tti_api_check_rank(comm, kind, kind == TTI_SENDRECV ? what : "peer", peer);
}

static tutti_status check_send(tutti_comm *comm, enum tti_kind kind, struct tti_buffer *buffer, size_t count,
                               tutti_type type, int peer, int tag)
{
    TTI_TRY(check_buffer(comm, kind, buffer, count, type));
    TTI_TRY(check_peer(comm, kind, "peer `to`", peer));
    return check_tag(comm, kind, tag, false);
}

static tutti_status check_recv(tutti_comm *comm, enum tti_kind kind, struct tti_buffer *buffer, size_t count,
                               tutti_type type, int peer, int tag)
{
    TTI_TRY(check_buffer(comm, kind, buffer, count, type));
    if (peer != TUTTI_ANY_SOURCE) TTI_TRY(check_peer(comm, kind, "peer `from`", peer));
    return check_tag(comm, kind, tag, true);
}

static void make_send(struct tti_message_request *request, tutti_comm *comm, const struct tti_buffer *buffer,
                      tutti_type type, int peer, int tag)
{
    request->sends = true;
    request->send = (struct tti_send){
        .letter =
            {.comm = comm, .site = &comm->caller.site, .type = type, .peer = peer, .tag = tag, .bytes = buffer->bytes},
        .in = buffer->pointer};
    request->received = NULL;
    request->message = NULL;
    request->number = 0;
}

static void make_recv(struct tti_message_request *request, tutti_comm *comm, const struct tti_buffer *buffer,
                      tutti_type type, int peer, int tag)
{
    request->sends = false;
    request->recv = (struct tti_recv){
        .letter = {.comm = comm, .site = &comm->caller.site, .type = type, .peer = peer, .tag = tag},
        .out = (char *)(uintptr_t)buffer->pointer,
        .capacity = buffer->bytes};
    request->received = NULL;
    request->message = NULL;
    request->number = 0;
}

/* Adds the requests to the group, or starts them with a handle. */
static tutti_status hand_on(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests, int count,
                            tutti_op *handle)
{
    for (int i = 0; i < count; i++) requests[i].site = comm->caller.site;
    return comm->caller.group != NULL ? tti_group_post(comm, kind, requests, count, handle)
                                      : tti_queue_pending(comm, kind, requests, count, handle);
}

/* Returns true if a message may go without a letter: only the caller uses the comm, and nothing needs a record of the
 * message. */
static bool may_go_at_once(tutti_comm *comm, const tutti_op *handle)
{
    if (comm->caller.group != NULL || comm->caller.preparing || tti_traced(comm) || !tti_queue_is_idle(comm))
        return false;
    return handle == NULL || (comm->queue.served.by != NULL && tti_started_reserve(comm));
}

static tutti_status end_at_once(tutti_comm *comm, tutti_op *handle)
{
    if (handle != NULL) handle->id = tti_started_bare(comm);
    tti_call_end(comm);
    return TUTTI_OK;
}

/* ---- On a stream --------------------------------------------------------------------------------------------------- */

/* Makes the device part of each message: its stream, and its memory there. */
static tutti_status make_devices(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests, int count)
{
    tutti_error error = {0};
    struct tti_stream *stream = tti_stream_take(comm->caller.stream, &error);
    tutti_status status = stream == NULL ? error.status : TUTTI_OK;
    for (int i = 0; i < count && status == TUTTI_OK; i++) {
        struct tti_message_request *request = &requests[i];
        const void *at = request->sends ? request->send.in : request->recv.out;
        uint64_t bytes = request->sends ? request->send.letter.bytes : request->recv.capacity;
        status = tti_device_letter_make(comm, stream, at, bytes, request->sends, &tti_letter_of(request)->device,
                                        &error);
        request->site = comm->caller.site;
    }
    if (stream != NULL) tti_object_give(&stream->object);
    if (status == TUTTI_OK) return TUTTI_OK;
    tti_message_requests_forget(requests, count);
    return tti_comm_refuse(comm, kind, status, "%s: %s", tti_kind_name(kind), error.text);
}

/* A small message is sent at once: its stream copies the data, and its caller does not wait for the receiver. */
static bool is_buffered(const struct tti_message_request *requests, int count)
{
    enum { BUFFERED_MOST = 1 << 20 };
    const struct tti_device_letter *device = requests[0].send.letter.device;
    if (count != 1 || !requests[0].sends || !device->buffers) return false;
    return atomic_load_explicit(&device->copier->buffered, memory_order_relaxed) <= BUFFERED_MOST;
}

static tutti_status send_buffered(tutti_comm *comm, struct tti_message_request *request)
{
    tutti_op op = {0};
    tutti_status status = tti_queue_pending(comm, TTI_SEND, request, 1, &op);
    if (status != TUTTI_OK) return status;
    return tutti_drop(op);
}

static tutti_status run_on_stream(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests, int count,
                                  tutti_op *handle)
{
    TTI_TRY(make_devices(comm, kind, requests, count));
    tutti_status status;
    if (comm->caller.group != NULL) {
        status = tti_group_post(comm, kind, requests, count, handle);
        if (status != TUTTI_OK) tti_message_requests_forget(requests, count);
    } else if (handle != NULL)
        status = tti_queue_pending(comm, kind, requests, count, handle);
    else if (is_buffered(requests, count))
        status = send_buffered(comm, requests);
    else
        status = tti_message_requests_run(comm, kind, requests, count);
    return status;
}

/* ---- Waiting --------------------------------------------------------------------------------------------------- */

struct batch {
    tutti_comm *comm;
    enum tti_kind kind;
    bool drives; /* other ops are in flight on this comm: this call takes them forward, too */
    struct tti_letter *const *letters;
    int count, ended; /* all letters before number `ended` have ended */
    int waiting_for;
};

static tutti_status batch_progress(void *object)
{
    struct batch *batch = object;
    if (batch->drives) tti_queue_drive(batch->comm);
    tti_messages_lock(batch->comm);
    tutti_status status = tti_messages_progress(batch->comm);
    while (batch->ended < batch->count && batch->letters[batch->ended]->status != TUTTI_IN_PROGRESS) batch->ended++;
    bool all = batch->ended == batch->count;
    if (!all) batch->waiting_for = batch->letters[batch->ended]->waiting_for;
    tti_messages_unlock(batch->comm);
    if (status != TUTTI_OK) return status;
    return all ? TUTTI_OK : TUTTI_IN_PROGRESS;
}

static void batch_detail(void *object, char *text, size_t bytes)
{
    const struct batch *batch = object;
    tti_letter_detail(batch->letters[batch->ended], batch->kind, text, bytes);
}

static bool batch_unmet(void *object, uint64_t *stand)
{
    const struct batch *batch = object;
    bool unmet = true;
    tti_messages_lock(batch->comm);
    *stand = (uint64_t)tti_messages_pending(batch->comm);
    for (int i = batch->ended; i < batch->count; i++) unmet = unmet && tti_letter_is_unmet(batch->letters[i]);
    tti_messages_unlock(batch->comm);
    return unmet;
}

/* Cancels messages to or from the own rank that have found no partner after all are posted: they never will while the
 * rank waits. */
static void cancel_hopeless(tutti_comm *comm, struct tti_letter *const *letters, int count)
{
    tti_messages_lock(comm);
    for (int i = 0; i < count; i++) {
        struct tti_letter *letter = letters[i];
        if (tti_letter_is_own(letter) && letter->status == TUTTI_IN_PROGRESS) tti_letter_cancel(letter, true);
        letter->asked = true;
    }
    tti_messages_unlock(comm);
}

/* Returns true if letters ended because the comm broke, which a caller may find when it takes other ops forward. */
static bool were_broken_off(const tutti_comm *comm, struct tti_letter *const *letters, int count)
{
    if (!tti_comm_is_broken(comm)) return false;
    for (int i = 0; i < count; i++)
        if (letters[i]->status != TUTTI_OK && letters[i]->status != TUTTI_ERR_TRUNCATED) return true;
    return false;
}

tutti_status tti_letters_wait(tutti_comm *comm, enum tti_kind kind, struct tti_letter *const *letters, int count,
                              int64_t deadline_ms)
{
    struct batch batch = {
        .comm = comm, .kind = kind, .drives = comm->queue.held, .letters = letters, .count = count, .waiting_for = -1};
    cancel_hopeless(comm, letters, count);
    tutti_status status = tti_comm_poll(comm, batch_progress, &batch);
    struct tti_waitable waitable = {.progress = batch_progress,
                                    .object = &batch,
                                    .waiting_for = &batch.waiting_for,
                                    .site = &comm->caller.site,
                                    .kind = kind,
                                    .detail = batch_detail,
                                    .unmet = batch_unmet,
                                    .deadline_ms = deadline_ms,
                                    .drives = batch.drives};
    if (status == TUTTI_IN_PROGRESS) status = tti_comm_wait(comm, &waitable);
    if (status != TUTTI_OK) {
        tti_error_name(comm->errors.sink, kind);
        tti_messages_fail(comm, status);
    }
    return status == TUTTI_OK && batch.drives && were_broken_off(comm, letters, count) ? tti_comm_notify(comm, kind)
                                                                                       : status;
}

static tutti_status hopeless(const struct tti_letter *letter, enum tti_kind kind)
{
    if (letter->is_send)
        return tti_comm_refuse(letter->comm, kind, TUTTI_ERR_ARGUMENT,
                               "send: %llu bytes to the own rank would wait for a receive that cannot start; use "
                               "sendrecv or a group",
                               (unsigned long long)letter->bytes);
    char what[200];
    tti_letter_describe(letter, what, sizeof what);
    return tti_comm_refuse(letter->comm, kind, TUTTI_ERR_ARGUMENT,
                           "%s: nothing of the kind was sent by the own rank, and nobody else could; it would wait for "
                           "ever",
                           what);
}

/* Returns the status of a letter that was a call of its own, and explains an error. */
static tutti_status outcome(const struct tti_letter *letter, enum tti_kind kind)
{
    if (letter->status == TUTTI_ERR_CANCELLED) return hopeless(letter, kind);
    if (letter->status == TUTTI_ERR_TRUNCATED) {
        tutti_error error;
        tti_recv_explain(TTI_RECV_OF(letter), kind, "", &error);
        tti_comm_show(letter->comm, &error);
    }
    tti_call_end(letter->comm);
    return letter->status;
}

tutti_status tti_message_requests_run(tutti_comm *comm, enum tti_kind kind, struct tti_message_request *requests,
                                      int count)
{
    tutti_op op = {0};
    struct tti_started *started;
    if (comm->caller.deadline_ms == 0) comm->caller.deadline_ms = comm->world->options.deadline_ms;
    tutti_status status = tti_queue_pending(comm, kind, requests, count, &op);
    if (status == TUTTI_OK) status = tti_handle_find_queued(op, &started);
    if (status != TUTTI_OK) return status;
    tti_pending_end_hopeless(started);
    bool own = started->pending->hopeless;
    status = tutti_wait(op);
    for (int i = 0; i < count && status == TUTTI_ERR_CANCELLED && own && kind != TTI_GROUP; i++)
        if (tti_letter_is_own(tti_letter_of(&requests[i]))) return hopeless(tti_letter_of(&requests[i]), kind);
    return status;
}

static tutti_status run_alone(struct tti_message_request *request, enum tti_kind kind)
{
    tutti_comm *comm = tti_letter_of(request)->comm;
    request->site = comm->caller.site;
    return tti_message_requests_run(comm, kind, request, 1);
}

static tutti_status end(tutti_comm *comm, tutti_status status)
{
    tti_call_end(comm);
    return status;
}

/* Reads the status under the lock: another thread, which moves frames for another comm, may end the letter. */
static tutti_status status_of(const struct tti_letter *letter)
{
    tti_messages_lock(letter->comm);
    tutti_status status = letter->status;
    tti_messages_unlock(letter->comm);
    return status;
}

static bool take_back(struct tti_letter *letter)
{
    tti_messages_lock(letter->comm);
    bool taken = tti_letter_cancel(letter, true);
    tti_messages_unlock(letter->comm);
    return taken;
}

static tutti_status end_letter(struct tti_letter *letter, enum tti_kind kind)
{
    tutti_comm *comm = letter->comm;
    if (status_of(letter) == TUTTI_IN_PROGRESS) {
        tutti_status status = tti_letters_wait(comm, kind, &letter, 1, comm->caller.deadline_ms);
        if (status != TUTTI_OK) return end(comm, status);
    }
    return letter->status == TUTTI_OK ? end(comm, TUTTI_OK) : outcome(letter, kind);
}

static tutti_status finish(struct tti_letter *letter, enum tti_kind kind)
{
    tutti_status status = end_letter(letter, kind);
    tti_trace_message_end(letter->comm, kind, letter->peer, letter->bytes, status);
    return status;
}

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

static tutti_status send(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer, int tag,
                         tutti_op *handle)
{
    TTI_TRY(begin(comm, TTI_SEND, handle));
    struct tti_buffer buffer = {"in", in, 0, true};
    TTI_TRY(check_send(comm, TTI_SEND, &buffer, count, type, peer, tag));
    bool on_stream = comm->caller.stream != NULL;
    if (!on_stream && may_go_at_once(comm, handle) && tti_send_at_once(comm, in, buffer.bytes, type, peer, tag))
        return end_at_once(comm, handle);
    struct tti_message_request request;
    make_send(&request, comm, &buffer, type, peer, tag);
    if (on_stream) return run_on_stream(comm, TTI_SEND, &request, 1, handle);
    if (comm->caller.group != NULL || handle != NULL) return hand_on(comm, TTI_SEND, &request, 1, handle);
    if (comm->traits.tolerant) return run_alone(&request, TTI_SEND);
    tti_queue_hold(comm);
    tti_trace_message_begin(comm);
    tutti_status posted = tti_send_post(&request.send);
    return tti_queue_let_go(comm, posted < 0 ? end(comm, posted) : finish(&request.send.letter, TTI_SEND));
}

static tutti_status receive(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                            size_t *received, tutti_message *message, tutti_op *handle)
{
    TTI_TRY(begin(comm, TTI_RECV, handle));
    struct tti_buffer buffer = {"out", out, 0, true};
    TTI_TRY(check_recv(comm, TTI_RECV, &buffer, count, type, peer, tag));
    struct tti_message_request request;
    make_recv(&request, comm, &buffer, type, peer, tag);
    bool on_stream = comm->caller.stream != NULL;
    if (!on_stream && may_go_at_once(comm, handle) && tti_recv_at_once(&request.recv)) {
        tti_recv_results(&request.recv, received, message);
        return end_at_once(comm, handle);
    }
    request.received = received;
    request.message = message;
    if (on_stream) return run_on_stream(comm, TTI_RECV, &request, 1, handle);
    if (comm->caller.group != NULL || handle != NULL) return hand_on(comm, TTI_RECV, &request, 1, handle);
    if (comm->traits.tolerant) return run_alone(&request, TTI_RECV);
    tti_queue_hold(comm);
    tti_trace_message_begin(comm);
    tti_recv_post(&request.recv);
    TTI_TRY(tti_queue_let_go(comm, finish(&request.recv.letter, TTI_RECV)));
    tti_recv_results(&request.recv, received, message);
    return TUTTI_OK;
}

static tutti_status exchange(struct tti_send *send, struct tti_recv *recv)
{
    tutti_comm *comm = send->letter.comm;
    int64_t deadline_ms = comm->caller.deadline_ms;
    if (tti_send_post(send) < 0) return end(comm, send->letter.status);
    tti_recv_post(recv);
    struct tti_letter *letters[] = {&send->letter, &recv->letter};
    tutti_status status = tti_letters_wait(comm, TTI_SENDRECV, letters, 2, deadline_ms);
    if (status != TUTTI_OK) return end(comm, status);
    status = outcome(&send->letter, TTI_SENDRECV);
    return status != TUTTI_OK ? status : outcome(&recv->letter, TTI_SENDRECV);
}

static tutti_status sendrecv(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag, void *out,
                             size_t out_count, int from, int out_tag, tutti_type type, size_t *received,
                             tutti_op *handle)
{
    TTI_TRY(begin(comm, TTI_SENDRECV, handle));
    struct tti_buffer input = {"in", in, 0, true}, output = {"out", out, 0, true};
    TTI_TRY(check_send(comm, TTI_SENDRECV, &input, in_count, type, to, in_tag));
    TTI_TRY(check_recv(comm, TTI_SENDRECV, &output, out_count, type, from, out_tag));
    TTI_TRY(tti_api_check_overlap(comm, TTI_SENDRECV, &input, &output, false));
    struct tti_message_request both[2];
    make_send(&both[0], comm, &input, type, to, in_tag);
    make_recv(&both[1], comm, &output, type, from, out_tag);
    both[1].received = received;
    if (comm->caller.stream != NULL) return run_on_stream(comm, TTI_SENDRECV, both, 2, handle);
    if (comm->caller.group != NULL || handle != NULL) return hand_on(comm, TTI_SENDRECV, both, 2, handle);
    if (comm->traits.tolerant) {
        both[0].site = both[1].site = comm->caller.site;
        return tti_message_requests_run(comm, TTI_SENDRECV, both, 2);
    }
    struct tti_send *send = &both[0].send;
    struct tti_recv *recv = &both[1].recv;
    tti_queue_hold(comm);
    tti_trace_message_begin(comm);
    tutti_status status = exchange(send, recv);
    tti_trace_message_end(comm, TTI_SENDRECV, to, send->letter.bytes + recv->letter.bytes, status);
    TTI_TRY(tti_queue_let_go(comm, status));
    tti_recv_results(recv, received, NULL);
    return TUTTI_OK;
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

tutti_status tutti_send(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer, int tag)
{
    return send(comm, in, count, type, peer, tag, NULL);
}

tutti_status tutti_send_start(tutti_comm *comm, const void *in, size_t count, tutti_type type, int peer, int tag,
                              tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_SEND);
    return send(comm, in, count, type, peer, tag, op);
}

tutti_status tutti_recv(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag, size_t *received)
{
    return receive(comm, out, count, type, peer, tag, received, NULL, NULL);
}

tutti_status tutti_recv_message(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                                tutti_message *message)
{
    return receive(comm, out, count, type, peer, tag, NULL, message, NULL);
}

tutti_status tutti_recv_start(tutti_comm *comm, void *out, size_t count, tutti_type type, int peer, int tag,
                              tutti_message *message, tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_RECV);
    return receive(comm, out, count, type, peer, tag, NULL, message, op);
}

tutti_status tutti_sendrecv(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag, void *out,
                            size_t out_count, int from, int out_tag, tutti_type type, size_t *received)
{
    return sendrecv(comm, in, in_count, to, in_tag, out, out_count, from, out_tag, type, received, NULL);
}

tutti_status tutti_sendrecv_start(tutti_comm *comm, const void *in, size_t in_count, int to, int in_tag, void *out,
                                  size_t out_count, int from, int out_tag, tutti_type type, size_t *received,
                                  tutti_op *op)
{
    if (!tti_api_has_handle(op)) return tti_api_no_handle(comm, TTI_SENDRECV);
    return sendrecv(comm, in, in_count, to, in_tag, out, out_count, from, out_tag, type, received, op);
}

/* ---- Probing --------------------------------------------------------------------------------------------------- */

/* For a rank that probes again and again: returns true when it is time to do what a wait does from time to time. */
static bool is_time_to_poll(tutti_comm *comm)
{
    enum { POLL_NS = 10000000 };
    int64_t now = tti_now_ns();
    if (now - comm->messages->probed_ns < POLL_NS) return false;
    comm->messages->probed_ns = now;
    return true;
}

static tutti_status deserted(tutti_comm *comm, int peer)
{
    char who[32] = "all others have";
    if (peer != TUTTI_ANY_SOURCE) snprintf(who, sizeof who, "rank %d has", peer);
    bool lost = peer != TUTTI_ANY_SOURCE && comm->peers->presence(comm, peer) == TTI_PEER_LOST;
    tutti_status status = lost ? TUTTI_ERR_PEER_LOST : TUTTI_ERR_MISMATCH;
    tti_comm_refuse(comm, TTI_PROBE, status, "probe: nothing of the kind has come, and %s %s", who,
                    lost ? "died or ended without leaving" : "left");
    tti_comm_blame(comm, peer == TUTTI_ANY_SOURCE ? -1 : peer);
    return status;
}

static tutti_status look_once(tutti_comm *comm, struct tti_recv *recv)
{
    int peer = recv->letter.peer;
    bool looks = is_time_to_poll(comm);
    bool alone = looks &&
                 /* asked before the probe: a rank that has left sent its messages before that */
                 tti_messages_deserted(comm, peer);
    tti_recv_post(recv);
    tutti_status status = tti_messages_progress(comm);
    if (status == TUTTI_OK && looks) status = tti_comm_health(comm, TTI_PROBE, !comm->traits.all_threads);
    char who[160];
    if (looks && comm->traits.tolerant) /* records which ranks are lost */
        comm->peers->find_lost(comm, 0, !comm->traits.all_threads, who, sizeof who);
    if (status != TUTTI_OK) {
        tti_error_name(comm->errors.sink, TTI_PROBE);
        tti_messages_fail(comm, status);
        return status;
    }
    if (!take_back(&recv->letter)) return TUTTI_OK;
    return alone ? deserted(comm, peer) : TUTTI_IN_PROGRESS;
}

static tutti_status find(tutti_comm *comm, int peer, int tag, tutti_message *message, bool waits)
{
    struct tti_recv recv = {.letter = {.comm = comm, .site = &comm->caller.site, .peer = peer, .tag = tag},
                            .probes = true};
    tutti_status status = TUTTI_OK;
    tti_trace_message_begin(comm);
    if (waits)
        tti_recv_post(&recv);
    else
        status = look_once(comm, &recv);
    if (status != TUTTI_OK) return end(comm, status);
    TTI_TRY(finish(&recv.letter, TTI_PROBE));
    tti_recv_results(&recv, NULL, message);
    return TUTTI_OK;
}

/* A probe uses no memory, and completes at once: the stream must only be one on which a receive could be put. */
static tutti_status check_probed_on(tutti_comm *comm)
{
    tutti_error error = {0};
    if (comm->caller.stream == NULL) return TUTTI_OK;
    struct tti_stream *stream = tti_stream_take(comm->caller.stream, &error);
    tutti_status status = stream == NULL ? error.status : tti_stream_ready(stream, &error);
    if (stream != NULL) tti_object_give(&stream->object);
    if (status == TUTTI_OK) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_PROBE, status, "probe: %s", error.text);
}

static tutti_status probe(tutti_comm *comm, int peer, int tag, tutti_message *message, bool waits)
{
    TTI_TRY(tti_api_begin(comm, TTI_PROBE));
    if (waits && tti_is_in_callback()) return tti_callback_refuse(comm, TTI_PROBE);
    if (peer != TUTTI_ANY_SOURCE) TTI_TRY(tti_api_check_rank(comm, TTI_PROBE, "peer", peer));
    TTI_TRY(check_tag(comm, TTI_PROBE, tag, true));
    if (message == NULL) return tti_comm_refuse(comm, TTI_PROBE, TUTTI_ERR_ARGUMENT, "probe: `message` is NULL");
    TTI_TRY(check_probed_on(comm));
    if (comm->traits.tolerant && waits) {
        struct tti_message_request request = {.message = message, .sends = false};
        request.recv = (struct tti_recv){.letter = {.comm = comm, .peer = peer, .tag = tag}, .probes = true};
        return run_alone(&request, TTI_PROBE);
    }
    tti_queue_hold(comm);
    return tti_queue_let_go(comm, find(comm, peer, tag, message, waits));
}

tutti_status tutti_probe(tutti_comm *comm, int peer, int tag, tutti_message *message)
{
    return probe(comm, peer, tag, message, true);
}

tutti_status tutti_try_probe(tutti_comm *comm, int peer, int tag, tutti_message *message)
{
    tutti_status status = probe(comm, peer, tag, message, false);
    if (status == TUTTI_IN_PROGRESS) tti_wait_polled();
    return status;
}
