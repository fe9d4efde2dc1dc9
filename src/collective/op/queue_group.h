/* SPDX-License-Identifier: Apache-2.0
 *
 * The op of a group: it ends when all its parts have. A part is an op like others in the queue of its comm, or the
 * messages of that comm. The thread that ends a part tells the group, and the thread that ends the last part ends the
 * group's op, which is in no queue.
 *
 * Invariants: a part keeps its place until the group's op gives up its own, and from its end on its outcome is in the
 * group; so a comm without a part under way is not touched, and may be gone. The group's op counts as one in flight of
 * its comm, which is not freed before.
 */
#ifndef TTI_COLLECTIVE_QUEUE_GROUP_H
#define TTI_COLLECTIVE_QUEUE_GROUP_H

#include "collective/op/queue.h"

struct tti_group_part {
    struct tti_started *started; /* NULL: it failed before it was started */
    uint64_t id;                 /* id of its place; the place has another one once it is used anew */
    int side;
    int number; /* which call of the group it is, from 1 */
    tutti_status status;
    tutti_error *error; /* its error, if it has failed; NULL: memory ran out */
};

/* The group's parts on one of its comms. */
struct tti_group_side {
    tutti_comm *comm;
    _Atomic uint32_t left;       /* parts that have not ended */
    struct tti_started *last;    /* the last collective; NULL: there is none */
    struct tti_started *pending; /* the messages; NULL: there are none */
};

struct tti_group_op {
    struct tti_started *started; /* the op that its handle names */
    _Atomic uint32_t users;      /* its handle, and threads that cancel it */
    _Atomic uint32_t left;       /* parts that have not ended, and the thread that starts them */
    int side_count, part_count;
    struct tti_group_side *sides;
    struct tti_group_part parts[];
};

static inline bool tti_is_group(const struct tti_started *started)
{
    return started->group != NULL && started->group->started == started;
}

/* Makes a group's op with room for so many of both, all empty; NULL: no memory. A comm that starts ops must be ready
 * (tti_queue_ready). */
struct tti_started *tti_group_op_new(tutti_comm *comm, int sides, int parts);
/* Adds a part; `number`: that of its first call. */
void tti_group_op_add(struct tti_group_op *group, int side, struct tti_started *part, int number);
/* Adds a call that has failed before the start, on whatever comm. */
void tti_group_op_add_failed(struct tti_group_op *group, int number, const tutti_error *error);
/* Starts all parts; `start` starts one of them, which must end. */
void tti_group_op_start(struct tti_group_op *group, void (*start)(struct tti_started *part));

/* Returns true if some of its parts are put on streams. */
bool tti_group_is_on_streams(const struct tti_group_op *group);

/* Called by a thread that waits for it: ends messages that would wait for ever, since nobody else can be at their other
 * end. */
void tti_group_end_hopeless(struct tti_group_op *group);

/* For queue.c, handle.c and api_handle.c. Called when a part has ended: */
void tti_group_told(struct tti_started *part, tutti_status status);
tutti_status tti_group_await(struct tti_started *started, int64_t until_ns);
void tti_group_ask(struct tti_started *started, bool polls);
/* Asks for the end of all its parts: with the queue's lock of its comm held, and then without. */
void tti_group_cancel(struct tti_group_op *group);
void tti_group_wake(struct tti_group_op *group);
/* Called before a comm is freed: cancels its groups under way. Nobody starts ops on it any more. */
void tti_group_cancel_all(tutti_comm *comm);
/* Removes a user. The last one frees the group and its parts. */
void tti_group_release(struct tti_group_op *group);

#endif
