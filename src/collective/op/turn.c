/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/turn.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/op/queue_message.h"
#include "device/stream.h"

#define MS INT64_C(1000000)

/* ---- Gates --------------------------------------------------------------------------------------------------------- */

static void free_gate(struct tti_stream_gate *gate)
{
    tti_gate_free(&gate->gate);
    tti_object_give(&gate->stream->object);
    tti_free(gate);
}

/* Of streams that are gone; and which is this stream's. */
static struct tti_stream_gate *find_gate(struct tti_streams *streams, const struct tti_stream *stream)
{
    struct tti_stream_gate **link = &streams->gates, *found = NULL;
    while (*link != NULL) {
        struct tti_stream_gate *gate = *link;
        bool ended = atomic_load_explicit(&gate->stream->ended, memory_order_acquire) != 0;
        if (gate->stream == stream) found = gate;
        if (ended && gate != found && atomic_load_explicit(&gate->used, memory_order_acquire) == 0) {
            *link = gate->next;
            free_gate(gate);
        } else {
            link = &gate->next;
        }
    }
    return found;
}

struct tti_stream_gate *tti_streams_gate(struct tti_streams *streams, struct tti_stream *stream, tutti_error *error)
{
    struct tti_stream_gate *gate = find_gate(streams, stream);
    if (gate != NULL) return gate;
    gate = tti_calloc(1, sizeof *gate);
    if (gate == NULL) {
        tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for ops on one more stream");
        return NULL;
    }
    if (tti_gate_make(stream->device, &gate->gate, error) != TUTTI_OK) {
        tti_free(gate);
        return NULL;
    }
    tti_object_keep(&stream->object);
    gate->stream = stream;
    gate->next = streams->gates;
    return streams->gates = gate;
}

void tti_streams_free_gates(struct tti_streams *streams)
{
    while (streams->gates != NULL) {
        struct tti_stream_gate *gate = streams->gates;
        streams->gates = gate->next;
        free_gate(gate);
    }
}

/* ---- One op -------------------------------------------------------------------------------------------------------- */

tutti_status tti_turn_come(struct tti_started *started)
{
    struct tti_turn *turn = started->turn;
    tutti_comm *comm = started->op.comm;
    tutti_error error = {0};
    if (tti_gate_reached(&turn->gate->gate, turn->number)) { /* deadlines count from here */
        atomic_store_explicit(&turn->reached, true, memory_order_relaxed);
        started->vigil = (struct tti_vigil){.since_ns = started->op.deadline_ms != 0 ? tti_now_ns() : 0};
        return TUTTI_OK;
    }
    started->op.waiting_for = -1;
    tutti_status status = tti_stream_state(turn->gate->stream, &error);
    if (status == TUTTI_OK) return TUTTI_IN_PROGRESS;
    char call[160];
    tti_call_describe(&started->op.call, call, sizeof call);
    return tti_comm_break(comm, (enum tti_kind)started->op.call.kind, status, comm->rank,
                          "rank %d called %s, and the stream never comes to it: %s", comm->rank, call, error.text);
}

void tti_turn_detail(const struct tti_started *started, char *text, size_t bytes)
{
    bool waits = started->turn != NULL && !started->turn->reached;
    snprintf(text, bytes, "%s", waits ? " (its stream has not come to it yet)" : "");
}

static void fail(struct tti_started *started, tutti_status status, const tutti_error *error)
{
    started->op.state = TTI_OP_ENDED;
    started->error = tti_calloc(1, sizeof *started->error);
    if (started->error != NULL) *started->error = *error;
    tti_turn_end(started, TUTTI_OK); /* that comm is broken already */
    tti_started_end(started, status);
}

void tti_turn_met(struct tti_started *started, tutti_status status, const tutti_error *error)
{
    tutti_comm *comm = started->op.comm;
    if (status != TUTTI_OK) {
        fail(started, status, error);
        return;
    }
    atomic_store_explicit(&started->turn->met, true,
                          memory_order_release); /* it may end, and be gone, once it is queued */
    tti_queue_append(started);
    comm->peers->wake(comm); /* who is busy may sleep, and does not know of it */
    tti_service_wake(comm, TTI_AT_ONCE);
}

void tti_turn_end(struct tti_started *started, tutti_status status)
{
    struct tti_turn *turn = started->turn;
    const tutti_error *error = started->error;
    if (turn == NULL) return;
    tti_gate_open(&turn->gate->gate, turn->number);
    atomic_fetch_sub_explicit(&turn->gate->used, 1, memory_order_release);
    if (status < 0)
        tti_comm_break_apart(turn->comm, (enum tti_kind)started->op.call.kind, status, error == NULL ? -1 : error->peer,
                             "%s", error == NULL ? tutti_status_text(status) : error->text);
}

void tti_turn_free(struct tti_started *started)
{
    tti_free(started->turn);
    started->turn = NULL;
}

static bool meets(const struct tti_started *started)
{
    return started->turn != NULL && !atomic_load_explicit(&started->turn->met, memory_order_acquire) &&
           atomic_load_explicit(&started->status, memory_order_acquire) == TUTTI_IN_PROGRESS;
}

void tti_turn_help(struct tti_started *started, bool look)
{
    if (meets(started)) tti_queue_help(started->turn->comm, look);
}

void tti_turn_await_meeting(struct tti_started *started, int64_t until_ns)
{
    struct tti_wait wait;
    tti_bell nobody = 0;
    tti_wait_begin(&wait, false, MS);
    while (meets(started)) {
        tti_queue_help(started->turn->comm, tti_wait_slow(&wait));
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, MS / 10, false);
        if (until_ns != INT64_MAX && tti_now_ns() >= until_ns) return;
    }
}
