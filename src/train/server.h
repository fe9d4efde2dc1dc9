/* SPDX-License-Identifier: Apache-2.0
 *
 * The parameter server inside the library.
 *
 * Elements of all parameters have one order, that of the list. Each server has a shard, successive blocks of them, with
 * the optimizer's state; an actor owns it, so that two threads never change it at once. The first server leads: it
 * knows the workers, how many steps each has made, and in which order updates are made.
 *
 * A push is two things: the worker's gradients are staged at each server (STAGE), and once all have acknowledged, it is
 * committed at the lead (COMMIT). The lead has every server add up what is staged (SUM, answered with sums of squares
 * for the norm) and then make one optimizer's step (APPLY). So an update is made by all servers or by none, and a
 * worker that dies while it stages leaves no trace. The lead answers the commit when the worker may go on.
 *
 * Sums are those of the canonical tree (tree.h) over leaves: the workers by their numbers, or a batch's grains. Leaves
 * for which nothing was pushed are left out.
 */
#ifndef TTI_TRAIN_SERVER_H
#define TTI_TRAIN_SERVER_H

#include "collective/api/inside.h"
#include "train/blocks.h"
#include "train/tree.h"

#include <stdatomic.h>
#include <tutti/actor.h>
#include <tutti/train.h>

#define TTI_SERVER_ACTOR "tutti.server"
#define TTI_WORKER_ACTOR "tutti.worker"

enum { TTI_SERVER_CHUNK = 1 << 18 /* floats of one request */ };

enum tti_server_what {
    /* from a worker, to each server: gradients of one subtree, from..from + count of the staged ones */
    TTI_SERVER_STAGE,
    TTI_SERVER_COMMIT, /* from a worker, to the lead: struct tti_server_commit, its subtrees, its losses */
    TTI_SERVER_MEET,   /* the same without subtrees; answered when all workers that are here have come */
    TTI_SERVER_SUM,    /* from the lead, to the others: struct tti_server_term each; answered with sums of squares */
    TTI_SERVER_APPLY,  /* from the lead, to the others: one optimizer's step */
    TTI_SERVER_READ,   /* reads elements from..from + count of the shard's values (index 0) or states (1, 2) */
    TTI_SERVER_WRITE,  /* the same for writing, with data */
    TTI_SERVER_STEPS,  /* the optimizer has made `count` steps, every worker `from` */
    TTI_SERVER_JOIN,   /* from a worker: the others wait for it from now on; answered with its steps */
    TTI_SERVER_LEAVE,  /* from a worker: the others do not wait for it any more */
    TTI_SERVER_WAIT,   /* from a worker, to the lead, as a commit of nothing: answered when it may go on */
    /* from a server to itself: all actors are there and can be watched; after a rebuild with a byte per worker, 1 if it is here */
    TTI_SERVER_WATCH,
    /* from a server to itself: answered when all workers have left, when a rank is lost that may come back, or when the
     * server is to pause */
    TTI_SERVER_SERVE,
    TTI_SERVER_PAUSE /* from a worker: no update is made until the server is renewed */
};

/* The head of a request. */
struct tti_server_call {
    uint32_t what, index; /* index: of a subtree, or of an array */
    uint64_t from, count;
    double rate, scale; /* for APPLY */
};

/* A subtree of the tree over leaves. */
struct tti_server_subtree {
    uint32_t lo, hi;
};

/* One leaf's loss: the sum over its samples, and their number. */
struct tti_server_loss {
    uint64_t leaf;
    double sum, count;
};

struct tti_server_commit {
    struct tti_server_call call;
    double rate;
    int64_t ahead; /* how many steps it may be ahead of the slowest when it is answered */
    int64_t deadline_ms;
    uint64_t hash; /* for MEET: a hash of its values */
    uint32_t stop; /* it was asked to stop */
    uint32_t leaves, subtrees, losses;
};

/* A term of a sum: a subtree that a worker has staged, in the order of leaves. */
struct tti_server_term {
    uint32_t worker, index, lo, hi;
};

/* The answer to a commit, and to MEET, with all workers' losses. */
struct tti_server_done {
    uint64_t step, updates;
    uint64_t update; /* the number of this push's own update */
    double loss, norm, count;
    int64_t ahead;
    uint32_t stop; /* all must stop after this step */
    /* for MEET: the lowest worker that is here; the first one with another hash than that, or -1 */
    int32_t lowest, odd;
};

/* Gradients that are summed separately and then added to those of the elements from `first` on (tie.h); 0 elements:
 * none. */
struct tti_server_tie {
    size_t first, elements;
};

/* A server's part of the parameters. */
struct tti_shard {
    struct tti_span span;   /* its elements */
    struct tti_span tied;   /* its elements of the tie */
    size_t row;             /* floats of a staged subtree: the span, then the tied ones */
    size_t blocks;          /* blocks of the span */
    tutti_parameter *owned; /* [owned_count]: parts of parameters; their `gradient` is set to the sums */
    size_t owned_count;
    float *values; /* (span) */
    tutti_optimizer *optimizer;
    float **staged; /* [workers]: (room rows) */
    uint32_t *room; /* [workers] */
    double *sums;   /* (blocks), at the lead of all shards */
};

struct tti_server_member {
    bool here;     /* the others wait for it */
    bool pushed;   /* staleness 0: its part of the next update is staged and committed */
    bool met;      /* it waits for all others to meet */
    uint64_t done; /* steps that it has made */
    uint64_t kept; /* the request in which it waits; 0: none */
    int64_t until_ns;
    struct tti_server_commit *commit; /* with the data that follow it */
    struct tti_server_done answer;    /* valid once its update was made */
    bool answered;                    /* its update was made: it only waits for the others */
};

/* Who is told of a server's updates, by its actor's thread. */
struct tti_server_watch {
    void (*call)(void *context, uint64_t updates);
    void *context;
};

struct tutti_server {
    tutti_comm *comm;
    tutti_actors *actors;
    tutti_server_options options;
    tutti_optimizer_settings settings;
    tutti_error error;
    int rank;
    int first;   /* the rank of the first server; the others follow. All other ranks are workers; new ones lie behind */
    int workers; /* on a server's rank only its actor changes it */
    bool serves, left;
    bool heals;    /* lost ranks are started again */
    bool rejoined; /* it was created while others had it already, who have renewed it */
    const tutti_parameter *parameters;
    size_t count, elements;
    size_t *starts; /* [count + 1] */
    struct tti_server_tie tie;

    /* For a worker: */
    float *flat;          /* (elements): gradients or values being sent; NULL before tutti_server_push and _pull */
    unsigned char *chunk; /* memory of one request */
    uint64_t step;        /* steps that it has made */

    /* For a server: */
    struct tti_shard shard;
    struct tti_server_member *members; /* [workers] */
    uint64_t stop_at;                  /* at the lead: the step after which all stop; 0: none was asked to */
    bool timed;                        /* the timer is set */
    _Atomic(const struct tti_server_watch *) watch; /* is called after each update; NULL: nobody watches */
    tutti_error broken;                             /* set when another server is lost */
    tutti_error lost; /* set when a rank is lost that may come back, or to pause, until the server is renewed */
    uint64_t serving; /* the kept request SERVE; 0: none */
    tutti_op ended;   /* the end of its actor */
};

/* Does what tutti_server_create does, with a tie. Parameters need no memory on servers, and no gradients if others are
 * pushed. */
tutti_status tti_server_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                               const struct tti_server_tie *tie, const tutti_server_options *options,
                               tutti_server **server, tutti_error *error);

/* A worker's gradients: subtrees of the tree over leaves, each with (elements) floats, and besides the tie's. */
struct tti_server_push {
    tutti_push push;
    bool stop;
    int leaves, subtrees;
    const struct tti_server_subtree *spans; /* [subtrees] */
    float *const *gradients, *const *tied;  /* [subtrees]; tied NULL: no tie */
    const struct tti_server_loss *losses;   /* [loss_count] */
    size_t loss_count;
};
tutti_status tti_server_push(tutti_server *server, const struct tti_server_push *push, struct tti_server_done *done);
/* Read and write the values (index 0) or a state of the optimizer (1, 2) of all elements on the servers. */
tutti_status tti_server_read(tutti_server *server, int index, float *all);
tutti_status tti_server_write(tutti_server *server, int index, const float *all);
/* Notes that every worker has made so many steps, and the optimizer so many updates; called by one worker, before the
 * first push. */
tutti_status tti_server_set_steps(tutti_server *server, uint64_t steps, uint64_t updates);

/* Waits until this worker is not too far ahead. */
tutti_status tti_server_wait(tutti_server *server);

/* Waits until all workers that are here have called it. With a loss per leaf (of `leaves`) `met` has the sum over all
 * workers'. */
struct tti_server_meeting {
    uint64_t hash;
    int leaves;
    const struct tti_server_loss *losses; /* [loss_count] */
    size_t loss_count;
};
tutti_status tti_server_meet(tutti_server *server, const struct tti_server_meeting *meeting,
                             struct tti_server_done *met);

/* ---- Between the files -------------------------------------------------------------------------------------------- */

/* Return the ranks of servers by their index, of the server that leads, and of workers by their number. */
static inline int tti_server_rank(const tutti_server *server, int index)
{
    return server->first + index;
}
static inline int tti_server_lead(const tutti_server *server)
{
    return server->first;
}
static inline int tti_worker_rank(const tutti_server *server, int worker)
{
    return worker < server->first ? worker : worker + server->options.servers;
}
/* Returns the number of the worker with that rank; -1: it is a server. */
static inline int tti_worker_of(const tutti_server *server, int rank)
{
    if (rank < server->first) return rank;
    return rank < server->first + server->options.servers ? -1 : rank - server->options.servers;
}
/* Return the shard of each server, and its part of the tie. */
struct tti_span tti_server_span(const tutti_server *server, int index);
struct tti_span tti_server_tied(const tutti_server *server, struct tti_span span);

/* server_shard.c: a server's part of the parameters. */
tutti_status tti_shard_make(tutti_server *server, tutti_error *error);
void tti_shard_free(tutti_server *server);
/* Makes room for so many workers. Returns false if there is no memory. */
bool tti_shard_grow(tutti_server *server, int workers);
tutti_status tti_shard_stage(tutti_server *server, int worker, const struct tti_server_call *call, const float *data,
                             size_t floats, const char **why);
/* Adds up the terms, into the gradients of the owned elements; the blocks' sums of squares go to `sums`. */
void tti_shard_sum(tutti_server *server, const struct tti_server_term *terms, size_t count, double *sums);
float *tti_shard_array(tutti_server *server, uint32_t index);
/* Makes the optimizer's step. */
void tti_shard_step(tutti_server *server, double rate, double scale);

/* server.c: compares settings, says how actors are made, makes a worker's actor, and takes over the actors' error. */
tutti_status tti_server_compare(tutti_server *server, tutti_error *error);
tutti_actors_options tti_server_actors_options(const tutti_server *server);
tutti_status tti_server_make_worker(tutti_server *server, tutti_error *error);
tutti_status tti_server_actors_failed(tutti_server *server, tutti_status status, tutti_error *error);

/* server_renew.c: goes on after a rebuild, or with more workers. Each rank says if it has the server already, if it has left, and
 * which rank is the first server; `again`: some rank has it. */
struct tti_server_presence {
    int32_t has, left, first;
};
tutti_status tti_server_find_others(tutti_server *server, struct tti_server_presence *all, bool *again,
                                    tutti_error *error);
/* goes_on: the comm is of a later epoch than the actors, so they are renewed. */
tutti_status tti_server_come_back(tutti_server *server, const struct tti_server_presence *all, bool goes_on,
                                  tutti_error *error);
tutti_status tti_server_renew(tutti_server *server, tutti_comm *comm, tutti_error *error);

/* server_actor.c: starts the actor of a server. */
tutti_status tti_server_start(tutti_server *server, tutti_error *error);

/* server_lead.c: counts each worker's steps, and makes updates. Called by the server's actor. */
tutti_status tti_lead_commit(tutti_server *server, tutti_request *request);
/* join: a worker is there (again), with as many steps as the slowest; leave: it is not there any more. */
void tti_lead_join(tutti_server *server, int worker);
void tti_lead_leave(tutti_server *server, int worker);
/* expire: a worker that has waited too long is told for whom; refuse_all: all are told an error. */
void tti_lead_expire(tutti_server *server, tutti_actor *self);
void tti_lead_refuse_all(tutti_server *server, const tutti_error *error);
/* Answers all that wait: those whose update was made with it, the others with the error. */
void tti_lead_interrupt(tutti_server *server, const tutti_error *error);
/* Answers a worker once it may go on. */
tutti_status tti_lead_wait(tutti_server *server, tutti_request *request);

/* Makes `text` the server's error. Returns its status. */
tutti_status tti_server_fail(tutti_server *server, const char *call, tutti_status status, int peer, const char *format,
                             ...) __attribute__((format(printf, 5, 6)));
/* Does the same with the error of a request to its actors. */
tutti_status tti_server_request_failed(tutti_server *server, const char *call, tutti_status status, int peer);

#endif
