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
/* How far a rank has left a comm. When it starts nothing more, its ops may still be under way; when it calls no more
 * collectives, its messages may. */
enum { TTI_STAYS, TTI_STARTS_NO_MORE, TTI_CALLS_NO_MORE, TTI_HAS_LEFT };
/* While it is TTI_BREAKING, the bits above these hold the number of the rank that breaks it. If that rank dies
 * meanwhile, another one takes its place. */
enum { TTI_WHOLE, TTI_BREAKING, TTI_BROKEN, TTI_BROKEN_BITS = 2 };
struct tti_area {
    struct tti_retired retired;           /* for a comm that was split off: its sides that are not freed yet */
    _Alignas(64) _Atomic uint32_t broken; /* when TTI_BROKEN, `failure` can be read */
    _Alignas(64) _Atomic uint32_t sleepers;
    uint32_t epoch;                                      /* the epoch that it was made in */
    _Atomic uint64_t decided;                            /* the last agreement; see posts_agree.c */
    _Atomic uint32_t full_fences;                        /* a rank cannot fence for others: see tti_fence_frequent */
    _Alignas(64) _Atomic uint64_t cores[TTI_CORE_WORDS]; /* cores that its ranks may run on */
    tutti_error failure;
};

enum tti_op_state { TTI_OP_QUEUED, TTI_OP_OPENING, TTI_OP_FAST, TTI_OP_MEETING, TTI_OP_RUNNING, TTI_OP_ENDED };

/* Progress of a collective in its plan. */
struct tti_walk {
    const struct tti_plan *plan;
    size_t step;      /* the present step of the plan */
    uint32_t rounds;  /* how often AGAIN has gone back so far */
    uint32_t turn;    /* for the steps that an AGAIN repeats: how often they were done */
    uint32_t numbers; /* for these steps: how much the numbers that they publish have grown */
    uint64_t shift;   /* for these steps: how many bytes their places in IN and OUT have moved */
    uint64_t done;    /* bytes of the present step that are done */
};

/* Where a collective stages data. */
struct tti_grains {
    uint32_t first; /* the first grain, */
    uint32_t count; /* how many grains this rank writes from there on, */
    bool used;      /* true if it writes there at all; else data lie behind its slots */
};

/* One collective in progress on one rank. */
struct tti_op {
    tutti_comm *comm;
    enum tti_op_state state;
    struct tti_shape shape;
    struct tti_call call;
    uint64_t edition; /* number of `call`: two ops of the comm with the same one have the same call; 0: not known */
    uint64_t digest;  /* digest of `call`, if its edition is known */
    struct tti_reducer reducer;
    const void *in;
    void *out;
    uint64_t in_bytes, out_bytes; /* bytes of the buffers that this rank uses */
    struct tti_many *many;        /* its pieces and the present one; NULL: it has none */
    bool watched;                 /* it has pieces, or the rank has siblings: op.c does more when it begins and ends */
    bool in_place;                /* this rank's buffers are in the operation's in-place form */
    bool entered;
    bool any_private; /* the buffers of some rank cannot be reached */
    bool all_private; /* the buffers of no rank can be reached, as far as seen */
    struct tti_walk walk;
    int part; /* the rank whose part is being done, counted from this one */
    struct tti_grains stage;
    int cursor;       /* ranks that this wait has seen, counted from the next rank on */
    uint64_t least;   /* the oldest operation that one of these is in */
    bool blocked;     /* the window was closed */
    int waiting_for;  /* the rank an unfinished wait is for */
    uint64_t awaited; /* what that rank's progress must reach */
    int64_t deadline_ms;
};

/* State of a long wait: about itself and about the rank that it waits for. */
struct tti_wait_state {
    int64_t since_ns; /* 0: not known yet */
    int64_t polled_ns;
    bool reported;
    uint64_t peer_mark; /* the number that the awaited peer had published when it last moved */
    int64_t peer_moved_ns;
};

/* Who may take ops forward now: see thread_local_op.c. */
enum { TTI_BUSY_NOBODY, TTI_BUSY_KEPT, TTI_BUSY_TAKEN, TTI_BUSY_ASKED };

/* Ops that were started and have not ended, in order; see queue.c. */
struct tti_started;
/* The service thread's notes about a comm's queue. */
struct tti_served {
    struct tti_service *by; /* the service thread; NULL: none serves the comm */
    tutti_comm *next;       /* the next comm that it serves */
    uint32_t seen_starts;   /* queue.starts when it last looked */
    bool left_alone;        /* true if it left the ops alone when it last looked */
    bool unhurried;         /* since the queue was empty, an op was started that need not be taken forward at once */
    bool calm;              /* the ops only wait for other ranks, and no other thread is busy with them */
    bool rung;              /* something came for the comm while it slept */
    _Atomic bool dozes;     /* it sleeps, so whoever brings something for the comm wakes it */
};

/* See callback.h. */
struct tti_callback;
struct tti_callbacks {
    struct tti_callback *first; /* due, and not yet taken to be called; under the queue's lock */
    _Atomic uint32_t due;       /* how many are due or being called */
};

struct tti_queue {
    _Atomic uint32_t lock;                         /* lock of first, last and free: held for a few instructions */
    _Atomic uint32_t busy;                         /* TTI_BUSY_…: the thread that has it takes the ops forward */
    _Atomic uint32_t inside;                       /* 1: the keeper uses the right that it keeps */
    _Atomic uint32_t count;                        /* ops in the queue and the thread-local one */
    _Atomic uint32_t starts;                       /* ops started so far that need not be taken forward at once */
    _Atomic uintptr_t keeper;                      /* the thread that keeps the right; 0: none yet */
    _Atomic(struct tti_started *) thread_local_op; /* the op that is not in the queue, or NULL */
    struct tti_started *spare;                     /* place of the next thread-local op; used by the busy thread */
    _Atomic uint32_t waiters;                      /* threads that wait for an op while another is busy */
    _Atomic uint32_t wanted; /* threads that must be busy to go on: one that only waits gives way */
    tti_bell handover;
    struct tti_started *first, **last;
    bool held;                      /* held by a blocking message, beside ops in flight */
    struct tti_link pending;        /* messages in flight; used by the busy thread */
    struct tti_link ended_pending;  /* messages whose letters have all ended; under tti_messages_lock */
    _Atomic uint32_t asks;          /* how often a thread began or ceased to ask for an op */
    uint32_t told_asks;             /* how many of `asks` the letters have been told of */
    _Atomic bool cancels;           /* a message in flight was cancelled */
    int64_t pending_until_ns;       /* after a failure: until when buffers of messages are waited for */
    struct tti_started *all, *free; /* all places of this comm's handles; places that were given back */
    struct tti_started *own_free;   /* free places that the thread that starts ops has taken, for its next ones */
    struct tti_served served;
    struct tti_streams *streams; /* state for ops on streams of devices, or NULL: turn.h */
    struct tti_callbacks callbacks;
    tutti_error error;
};

/* For tutti_comm_stats; see stats.h. */
struct tti_counts {
    const _Atomic uint32_t *watched;         /* not 0: somebody watches what this rank does: show.h */
    _Atomic uint64_t called, bytes, started; /* operations so far, counted by the caller */
    _Atomic uint64_t messaged;               /* bytes of messages, as last seen by a long wait */
    _Atomic uint64_t allocations;            /* by tutti_alloc */
    _Atomic uint64_t waits;
    _Atomic int64_t waited_ns, skew_ns, skew_most_ns;
    _Atomic int64_t *waited_for;    /* (size) ns; NULL: there are many ranks */
    _Atomic uint32_t waits_lock;    /* lock of the table, if there are many ranks: */
    struct tti_table waited_for_of; /* ns in place of pointers, for the ranks that were waited for */
};

/* The epoch of a comm: which rebuild of the world it is of (epoch.h). */
struct tti_rank_epoch;
struct tti_era {
    uint32_t made;               /* the epoch that it was made in */
    struct tti_rank_epoch *rank; /* its rank's present epoch and all its comms; NULL: joining failed */
    tutti_comm *next;            /* the next comm of that rank */
};

/* Facts that do not change while the comm exists, except `crowded`. */
struct tti_traits {
    unsigned fork_count; /* tti_forks of the process when the comm was made */
    int here;            /* ranks of this comm on this host */
    bool is_world;       /* it was not made from another comm */
    bool of_epoch;       /* it has all ranks of its epoch: the world, or what tutti_comm_shrink has made */
    bool rebuilt;        /* it is a world that was joined in place of an earlier one */
    bool of_mesh;        /* it belongs to a mesh, which frees it */
    bool has_left;       /* it was a world that has been left, and is only a handle now */
    bool tolerant;       /* it has messages only; a failure ends those of one peer: message_tolerant.c */
    bool restricted;     /* it is tolerant, or `serves` is set: a collective may be refused */
    bool of_main;        /* it is the world of a rank in tutti_main: left when its work returns */
    bool lost_device;  /* the rank's work has failed since its device did: it ends as a lost rank, and does not leave */
    bool all_threads;  /* its ranks are in one process */
    bool shared_bells; /* its ranks are in several processes */
    bool can_attach;   /* this process may read the memory of others */
    bool crowded;      /* there are more ranks than cores, as far as this rank knows */
    bool shares_parts; /* ranks share cores, which all know from the start: see parts.c */

    struct tti_era era;

    bool (*serves)(const tutti_comm *comm); /* true if this thread handles a request to its actor; or NULL */
    int servers;                            /* how many tutti_actors have set it */
    struct tti_siblings *siblings;          /* the comm's other ranks in this process; NULL: there are none */
};

/* Errors of this rank's calls. */
struct tti_errors {
    tutti_error call; /* error of the last call; written by the caller */
    /* error of the last failed op; written by the thread that waited for it, under the queue's lock */
    tutti_error ended;
    tutti_error *sink;        /* where failures of an op are described: `call`, or the queue's */
    _Atomic bool shows_ended; /* the last error is `ended`, and not `call` */
    _Atomic bool told;        /* the error that broke the comm was returned once */
    bool left_differing;      /* when the comm was left, ranks were found to have made different calls */

    struct tti_latest *latest; /* the rank's latest error on any of its comms; NULL: the world could not be joined */
};

struct tutti_comm {
    const struct tti_peers_ops *peers;
    const struct tti_host_provider *provider;
    struct tti_world *world;
    int rank, size;
    int job_rank;   /* this rank's number in the world of all hosts */
    int *members;   /* the world's number of each rank; NULL: the comm of all */
    int *job_ranks; /* numbers in the world of all hosts, if `members` are those in one host's world; else NULL */
    struct tti_area *area;
    struct tti_posts *memory;  /* memory that ranks share; peers `wire`: those of this host; NULL: none */
    struct tti_lanes *lanes;   /* peers `wire`: the lanes over the transport; NULL: there are none */
    struct tti_engine *engine; /* state of providers from one op to the next */
    struct tti_messages *messages;
    tutti_tuning tuning;
    struct tti_traits traits;
    uint64_t sequence;  /* number of the last operation that began */
    uint32_t signature; /* signature of all calls so far */
    struct tti_caller caller;
    struct tti_errors errors;
    struct tti_trace *trace; /* NULL: not traced */
    struct tti_counts counts;
    struct tti_queue queue;
    struct tti_op op; /* for blocking calls */
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

/* Returns true if that rank is a thread of this process. */
bool tti_is_of_this_process(const tutti_comm *comm, int peer);

/* Writes "its rank 0 is rank 4 of the world, 1 is 6" for people who see numbers of this comm; "" if these are the
 * world's. */
void tti_comm_numbers(const tutti_comm *comm, int peer, char *text, size_t bytes);

static inline struct tti_rank_info *tti_info_of(const tutti_comm *comm, int rank)
{
    return &comm->world->segment->ranks[tti_member(comm, rank)];
}

/* Arguments for making one rank's side of a comm. */
struct tti_net;
struct tti_here_setup;
struct tti_comm_setup {
    struct tti_world *world;  /* this host's world; one reference of it is taken over on success */
    int rank, size, here;     /* `here`: number of its ranks on this host */
    const tutti_comm *parent; /* the comm that it is made from; NULL: it is the world */
    int *members;             /* the world's numbers of its ranks; NULL: all, in order; taken over on success */
    void *area;               /* memory that all its ranks share; NULL: they use `net` */
    size_t area_bytes;
    struct tti_net *net;                 /* the connections by which the ranks exchange messages */
    uint32_t id;                         /* the comm's number in `net`, the same on all its ranks */
    const struct tti_here_setup *shared; /* what the ranks of one host share besides; NULL: nothing */
    bool next_epoch;                     /* it is of the epoch after its parent's, with all ranks that are left */
};
tutti_status tti_comm_create(const struct tti_comm_setup *setup, tutti_comm **comm, tutti_error *error);
tutti_status tti_comm_create_over(const struct tti_comm_setup *setup, tutti_comm **comm, tutti_error *error);
/* Makes the comm of all ranks of a world of one host; it takes the place of `before`, the rank's comm of an earlier
 * epoch, or NULL. */
tutti_status tti_comm_create_all(struct tti_world *world, int rank, const tutti_comm *before, tutti_comm **comm,
                                 tutti_error *error);
/* Frees the comm in any case; ERR_SYSTEM: its trace, or for the world the trace of any comm, could not be written. */
tutti_status tti_comm_destroy(tutti_comm *comm);
/* Frees a world, like tti_comm_destroy, for tutti_leave or `by_main`. Its handle stays for a while (the last 256 of the
 * process do) and only carries an error, so that later calls on it are refused. */
tutti_status tti_comm_retire(tutti_comm *comm, bool by_main);
/* Does tutti_leave. `ends`: the rank's work ends too, so comms that were split off and not freed will not be used any
 * more. */
tutti_status tti_leave(tutti_comm *comm, bool ends);
/* Leaves the world of a rank whose work has returned `result`. Returns the exit status for this rank. */
int tti_rank_end(tutti_comm *world, int result, tutti_status *left);
/* Called when the comm is freed: the meshes made from it do without it (mesh.c). */
void tti_mesh_forget(tutti_comm *comm);
/* Makes a comm that only carries an error, for a join that failed. NULL: out of memory. */
tutti_comm *tti_comm_stillborn(const tutti_error *error);
static inline bool tti_comm_is_stillborn(const tutti_comm *comm)
{
    return comm->world == NULL;
}

/* Reports an error of this call alone: the comm stays usable. Fills in rank, operation and sequence. */
tutti_status tti_comm_refuse(tutti_comm *comm, enum tti_kind kind, tutti_status status, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Notes an error that the comm's user is told: the latest one of its rank (base/latest.h). NULL: no rank's. */
void tti_comm_note(const tutti_comm *comm, const tutti_error *error);
/* Sets the rank that the comm's present error is about. */
void tti_comm_blame(tutti_comm *comm, int peer);
/* Called when this rank leaves and finds that it and `peer` had made different calls, which nobody else may notice.
 * `text` says which. It is logged, since there is no comm any more that could tell it. */
void tti_comm_leave_differing(tutti_comm *comm, int peer, const char *text);
/* Sets the error of a message or an op that has failed; one thread may be told while another makes a call. */
void tti_comm_show(tutti_comm *comm, const tutti_error *error);
tutti_status tti_comm_describe(const tutti_comm *comm, tutti_error *error, enum tti_kind kind, tutti_status status,
                               const char *format, ...) __attribute__((format(printf, 5, 6)));

/* Breaks the comm for all ranks, or takes over the error that already broke it. `peer`: the rank that it is about, or
 * -1. */
tutti_status tti_comm_break(tutti_comm *comm, enum tti_kind kind, tutti_status status, int peer, const char *format,
                            ...) __attribute__((format(printf, 5, 6)));
/* The same for a thread that moves frames, maybe for another comm: the user of this comm takes the error over later
 * (tti_comm_health). */
tutti_status tti_comm_break_apart(tutti_comm *comm, enum tti_kind kind, tutti_status status, int peer,
                                  const char *format, ...) __attribute__((format(printf, 5, 6)));
/* The same for an error that a thread that moves frames has found or received, and of which nobody is told. Returns
 * false if the comm is broken already. */
bool tti_comm_store_failure(tutti_comm *comm, const tutti_error *error);
/* Gets the error that broke the comm, to break another comm with it. Returns false if nothing has, or if whoever was
 * breaking it stopped on the way. */
bool tti_comm_failure(tutti_comm *comm, tutti_error *failure);
static inline bool tti_comm_is_broken(const tutti_comm *comm)
{
    return atomic_load_explicit(&comm->area->broken, memory_order_seq_cst) != TTI_WHOLE;
}

/* Tells the caller the error that broke the comm. */
tutti_status tti_comm_notify(tutti_comm *comm, enum tti_kind kind);

/* Adds the cores that this thread may run on to those of the comm's ranks. */
void tti_comm_show_cores(tutti_comm *comm);

/* Makes an error be about this call, whatever was being polled when it was found. */
void tti_error_name(tutti_error *error, enum tti_kind kind);

/* Checks if the comm broke or lost a rank; `polls`: asks the system too. TUTTI_OK if all is well. */
tutti_status tti_comm_health(tutti_comm *comm, enum tti_kind kind, bool polls);

/* Quarantines buffers of a failed call that a peer may still use: they are never handed out again, and the error says
 * so. */
void tti_comm_quarantine(tutti_comm *comm, enum tti_kind kind, int peer, const void *in, const void *out);

/* Something that makes progress without blocking, and the rank that it waits for when it cannot. */
struct tti_waitable {
    tutti_status (*progress)(void *object);
    void *object;
    const int *waiting_for;  /* rank, or -1 for anyone */
    const uint64_t *awaited; /* number that its and the others' progress must reach; NULL: messages */
    const struct tti_site *site;
    enum tti_kind kind;
    const struct tti_op *op;                                /* for collectives */
    void (*detail)(void *object, char *text, size_t bytes); /* for messages: writes more of the call, " with tag 3" */
    /* Writes what may be in its way when its deadline has passed, or "". NULL: not known */
    void (*advise)(void *object, char *text, size_t bytes);
    /* For messages: returns true if none of them has found its other side and this was so before. `stand` changes when
     * one has ended. NULL: not known. */
    bool (*unmet)(void *object, uint64_t *stand);
    int64_t deadline_ms;
    const _Atomic bool *reached; /* its deadline counts from when this is true; NULL: from the start */
    bool drives;                 /* its progress takes other ops forward too, so any rank may have to wake it */
    bool started;                /* its caller may do something else meanwhile */
    bool passing;                /* nobody waits for it now: it is only looked after */
    struct tti_wait_state *wait_state;
};

static inline void tti_comm_read_wait(const void *comm, int rank, struct tti_wait_record *record)
{
    ((const tutti_comm *)comm)->peers->read_wait(comm, rank, record);
}
/* Returns the records of which rank waits for which. */
static inline struct tti_waits tti_comm_waits(const tutti_comm *comm)
{
    return (struct tti_waits){.size = comm->size, .context = comm, .get = tti_comm_read_wait};
}

/* Polls a few times before a wait: ranks that are running answer within a few polls. */
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
/* The same, until `until_ns` at most: IN_PROGRESS then. */
tutti_status tti_comm_wait_until(tutti_comm *comm, const struct tti_waitable *waitable, int64_t until_ns);
/* Does once what a wait does from time to time: checks for deaths, ranks that left, deadlines and stalls. */
tutti_status tti_comm_check_wait(tutti_comm *comm, const struct tti_waitable *waitable, int64_t now_ns);

/* Converts this rank's buffer into a place that others can use, and a place of any rank back into an address here
 * (NULL: it cannot be reached). */
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
/* Reads or writes another process's private memory, known by its pid. Returns 0 or an errno. */
int tti_attach(int pid, uint64_t address, char *here, size_t bytes, bool writes);
/* Breaks the comm and says why that failed: a buffer that one of the two ranks gave is not its memory, or the system
 * does not permit it. */
struct tti_attached {
    uint64_t address; /* in the other process */
    char *here;
    size_t bytes;
    bool writes;
};
tutti_status tti_attach_failed(tutti_comm *comm, enum tti_kind kind, int rank, const struct tti_attached *what,
                               int why);
/* The same for a rank of the comm, which is broken if that fails. */
tutti_status tti_place_fetch(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             void *target, size_t bytes);
tutti_status tti_place_store(tutti_comm *comm, enum tti_kind kind, int rank, struct tti_place place, uint64_t offset,
                             const void *source, size_t bytes);

/* Runs one collective from start to end (op.c). The op's shape, call, reducer and buffers are set. */
tutti_status tti_op_run(struct tti_op *op, tutti_op *handle);
/* The same for one that is part of a call, which was counted. */
tutti_status tti_op_run_part(struct tti_op *op);
/* The parts of a run. Begin numbers the op and shows its counts; open goes as far as it can without moving much. */
void tti_op_begin(struct tti_op *op, const uint64_t *row);
tutti_status tti_op_open(struct tti_op *op);
tutti_status tti_op_progress(void *op);

/* Returns the comm's op, emptied and filled with what every collective has. */
struct tti_op *tti_op_fill(tutti_comm *comm, enum tti_kind kind, const void *in, uint64_t in_bytes, void *out,
                           uint64_t out_bytes, uint64_t count, tutti_type type, int root);
/* Resets an op that has ended, so that it can run once more as the same call. */
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

/* Drops what was said about a call, so that it does not hold for the next one. */
static inline void tti_call_forget(tutti_comm *comm)
{
    comm->caller.deadline_ms = 0;
    comm->caller.preparing = false;
    comm->caller.stream = NULL;
    comm->caller.site.line = 0;
    comm->caller.site.name[0] = '\0';
}

/* Called when a call has ended. A refused call says nothing about a comm that may have just broken: it calls
 * tti_call_forget. */
void tti_call_failed(tutti_comm *comm); /* used by tti_call_ended: */
static inline void tti_call_end(tutti_comm *comm)
{
    tti_call_forget(comm);
    if (comm->errors.call.status != TUTTI_OK) tti_call_failed(comm);
}

/* Replaces zeros by sizes that follow from the last-level cache: data that do not fit into it are better written past
 * it. */
void tti_tuning_complete(tutti_tuning *tuning);

/* Counts forks: the child's comms answer with ERR_FORKED. */
extern atomic_uint tti_forks;
static inline unsigned tti_fork_count(void)
{
    return atomic_load_explicit(&tti_forks, memory_order_relaxed);
}

#endif
