/* SPDX-License-Identifier: Apache-2.0
 *
 * Traces: what a rank did when, kept in memory and written to a file when its comm is freed (docs/tracing.md). A comm
 * that is not traced has no trace (NULL), and pays one branch at each of the places below.
 *
 * A trace has two rows, each of which one thread at a time writes to: operations, by whoever is busy with the comm, and
 * messages, by the same, or by the caller while none are in flight. Time is read as seldom as can be: a step begins
 * where the one before it ended, and a step that moves little and waits for nobody gets no time of its own.
 *
 * A small operation between ranks that share memory takes about as long as reading the clock a dozen times. It is
 * recorded as soon as this rank has entered, while the others' data are on their way; what it would delay is not timed:
 * its end is the last reading of a poll that found nothing. When it has to wait for long after all it is timed from
 * there on, with its steps.
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
    TTI_TRACE_MAIL,     /* messages that were started; they overlap each other */
    TTI_TRACE_ON_STREAM /* ops on streams, from when they were issued; they overlap likewise */
};
enum { TTI_TRACE_SITES = 256, TTI_TRACE_PATH = 256, TTI_TRACE_NAME = 64, TTI_TRACE_POLLS = 32 };

struct tti_trace_event {
    uint64_t begin, end; /* ticks */
    uint64_t bytes, count;
    uint32_t sequence;
    int32_t peer; /* a rank, or the root; -1: none */
    uint8_t what; /* enum tti_trace_what */
    uint8_t kind; /* enum tti_kind, or enum tti_step_kind of a step */
    uint8_t type, reduction;
    uint8_t site;    /* number in the row's sites; 0: not known */
    uint8_t carrier; /* enum tti_carrier, of an op on a stream */
    int16_t status;
};

/* The last events of one row, and the sites of the calls among them. */
struct tti_trace_row {
    struct tti_trace_event *events; /* (room) */
    size_t room, next;
    uint64_t written;             /* events so far, those that were overwritten included */
    uint64_t began;               /* when the present operation began */
    uint64_t last;                /* the last reading */
    uint8_t site;                 /* for messages: the site of the present call */
    bool timed;                   /* the operation is not small, or waits for long */
    struct tti_trace_event *open; /* event of a small operation, written when it entered; NULL: none */
    uint64_t opened;              /* `written` at that time */
    struct tti_site sites[TTI_TRACE_SITES];
};

/* One moment by both clocks. */
struct tti_trace_moment {
    uint64_t ticks;
    int64_t ns;
};

struct tti_trace {
    char path[TTI_TRACE_PATH];
    char name[TTI_TRACE_NAME]; /* the comm's name; "": it has none */
    uint32_t number;           /* the comm's number in this process */
    bool counts_cycles;
    struct tti_trace_moment start;
    struct tti_trace_row operations, messages;
};

/* Called before a process joins: checks that the file can be written, and empties it. `absolute` gets its name as it is
 * from any folder. */
tutti_status tti_trace_prepare(const char *path, char absolute[TTI_TRACE_PATH], tutti_error *error);
/* Makes a trace if the comm's options ask for one. Returns false if there is no memory for it. */
bool tti_trace_create(tutti_comm *comm);
/* Names the comm in the file. Does nothing if the comm is not traced. */
void tti_trace_name(tutti_comm *comm, const char *name);
/* Writes what was kept to the file, behind what other ranks and comms have written, and frees it. ERR_SYSTEM, which is
 * logged: it, or for the world the trace of any comm, could not be written. */
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
/* Records messages that were started, at their end. */
void tti_trace_note_pending(tutti_comm *comm, enum tti_kind kind, const struct tti_site *site, uint64_t began, int peer,
                            uint64_t bytes, tutti_status status);

/* Records an op on a stream, at its end. */
void tti_trace_note_on_stream(struct tti_op *op, enum tti_carrier carrier, uint64_t began, tutti_status status);

static inline bool tti_traced(const tutti_comm *comm)
{
    return __builtin_expect(comm->trace != NULL, 0);
}

/* Records that the operation that was numbered last begins. */
static inline void tti_trace_begin(struct tti_op *op)
{
    if (tti_traced(op->comm)) tti_trace_note_begin(op);
}

/* Records that a step of its plan has been done. */
static inline void tti_trace_step(struct tti_op *op, const struct tti_step *step)
{
    if (tti_traced(op->comm)) tti_trace_note_step(op, step);
}

/* Records that all ranks that it needs have come. */
static inline void tti_trace_meeting(struct tti_op *op)
{
    if (tti_traced(op->comm)) tti_trace_note_meeting(op);
}

static inline void tti_trace_end(struct tti_op *op, tutti_status status, bool started)
{
    if (tti_traced(op->comm)) tti_trace_note_end(op, status, started);
}

/* Records that it has shown the others that it came. */
static inline void tti_trace_entry(struct tti_op *op)
{
    if (tti_traced(op->comm)) tti_trace_note_entry(op);
}

/* Returns true if the comm is traced and so many polls were in vain that the wait is to be timed. */
static inline void tti_trace_poll(tutti_comm *comm, uint32_t polls)
{
    if (polls <= TTI_TRACE_POLLS && (polls & (polls - 1)) == 0) tti_trace_note_poll(comm, polls);
}

/* To be called around a call that moves messages. */
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
