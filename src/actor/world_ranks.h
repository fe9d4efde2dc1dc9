/* SPDX-License-Identifier: Apache-2.0
 *
 * A world of this process as an actor. Under it is an actor for each rank, with a thread of its own. The world's actor makes and
 * leaves the ranks' comms, has all ranks carry out a request, and waits for all of them before it does anything else.
 *
 * Invariants:
 *   - A rank's comm is used by its actor while a request runs, and by the world's actor at all other times.
 *   - A rank that fails or ends while a request runs revokes its comm, once, so that no other rank waits for it.
 *   - After a request that any rank failed in, nothing is carried out before the world was made anew.
 */
#ifndef TTI_ACTOR_WORLD_RANKS_H
#define TTI_ACTOR_WORLD_RANKS_H

#include "actor/actors.h"
#include <stdalign.h>

enum { TTI_THREAD_WORLD_DEVICE_BYTES = 64, TTI_THREAD_WORLD_GRACE_MS = 2000 };

struct tti_thread_world_rank {
    struct tti_thread_world *world;
    int number;
    char name[TUTTI_ACTOR_NAME_BYTES + 12];
    char device_name[TTI_THREAD_WORLD_DEVICE_BYTES]; /* "": none */
    tutti_device *device;
    tutti_stream *stream;
    tutti_comm *comm;
    _Atomic uint32_t lock; /* of `comm` and `revoked`, between whoever revokes it and whoever leaves it */
    bool revoked;
    bool caused;        /* it failed before its comm was broken, so others may fail because of it */
    tutti_error result; /* of the request that runs */
};

struct tti_thread_world {
    tutti_actors *actors;
    char name[TUTTI_ACTOR_NAME_BYTES];
    int size, rebuilds;
    int failures;                        /* since a request was carried out last */
    bool made;                           /* ranks and comms are there */
    uint64_t generation;                 /* how often it was made anew */
    _Atomic bool running;                /* a request is given to the ranks */
    tutti_op *ops;                       /* (size) */
    struct tti_thread_world_rank *ranks; /* (size) */
};

/* What a request holds; calls follow it, those of rank 0 first. */
struct tti_thread_world_asked {
    tutti_world_work *work; /* NULL: calls */
    void *context;
    int64_t until_ns;
    size_t count; /* of each rank's calls */
    int retries;
    alignas(16) tutti_collective_call calls[];
};

/* What a rank's actor is asked: the request, which stays until all ranks have answered. */
struct tti_thread_world_part {
    const struct tti_thread_world_asked *request;
    int attempt;
};

/* Leaves what there is of the world and makes it: devices that have failed, actors that have ended, comms. */
tutti_status tti_thread_world_make(struct tti_thread_world *world, tutti_error *error);
void tti_thread_world_free(struct tti_thread_world *world);
/* Breaks a rank's comm, if a request runs and that was not done yet. By its actor, or where that has ended. */
void tti_thread_world_revoke(struct tti_thread_world_rank *rank);
tutti_decision tti_thread_world_end_it(void *context, const tutti_error *error);

#endif
