/* SPDX-License-Identifier: Apache-2.0
 *
 * The op of a group: it ends when all its parts have. A part is an op like others in the queue of its comm, or the messages
 * of that comm. Whoever ends a part tells the group, and whoever ends the last one ends the group's op, which is in no queue.
 *
 * Invariants: a part keeps its place until the group's op gives up its own, and what has become of it is in the group from its
 * end on; so a comm that has no part under way is not touched, and may be gone. The group's op counts as one in flight of its
 * comm, which is not freed before.
 */
#ifndef TTI_COLLECTIVE_QUEUE_GROUP_H
#define TTI_COLLECTIVE_QUEUE_GROUP_H

#include "collective/op/queue.h"

struct tti_group_part {
    struct tti_started *started; /* NULL: it has failed before */
    uint64_t id;                 /* of its place; another one once that is somebody else's */
    int side;
    int number; /* which call of the group it is, from 1 */
    tutti_status status;
    tutti_error *error; /* where it has failed; NULL when memory ran out */
};

/* One of its comms. */
struct tti_group_side {
    tutti_comm *comm;
    _Atomic uint32_t left;       /* parts that have not ended */
    struct tti_started *last;    /* collective; NULL: there is none */
    struct tti_started *pending; /* likewise */
};

struct tti_group_op {
    struct tti_started *started; /* of its handle */
    _Atomic uint32_t users;      /* its handle, and who cancels it */
    _Atomic uint32_t left;       /* parts that have not ended, and who starts them */
    int side_count, part_count;
    struct tti_group_side *sides;
    struct tti_group_part parts[];
};

static inline bool tti_is_group(const struct tti_started *started)
{
    return started->group != NULL && started->group->started == started;
}

/* With room for so many of both, all empty; NULL: no memory. A comm that starts ops must be ready (tti_queue_ready). */
struct tti_started *tti_group_op_new(tutti_comm *comm, int sides, int parts);
/* `number`: of the first call that it is about. */
void tti_group_op_add(struct tti_group_op *group, int side, struct tti_started *part, int number);
/* A call that has failed before the start, on whatever comm. */
void tti_group_op_add_failed(struct tti_group_op *group, int number, const tutti_error *error);
/* `start` starts one of its parts, which must end. */
void tti_group_op_start(struct tti_group_op *group, void (*start)(struct tti_started *part));

/* True if some of its parts are put on streams. */
bool tti_group_is_on_streams(const struct tti_group_op *group);

/* By who waits for it: messages that would wait for ever, since nobody else can be at their other end. */
void tti_group_end_hopeless(struct tti_group_op *group);

/* For queue.c, handle.c and api_handle.c. A part has ended: */
void tti_group_told(struct tti_started *part, tutti_status status);
tutti_status tti_group_await(struct tti_started *started, int64_t until_ns);
void tti_group_ask(struct tti_started *started, bool polls);
/* Asks for the end of all its parts: with the queue's lock of its comm held, and then without. */
void tti_group_cancel(struct tti_group_op *group);
void tti_group_wake(struct tti_group_op *group);
/* Before a comm is freed: those under way. Nobody starts ops on it any more. */
void tti_group_cancel_all(tutti_comm *comm);
/* One of its users does without it. The last one frees it and its parts. */
void tti_group_release(struct tti_group_op *group);

#endif
