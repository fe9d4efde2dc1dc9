/* SPDX-License-Identifier: Apache-2.0 */
#include "device/gate.h"

#include "base/alloc.h"
#include "base/status.h"
#include "device/stream.h"

tutti_status tti_gate_make(struct tti_device *device, struct tti_gate *gate, tutti_error *error)
{
    *gate = (struct tti_gate){.device = device};
    TTI_TRY(tti_word_take(device, &gate->reached, error));
    tutti_status status = tti_word_take(device, &gate->opened, error);
    if (status != TUTTI_OK) {
        tti_word_give(device, gate->reached);
        return status;
    }
    gate->reached_base = atomic_load_explicit(&gate->reached->value, memory_order_relaxed);
    gate->opened_base = atomic_load_explicit(&gate->opened->value, memory_order_relaxed);
    tti_object_keep(&device->object);
    return TUTTI_OK;
}

void tti_gate_free(struct tti_gate *gate)
{
    struct tti_device *device = gate->device;
    if (device == NULL) return;
    bool reached = tti_gate_reached(gate, gate->turns);
    tti_gate_open(gate, gate->turns);
    if (reached) { /* otherwise a stream that comes later would raise and read them */
        tti_word_give(device, gate->reached);
        tti_word_give(device, gate->opened);
    }
    *gate = (struct tti_gate){0};
    tti_object_give(&device->object);
}

tutti_status tti_gate_put_reached(struct tti_gate *gate, struct tti_stream *stream, uint64_t *turn, tutti_error *error)
{
    uint64_t next = gate->turns + 1;
    TTI_TRY(tti_stream_raise(stream, gate->reached, gate->reached_base + next, error));
    *turn = gate->turns = next;
    return TUTTI_OK;
}

tutti_status tti_gate_put_stop(struct tti_gate *gate, struct tti_stream *stream, uint64_t turn, tutti_error *error)
{
    return tti_stream_hold(stream, gate->opened, gate->opened_base + turn, error);
}

tutti_status tti_gate_put(struct tti_gate *gate, struct tti_stream *stream, uint64_t *turn, tutti_error *error)
{
    uint64_t next;
    TTI_TRY(tti_gate_put_reached(gate, stream, &next, error));
    TTI_TRY(tti_gate_put_stop(gate, stream, next, error));
    *turn = next;
    return TUTTI_OK;
}

void tti_gate_open(struct tti_gate *gate, uint64_t turn)
{
    uint64_t value = gate->opened_base + turn;
    if (!tti_word_reached(gate->opened, value)) tti_word_store(gate->opened, value);
}

/* ---- One for each stream ------------------------------------------------------------------------------------------- */

static void give_up(struct tti_stream_guard *guard)
{
    struct tti_stream_gate *gate = TTI_LIST_OF(guard, struct tti_stream_gate, guard);
    if (atomic_load_explicit(&gate->used, memory_order_seq_cst) != 0) gate->give_up(gate->context);
}

void tti_gate_guard(struct tti_stream_gate *gate, void (*told)(void *context), void *context)
{
    if (gate->give_up != NULL) return;
    gate->give_up = told;
    gate->context = context;
    gate->guard.give_up = give_up;
    tti_stream_guard(gate->stream, &gate->guard);
}

static void free_gate(struct tti_stream_gate *gate)
{
    tti_stream_unguard(&gate->guard);
    tti_gate_free(&gate->gate);
    tti_object_give(&gate->stream->object);
    tti_free(gate);
}

/* Finds this stream's gate, and frees those of streams that have ended. */
static struct tti_stream_gate *find_gate(struct tti_stream_gate **link, const struct tti_stream *stream)
{
    struct tti_stream_gate *found = NULL;
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

struct tti_stream_gate *tti_gates_find(struct tti_stream_gate **gates, struct tti_stream *stream, tutti_error *error)
{
    struct tti_stream_gate *gate = find_gate(gates, stream);
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
    gate->next = *gates;
    return *gates = gate;
}

void tti_gates_free(struct tti_stream_gate **gates)
{
    while (*gates != NULL) {
        struct tti_stream_gate *gate = *gates;
        *gates = gate->next;
        free_gate(gate);
    }
}
