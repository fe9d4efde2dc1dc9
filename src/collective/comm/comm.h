/* SPDX-License-Identifier: Apache-2.0
 *
 * A comm: each rank's own side of it.
 *
 * A comm breaks once, for all: the first rank that finds an error stores it in the area; every other rank's operations
 * end with the same error.
 */
#ifndef TTI_COLLECTIVE_COMM_H
#define TTI_COLLECTIVE_COMM_H

#include "base/list.h"
#include "base/sim.h"
#include "base/table.h"
#include "base/wait.h"
#include "collective/comm/call.h"
#include "collective/comm/caller.h"
#include "collective/comm/peers.h"
#include "collective/comm/provider.h"
#include "collective/comm/waits.h"
#include "collective/plan/plan.h"
#include "collective/reduce/reduce.h"
#include "world/world.h"
#include <stdatomic.h>

#define TTI_WEEK_MS INT64_C(604800000)
/* What a rank has started may still be under way when it starts nothing more; when it calls no more collectives, its messages
 * may. */
enum { TTI_STAYS, TTI_STARTS_NO_MORE, TTI_CALLS_NO_MORE, TTI_HAS_LEFT };
/* While it is TTI_BREAKING, the number of the rank that breaks it stands above these bits: should that one die in between, another
 * takes its place. */
enum { TTI_WHOLE, TTI_BREAKING, TTI_BROKEN, TTI_BROKEN_BITS = 2 };
struct tti_area {
    struct tti_retired retired;           /* of a comm that was split off: its sides that are not freed yet */
    _Alignas(64) _Atomic uint32_t broken; /* TTI_BROKEN: `failure` can be read */
    _Alignas(64) _Atomic uint32_t sleepers;
    uint32_t epoch;                                      /* that it was made in */
    _Atomic uint64_t decided;                            /* the last agreement: see posts_agree.c */
    _Atomic uint32_t full_fences;                        /* some rank cannot fence for others: see tti_fence_frequent */
    _Alignas(64) _Atomic uint64_t cores[TTI_CORE_WORDS]; /* all that ranks may run on */
    tutti_error failure;
};

enum tti_op_state { TTI_OP_QUEUED, TTI_OP_OPENING, TTI_OP_FAST, TTI_OP_MEETING, TTI_OP_RUNNING, TTI_OP_ENDED };

/* How far a collective is in its plan. */
struct tti_walk {
    const struct tti_plan *plan;
    size_t step;      /* of the plan */
    uint32_t rounds;  /* AGAINs so far */
    uint32_t turn;    /* of the steps that one repeats: how often they were done, */
    uint32_t numbers; /* how much larger what they publish is by now, */
    uint64_t shift;   /* and how much further on they are in IN and OUT */
    uint64_t done;    /* bytes of that step */
};

/* Where a collective stages data. */
struct tti_grains {
    uint32_t first; /* grain, */
    uint32_t count; /* how many this rank writes from there on, */
    bool used;      /* and whether it does at all: else behind its slots */
};

/* One collective in progress on one rank. */
struct tti_op {
    tutti_comm *comm;
    enum tti_op_state state;
    struct tti_shape shape;
    struct tti_call call;
    uint64_t edition; /* of `call`: two of the comm's ops with the same one have the same call; 0: not known */
    uint64_t digest;  /* of `call`, where its edition is known */
    struct tti_reducer reducer;
    const void *in;
    void *out;
    uint64_t in_bytes, out_bytes; /* of the buffers that this rank uses */
    struct tti_many *many;        /* its pieces, and which of them it is at; NULL: it has none */
    bool watched;                 /* it has pieces, or the rank has siblings: op.c does more at its begin and end */
    bool in_place;                /* this rank's buffers are in a form that the operation knows as in place */
    bool entered;
    bool any_private; /* some rank's buffers cannot be reached */
    bool all_private; /* no rank's can, as far as seen */
    struct tti_walk walk;
    int part; /* the rank whose part is looked at, counted from this one */
    struct tti_grains stage;
    int cursor;       /* others that this wait has seen, counted from the next rank */
    uint64_t least;   /* the oldest operation that one of them is at */
    bool blocked;     /* the window was found closed */
    int waiting_for;  /* the rank an unfinished wait is for */
    uint64_t awaited; /* what that rank's progress must reach */
    int64_t deadline_ms;
};

/* What a long wait remembers of itself and of the rank it waits for. */
struct tti_wait_state {
    int64_t since_ns; /* 0: not known yet */
    int64_t polled_ns;
    bool reported;
    uint64_t peer_mark; /* what the awaited peer had published when it last moved */
    int64_t peer_moved_ns;
};

/* Who has the right to take ops forward: see thread_local_op.c. */
enum { TTI_BUSY_NOBODY, TTI_BUSY_KEPT, TTI_BUSY_TAKEN, TTI_BUSY_ASKED };

/* Ops that were started and have not ended, in order; see queue.c. */
struct tti_started;
/* What the service thread knows of a comm's queue. */
struct tti_served {
    struct tti_service *by; /* NULL: none does */
    tutti_comm *next;       /* that it serves */
    uint32_t seen_starts;   /* when it last looked, */
    bool left_alone;        /* and whether it left the ops alone then */
    bool unhurried;         /* one that need not be taken forward at once was started since there were none */
    bool calm;              /* ops only wait for others, and nobody else is at them */
    bool rung;              /* something has come while it slept */
    _Atomic bool dozes;     /* it sleeps, and whoever brings something for the comm wakes it */
};

/* See callback.h. */
struct tti_callback;
struct tti_callbacks {
    struct tti_callback *first; /* due, and not taken to be called; under the queue's lock */
    _Atomic uint32_t due;       /* these, and those that are being called */
};

struct tti_queue {
    _Atomic uint32_t lock;                         /* of first, last and free: held for a few instructions */
    _Atomic uint32_t busy;                         /* TTI_BUSY_…: who has it takes the ops forward */
    _Atomic uint32_t inside;                       /* the keeper, while the right is kept */
    _Atomic uint32_t count;                        /* ops in the queue and the thread-local one */
    _Atomic uint32_t starts;                       /* ops so far, but those that are to be taken forward at once */
    _Atomic uintptr_t keeper;                      /* the thread, or 0: none yet */
    _Atomic(struct tti_started *) thread_local_op; /* the one that is not in the queue, or NULL */
    struct tti_started *spare;                     /* a place for the next of these; of whoever has the right */
    _Atomic uint32_t waiters;                      /* threads that wait for an op while another is busy */
    _Atomic uint32_t wanted; /* threads that cannot go on without being busy: who only waits gives way */
    tti_bell handover;
    struct tti_started *first, **last;
    bool held;                      /* by a blocking message, beside ops in flight */
    struct tti_link pending;        /* messages in flight; of whoever is busy */
    struct tti_link ended_pending;  /* those whose letters have all ended; under tti_messages_lock */
    _Atomic uint32_t asks;          /* how often somebody began or ceased to ask for an op */
    uint32_t told_asks;             /* up to here letters know of it */
    _Atomic bool cancels;           /* a message in flight is to end */
    int64_t pending_until_ns;       /* after a failure: how long their buffers are waited for */
    struct tti_started *all, *free; /* places of this comm's handles, those given back, */
    struct tti_started *own_free;   /* and those of them that who starts ops has taken for the next ones */
    struct tti_served served;
    struct tti_streams *streams; /* of devices that ops were put on, or NULL: turn.h */
    struct tti_callbacks callbacks;
    tutti_error error;
};

/* For tutti_comm_stats; see stats.h. */
struct tti_counts {
    const _Atomic uint32_t *watched;         /* not 0: somebody looks at what this rank does: show.h */
    _Atomic uint64_t called, bytes, started; /* operations so far, as the caller counts */
    _Atomic uint64_t messaged;               /* bytes of messages, as a long wait found them */
    _Atomic uint64_t allocations;            /* by tutti_alloc */
    _Atomic uint64_t waits;
    _Atomic int64_t waited_ns, skew_ns, skew_most_ns;
    _Atomic int64_t *waited_for;    /* (size) ns; NULL: there are many ranks */
    _Atomic uint32_t waits_lock;    /* then of: */
    struct tti_table waited_for_of; /* ns, in place of a pointer, of those that were waited for */
};

/* Which rebuild of the world a comm is of (epoch.h). */
struct tti_rank_epoch;
struct tti_era {
    uint32_t made;               /* the epoch that it was made in */
    struct tti_rank_epoch *rank; /* the one that its rank is in now, and all comms of that rank; NULL: joining failed */
    tutti_comm *next;            /* of these */
};

/* What a rank knows of a comm for good, but for `crowded`. */
struct tti_traits {
    unsigned fork_count; /* of the process when the comm was made */
    int here;            /* ranks of this comm on this host */
    bool is_world;       /* it was not made from another comm */
    bool of_epoch;       /* it has all ranks of its epoch: the world, or what tutti_comm_shrink has made */
    bool rebuilt;        /* it is a world that was joined in place of an earlier one, which it was made from */
    bool of_mesh;        /* it belongs to one, which frees it */
    bool has_left;       /* it was a world, and is only a handle now */
    bool tolerant;       /* it has messages only, and what ends one of them ends no other: message_tolerant.c */
    bool restricted;     /* it is tolerant, or `serves` is set: a collective may be refused */
    bool of_main;        /* it is the world of a rank whose work runs: left when that returns */
    bool all_threads;    /* its ranks are in one process */
    bool shared_bells;   /* its ranks are in several processes */
    bool can_attach;     /* this process may read others' memory */
    bool crowded;        /* more ranks than cores, as far as this rank knows */
    bool shares_parts;   /* ranks share cores, as all know from the start: see parts.c */

    struct tti_era era;

    bool (*serves)(
        const tutti_comm *comm);   /* whether the calling thread handles a request to an actor of it; or NULL */
    int servers;                   /* for how many tutti_actors it is set */
    struct tti_siblings *siblings; /* other ranks of the comm are in this process; NULL: none is */
};

/* How this rank's calls failed. */
struct tti_errors {
    tutti_error call;         /* of the last call, by who makes calls */
    tutti_error ended;        /* of the last op that has failed, by whoever waited for it; under the queue's lock */
    tutti_error *sink;        /* where what goes wrong in an op is described: `call`, or the queue's */
    _Atomic bool shows_ended; /* the last error is `ended`, and not `call` */
    _Atomic bool told;        /* the error that broke the comm was returned once */
    bool left_differing;      /* when the comm was left, ranks were found to have made different calls */

    struct tti_latest *latest; /* this rank's latest, for all its comms; NULL: the world could not be joined */
};

struct tutti_comm {
    const struct tti_peers_ops *peers;
    const struct tti_provider_ops *provider;
    struct tti_world *world;
    int rank, size;
    int job_rank;   /* this rank's number in the world of all hosts */
    int *members;   /* the world's number of each rank; NULL: the comm of all */
    int *job_ranks; /* numbers in the world of all hosts, where `members` are those of one host's; or NULL */
    struct tti_area *area;
    struct tti_posts *memory;  /* what the ranks share; peers `wire`: those of this host; NULL: they share none */
    struct tti_lanes *lanes;   /* peers `wire`: dealings over the transport; NULL: there are none */
    struct tti_engine *engine; /* what providers keep from one op to the next */
    struct tti_messages *messages;
    tutti_tuning tuning;
    struct tti_traits traits;
    uint64_t sequence;  /* of the last operation that began */
    uint32_t signature; /* of all calls so far */
    struct tti_caller caller;
    struct tti_errors errors;
    struct tti_trace *trace; /* NULL: not traced */
    struct tti_counts counts;
    struct tti_queue queue;
    struct tti_op op; /* of blocking calls */
};
/* A rank of this comm by its number in the world, and what the world knows of it. */
static inline int tti_member(const tutti_comm *comm, int rank)
{
    return comm->members == NULL ? rank : comm->members[rank];
}

static inline int tti_job_rank_of(const tutti_comm *comm, int rank)
{
    return comm->job_ranks != NULL ? comm->job_ranks[rank] : tti_member(comm, rank);
}

/* Whether that rank is of this process, too. */
bool tti_is_of_this_process(const tutti_comm *comm, int peer);

/* "its rank 0 is rank 4 of the world, 1 is 6" for people who see numbers of this comm; "" where those are the world's. */
void tti_comm_numbers(const tutti_comm *comm, int peer, char *text, size_t bytes);

static inline struct tti_rank_info *tti_info_of(const tutti_comm *comm, int rank)
{
    return &comm->world->segment->ranks[tti_member(comm, rank)];
}

/* What a comm is made of: one rank's side of it. */
struct tti_net;
struct tti_here_setup;
struct tti_comm_setup {
    struct tti_world *world;  /* of this host; one reference of it is taken over on success */
    int rank, size, here;     /* `here` of its ranks on this host */
    const tutti_comm *parent; /* it is made from; NULL: it is the world */
    int *members;             /* the world's numbers of its ranks; NULL: all, in order; taken over on success */
    void *area;               /* memory that its ranks share, or: */
    size_t area_bytes;
    struct tti_net *net;                 /* what they exchange messages by, */
    uint32_t id;                         /* and the comm's number there, the same on all its ranks */
    const struct tti_here_setup *shared; /* what those of one host share besides; NULL: nothing */
    bool next_epoch;                     /* it is of the epoch after its parent's, with all ranks that are left */
};
tutti_status tti_comm_create(const struct tti_comm_setup *setup, tutti_comm **comm, tutti_error *error);
tutti_status tti_comm_create_over(const struct tti_comm_setup *setup, tutti_comm **comm, tutti_error *error);
/* The comm of all ranks of a world of one host; in place of `before`, the rank's of an earlier epoch, or NULL. */
tutti_status tti_comm_create_all(struct tti_world *world, int rank, const tutti_comm *before, tutti_comm **comm,
                                 tutti_error *error);
/* It is gone in any case; ERR_SYSTEM when its trace, or for the world that of any comm, could not be written. */
tutti_status tti_comm_destroy(tutti_comm *comm);
/* The same of a world, by tutti_leave or `by_main`. Its handle stays for a while (the last 256 of the process do) as one that
 * only carries an error, so that who still uses it is refused. */
tutti_status tti_comm_retire(tutti_comm *comm, bool by_main);
/* tutti_leave; `ends`: so does the rank's work, and what it has split off and not freed will not be used any more. */
tutti_status tti_leave(tutti_comm *comm, bool ends);
/* Leaves the world of a rank whose work has returned `result`. Returns what the job is to end with for this rank. */
int tti_rank_end(tutti_comm *world, int result, tutti_status *left);
/* It is freed: the meshes made from it do without (mesh.c). */
void tti_mesh_forget(tutti_comm *comm);
/* A comm that only carries an error, for a join that failed. NULL when memory ran out. */
tutti_comm *tti_comm_stillborn(const tutti_error *error);
static inline bool tti_comm_is_stillborn(const tutti_comm *comm)
{
    return comm->world == NULL;
}

/* Errors of this call alone: the comm stays usable. Fills in rank, operation and sequence. */
tutti_status tti_comm_refuse(tutti_comm *comm, enum tti_kind kind, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* An error that is told to the comm's user: the latest of its rank (base/latest.h). NULL: no rank's. */
void tti_comm_note(const tutti_comm *comm, const tutti_error *error);
/* The error that the comm has now is about this rank. */
void tti_comm_blame(tutti_comm *comm, int peer);
/* This rank leaves, and has found that it and `peer` had made different calls (`text` says which), as nobody else may. It is
 * logged, since there is no comm any more that could tell it. */
void tti_comm_leave_differing(tutti_comm *comm, int peer, const char *text);
/* Why a message or an op has failed: this may be told to one thread while another makes a call. */
void tti_comm_show(tutti_comm *comm, const tutti_error *error);
tutti_status tti_comm_describe(const tutti_comm *comm, tutti_error *error, enum tti_kind kind, tutti_status status,
                               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Breaks the comm for all ranks, or takes over the error that already broke it. `peer`: whom it is about, or -1. */
tutti_status tti_comm_break(tutti_comm *comm, enum tti_kind kind, tutti_status status, int peer, const char *format,
                            ...) __attribute__((format(printf, 5, 6)));
/* The same by who moves frames, maybe for another comm: who uses this one takes the error over (tti_comm_health). */
tutti_status tti_comm_break_apart(tutti_comm *comm, enum tti_kind kind, tutti_status status, int peer,
                                  const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same for what whoever moves frames has found or heard, of which nobody is told. False: it is broken already. */
bool tti_comm_store_failure(tutti_comm *comm, const tutti_error *error);
/* What broke it, for another comm to break with; false: nothing has, or whoever did stopped on the way. */
bool tti_comm_failure(tutti_comm *comm, tutti_error *failure);
static inline bool tti_comm_is_broken(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->area->broken, memory_order_seq_cst) != TTI_WHOLE;
}

/* The error that broke the comm, told to the caller. */
tutti_status tti_comm_notify(tutti_comm *comm, enum tti_kind kind);

/* Adds the cores that this thread may run on to those of the comm's ranks. */
void tti_comm_show_cores(tutti_comm *comm);

/* An error is about this call, whatever was being looked at when it was found. */
void tti_error_name(tutti_error *error, enum tti_kind kind);

/* Looks whether the comm broke or a rank of it was lost; `polls`: ask the system too. TUTTI_OK if all is well. */
tutti_status tti_comm_health(tutti_comm *comm, enum tti_kind kind, bool polls);

/* Buffers of a failed call that a peer may still use: never handed out again, and the error says so. */
void tti_comm_quarantine(tutti_comm *comm, enum tti_kind kind, int peer, const void *in, const void *out);

/* Something that makes progress without blocking, and whom it waits for when it cannot. */
struct tti_waitable {
    tutti_status (*progress)(void *object);
    void *object;
    const int *waiting_for;  /* rank, or -1 for anyone */
    const uint64_t *awaited; /* what its progress, and the other ranks', must reach; NULL for messages */
    const struct tti_site *site;
    enum tti_kind kind;
    const struct tti_op *op;                                /* of collectives */
    void (*detail)(void *object, char *text, size_t bytes); /* of messages, for words: " with tag 3" */
    /* Of messages: returns true if none of them has found its other side, and all that can be said of them before was. `stand`
     * changes when one has ended. NULL: not known. */
    bool (*unmet)(void *object, uint64_t *stand);
    int64_t deadline_ms;
    const _Atomic bool *reached; /* its deadline counts from when this is true; NULL: it is */
    bool drives;                 /* progress takes other ops forward too: anyone may have to wake it */
    bool started;                /* its caller may do something else meanwhile */
    bool passing;                /* nobody waits for it now: it is only looked after */
    struct tti_wait_state *wait_state;
};

static inline void tti_comm_read_wait(const void *comm, int rank, struct tti_wait_record *record)
{
    ((const tutti_comm *)comm)->peers->read_wait(comm, rank, record);
}
/* What is known of who waits for whom. */
static inline struct tti_waits tti_comm_waits(const tutti_comm *comm)
{
    return (struct tti_waits){.size = comm->size, .context = comm, .get = tti_comm_read_wait};
}

/* Before a wait: what ranks that run exchange is there within a few polls, which need no more than to look. */
static inline tutti_status tti_comm_poll(const tutti_comm *comm, tutti_status (*progress)(void *object), void *object)
{
    enum { BARE_POLLS = 32 };
    int polls = comm->traits.crowded || comm->trace != NULL || tti_sim != NULL ? 1 : BARE_POLLS;
    tutti_status status;
    do status = progress(object);
    while (status == TUTTI_IN_PROGRESS && --polls > 0 && !tti_comm_is_broken(comm));
    return status;
}

/* Polls until progress() returns something else than IN_PROGRESS, the comm breaks, or the deadline passes. */
tutti_status tti_comm_wait(tutti_comm *comm, const struct tti_waitable *waitable);
/* The same for at most until `until_ns`: IN_PROGRESS then. */
tutti_status tti_comm_wait_until(tutti_comm *comm, const struct tti_waitable *waitable, int64_t until_ns);
/* What a wait looks for from time to time, once: deaths, ranks that left, deadlines, stalls. */
tutti_status tti_comm_check_wait(tutti_comm *comm, const struct tti_waitable *waitable, int64_t now_ns);

/* Where this rank's buffer lies for others, and where a buffer of a rank, of this process or not, lies for us (NULL: cannot be
 * reached). */
static inline struct tti_place tti_place_of(const tutti_comm *comm, const void *pointer, size_t bytes)
{
    const struct tti_world *world = comm->world;
    struct tti_place place = {.process = world->process, .epoch = comm->traits.era.made};
    if (bytes == 0) return place;
    bool shared = tti_arena_contains(world->arena, pointer, bytes);
    place.reach = shared ? TTI_ARENA : TTI_PRIVATE;
    place.value = (uint64_t)(uintptr_t)pointer - (shared ? (uint64_t)(uintptr_t)world->arena->mapping.base : 0);
    return place;
}
char *tti_place_resolve(const tutti_comm *comm, struct tti_place place, bool of_this_process);
/* Reads another process's private memory, or writes to it: by its number, 0 or an errno; */
int tti_attach(int pid, uint64_t address, char *here, size_t bytes, bool writes);
/* why that has failed, which breaks the comm: the buffer that one of both ranks gave is not its memory, or the system does not
 * let them; */
struct tti_attached {
    uint64_t address; /* in the other process */
    char *here;
    size_t bytes;
    bool writes;
};
tutti_status tti_attach_failed(tutti_comm *comm, enum tti_kind kind, int rank, const struct tti_attached *what,
                               int why);
/* of a rank of the comm, which is broken if that fails. */
tutti_status tti_place_fetch(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             void *target, size_t bytes);
tutti_status tti_place_store(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             const void *source, size_t bytes);

/* One collective from start to end (op.c). The op's shape, call, reducer and buffers are set. */
tutti_status tti_op_run(struct tti_op *op, tutti_op *handle);
/* The same for one that is part of a call, which was counted. */
tutti_status tti_op_run_part(struct tti_op *op);
/* Its parts. Begin numbers it and shows its counts; open goes as far as that moves little. */
void tti_op_begin(struct tti_op *op, const uint64_t *row);
tutti_status tti_op_open(struct tti_op *op);
tutti_status tti_op_progress(void *op);

/* The comm's op, emptied and filled with what every collective has. */
struct tti_op *tti_op_fill(tutti_comm *comm, enum tti_kind kind, const void *in, uint64_t in_bytes, void *out,
                           uint64_t out_bytes, uint64_t count, tutti_type type, int root);
/* For an op that has ended, to run once more as the same call. */
static inline void tti_op_rewind(struct tti_op *op)
{
    tutti_comm *comm = op->comm;
    op->state = TTI_OP_OPENING;
    op->entered = op->any_private = op->blocked = false;
    op->walk.step = 0;
    op->walk.done = 0;
    op->cursor = 0;
    op->waiting_for = comm->rank + 1 < comm->size ? comm->rank + 1 : 0;
}

/* What was said about a call does not hold for the next one. */
static inline void tti_call_forget(tutti_comm *comm)
{
    comm->caller.deadline_ms = 0;
    comm->caller.preparing = false;
    comm->caller.stream = NULL;
    comm->caller.site.line = 0;
    comm->caller.site.name[0] = '\0';
}

/* A call has ended. One that was refused says nothing about a comm that may have just broken: tti_call_forget. */
void tti_call_failed(tutti_comm *comm); /* for: */
static inline void tti_call_end(tutti_comm *comm)
{
    tti_call_forget(comm);
    if (comm->errors.call.status != TUTTI_OK) tti_call_failed(comm);
}

/* Puts what follows from the last-level cache in place of zeros: what does not fit into it is better written past it. */
void tti_tuning_complete(tutti_tuning *tuning);

/* Counts forks: the child's comms answer with ERR_FORKED. */
extern atomic_uint tti_forks;
static inline unsigned tti_fork_count(void)
{
    return atomic_load_explicit(&tti_forks, memory_order_relaxed);
}

#endif
