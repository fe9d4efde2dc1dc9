/* SPDX-License-Identifier: Apache-2.0
 *
 * Recording: readings of the clock, events, call sites. Nothing here takes memory or waits.
 */
#include "collective/comm/trace.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/sim.h"
#include <stdio.h>
#include <string.h>
#include <tutti/experimental.h>

_Static_assert(TTI_TRACE_SITES <= UINT8_MAX + 1, "a site's number is kept in a byte");

enum {
    TIMED_BYTES = 4096, /* a step that moves less takes hardly longer than reading the clock */
    PROBES = 8,         /* places of a site in its table */
    MORE_PROBES = 16    /* further places, found by its name, when these are taken */
};

/* ---- Ticks ----------------------------------------------------------------------------------------------------- */

#if defined(__x86_64__)
static uint64_t cycles(void)
{
    return __builtin_ia32_rdtsc();
}

/* Returns true if the system itself tells the time by the processor's counter: then it runs evenly and alike on all
 * cores. */
static bool cycles_are_time(void)
{
    char name[16] = "";
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/current_clocksource", "re");
    if (file == NULL) return false;
    bool read = fgets(name, sizeof name, file) != NULL;
    fclose(file);
    return read && strcmp(name, "tsc\n") == 0;
}
#else
static uint64_t cycles(void)
{
    return (uint64_t)tti_now_ns();
}

static bool cycles_are_time(void)
{
    return false;
}
#endif

uint64_t tti_trace_ticks(const struct tti_trace *trace)
{
    return trace->counts_cycles ? cycles() : (uint64_t)tti_now_ns();
}

/* A thread that loses its core between the two readings gets times that lie apart, so the closest of some pairs is
 * taken. */
struct tti_trace_moment tti_trace_moment(const struct tti_trace *trace)
{
    enum { TRIES = 8 };
    struct tti_trace_moment nearest = {0};
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < TRIES; i++) {
        uint64_t before = tti_trace_ticks(trace);
        int64_t ns = tti_now_ns();
        uint64_t apart = tti_trace_ticks(trace) - before;
        if (apart >= least) continue;
        least = apart;
        nearest = (struct tti_trace_moment){before + apart / 2, ns};
    }
    return nearest;
}

/* Converts cycles by the two moments at which both clocks were read: the trace's start, and now. */
int64_t tti_trace_ns(const struct tti_trace *trace, uint64_t ticks, struct tti_trace_moment now)
{
    struct tti_trace_moment start = trace->start;
    if (!trace->counts_cycles) return (int64_t)ticks;
    if (now.ticks <= start.ticks) return start.ns;
    double part = (double)(int64_t)(ticks - start.ticks) / (double)(now.ticks - start.ticks);
    return start.ns + (int64_t)(part * (double)(now.ns - start.ns));
}

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static bool make_row(struct tti_trace_row *row, size_t room)
{
    row->events = tti_calloc(room, sizeof *row->events);
    row->room = room;
    return row->events != NULL;
}

/* Writes to the row once, since the system gives memory at the first write: better now than in the middle of what is
 * timed. Of a large row only the beginning, since most of it may never be used. */
static void touch_row(struct tti_trace_row *row)
{
    enum { PAGE = 4096, MOST = 16 << 20 };
    volatile char *bytes = (char *)row->events;
    size_t all = row->room * sizeof *row->events;
    for (size_t i = 0; i < all && i < MOST; i += PAGE) bytes[i] = 0;
}

static void free_trace(struct tti_trace *trace)
{
    tti_free(trace->operations.events);
    tti_free(trace->messages.events);
    tti_free(trace);
}

/* While this is set, comms are traced without a file. */
static void (*on_step)(void);

void tutti_on_step(void (*hook)(void))
{
    on_step = hook;
}

bool tti_trace_create(tutti_comm *comm)
{
    static atomic_uint comms;
    const tutti_options *options = &comm->world->options;
    if (options->trace[0] == '\0' && on_step == NULL) return true;
    struct tti_trace *trace = tti_calloc(1, sizeof *trace);
    size_t room = (size_t)options->trace_events;
    if (trace == NULL || !make_row(&trace->operations, room) || !make_row(&trace->messages, room)) {
        if (trace != NULL) free_trace(trace);
        return false;
    }
    if (comm->traits.is_world) touch_row(&trace->operations);
    snprintf(trace->path, sizeof trace->path, "%s", options->trace);
    trace->number = atomic_fetch_add_explicit(&comms, 1, memory_order_relaxed);
    trace->counts_cycles = tti_sim == NULL && cycles_are_time();
    trace->start = tti_trace_moment(trace);
    comm->trace = trace;
    return true;
}

void tti_trace_name(tutti_comm *comm, const char *name)
{
    if (comm->trace != NULL) snprintf(comm->trace->name, sizeof comm->trace->name, "%s", name);
}

tutti_status tti_trace_finish(tutti_comm *comm)
{
    tutti_error error = {0};
    if (comm->trace == NULL) return TUTTI_OK;
    atomic_bool *missing = &comm->world->trace_lost; /* the world is told when it is left */
    bool written = comm->traits.fork_count == tti_fork_count() && comm->trace->path[0] != '\0';
    if (written && tti_trace_write(comm, &error) != TUTTI_OK) {
        tti_log(TUTTI_ERROR, "%s", error.text);
        atomic_store_explicit(missing, true, memory_order_relaxed);
    }
    free_trace(comm->trace);
    comm->trace = NULL;
    if (comm->traits.is_world && atomic_load_explicit(missing, memory_order_relaxed)) return TUTTI_ERR_SYSTEM;
    return error.status;
}

/* ---- Events ---------------------------------------------------------------------------------------------------- */

static struct tti_trace_event *next_event(struct tti_trace_row *row)
{
    struct tti_trace_event *event = &row->events[row->next];
    row->next = row->next + 1 == row->room ? 0 : row->next + 1;
    row->written++;
    return event;
}

static bool is_inside(const struct tti_site *site)
{
    return site->inside && site->name[0] != '\0';
}

static bool is_same(const struct tti_site *a, const struct tti_site *b)
{
    return a->line == b->line && strcmp(a->file, b->file) == 0 && strcmp(a->name, b->name) == 0 &&
           is_inside(a) == is_inside(b);
}

/* Returns the number of a site that is kept, from now on if not before, at one of some places from `start` on; 0: they
 * are taken. */
static uint8_t probe(struct tti_trace_row *row, const struct tti_site *site, uint32_t start, uint32_t places)
{
    for (uint32_t i = 0; i < places; i++) {
        uint32_t place = (start + i) % (TTI_TRACE_SITES - 1) + 1;
        struct tti_site *kept = &row->sites[place];
        if (kept->line == 0 && kept->name[0] == '\0') *kept = *site;
        if (is_same(kept, site)) return (uint8_t)place;
    }
    return 0;
}

/* Returns the number of a site, or 0 if it is not known or the table is full there. One line may give many names, as
 * ddp does when it sends out all parameters: if its places have no room for one, it goes where its name leads. */
static uint8_t number_of(struct tti_trace_row *row, const struct tti_site *site)
{
    if (site->line == 0 && site->name[0] == '\0') return 0;
    uint8_t number = probe(row, site, (uint32_t)site->line, PROBES);
    uint64_t hash = 0;
    if (number != 0) return number;
    for (const char *c = site->name; *c != '\0'; c++) hash = tti_mix(hash, (unsigned char)*c);
    return probe(row, site, (uint32_t)hash, MORE_PROBES);
}

static bool is_wait(const struct tti_step *step)
{
    return step->kind == TTI_STEP_WAIT || step->kind == TTI_STEP_AWAIT || step->kind == TTI_STEP_DRAIN;
}

/* Returns the rank that the last wait was for, or -1, and clears it. An op that has to wait sets it anew. */
static int take_awaited(struct tti_op *op)
{
    int peer = op->waiting_for;
    op->waiting_for = -1;
    return peer;
}

static int peer_of(struct tti_op *op, const struct tti_step *step)
{
    if (is_wait(step)) return take_awaited(op);
    return step->kind == TTI_STEP_SEND || step->kind == TTI_STEP_RECV ? step->peer : -1;
}

static void read_time(struct tti_trace *trace)
{
    trace->operations.last = tti_trace_ticks(trace);
}

void tti_trace_note_begin(struct tti_op *op)
{
    struct tti_trace *trace = op->comm->trace;
    struct tti_trace_row *row = &trace->operations;
    row->open = NULL;
    row->timed = op->comm->lanes != NULL || op->in_bytes >= TIMED_BYTES || op->out_bytes >= TIMED_BYTES;
    take_awaited(op);
    if (!row->timed) return;
    read_time(trace);
    row->began = row->last;
}

static struct tti_trace_event *note_op(struct tti_op *op)
{
    struct tti_trace_row *row = &op->comm->trace->operations;
    const struct tti_call *call = &op->call;
    struct tti_trace_event *event = next_event(row);
    *event = (struct tti_trace_event){.begin = row->began,
                                      .end = row->last,
                                      .bytes = op->in_bytes + op->out_bytes,
                                      .count = call->count,
                                      .sequence = (uint32_t)op->comm->sequence,
                                      .peer = call->root,
                                      .what = is_inside(&call->site) ? TTI_TRACE_INSIDE : TTI_TRACE_OP,
                                      .kind = call->kind,
                                      .type = call->type,
                                      .reduction = call->reduction,
                                      .site = number_of(row, &call->site)};
    return event;
}

void tti_trace_note_entry(struct tti_op *op)
{
    struct tti_trace_row *row = &op->comm->trace->operations;
    if (row->timed) return;
    read_time(op->comm->trace);
    row->began = row->last;
    row->open = note_op(op);
    row->opened = row->written;
}

void tti_trace_note_poll(tutti_comm *comm, uint32_t polls)
{
    struct tti_trace_row *row = &comm->trace->operations;
    if (row->timed) return;
    read_time(comm->trace);
    if (row->open == NULL) row->began = row->last; /* the op cannot even enter */
    row->timed = row->open == NULL || polls == TTI_TRACE_POLLS;
    if (row->open != NULL) row->open->end = row->last;
    if (row->timed) row->last = row->began; /* the first recorded step begins there */
}

void tti_trace_note_step(struct tti_op *op, const struct tti_step *step)
{
    struct tti_trace *trace = op->comm->trace;
    struct tti_trace_row *row = &trace->operations;
    uint64_t begin = row->last;
    if (on_step != NULL) on_step();
    if (!row->timed) return;
    if (step->bytes >= TIMED_BYTES || is_wait(step)) read_time(trace);
    *next_event(row) = (struct tti_trace_event){.begin = begin,
                                                .end = row->last,
                                                .bytes = step->bytes,
                                                .sequence = (uint32_t)op->comm->sequence,
                                                .peer = peer_of(op, step),
                                                .what = TTI_TRACE_STEP,
                                                .kind = step->kind};
}

void tti_trace_note_meeting(struct tti_op *op)
{
    struct tti_trace_row *row = &op->comm->trace->operations;
    uint64_t begin = row->last;
    if (!row->timed) return;
    read_time(op->comm->trace);
    *next_event(row) = (struct tti_trace_event){.begin = begin,
                                                .end = row->last,
                                                .sequence = (uint32_t)op->comm->sequence,
                                                .peer = take_awaited(op),
                                                .what = TTI_TRACE_MEETING};
}

void tti_trace_note_end(struct tti_op *op, tutti_status status, bool started)
{
    struct tti_trace_row *row = &op->comm->trace->operations;
    if (row->open != NULL && !row->timed && !started && status == TUTTI_OK) return;
    read_time(op->comm->trace);
    if (row->open == NULL && !row->timed) row->began = row->last; /* the op had no step */
    bool kept = row->open != NULL && row->written - row->opened < row->room;
    struct tti_trace_event *event = kept ? row->open : note_op(op);
    event->end = row->last;
    event->status = (int16_t)status;
    row->open = NULL;
}

/* Other ops were issued before this one has ended, so the row's own times are not about it. */
void tti_trace_note_on_stream(struct tti_op *op, enum tti_carrier carrier, uint64_t began, tutti_status status)
{
    struct tti_trace_event *event = note_op(op);
    event->what = TTI_TRACE_ON_STREAM;
    event->carrier = (uint8_t)carrier;
    event->begin = began;
    event->end = tti_trace_ticks(op->comm->trace);
    event->status = (int16_t)status;
}

void tti_trace_note_message_begin(tutti_comm *comm)
{
    struct tti_trace_row *row = &comm->trace->messages;
    row->site = number_of(row, &comm->caller.site); /* the caller's site is forgotten when the call ends */
    row->began = tti_trace_ticks(comm->trace);
}

void tti_trace_note_message(tutti_comm *comm, enum tti_kind kind, int peer, uint64_t bytes, tutti_status status)
{
    struct tti_trace_row *row = &comm->trace->messages;
    *next_event(row) = (struct tti_trace_event){.begin = row->began,
                                                .end = tti_trace_ticks(comm->trace),
                                                .bytes = bytes,
                                                .peer = peer,
                                                .what = TTI_TRACE_MESSAGE,
                                                .kind = (uint8_t)kind,
                                                .site = row->site,
                                                .status = (int16_t)status};
}

void tti_trace_note_pending(tutti_comm *comm, enum tti_kind kind, const struct tti_site *site, uint64_t began, int peer,
                            uint64_t bytes, tutti_status status)
{
    struct tti_trace_row *row = &comm->trace->messages;
    *next_event(row) = (struct tti_trace_event){.begin = began,
                                                .end = tti_trace_ticks(comm->trace),
                                                .bytes = bytes,
                                                .peer = peer,
                                                .what = TTI_TRACE_MAIL,
                                                .kind = (uint8_t)kind,
                                                .site = number_of(row, site),
                                                .status = (int16_t)status};
}
