/* SPDX-License-Identifier: Apache-2.0
 *
 * Actors of one rank. One lock guards the actors and the mailboxes; it is held for moments only.
 *
 * Invariants:
 *   - No function of a user runs, no op ends and no message is sent while the lock is held.
 *   - One thread at a time runs an actor: while `scheduled` it is on its crew's list, or a worker has it.
 *   - A request is answered by the thread that first sets `answered` (tti_request_end), and by no other.
 */
#ifndef TTI_ACTOR_ACTORS_H
#define TTI_ACTOR_ACTORS_H

#include "base/list.h"
#include "base/task.h"
#include "base/wait.h"
#include "collective/op/queue_external.h"
#include <stdalign.h>
#include <tutti/actor.h>

#define TTI_MS INT64_C(1000000)

/* ---- Due at a time (due.c) ------------------------------------------------------------------------------------- */

enum tti_due_kind { TTI_DUE_DEADLINE, TTI_DUE_TIMER };
struct tti_due {
    enum tti_due_kind kind; /* part of a struct tti_request, or of a struct tti_timer */
    int64_t at_ns;
    size_t place; /* the place in the heap, from 1; 0: it is not in the heap */
};

/* Things that are due, the earliest first; a task sleeps until then. */
struct tti_dues {
    struct tti_due **heap; /* the heap, from 1 */
    size_t count, room;
    struct tti_task task;
    tti_bell bell;
    _Atomic bool sleeps;
    _Atomic bool stops;
};

/* ---- Requests (actor_request.c) -------------------------------------------------------------------------------------- */

struct tti_request {
    struct tti_external op; /* used if it was asked on this rank, with `has_op` */
    tutti_request seen;     /* the part that the handler sees */
    struct tti_link on;     /* on a mailbox, or among the watchers of an actor */
    struct tti_link of;     /* on its actor's list of kept requests, or on its watcher's list */
    tutti_actors *actors;
    tutti_actor *actor;   /* the actor of this rank that answers it; or NULL */
    tutti_actor *watcher; /* the actor that is told of an end; under the lock; or NULL */
    _Atomic uint32_t users;
    _Atomic bool answered;
    bool has_op;
    bool queued;  /* it is in a mailbox, or among watchers; under the lock */
    bool handled; /* the handler has answered or kept it */
    bool awaited; /* a thread waits, or has waited, for its op */
    void *answer; /* the caller's memory for the answer: (room) bytes */
    size_t room;  /* bytes of `answer` */
    size_t *received;
    struct tti_due due;
    int64_t deadline_ms;
    int peer;                          /* for a request from here: the rank that was asked */
    int source;                        /* for a request of another rank: that rank; else -1 */
    struct tti_remote *remote;         /* for a request of another rank: the connection by which it came */
    uint64_t source_number;            /* its number on that rank */
    uint64_t pending;                  /* its number here while the answer of another rank is awaited; under the lock */
    uint64_t kept;                     /* its number while it is kept; under the lock */
    tutti_error *error;                /* the error of an end that is told to a watcher; or NULL */
    char name[TUTTI_ACTOR_NAME_BYTES]; /* the name of the actor that is asked */
    alignas(16) unsigned char data[];
};
static inline struct tti_request *tti_request_of(tutti_request *seen)
{
    return TTI_LIST_OF(seen, struct tti_request, seen);
}

/* Requests by number: a number holds a place, and how often the place was used. */
struct tti_numbers {
    struct tti_number {
        struct tti_request *request; /* NULL: free */
        uint32_t uses, next_free;    /* places from 1 */
    } * places;
    uint32_t count, free;
};

struct tti_timer {
    struct tti_due due;
    struct tti_link on; /* on its actor's list */
    tutti_actor *actor;
    int64_t number, every_ns;
    struct tti_request *request; /* put into the mailbox each time */
};

/* ---- Threads (worker.c) ---------------------------------------------------------------------------------------- */

struct tti_worker {
    struct tti_crew *crew;
    struct tti_task task;
    tutti_actor *running; /* the actor whose function it calls; used by its own thread only */
};

/* Threads that run the actors of one list. A pinned actor has a crew of one. */
struct tti_crew {
    tutti_actors *actors;
    struct tti_link ready;
    _Atomic uint32_t ready_count;
    tti_bell bell;
    _Atomic uint32_t sleepers;
    _Atomic bool stops; /* it ends when nothing is ready any more */
    _Atomic bool ended; /* its one worker has ended */
    struct tti_crew *next;
    int count;
    struct tti_worker workers[];
};

/* ---- Actors (actor.c, supervise.c) ----------------------------------------------------------------------------- */

enum tti_actor_phase {
    TTI_STARTING,   /* its first `start` runs */
    TTI_RUNNING,    /* requests are handled */
    TTI_RESTARTING, /* `stop` and `start` come next, once its children have ended */
    TTI_STOPPING    /* its end comes next */
};

struct tutti_actor {
    tutti_actors *actors;
    struct tti_crew *crew;
    tutti_actor_options options; /* `name` and `parent` are not used */
    char name[TUTTI_ACTOR_NAME_BYTES];
    tutti_actor *next; /* the next one with the same hash */
    tutti_actor *parent;
    struct tti_link children, sibling;
    struct tti_link on; /* on its crew's list */
    bool scheduled;
    bool has_state;
    bool stop_asked; /* it was stopped while it was starting */
    enum tti_actor_phase phase;
    _Atomic bool wanted;     /* its worker must check phase and failure before the next request */
    struct tti_link mailbox; /* requests, in order */
    struct tti_link taken;   /* earlier requests, taken by its worker, which alone uses them */
    _Atomic int queued;      /* how many of both count for the mailbox's size */
    struct tti_link kept, watchers, watches, timers;
    void *state;
    tutti_error said;      /* set by tutti_actor_fail, for the function that runs now */
    tutti_error *failure;  /* a child's failure with which it must fail; or NULL */
    tutti_error *why;      /* why it ends; NULL: it was stopped */
    int64_t *restarted_ns; /* (options.restarts) when it was restarted, as a ring */
    uint64_t restart_count;
};

enum { TTI_ACTOR_BUCKETS = 256 };
struct tutti_actors {
    tutti_comm *_Atomic comm; /* its own, for messages and ops; a new one after tutti_actors_renew */
    tutti_comm *parent;       /* the comm on which it was created */
    tutti_actors_options options;
    unsigned fork_count;
    _Atomic uint32_t lock;
    tutti_actor *buckets[TTI_ACTOR_BUCKETS];
    int actor_count;
    bool closing; /* no new requests are taken */
    struct tti_crew *pool, *pinned;
    struct tti_dues dues;
    struct tti_numbers numbers;
    tti_bell ended;                    /* rung when an actor has ended, or a handle was given back */
    _Atomic uint32_t awaiting;         /* handles for which a thread has waited, and that are not given back */
    tutti_error error;                 /* the last error */
    struct tti_remote *_Atomic remote; /* NULL: there is no other rank */
    struct tti_former *former;         /* comms of earlier epochs, of which handles may be left */
};
struct tti_former {
    tutti_comm *comm;
    struct tti_remote *remote;
    struct tti_former *next;
};

static inline void tti_actors_lock(tutti_actors *actors)
{
    tti_lock(&actors->lock);
}
static inline void tti_actors_unlock(tutti_actors *actors)
{
    tti_unlock(&actors->lock);
}

/* Fills in an error of these actors: "rank 1: …". Returns its status. */
tutti_status tti_actors_describe(const tutti_actors *actors, tutti_error *error, enum tti_kind kind,
                                 tutti_status status, int peer, const char *format, ...)
    __attribute__((format(printf, 6, 7)));
/* Notes an error that a call will return, or with which a request ends. tti_actors_note is called with the lock held,
 * tti_actors_refuse without it. */
void tti_actors_note(tutti_actors *actors, const tutti_error *error);
tutti_status tti_actors_refuse(tutti_actors *actors, const tutti_error *error);

/* due.c. Called with the lock held unless said otherwise. tti_due_add returns false if there is no memory. */
bool tti_due_add(tutti_actors *actors, struct tti_due *due);
void tti_due_remove(tutti_actors *actors, struct tti_due *due); /* ignores one that is not in the heap */
tutti_status tti_dues_start(tutti_actors *actors, tutti_error *error);
void tti_dues_stop(tutti_actors *actors); /* without the lock */
/* Forgets all timers of an actor. */
void tti_timers_clear(tutti_actor *actor);

/* actor_request.c */
struct tti_request *tti_request_new(tutti_actors *actors, tutti_request_kind kind, const char *name, const void *data,
                                    size_t bytes); /* NULL: no memory; it has one user */
void tti_request_hold(struct tti_request *request);
void tti_request_release(struct tti_request *request);
/* The only way to answer. `error` NULL: with these data. Returns false if it was answered before. The caller holds the
 * request, and not the lock. */
bool tti_request_end(struct tti_request *request, const tutti_error *error, const void *data, size_t bytes);
/* Puts a request to an actor of this rank into its mailbox, or among its watchers, which takes over one user of it; the
 * lock is held. After an error the request stays the caller's. */
tutti_status tti_request_deliver(struct tti_request *request, enum tti_kind kind, tutti_error *error);
uint64_t tti_number_add(tutti_actors *actors, struct tti_request *request); /* 0: no memory */
struct tti_request *tti_number_find(const tutti_actors *actors, uint64_t number);
void tti_number_remove(tutti_actors *actors, uint64_t number);
/* Ends every request that another rank (-1: any) should answer. Called without the lock. */
void tti_requests_end_pending(tutti_actors *actors, int peer, const tutti_error *error);

/* actor.c. The lock is held. */
tutti_actor *tti_actor_find(const tutti_actors *actors, const char *name);
void tti_actor_stop(tutti_actor *actor);
void tti_actor_forget(tutti_actor *actor); /* its name is free again */
tutti_status tti_actor_check_name(const char *name, const char **why);

/* worker.c */
struct tti_crew *tti_crew_new(tutti_actors *actors, int count, tutti_error *error);
void tti_crew_stop(struct tti_crew *crew);   /* it ends when nothing is ready; the lock may be held */
void tti_crew_free(struct tti_crew *crew);   /* waits for its end; without the lock */
void tti_actor_schedule(tutti_actor *actor); /* the lock is held */
/* Returns the worker whose thread calls, of any actors; NULL: it is none. */
struct tti_worker *tti_worker_here(void);

/* supervise.c. Called by the actor's worker, without the lock. */
void tti_actor_failed(tutti_actor *actor, const tutti_error *error);
/* Restarts or ends the actor, as its phase says, unless it has to wait for its children. */
void tti_actor_change(tutti_actor *actor);
/* Turns what one of its functions has returned into an error. */
void tti_actor_describe_failure(tutti_actor *actor, const char *function, tutti_status status, tutti_error *error);

/* actor_remote.c */
/* Opens the connection to the other ranks of this comm; NULL if there are none. After a failure it may be set, too, and
 * must be freed. */
tutti_status tti_remote_open(tutti_actors *actors, tutti_comm *comm, struct tti_remote **remote, tutti_error *error);
/* close: tells the other ranks. retire, for a comm of an earlier epoch: tells nobody; every request on it ends with
 * `why`. Then the comm is freed, and tti_remote_free is called. */
void tti_remote_close(struct tti_remote *remote);
void tti_remote_retire(struct tti_remote *remote, const tutti_error *why);
void tti_remote_free(struct tti_remote *remote);
/* Sends a request that has its number; an error ends the request. */
void tti_remote_ask(struct tti_request *request, enum tti_kind kind);
void tti_remote_answer(struct tti_request *request, const tutti_error *error, const void *data, size_t bytes);
/* Returns true if that rank can be asked; else sets why not. The lock is held. */
bool tti_remote_is_there(tutti_actors *actors, int peer, tutti_error *error);

#endif
