/* SPDX-License-Identifier: Apache-2.0
 *
 * A world of this process as an actor. Below it is an actor for each rank, with a thread of its own. The world's actor
 * makes and leaves the ranks' comms, lets all ranks carry out a request, and waits for all of them before it does
 * anything else.
 *
 * Invariants:
 *   - A rank's comm is used by its actor while a request runs, and by the world's actor at all other times.
 *   - A rank that fails or ends while a request runs revokes its comm, once, so that no other rank waits for it.
 *   - After a request in which any rank failed, nothing is carried out before the world was made anew.
 *   - A rank that has not returned long after the deadline is late. Its comm, its result and the request stay until it
 *     returns, and nothing else is carried out.
 */
#ifndef TTI_ACTOR_WORLD_RANKS_H
#define TTI_ACTOR_WORLD_RANKS_H

#include "actor/actors.h"
#include <stdalign.h>

enum { TTI_THREAD_WORLD_DEVICE_BYTES = 64 };
/* Ranks are waited for so long behind a request's deadline, and its asker waits longer: it is to hear which rank is late. */
enum { TTI_THREAD_WORLD_PATIENCE_MS = 1000, TTI_THREAD_WORLD_GRACE_MS = 2000 };

struct tti_thread_world_rank {
    struct tti_thread_world *world;
    int number;
    char name[TUTTI_ACTOR_NAME_BYTES + 12];
    char device_name[TTI_THREAD_WORLD_DEVICE_BYTES]; /* "": none */
    tutti_device *device;
    tutti_stream *stream;
    tutti_comm *comm;
    _Atomic uint32_t lock; /* guards `comm` and `revoked` between the threads that revoke and that leave the comm */
    bool revoked;
    bool caused;        /* it failed before its comm was broken, so others may have failed because of it */
    bool late;          /* it has not returned; used by the world's actor */
    tutti_error result; /* the result of the request that runs */
};

struct tti_thread_world {
    tutti_actors *actors;
    char name[TUTTI_ACTOR_NAME_BYTES];
    int size, rebuilds;
    int failures;                         /* failures since a request was carried out last */
    bool made;                            /* the ranks and comms exist */
    uint64_t generation;                  /* how often it was made anew */
    _Atomic bool running;                 /* the ranks carry out a request */
    struct tti_thread_world_asked *asked; /* the request that they carry out, or have carried out last */
    tutti_op *ops;                        /* (size) of ranks that have not answered */
    struct tti_thread_world_rank *ranks;  /* (size) */
};

/* The data of a request; calls follow it, those of rank 0 first. */
struct tti_thread_world_asked {
    tutti_world_work *work; /* NULL: the request is a list of calls */
    void *context;
    int64_t until_ns;
    size_t count; /* the number of each rank's calls */
    int retries;
    alignas(16) tutti_collective_call calls[];
};

/* The data for a rank's actor: the request, which stays until all ranks have answered. */
struct tti_thread_world_part {
    const struct tti_thread_world_asked *request;
    int attempt;
};

/* Leaves the old world, as far as there is one, and makes it anew: devices that have failed, actors that have ended,
 * comms. */
tutti_status tti_thread_world_make(struct tti_thread_world *world, tutti_error *error);
void tti_thread_world_free(struct tti_thread_world *world);
/* Breaks a rank's comm, if a request runs and that was not done yet. Called by its actor, or by the world's if that has
 * ended. */
void tti_thread_world_revoke(struct tti_thread_world_rank *rank);
tutti_decision tti_thread_world_end_it(void *context, const tutti_error *error);

#endif
