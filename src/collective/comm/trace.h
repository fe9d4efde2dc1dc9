/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: what a rank did when, kept in memory and written to a file when its comm is freed (docs/tracing.md). A comm that
 * is not traced has no trace (NULL), and pays one branch at each of the places below.
 *
 * A trace has two rows, each of which one thread at a time writes to: operations, by whoever is busy with the comm, and
 * messages, by the same, or by the caller while none are in flight. Time is read as seldom as can be: a step begins
 * where the one before it ended, and a step that moves little and waits for nobody gets no time of its own.
 *
 * A small operation between ranks that share memory takes about as long as reading the clock a dozen times. It is recorded
 * as soon as this rank has entered, while the others' data are on their way; what it would delay is not timed: its end is
 * the last reading of a poll that found nothing. When it has to wait for long after all it is timed from there on, with its
 * steps.
 */
#ifndef TTI_COLLECTIVE_TRACE_H
#define TTI_COLLECTIVE_TRACE_H

#include "collective/comm/carrier.h"
#include "collective/comm/comm.h"

enum tti_trace_what {
    TTI_TRACE_OP,
    TTI_TRACE_INSIDE, /* an operation that the library makes inside another call */
    TTI_TRACE_STEP,
    TTI_TRACE_MEETING,
    TTI_TRACE_MESSAGE,
    TTI_TRACE_MAIL,     /* messages that were started: they go beside each other */
    TTI_TRACE_ON_STREAM /* ops on streams, from when they were issued: likewise */
};
enum { TTI_TRACE_SITES = 256, TTI_TRACE_PATH = 256, TTI_TRACE_NAME = 64, TTI_TRACE_POLLS = 32 };

struct tti_trace_event {
    uint64_t begin, end; /* ticks */
    uint64_t bytes, count;
    uint32_t sequence;
    int32_t peer; /* or the root; -1: none */
    uint8_t what; /* enum tti_trace_what */
    uint8_t kind; /* enum tti_kind, or enum tti_step_kind of a step */
    uint8_t type, reduction;
    uint8_t site;    /* in the row's sites; 0: not known */
    uint8_t carrier; /* enum tti_carrier, of an op on a stream */
    int16_t status;
};

/* The last events of a kind, and where the calls among them were made. */
struct tti_trace_row {
    struct tti_trace_event *events; /* (room) */
    size_t room, next;
    uint64_t written;             /* events so far, those that were overwritten included */
    uint64_t began;               /* the operation that runs */
    uint64_t last;                /* the last reading */
    uint8_t site;                 /* messages: of the call that runs */
    bool timed;                   /* it is not small, or waits for long */
    struct tti_trace_event *open; /* a small operation's, written when it entered; NULL: none */
    uint64_t opened;              /* `written` then */
    struct tti_site sites[TTI_TRACE_SITES];
};

/* The same, by both clocks. */
struct tti_trace_moment {
    uint64_t ticks;
    int64_t ns;
};

struct tti_trace {
    char path[TTI_TRACE_PATH];
    char name[TTI_TRACE_NAME]; /* of the comm; "": it has none */
    uint32_t number;           /* of the comm, in this process */
    bool counts_cycles;
    struct tti_trace_moment start;
    struct tti_trace_row operations, messages;
};

/* Before a process joins: the file can be written and is empty. `absolute` is its name wherever the process goes. */
tutti_status tti_trace_prepare(const char *path, char absolute[TTI_TRACE_PATH], tutti_error *error);
/* Of a comm whose options ask for it; false when there is no memory for that. */
bool tti_trace_create(tutti_comm *comm);
/* What the comm is called in the file; nothing is done where it is not traced. */
void tti_trace_name(tutti_comm *comm, const char *name);
/* Writes what was kept to the file, behind what other ranks and comms have written, and frees it. ERR_SYSTEM where
 * it, or for the world what any comm had kept, could not be written; that is logged. */
tutti_status tti_trace_finish(tutti_comm *comm);

uint64_t tti_trace_ticks(const struct tti_trace *trace);
struct tti_trace_moment tti_trace_moment(const struct tti_trace *trace);
int64_t tti_trace_ns(const struct tti_trace *trace, uint64_t ticks, struct tti_trace_moment now);
tutti_status tti_trace_write(const tutti_comm *comm, tutti_error *error); /* trace_file.c */

void tti_trace_note_begin(struct tti_op *op);
void tti_trace_note_entry(struct tti_op *op);
void tti_trace_note_poll(tutti_comm *comm, uint32_t polls);
void tti_trace_note_step(struct tti_op *op, const struct tti_step *step);
void tti_trace_note_meeting(struct tti_op *op);
void tti_trace_note_end(struct tti_op *op, tutti_status status, bool started);
void tti_trace_note_message_begin(tutti_comm *comm);
void tti_trace_note_message(tutti_comm *comm, enum tti_kind kind, int peer, uint64_t bytes, tutti_status status);
/* Messages that were started, at their end. */
void tti_trace_note_pending(tutti_comm *comm, enum tti_kind kind, const struct tti_site *site, uint64_t began, int peer,
                            uint64_t bytes, tutti_status status);

/* An op on a stream, at its end. */
void tti_trace_note_on_stream(struct tti_op *op, enum tti_carrier carrier, uint64_t began, tutti_status status);

static inline bool tti_traced(const tutti_comm *comm)
{
    return __builtin_expect(comm->trace != NULL, 0);
}

/* The operation that was numbered last begins. */
static inline void tti_trace_begin(struct tti_op *op)
{
    if (tti_traced(op->comm)) tti_trace_note_begin(op);
}

/* A step of its plan has been done. */
static inline void tti_trace_step(struct tti_op *op, const struct tti_step *step)
{
    if (tti_traced(op->comm)) tti_trace_note_step(op, step);
}

/* All ranks that it needs have come. */
static inline void tti_trace_meeting(struct tti_op *op)
{
    if (tti_traced(op->comm)) tti_trace_note_meeting(op);
}

static inline void tti_trace_end(struct tti_op *op, tutti_status status, bool started)
{
    if (tti_traced(op->comm)) tti_trace_note_end(op, status, started);
}

/* It has shown the others that it came. */
static inline void tti_trace_entry(struct tti_op *op)
{
    if (tti_traced(op->comm)) tti_trace_note_entry(op);
}

/* It is traced, and it has been looked in vain so often whether it can go on. */
static inline void tti_trace_poll(tutti_comm *comm, uint32_t polls)
{
    if (polls <= TTI_TRACE_POLLS && (polls & (polls - 1)) == 0) tti_trace_note_poll(comm, polls);
}

/* Around a call that moves messages. */
static inline void tti_trace_message_begin(tutti_comm *comm)
{
    if (tti_traced(comm)) tti_trace_note_message_begin(comm);
}

static inline void tti_trace_message_end(tutti_comm *comm, enum tti_kind kind, int peer, uint64_t bytes,
                                         tutti_status status)
{
    if (tti_traced(comm)) tti_trace_note_message(comm, kind, peer, bytes, status);
}

#endif
