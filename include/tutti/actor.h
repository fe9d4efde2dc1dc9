/* SPDX-License-Identifier: Apache-2.0
 *
 * Tutti: actors, and requests to those of any rank. An actor has a mailbox, a handler that is given one request at a time,
 * and a supervisor that decides what becomes of it when it fails. It is known by its rank and its name.
 *
 *     static tutti_status count(tutti_actor *self, void *state, tutti_request *request)
 *     {
 *         int64_t *total = state;
 *         *total += *(const int64_t *)request->data;
 *         return tutti_request_answer(request, total, sizeof *total);
 *     }
 *     ...
 *     tutti_actors *actors;                                       every rank of the comm calls this
 *     tutti_actors_create(world, NULL, &actors);
 *     if (tutti_rank(world) == 0)
 *         tutti_actor_create(actors, &(tutti_actor_options){.struct_size = sizeof(tutti_actor_options),
 *                                                           .name = "counter", .handle = count, .context = &total});
 *     ...
 *     int64_t one = 1, now;                                       and any rank, any thread:
 *     tutti_actor_ask(actors, 0, "counter", &one, sizeof one, &now, sizeof now, NULL, 500);
 *
 * A request gets exactly one answer: the handler's, or an error when the handler fails, the mailbox is full, the rank is lost,
 * the deadline passes, the asker cancels, or one of the two sides shuts down; whichever comes first. What was asked may have been
 * done although the answer is an error. Requests of one rank to one actor are handled in the order in which they were made.
 *
 * Everything here may be called by any thread, handlers included, unless said otherwise. Conventions are those of tutti.h; the
 * details of the last error are in tutti_actors_error, and tutti_explain tells them. docs/actors.md says more; examples/actors.c is
 * a whole program.
 */
#ifndef TUTTI_ACTOR_H
#define TUTTI_ACTOR_H

#include <stdbool.h>
#include <tutti/device.h>
#include <tutti/tutti.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { TUTTI_ACTOR_NAME_BYTES = 48 }; /* with the zero at its end */

/* ---- All actors of a rank -------------------------------------------------------------------------------------- */

typedef struct tutti_actors tutti_actors; /* the actors of this rank, and the way to those of the others */

typedef struct tutti_actors_options {
    size_t struct_size;    /* sizeof(tutti_actors_options); 0 in the others: the default */
    int threads;           /* shared by the actors that have no thread of their own; 2 */
    size_t payload_bytes;  /* most bytes of a request or an answer, the same on all ranks; 16 MiB */
    int64_t deadline_ms;   /* of requests that name none; the world's: 30 min unless set */
    int64_t free_grace_ms; /* how long tutti_actors_free waits for handlers to return; 10 s */
} tutti_actors_options;

/* Collective over `comm`: every rank calls it, and has no actor at first. `options` may be NULL. The actors use a comm
 * of their own, which does without ranks that fail: a request does not disturb collectives, and a lost rank does not
 * disturb the requests of the others. */
TUTTI_API tutti_status tutti_actors_create(tutti_comm *comm, const tutti_actors_options *options,
                                           tutti_actors **actors);

/* Goes on after tutti_comm_rebuild, tutti_comm_shrink or tutti_comm_grow: the actors of this rank, their state and what
 * waits in their mailboxes stay, and requests go to the ranks of `comm`, which is of the new epoch, also to those that
 * were started again or have joined. Collective over `comm`: these call tutti_actors_create with the same payload_bytes
 * meanwhile. Earlier requests to other ranks have ended with the rank's loss or with ERR_EPOCH, and earlier requests of
 * other ranks are not answered. To be called before the old comm is freed, and not by a handler. Once it has failed on
 * a comm, it may be called on a later one. */
TUTTI_API tutti_status tutti_actors_renew(tutti_actors *actors, tutti_comm *comm);

/* Stops all actors of this rank, answers every request that is pending, in either direction, tells the other ranks, and
 * frees. Not collective; to be called once, before the comm is freed, and not by a handler (ERR_ARGUMENT). ERR_TIMEOUT
 * names a handler that has not returned; every other actor has ended, nothing is freed, and it may be called again.
 * NULL is ignored. */
TUTTI_API tutti_status tutti_actors_free(tutti_actors *actors);

/* Tells why the last call or request with this object failed, whichever thread made it; NULL: none has. Valid until the
 * calling thread asks again. A callback of tutti_when_ended is given the error of its own request. */
TUTTI_API const tutti_error *tutti_actors_error(tutti_actors *actors);

/* ---- Requests -------------------------------------------------------------------------------------------------- */
/* `rank` is of the comm that the actors were created on, this one included. `data` are copied before the call returns. A handler
 * should not wait for other actors unless it has a thread of its own; to wait for an answer of its own actor is refused.
 *
 *   ERR_ACTOR   nobody has that name there, the actor has stopped, or it gave no answer
 *   ERR_FULL    its mailbox is full
 *   ERR_COUNT   more bytes than payload_bytes
 *   other       the loss of the rank, the deadline, or what the handler failed with; the error says which */

/* Asks and waits for the answer, of at most `answer_bytes`; a longer one is ERR_TRUNCATED. *received (may be NULL) gets
 * its length. deadline_ms 0: that of the options. */
TUTTI_API tutti_status tutti_actor_ask(tutti_actors *actors, int rank, const char *name, const void *data, size_t bytes,
                                       void *answer, size_t answer_bytes, size_t *received, int64_t deadline_ms);
/* The same as an op; `answer` and `received` must stay until it has ended. Cancelling it disturbs no other request. */
TUTTI_API tutti_status tutti_actor_ask_start(tutti_actors *actors, int rank, const char *name, const void *data,
                                             size_t bytes, void *answer, size_t answer_bytes, size_t *received,
                                             int64_t deadline_ms, tutti_op *op);

/* Sends a request that needs no answer: OK as soon as it lies in the mailbox. */
TUTTI_API tutti_status tutti_actor_tell(tutti_actors *actors, int rank, const char *name, const void *data,
                                        size_t bytes);
/* The same as an op. One that was dropped and fails is logged. */
TUTTI_API tutti_status tutti_actor_tell_start(tutti_actors *actors, int rank, const char *name, const void *data,
                                              size_t bytes, tutti_op *op);

/* Watches an actor: the op ends when the actor does. OK: the actor was stopped; else the error that it failed with, or
 * that of its rank. */
TUTTI_API tutti_status tutti_actor_watch_start(tutti_actors *actors, int rank, const char *name, tutti_op *op);

/* ---- An actor -------------------------------------------------------------------------------------------------- */

typedef struct tutti_actor tutti_actor; /* as its own functions know it; good until its `stop` has returned */

typedef enum tutti_request_kind {
    TUTTI_ASKED, /* to be answered */
    TUTTI_TOLD,  /* nobody waits for an answer */
    TUTTI_TIMER, /* a timer of this actor */
    TUTTI_ENDED  /* an actor that this one watches has ended */
} tutti_request_kind;

/* A request as a handler is given it; valid until the handler returns. */
typedef struct tutti_request {
    size_t struct_size;
    tutti_request_kind kind;
    int rank;                 /* who sent it; ENDED: whose actor */
    const char *name;         /* ENDED: of the actor; else NULL */
    const void *data;         /* aligned to 16 bytes */
    size_t bytes;             /* of them */
    int64_t number;           /* TIMER: as it was set */
    const tutti_error *error; /* ENDED: why; NULL: it was stopped */
} tutti_request;

/* What the supervisor does with an actor that failed. */
typedef enum tutti_decision {
    TUTTI_RESTART, /* `stop`, then `start` again: a new state, the same mailbox */
    TUTTI_RESUME,  /* goes on with the next request and the same state */
    TUTTI_STOP,    /* it ends, and whoever watches it is told the error */
    TUTTI_ESCALATE /* it ends, and its parent fails with the same error */
} tutti_decision;

typedef struct tutti_actor_options {
    size_t struct_size; /* sizeof(tutti_actor_options); 0 or NULL in the others but `handle` and `name`: the default */
    const char *name;   /* printable, at most 47 bytes; of one actor of this rank at a time */
    const char *parent; /* name of the actor that it is a child of; NULL: of none */
    void *context;      /* given to the functions below */

    /* Handles one request. If it returns anything but OK the actor has failed with that (tutti_actor_fail adds a
     * sentence), and a request that it has not answered is answered with that. Calls of one actor's functions never
     * overlap, and no lock is held during one. */
    tutti_status (*handle)(tutti_actor *self, void *state, tutti_request *request);
    /* Makes the state, at first by whoever creates the actor, and again at each restart; NULL: `context` is the state. */
    tutti_status (*start)(tutti_actor *self, void *context, void **state);
    /* Frees the state, at each restart and at the end; its children have ended by then. */
    void (*stop)(tutti_actor *self, void *state);
    tutti_decision (*decide)(void *context, const tutti_error *error); /* NULL: always TUTTI_RESTART */

    int mailbox;  /* requests that may wait in it; 1024. Timers and deaths that were asked for always fit */
    int restarts; /* within restart_window_ms, after which a failure is escalated; 3, and -1: none */
    int64_t restart_window_ms; /* 60 s */
    bool pinned;               /* it has a thread of its own, and may wait for others without holding them up */
} tutti_actor_options;

/* Creates an actor of this rank. Fails as `start` does, or where the name is taken. */
TUTTI_API tutti_status tutti_actor_create(tutti_actors *actors, const tutti_actor_options *options);

/* Asks an actor to end: after the request that it handles now, and after its children have ended, it answers all other
 * requests with ERR_ACTOR, calls `stop`, and is forgotten. Does not wait: tutti_actor_watch_start tells of the end.
 * ERR_ACTOR: there is no actor of that name. */
TUTTI_API tutti_status tutti_actor_stop(tutti_actors *actors, const char *name);

/* ---- Inside of its functions ----------------------------------------------------------------------------------- */

/* Answers a request. ERR_ARGUMENT: the handler has answered it before, and that answer stands, or it expects none. If
 * the asker has given up, the answer is dropped, with OK. */
TUTTI_API tutti_status tutti_request_answer(tutti_request *request, const void *data, size_t bytes);
/* The same with an error, of `status` and with this sentence (may be NULL); the actor goes on. */
TUTTI_API tutti_status tutti_request_refuse(tutti_request *request, tutti_status status, const char *text);

/* Keeps a request to be answered later, by any thread. Returns its number, or 0 where it has been answered or expects
 * no answer. If a handler returns OK and has neither answered nor kept its request, the asker gets ERR_ACTOR: no
 * answer. So do the askers of requests that are still kept when the actor restarts or ends. */
TUTTI_API uint64_t tutti_request_keep(tutti_request *request);
/* Answers a kept request: with `data`, or with the error `status`, of which `data` is the sentence (NULL: the status'
 * own). ERR_HANDLE: it has been answered, or its actor is gone. */
TUTTI_API tutti_status tutti_actors_answer(tutti_actors *actors, uint64_t kept, tutti_status status, const void *data,
                                           size_t bytes);

/* Sets a timer of this actor: it gets a request of kind TIMER with this number after `after_ms`, and then every
 * `every_ms` unless that is 0. While such a request waits in the mailbox no second one is added. A timer replaces one
 * of the same number; after_ms -1 removes it. A restart removes all. To be called by the actor's own functions only. */
TUTTI_API tutti_status tutti_actor_timer(tutti_actor *self, int64_t number, int64_t after_ms, int64_t every_ms);
/* Gives this actor a request of kind ENDED when that actor ends, or at once if there is none; holds until this one
 * restarts. To be called by the actor's own functions only. */
TUTTI_API tutti_status tutti_actor_watch(tutti_actor *self, int rank, const char *name);

/* Notes a sentence for the error that the actor's function is about to return: `return tutti_actor_fail(self,
 * TUTTI_ERR_…, "…")`. */
TUTTI_API tutti_status tutti_actor_fail(tutti_actor *self, tutti_status status, const char *text);

TUTTI_API const char *tutti_actor_name(const tutti_actor *self);
TUTTI_API tutti_actors *tutti_actor_actors(const tutti_actor *self); /* to ask others */

/* ---- Devices as actors ----------------------------------------------------------------------------------------- */
/* A device with a stable address. It does one piece of work after the other; work that is sent while the device is
 * opened again waits in its queue. Every piece is answered.
 *
 *     static tutti_status scale(tutti_device *device, tutti_stream *stream, void *context, tutti_error *error) { … }
 *     tutti_device_actor(actors, "gpu", &(tutti_device_actor_options){.struct_size = sizeof(tutti_device_actor_options),
 *                                                                     .device = "cuda:0"});
 *     tutti_device_do_start(actors, "gpu", scale, &mine, 0, &op);              by any thread of this rank
 *
 * If work or its stream returns ERR_DEVICE, the work is answered with that, and the device is opened again: buffers of
 * the generation before are ERR_STALE then. If that happens too often in a row, or the device cannot be opened again (a
 * GPU after an illegal address: its process must be replaced), the actor ends, and all work that waits is answered with
 * ERR_ACTOR. */

/* A function that puts work on the stream; the answer comes when the stream has done it. If it returns anything but OK,
 * that is the answer, with `error`. */
typedef tutti_status tutti_device_work(tutti_device *device, tutti_stream *stream, void *context, tutti_error *error);

typedef struct tutti_device_actor_options {
    size_t struct_size;
    const char *device; /* as tutti_device_open */
    int queue;          /* pieces of work that may wait; 1024, and one more is ERR_FULL */
    int restarts;       /* how often in a row it is opened again before the actor ends; 3, and -1: never */
    int64_t sync_ms;    /* how long the stream may take for one; 30 s */
} tutti_device_actor_options;

/* Opens the device and makes it an actor of this rank, which closes it at its end. */
TUTTI_API tutti_status tutti_device_actor(tutti_actors *actors, const char *name,
                                          const tutti_device_actor_options *options);
/* Asks it to do some work. `context` must stay until the op has ended. */
TUTTI_API tutti_status tutti_device_do_start(tutti_actors *actors, const char *name, tutti_device_work *work,
                                             void *context, int64_t deadline_ms, tutti_op *op);
/* The same, and waits. */
TUTTI_API tutti_status tutti_device_do(tutti_actors *actors, const char *name, tutti_device_work *work, void *context,
                                       int64_t deadline_ms);
/* Opens the device again, after the work that waits before it. */
TUTTI_API tutti_status tutti_device_renew_start(tutti_actors *actors, const char *name, int64_t deadline_ms,
                                                tutti_op *op);

/* ---- Collectives as actors ------------------------------------------------------------------------------------- */
/* A collective is a request here, which any thread of its rank may make. */

typedef enum tutti_collective {
    TUTTI_DO_BARRIER, /* none of the fields below */
    TUTTI_DO_ALL_REDUCE,
    TUTTI_DO_REDUCE,
    TUTTI_DO_BROADCAST,
    TUTTI_DO_ALL_GATHER,
    TUTTI_DO_REDUCE_SCATTER,
    TUTTI_DO_ALL_TO_ALL,
    TUTTI_DO_GATHER,
    TUTTI_DO_SCATTER,
    TUTTI_DO_SCAN,
    TUTTI_DO_EXSCAN,
    TUTTI_DO_ALL_GATHER_V,
    TUTTI_DO_GATHER_V,
    TUTTI_DO_SCATTER_V,
    TUTTI_DO_REDUCE_SCATTER_V,
    TUTTI_DO_ALL_TO_ALL_V,
    TUTTI_DO_SEND, /* messages; a pair that exchanges something asks for both in one request */
    TUTTI_DO_RECV,
    TUTTI_DO_COLLECTIVES
} tutti_collective;

/* The arguments of the call of that name. Buffers, counts and offsets must stay until the request has ended; a request
 * that was given up, by its deadline or by cancelling it, may still be carried out. */
typedef struct tutti_collective_call {
    tutti_collective kind;
    const void *in;
    void *out;
    size_t count; /* RECV: the room in `out`, where a shorter message fits, too */
    tutti_type type;
    tutti_reduction reduction;              /* not of all */
    int root;                               /* likewise */
    const size_t *counts, *offsets;         /* of the v-forms; of ALL_TO_ALL_V those of `in` */
    const size_t *out_counts, *out_offsets; /* of ALL_TO_ALL_V */
    int peer, tag;                          /* of SEND and RECV; TUTTI_NOBODY: this rank has no part in it */
} tutti_collective_call;

/* Collective over `comm`: makes a duplicate of it, which the new actor of this rank owns. Every rank then asks its
 * own actor for the same calls in the same order; two actors of different names do not wait for each other. */
TUTTI_API tutti_status tutti_collective_actor(tutti_actors *actors, tutti_comm *comm, const char *name);
/* Goes on with a duplicate of another comm: after tutti_actors_renew with one of the new epoch, or where the actor's comm
 * was broken by a deadline. Collective over `comm`: ranks that were started again, or have joined, call
 * tutti_collective_actor meanwhile. Requests from before are answered first, with what their comm gives; the call waits
 * for that. ERR_ARGUMENT: this rank has no such actor. Not to be called by a handler. */
TUTTI_API tutti_status tutti_collective_renew(tutti_actors *actors, tutti_comm *comm, const char *name);
/* `count` calls, which start and end together. The comm has the same deadline: if others do not come, the request is
 * answered with ERR_TIMEOUT and the comm is broken, as after every other failure of it; later requests are answered
 * with the reason until it is renewed. */
TUTTI_API tutti_status tutti_collective_do_start(tutti_actors *actors, const char *name,
                                                 const tutti_collective_call *calls, size_t count, int64_t deadline_ms,
                                                 tutti_op *op);
/* The same, and waits. */
TUTTI_API tutti_status tutti_collective_do(tutti_actors *actors, const char *name, const tutti_collective_call *calls,
                                           size_t count, int64_t deadline_ms);

/* ---- Worlds as actors ------------------------------------------------------------------------------------------ */
/* An actor that is a world of this process alone: each rank is a thread and an actor, too ("NAME.0" and so on). All
 * ranks carry out one request after the other; each is answered once, when all ranks are done.
 *
 *     tutti_world_actor(actors, "world", &(tutti_world_actor_options){.struct_size = sizeof(tutti_world_actor_options),
 *                                                                     .ranks = 4});
 *     for (int r = 0; r < 4; r++) calls[r] = (tutti_collective_call){TUTTI_DO_ALL_REDUCE, x[r], x[r], n, TUTTI_F32, TUTTI_SUM};
 *     tutti_world_do(actors, "world", &(tutti_world_request){.struct_size = sizeof(tutti_world_request), .calls = calls,
 *                                                            .count = 1, .retries = 2});       by any thread of this process
 *
 * When one rank fails, the others' parts of the request end, too. Its device is opened again, its actor is made again
 * if it had ended, and all ranks join anew: the next request meets a whole world. The request itself is tried again or
 * answered with the reason. */

typedef struct tutti_world_actor_options {
    size_t struct_size;
    int ranks;           /* threads; 0: one for each of `devices` */
    const char *devices; /* "host" or "cuda:0,cuda:1", which ranks take in turn; NULL: none */
    int queue;           /* requests that may wait; 1024, and one more is ERR_FULL */
    int rebuilds;        /* how often in a row the world is made anew before the actor ends; 3, and -1: never */
} tutti_world_actor_options;

/* The arguments of a rank's part of a request; valid until it returns. */
typedef struct tutti_world_place {
    size_t struct_size;
    int rank, size;
    tutti_comm *comm;     /* its ops have ended when the function returns */
    tutti_device *device; /* and a stream on it, which is waited for; NULL where the world has none */
    tutti_stream *stream;
    int attempt;         /* from 1; more: the world was made anew, and the request is tried again */
    uint64_t rebuilds;   /* of this world so far */
    int64_t deadline_ms; /* that the request has left */
} tutti_world_place;

/* The function of a rank's part. If it returns anything but OK this rank has failed, with `error`. It is called on all
 * ranks at once, and should keep the deadline: where it has not returned soon after, the request is answered with
 * ERR_TIMEOUT, which names the rank, and nothing else is carried out before it returns; `context` must stay until then. */
typedef tutti_status tutti_world_work(const tutti_world_place *place, void *context, tutti_error *error);

typedef struct tutti_world_request {
    size_t struct_size;
    const tutti_collective_call
        *calls; /* (ranks, count): of each rank `count` calls, which start and end together; with devices
                                         * they are put on the rank's stream, and their memory is the device's */
    size_t count;
    tutti_world_work *work; /* in place of calls */
    void *context;
    int retries; /* how often it is tried again when a rank or its device was lost; 0: it is answered with that */
    int64_t deadline_ms; /* 0: that of the actors' options */
} tutti_world_request;

/* Starts the ranks. The actor ends, and what waits is answered with ERR_ACTOR, when the world cannot be made anew,
 * or failed more often in a row than `rebuilds` says. */
TUTTI_API tutti_status tutti_world_actor(tutti_actors *actors, const char *name,
                                         const tutti_world_actor_options *options);
/* Starts a request. What it refers to must stay until all ranks are done; the struct itself and the list of calls need
 * not. */
TUTTI_API tutti_status tutti_world_do_start(tutti_actors *actors, const char *name, const tutti_world_request *request,
                                            tutti_op *op);
/* The same, and waits. */
TUTTI_API tutti_status tutti_world_do(tutti_actors *actors, const char *name, const tutti_world_request *request);

#ifdef __cplusplus
}
#endif
#endif
