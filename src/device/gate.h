/* SPDX-License-Identifier: Apache-2.0
 *
 * A gate in a stream: the host does some work when the stream gets there, and the stream goes on when the host has done
 * it. In this way an operation that the host carries out (a collective on staged memory, or on the memory of device
 * `host`) is put on a stream:
 *
 *     tti_buffer_begin(buffer, …, stream)            for each buffer that it uses
 *     tti_gate_put(gate, stream, &turn, error)       the stream will stop here
 *     tti_buffer_end(buffer, …, stream)
 *     … later, whenever the op is polled:
 *     tti_gate_reached(gate, turn)                   never blocks, enters no driver: the stream has come; deadlines
 *                                                    count from here
 *     tti_stream_state(stream, error)                not OK: it never will
 *     … the host carries it out …
 *     tti_gate_open(gate, turn)                      with success and with failure: the stream goes on
 *
 * Invariant: a turn that was put is always opened, sooner or later; the stream stands still until then. Turns are
 * opened in the order in which they were put: opening one opens all before it.
 *
 * Streams may share a queue of the hardware. One that stands at a gate may then hold up others, so nothing that the
 * host does between reached and open may depend on work that was put on any stream after the gate.
 */
#ifndef TTI_DEVICE_GATE_H
#define TTI_DEVICE_GATE_H

#include "device/stream.h"

struct tti_gate {
    struct tti_device *device; /* a reference */
    struct tti_word *reached, *opened;
    uint64_t turns; /* how many turns were put */
    uint64_t reached_base, opened_base;
};

tutti_status tti_gate_make(struct tti_device *device, struct tti_gate *gate, tutti_error *error);
/* Opens all turns. Its words are used again only if every turn was reached. */
void tti_gate_free(struct tti_gate *gate);

/* Puts a turn on the stream; *turn counts from 1. After a failure the stream does not stop, and no turn need be opened.
 * One gate is used by one stream. */
tutti_status tti_gate_put(struct tti_gate *gate, struct tti_stream *stream, uint64_t *turn, tutti_error *error);

static inline bool tti_gate_reached(const struct tti_gate *gate, uint64_t turn)
{
    return tti_word_reached(gate->reached, gate->reached_base + turn);
}

/* The two halves of tti_gate_put: the stream says that it has come, and stops until the turn is opened. The second may
 * be put on any stream of the device, or be left out. */
tutti_status tti_gate_put_reached(struct tti_gate *gate, struct tti_stream *stream, uint64_t *turn, tutti_error *error);
tutti_status tti_gate_put_stop(struct tti_gate *gate, struct tti_stream *stream, uint64_t turn, tutti_error *error);

void tti_gate_open(struct tti_gate *gate, uint64_t turn);

/* One gate of a list with one gate for each stream. Used by one thread at a time. */
struct tti_stream_gate {
    struct tti_gate gate;
    struct tti_stream *stream; /* a reference */
    _Atomic uint32_t used;     /* turns that are still used */
    struct tti_stream_gate *next;
    struct tti_stream_guard guard;
    /* called when the stream is given up while the gate is used; NULL: nothing is called */
    void (*give_up)(void *context);
    void *context;
};
/* Returns the gate of a stream, which is made if necessary; the stream's reference stays the caller's. NULL: *error
 * says why. Frees the gates of streams that have ended, if they are not used. */
struct tti_stream_gate *tti_gates_find(struct tti_stream_gate **gates, struct tti_stream *stream, tutti_error *error);
void tti_gates_free(struct tti_stream_gate **gates);
/* Sets the function that is called when the stream is given up, before work on it that was held goes on. Once for each
 * gate; further calls do nothing. */
void tti_gate_guard(struct tti_stream_gate *gate, void (*give_up)(void *context), void *context);

#endif
