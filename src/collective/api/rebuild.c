/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the world again, complete, in the next epoch: the launcher has restarted lost processes, and all join as they
 * did at first, with new shared memory or new connections. No agreement comes before: the join itself is all or
 * nothing, with the same result for all (tti_join_job_again).
 *
 * Ranks that are threads of one process join together: the last of them to come does it for all. If one of them does
 * not come, since its thread has ended, the launcher is asked to end the process: its threads live or die together.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/api/heal.h"
#include "collective/comm/epoch.h"
#include "collective/peers/net.h"
#include "world/board.h"
#include "world/cluster.h"
#include "world/launch.h"
#include <string.h>

#define MS INT64_C(1000000)
enum { LOOK_MS = 20 };

/* One process's part in a rebuild; kept while any of its ranks use it. */
struct rebuild {
    struct rebuild *next;
    char job[128];
    uint32_t epoch; /* the epoch that it ends */
    int ranks;      /* ranks of this process */
    int came, users;
    int gone;          /* ranks whose threads have ended, and that will not come */
    int missing;       /* one of them */
    bool missing_lost; /* it ended without leaving */
    bool whole;        /* no rank of the process has seen its comm broken */
    tti_bell done;     /* 0: not yet */
    tti_bell seated;   /* ranks that have made their side of the new comm, or have failed to */
    struct tti_cluster *cluster;
    tutti_error error;          /* set if there is none */
    struct tti_arena *arenas[]; /* [ranks] the arenas that they use from now on */
};

static _Atomic uint32_t lock; /* lock of the list `first` */
static struct rebuild *first;

/* ---- The ranks of a process ---------------------------------------------------------------------------------------- */

static const struct tti_cluster *cluster_of(const tutti_comm *comm)
{
    return comm->lanes == NULL ? NULL : comm->lanes->net->cluster;
}

static int ranks_each(const tutti_comm *comm)
{
    const struct tti_cluster *cluster = cluster_of(comm);
    return cluster != NULL ? cluster->ranks_each : comm->world->size / comm->world->process_count;
}

static struct rebuild *find(const tutti_comm *comm, uint32_t epoch)
{
    struct rebuild *each = first;
    while (each != NULL &&
           (each->epoch != epoch || strcmp(each->job, comm->world->job) != 0 || each->came == each->ranks))
        each = each->next;
    return each;
}

static struct rebuild *add(const tutti_comm *comm, uint32_t epoch)
{
    int ranks = ranks_each(comm);
    struct rebuild *made = tti_calloc(1, sizeof *made + (size_t)ranks * sizeof *made->arenas);
    if (made == NULL) return NULL;
    snprintf(made->job, sizeof made->job, "%s", comm->world->job);
    made->epoch = epoch;
    made->ranks = ranks;
    made->whole = true;
    made->next = first;
    first = made;
    return made;
}

static struct rebuild *find_or_add(const tutti_comm *comm, uint32_t epoch)
{
    struct rebuild *found = find(comm, epoch);
    return found != NULL ? found : add(comm, epoch);
}

static int index_of(const tutti_comm *comm, int ranks)
{
    return comm->job_rank % ranks;
}

/* Enters the rebuild. Returns NULL if there is no memory. `last`: all ranks have come. */
static struct rebuild *enter(const tutti_comm *comm, bool *last)
{
    tti_lock(&lock);
    struct rebuild *rebuild = find_or_add(comm, comm->traits.era.made);
    if (rebuild != NULL) {
        rebuild->users++;
        rebuild->arenas[index_of(comm, rebuild->ranks)] = comm->world->arena;
        rebuild->whole = rebuild->whole && !tti_comm_is_broken(comm);
        *last = ++rebuild->came == rebuild->ranks;
    }
    tti_unlock(&lock);
    return rebuild;
}

/* Frees it if no rank uses it, or will. The lock is held. */
static void drop(struct rebuild *rebuild, bool unused)
{
    struct rebuild **link = &first;
    if (!unused) return;
    while (*link != rebuild) link = &(*link)->next;
    *link = rebuild->next;
    tti_free(rebuild);
}

static void quit(struct rebuild *rebuild)
{
    tti_lock(&lock);
    drop(rebuild, --rebuild->users == 0);
    tti_unlock(&lock);
}

void tti_rebuild_miss(const tutti_comm *world, bool lost)
{
    const struct tti_rank_epoch *epoch = world->traits.era.rank;
    if (epoch == NULL || ranks_each(world) < 2 || !tutti_comm_can_rebuild(world)) return;
    tti_lock(&lock);
    struct rebuild *rebuild = find_or_add(world, atomic_load_explicit(&epoch->now, memory_order_acquire));
    if (rebuild != NULL) {
        rebuild->missing = world->rank;
        rebuild->missing_lost = lost;
        drop(rebuild, ++rebuild->gone == rebuild->ranks);
    }
    tti_unlock(&lock);
}

static tutti_status tell(tutti_comm *comm, const tutti_error *error)
{
    if (error->system_errno == TTI_WORLD_WHOLE)
        return tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_ARGUMENT,
                               "comm_rebuild: this comm is whole, and all its %d ranks are there: nothing changes; to "
                               "give it up nevertheless, call tutti_comm_revoke first",
                               comm->size);
    tti_comm_refuse(comm, TTI_COMM_REBUILD, error->status, "comm_rebuild: %s", error->text);
    tti_comm_blame(comm, error->peer);
    return error->status;
}

static tutti_status refuse_left(tutti_comm *comm, int rank)
{
    tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_JOIN,
                    "comm_rebuild: rank %d has left, and a world is rebuilt with all its ranks; those that are left "
                    "can go on with tutti_comm_shrink",
                    rank);
    tti_comm_blame(comm, rank);
    return TUTTI_ERR_JOIN;
}

/* Refuses ranks that will not come back: they have ended for good, or have left. Some may have left because of the
 * first one. */
static tutti_status check_ranks(tutti_comm *comm, const struct tti_board *board)
{
    tutti_error error = {.rank = comm->rank, .peer = -1};
    if (tti_board_excluded(board) || tti_board_ended(board, 0) >= 0) {
        tti_board_check(board, &error);
        return tell(comm, &error);
    }
    for (int rank = 0; rank < comm->size; rank++)
        if (rank != comm->rank && comm->peers->presence(comm, rank) == TTI_PEER_LEFT) return refuse_left(comm, rank);
    return TUTTI_OK;
}

/* Returns true if a thread of this process was seen to have ended, so that it will not come. */
static bool has_lost_sibling(const tutti_comm *comm, int ranks)
{
    int begin = comm->rank / ranks * ranks;
    for (int rank = begin; rank < begin + ranks; rank++)
        if (rank != comm->rank && comm->peers->presence(comm, rank) == TTI_PEER_LOST) return true;
    return false;
}

/* Waits until the last of the process's ranks has joined for all. */
static tutti_status await_siblings(tutti_comm *comm, struct rebuild *rebuild, const struct tti_board *board,
                                   int64_t deadline_ms)
{
    const tutti_options *options = &comm->world->options;
    int64_t until_ns = tti_now_ns() + deadline_ms * MS;
    while (atomic_load_explicit(&rebuild->done, memory_order_acquire) == 0) {
        tti_bell_sleep(&rebuild->done, 0, LOOK_MS * MS, false);
        tti_lock(&lock);
        bool complete = rebuild->came == rebuild->ranks, left = rebuild->gone > 0 && !rebuild->missing_lost;
        bool gone = rebuild->gone > 0 || has_lost_sibling(comm, rebuild->ranks);
        bool late = !complete && (gone || tti_now_ns() >= until_ns);
        tti_unlock(&lock);
        if (!late) continue;
        if (left) return refuse_left(comm, rebuild->missing);
        tti_board_end(options->board, options->job, board, (int)options->rank);
        return tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_PEER_LOST,
                               "comm_rebuild: a rank that is a thread of this process, as rank %d is, has ended or did "
                               "not come; the process has to be started again with all its ranks: end it",
                               comm->rank);
    }
    return TUTTI_OK;
}

/* ---- Joining again ------------------------------------------------------------------------------------------------- */

static tutti_status join_again(tutti_comm *comm, struct rebuild *rebuild, int64_t deadline_ms)
{
    const tutti_options *options = &comm->world->options;
    struct tti_sequel sequel = {.epoch = comm->traits.era.made + 1,
                                .arenas = rebuild->arenas,
                                .whole = rebuild->whole,
                                .timeout_ms = deadline_ms};
    tutti_launch launch;
    tutti_status status = tti_launch_read(options, &launch, &rebuild->error); /* as at the start: see api_join.c */
    if (status != TUTTI_OK) return status;
    return tti_join_job_again(&launch, options, rebuild->ranks, &sequel, &rebuild->cluster, &rebuild->error);
}

/* Waits until all ranks of the process have the comm: they see each other in it from the moment it is made. */
static void await_seats(struct rebuild *rebuild)
{
    tti_bell_ring(&rebuild->seated, false);
    for (uint32_t seen;
         (seen = atomic_load_explicit(&rebuild->seated, memory_order_acquire)) < (uint32_t)rebuild->ranks;)
        tti_bell_sleep(&rebuild->seated, seen, LOOK_MS * MS, false);
}

static tutti_status take_seat(tutti_comm *comm, struct rebuild *rebuild, tutti_comm **made)
{
    tutti_error error = {.rank = comm->rank, .peer = -1};
    if (rebuild->cluster == NULL) return tell(comm, &rebuild->error);
    tutti_status status = tti_join_sit_down(rebuild->cluster, index_of(comm, rebuild->ranks), comm, made, &error);
    await_seats(rebuild);
    if (status != TUTTI_OK) return tell(comm, &error);
    tti_epoch_raise(comm, (*made)->traits.era.made);
    tti_world_lead(comm->world);
    return TUTTI_OK;
}

static tutti_status rebuild_with(tutti_comm *comm, const struct tti_board *board, tutti_comm **made)
{
    int64_t said = comm->caller.deadline_ms, deadline_ms = said > 0 ? said : comm->world->options.deadline_ms;
    bool last = false;
    struct rebuild *rebuild = enter(comm, &last);
    if (rebuild == NULL)
        return tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_MEMORY, "comm_rebuild: no memory to begin");
    tutti_status status = TUTTI_OK;
    if (last) {
        join_again(comm, rebuild, deadline_ms);
        tti_bell_ring(&rebuild->done, false);
    } else {
        status = await_siblings(comm, rebuild, board, deadline_ms);
    }
    if (status == TUTTI_OK) status = take_seat(comm, rebuild, made);
    quit(rebuild);
    return status;
}

/* ---- The call ------------------------------------------------------------------------------------------------------ */

static tutti_status check_comm(tutti_comm *comm, tutti_comm **made)
{
    if (made == NULL)
        return tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_ARGUMENT,
                               "comm_rebuild: there is no place for the new comm (NULL)");
    if (!comm->traits.of_epoch)
        return tti_comm_refuse(
            comm, TTI_COMM_REBUILD, TUTTI_ERR_ARGUMENT,
            "comm_rebuild: this comm was made from another one; rebuild the world, and make it again "
            "from what that gives");
    if (comm->members == NULL) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_ARGUMENT,
                           "comm_rebuild: this comm of %d ranks was shrunk, and those it had lost are given up; go on "
                           "with tutti_comm_shrink",
                           comm->size);
}

static tutti_status check_launcher(tutti_comm *comm, const struct tti_board *board)
{
    if (tti_board_restarts(board) > 0) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_COMM_REBUILD, TUTTI_ERR_UNSUPPORTED,
                           "comm_rebuild: whoever started this job does not start lost ranks again (tutti run "
                           "--max-restarts N does); those that are left can go on with tutti_comm_shrink");
}

/* Breaks the comms of the epoch if a rank is lost: others may wait for this rank in a comm without the lost one, in
 * vain. */
static void give_up(tutti_comm *comm)
{
    bool lost = tti_comm_is_broken(comm) || tti_epoch_has_loss(comm);
    for (int rank = 0; rank < comm->size && !lost; rank++) lost = comm->peers->presence(comm, rank) == TTI_PEER_LOST;
    if (lost) tti_epoch_give_up(comm);
}

bool tutti_comm_can_rebuild(const tutti_comm *comm)
{
    struct tti_board board;
    if (comm == NULL || tti_comm_is_stillborn(comm)) return false;
    const struct tti_cluster *cluster = cluster_of(comm);
    const int processes = cluster != NULL ? cluster->process_count : comm->world->process_count;
    tti_board_open(&board, comm->world->options.board, comm->world->job, processes, ranks_each(comm));
    bool can = tti_board_restarts(&board) > 0;
    tti_board_close(&board);
    return can;
}

tutti_status tutti_comm_rebuild(tutti_comm *comm, tutti_comm **made)
{
    struct tti_board board;
    if (made != NULL) *made = NULL;
    TTI_TRY(tti_heal_begin(comm, TTI_COMM_REBUILD));
    TTI_TRY(check_comm(comm, made));
    const tutti_options *options = &comm->world->options;
    tti_board_open(&board, options->board, comm->world->job, comm->size / ranks_each(comm), ranks_each(comm));
    tutti_status status = check_launcher(comm, &board);
    if (status == TUTTI_OK) status = check_ranks(comm, &board);
    if (status == TUTTI_OK) give_up(comm);
    if (status == TUTTI_OK) status = rebuild_with(comm, &board, made);
    tti_board_close(&board);
    tti_call_forget(comm);
    return status;
}
