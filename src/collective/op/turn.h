/* SPDX-License-Identifier: Apache-2.0
 *
 * Collectives that are put on a stream of a device.
 *
 * Such a call has two parts. First the ranks meet on the host, by a barrier of the comm that carries the call's signature:
 * ranks that differ are told before anything is touched. Then the op itself runs, at the stream's turn, on a comm of its own
 * beside the caller's (`data`): so ranks meet in later calls while earlier ops wait for their streams, and ops of all ranks
 * run in the order in which they met.
 *
 * Invariant, since streams may share a queue of the hardware: a stream is told to wait for the end of an op only when all
 * ranks have put on their streams what that op waits for. So the order of submission is an order in which all can be done.
 *   1  the caller puts "reached" on its stream (a raised word: gate.h)
 *   2  the ranks meet
 *   3  the op goes to the queue of `data`, waits there until its stream has reached it, runs, and lets the stream go on
 *   4  blocking form: the caller lets its stream stop until the op has ended; the other one leaves that to tutti_stream_wait
 */
#ifndef TTI_COLLECTIVE_TURN_H
#define TTI_COLLECTIVE_TURN_H

#include "collective/op/queue.h"
#include "device/gate.h"

/* A comm's ops on one stream. */
struct tti_stream_gate {
    struct tti_gate gate;
    struct tti_stream *stream; /* a reference */
    _Atomic uint32_t used;     /* ops that have not ended */
    struct tti_stream_gate *next;
};

/* What a comm keeps for ops on streams. */
struct tti_streams {
    tutti_comm *data; /* carries them out */
    struct tti_stream_gate *gates;
};

/* An op's place on a stream. */
struct tti_turn {
    tutti_comm *comm; /* that it was called on */
    struct tti_stream_gate *gate;
    uint64_t number;
    _Atomic bool reached;
    _Atomic bool met; /* the ranks have */
};

/* The gate of a stream, made if need be; the stream's reference stays the caller's. NULL: *error says why. */
struct tti_stream_gate *tti_streams_gate(struct tti_streams *streams, struct tti_stream *stream, tutti_error *error);
void tti_streams_free_gates(struct tti_streams *streams);

/* For whoever is busy with the op's comm. Whether its stream has come to it: OK, IN_PROGRESS, or the error that broke the
 * comm since it never will. */
tutti_status tti_turn_come(struct tti_started *started);
/* " (its stream has not come to it yet)" */
void tti_turn_detail(const struct tti_started *started, char *text, size_t bytes);
/* The ranks have met, or that has failed: the op goes to its queue, or ends. */
void tti_turn_met(struct tti_started *started, tutti_status status, const tutti_error *error);
/* The op has ended: its stream goes on, and a failure breaks the comm that it was called on. */
void tti_turn_end(struct tti_started *started, tutti_status status);
void tti_turn_free(struct tti_started *started); /* its place is given back */

/* Waits until the ranks have met, the op has ended or the time is over; takes the meeting forward. */
void tti_turn_await_meeting(struct tti_started *started, int64_t until_ns);
/* The same, once. */
void tti_turn_help(struct tti_started *started, bool look);

#endif
