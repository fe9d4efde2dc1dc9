/* SPDX-License-Identifier: Apache-2.0
 *
 * Walks plans step by step, for the providers. Nothing here blocks: a step that must wait returns IN_PROGRESS, and
 * op->waiting_for says for which rank.
 */
#ifndef TTI_COLLECTIVE_RUN_H
#define TTI_COLLECTIVE_RUN_H

#include "collective/engine/engine.h"

/* ---- The walk (run.c) ---- */

/* Finds the plan for a shape, and goes to its first step. */
tutti_status tti_run_build(struct tti_op *op, const struct tti_shape *shape, const struct tti_hosts *hosts);
/* Does the plan's steps up to the next one of this kind, or to its end. Over messages it is called with the net's lock
 * held. */
enum { TTI_STEP_NONE = -1 };
tutti_status tti_run_to(struct tti_op *op, int kind);
/* Breaks the comm. */
tutti_status tti_run_no_memory(struct tti_op *op);

/* ---- Steps between ranks that share memory (steps_post.c) ---- */

/* Returns the value that a rank has published at this point of the operation. */
static inline uint64_t tti_mark(const struct tti_op *op, uint32_t number)
{
    return op->comm->sequence << 32 | number;
}

/* Waiting ranks poll it, so it lies apart from fields that change with every operation. */
static inline void tti_post_show_core(struct tti_post *post)
{
    int core = tti_core_now();
    if (atomic_load_explicit(&post->core, memory_order_relaxed) != core)
        atomic_store_explicit(&post->core, core, memory_order_relaxed);
}

/* Writes the call into this rank's slot, which is free. The parts that others read seldom are written first, so that
 * those in the entry's cache line are written right before the entry: others may be polling that line, and would take
 * it away in between. */
static inline void tti_post_show(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    int place = comm->memory->place;
    struct tti_post *post = &comm->memory->posts[place];
    uint64_t *shown = &comm->memory->shown[comm->sequence & (comm->memory->window - 1)];
    if (op->edition == 0 || op->edition != *shown) *tti_call_of(comm, place, comm->sequence) = op->call;
    *shown = op->edition;
    if (comm->traits.crowded) tti_post_show_core(post);
    atomic_store_explicit(&post->progress, comm->sequence << 32, memory_order_release);
}

/* Writes into the slot where this rank's buffers lie. Returns true if some rank cannot reach one of them. */
bool tti_post_show_places(struct tti_op *op);
/* Called when all have entered and written their places: refuses those of another epoch, before anything is touched. */
tutti_status tti_post_check_places(struct tti_op *op);
void tti_post_enter(struct tti_op *op);
static inline void tti_post_publish(struct tti_op *op, uint32_t number)
{
    struct tti_posts *memory = op->comm->memory;
    atomic_store_explicit(&memory->posts[memory->place].progress, tti_mark(op, number), memory_order_release);
    tti_comm_ring(op->comm, number == TTI_FAILED);
}
/* Returns OK if a rank, or all others, have entered and published the number; 0: have entered. */
tutti_status tti_post_seen(struct tti_op *op, int peer, uint32_t number);
tutti_status tti_post_seen_all(struct tti_op *op, uint32_t number);
tutti_status tti_post_all_entered(struct tti_op *op);
/* Waits until all others have entered that operation. */
tutti_status tti_post_await_slot(struct tti_op *op, uint64_t needed);
/* Called when the op failed: this rank touches no other's memory any more. */
void tti_post_stop(struct tti_op *op);
/* Returns true if the rank at that place has entered the same call and not left it. */
bool tti_post_is_in(const struct tti_op *op, int place);
/* Returns true if it may, besides, still touch this rank's buffers: by their address, or `attached` from another
 * process. */
bool tti_post_may_touch(const struct tti_op *op, int place, bool attached);

/* ---- Steps that move data (steps_memory.c) ---- */

/* Moves the data of a step. IN_PROGRESS: the comm broke, or the rank whose memory is read has ended. */
tutti_status tti_step_move(struct tti_op *op, const struct tti_step *step);
/* Returns where a rank's memory lies for this one in the plan's present turn; NULL: it is another process's. */
char *tti_op_address(const struct tti_op *op, int rank, enum tti_space space, uint64_t offset);
/* Returns where a rank's buffer lies, as the rank said when it entered. */
const struct tti_place *tti_op_place(const struct tti_op *op, int rank, enum tti_space space);
/* Returns the factors of the ranks in comm->engine->sources; NULL: the reduction has none. */
const double *tti_op_factors(const struct tti_op *op);

/* ---- Steps over links, with the net's lock held (steps_link.c) ---- */

/* Makes room for the messages that a plan posts. Returns false if there is no memory. */
bool tti_link_make_room(struct tti_op *op);
/* Does SEND, RECV, AWAIT and DRAIN steps. */
tutti_status tti_link_step(struct tti_op *op, const struct tti_step *step);
/* Called when all posted messages are done, or there is none yet: their places can be used again. */
void tti_link_begin(struct tti_lanes *lanes);
/* Called after a frame, or a question, showed that a peer is in another call: finds out in which, which breaks the
 * comm. */
tutti_status tti_link_mismatch(struct tti_op *op);

/* ---- Parts (parts.c) ---- */

/* Returns true if ranks do each other's parts of this operation. */
static inline bool tti_has_parts(const struct tti_op *op)
{
    return op->comm->traits.shares_parts && op->shape.path == TTI_DIRECT && op->shape.tables == NULL &&
           op->reducer.code != TTI_REDUCE_FUNCTION;
}
tutti_status tti_run_parts(struct tti_op *op);

#endif
