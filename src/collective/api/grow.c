/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes the world again, with processes that wait to join the job (world/ticket.h). Rank 0 calls the waiting processes,
 * and tells all ranks how many there are; all join, as when the world is rebuilt; then the ranks that were there before
 * agree, on the old world, if all could join. So the outcome is the same for all of them, whichever dies; called
 * processes see it on the launcher's board. Until then nothing of the old world is changed.
 *
 * A called process that dies or gives up makes the attempt fail, and the ranks try again with those that still wait.
 */
#define TUTTI_NO_CALL_SITES
#include "base/clock.h"
#include "base/status.h"
#include "collective/api/heal.h"
#include "collective/api/inside.h"
#include "collective/comm/epoch.h"
#include "collective/peers/net.h"
#include "world/cluster.h"
#include "world/launch.h"
#include "world/ticket.h"
#include <stdio.h>
#include <string.h>

#define MS INT64_C(1000000)

/* Bits that ranks give in the agreement. */
enum { HAS_JOINED = 1, MAY_TRY_AGAIN = 2 };

struct growth {
    tutti_comm *comm;
    struct tti_healing healing;
    struct tti_growth attempt;
    int attempts;
    int64_t deadline_ns;
    tutti_comm *made; /* the world of this attempt; NULL: this rank could not join */
    tutti_error error;
};

/* ---- An attempt ---------------------------------------------------------------------------------------------------- */

/* Tells all ranks of the attempt, by a broadcast inside this call. */
static tutti_status tell_all(struct growth *growth)
{
    tutti_comm *comm = growth->comm;
    struct tti_site site = comm->caller.site;
    const tutti_options *options = &comm->world->options;
    if (comm->rank == 0) tti_growth_call(options->board, options->job, comm->size, &growth->attempt);
    tutti_comm *named = tti_inside(comm, "comm_grow", "those that wait");
    tutti_status status = tutti_broadcast(named, &growth->attempt, &growth->attempt, sizeof growth->attempt, TUTTI_U8,
                                          0);
    comm->caller.site = site;
    return status;
}

static tutti_status join(struct growth *growth)
{
    tutti_comm *comm = growth->comm;
    const tutti_options *options = &comm->world->options;
    struct tti_cluster *cluster;
    tutti_launch launch;
    int64_t left_ms = (growth->deadline_ns - tti_now_ns() + MS - 1) / MS; /* so that it ends after the deadline */
    struct tti_sequel sequel = {.epoch = comm->traits.era.made + 1,
                                .arenas = &comm->world->arena,
                                .attempt = growth->attempt.number,
                                .timeout_ms = left_ms > 1 ? left_ms : 1};
    TTI_TRY(tti_launch_read(options, &launch, &growth->error));
    launch.size = growth->attempt.size;
    TTI_TRY(tti_join_job_again(&launch, options, 1, &sequel, &cluster, &growth->error));
    return tti_join_sit_down(cluster, 0, comm, &growth->made, &growth->error);
}

/* Returns the called process that was waited for in vain, or -1. All ranks find the same one, so it does not matter
 * which of them gives the attempt up first. */
static int find_late(const struct growth *growth)
{
    bool late = growth->error.system_errno == TTI_ATTEMPT_LATE || tti_now_ns() >= growth->deadline_ns;
    return late && growth->error.peer >= growth->attempt.present ? growth->error.peer : -1;
}

static bool may_try_again(const struct growth *growth)
{
    const tutti_error *error = &growth->error;
    bool other = error->peer >= growth->attempt.present || error->system_errno == TTI_ATTEMPT_OVER;
    return error->status == TUTTI_ERR_JOIN && other && tti_now_ns() < growth->deadline_ns;
}

/* Returns the lowest rank that did not take part in the last agreement; -1: all did. */
static int find_lost(const struct growth *growth)
{
    for (int rank = 0; rank < growth->comm->size; rank++)
        if (!growth->healing.present[rank]) return rank;
    return -1;
}

static void give_up_attempt(struct growth *growth)
{
    const tutti_options *options = &growth->comm->world->options;
    tti_growth_fail(options->board, options->job, &growth->attempt, find_late(growth));
}

static void adopt(struct growth *growth, tutti_comm **made)
{
    tutti_comm *comm = growth->comm;
    const tutti_options *options = &comm->world->options;
    uint32_t epoch = growth->made->traits.era.made;
    tti_board_form(options->board, options->job, epoch);
    tti_growth_succeed(options->board, options->job, &growth->attempt);
    tti_epoch_raise(comm, epoch);
    *made = growth->made;
}

/* Tries once. Returns OK with nothing made if all may try again. */
static tutti_status try_once(struct growth *growth, tutti_comm **made)
{
    uint64_t all = 0;
    growth->made = NULL;
    growth->error = (tutti_error){.rank = growth->comm->rank, .peer = -1};
    tutti_status joined = join(growth);
    if (joined != TUTTI_OK) give_up_attempt(growth); /* so that nobody waits for this rank */
    uint64_t mine = joined == TUTTI_OK ? HAS_JOINED | MAY_TRY_AGAIN : may_try_again(growth) ? MAY_TRY_AGAIN : 0;
    tutti_status status = tti_healing_agree(&growth->healing, mine, &all);
    int lost = status == TUTTI_OK ? find_lost(growth) : -1;
    if (status == TUTTI_OK && lost < 0 && (all & HAS_JOINED) != 0) {
        adopt(growth, made);
        return TUTTI_OK;
    }
    if (joined == TUTTI_OK) give_up_attempt(growth);
    tti_comm_destroy(growth->made);
    if (status != TUTTI_OK) return status;
    if (lost >= 0) {
        tti_comm_refuse(growth->comm, TTI_COMM_GROW, TUTTI_ERR_PEER_LOST,
                        "comm_grow: rank %d was lost while others were taken in, and nobody was; go on with "
                        "tutti_comm_rebuild or tutti_comm_shrink",
                        lost);
        tti_comm_blame(growth->comm, lost);
        return TUTTI_ERR_PEER_LOST;
    }
    if ((all & MAY_TRY_AGAIN) != 0) return TUTTI_OK;
    tti_comm_refuse(growth->comm, TTI_COMM_GROW, joined == TUTTI_OK ? TUTTI_ERR_JOIN : growth->error.status,
                    "comm_grow: nobody was taken in, and nothing changes: %s",
                    joined == TUTTI_OK ? "another rank could not join" : growth->error.text);
    return growth->comm->errors.call.status;
}

/* ---- The whole ----------------------------------------------------------------------------------------------------- */

static tutti_status nobody_waits(const struct growth *growth)
{
    tutti_comm *comm = growth->comm;
    if (growth->attempts > 1)
        return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_JOIN,
                               "comm_grow: those that waited have ended before they were taken in, and nothing "
                               "changes%s%s",
                               growth->error.text[0] != '\0' ? ": " : "", growth->error.text);
    return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_ARGUMENT,
                           "comm_grow: no process waits to join job %s, and nothing changes; tutti run --join %s "
                           "PROGRAM starts one, and tutti_comm_waiting says how many wait",
                           comm->world->options.job, comm->world->options.job);
}

static tutti_status grow(struct growth *growth, tutti_comm **made)
{
    tutti_comm *comm = growth->comm;
    int64_t said = comm->caller.deadline_ms;
    int64_t timeout_ms = said > 0 ? said : comm->world->options.join_timeout_ms;
    growth->deadline_ns = tti_now_ns() + timeout_ms * MS;
    if (!tti_healing_open(&growth->healing, comm, TTI_COMM_GROW)) /* the others would wait for this rank */
        return tti_inside_break(comm, TTI_COMM_GROW, TUTTI_ERR_MEMORY, "a rank has no memory to take others in");
    while (*made == NULL) {
        tutti_status status = tell_all(growth);
        if (status != TUTTI_OK) {
            growth->attempt.number =
                0; /* rank 0 may have called some before it died, in an attempt that nobody heard of */
            give_up_attempt(growth);
        }
        TTI_TRY(status);
        growth->attempts++;
        if (growth->attempt.size == growth->attempt.present) return nobody_waits(growth);
        TTI_TRY(try_once(growth, made));
    }
    return TUTTI_OK;
}

/* ---- The call ------------------------------------------------------------------------------------------------------ */

static tutti_status check_world(tutti_comm *comm)
{
    const struct tti_cluster *cluster = comm->lanes == NULL ? NULL : comm->lanes->net->cluster;
    int each = cluster != NULL ? cluster->ranks_each : comm->world->size / comm->world->process_count;
    if (!comm->traits.of_epoch)
        return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_ARGUMENT,
                               "comm_grow: this comm was made from another one; grow the world, and make it again from "
                               "what that gives (tutti_comm_renew)");
    if (comm->members != NULL)
        return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_UNSUPPORTED,
                               "comm_grow: this comm of %d ranks was shrunk, and takes nobody in; a world that is "
                               "rebuilt (tutti run --max-restarts N) can grow",
                               comm->size);
    if (each == 1) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_UNSUPPORTED,
                           "comm_grow: %d ranks of this world are threads of one process (TUTTI_RANKS), and only a "
                           "world whose ranks are processes can grow",
                           each);
}

static tutti_status check_launcher(tutti_comm *comm)
{
    struct tti_board board;
    tti_board_open(&board, comm->world->options.board, comm->world->options.job, comm->size, 1);
    bool grows = tti_board_grows(&board);
    tti_board_close(&board);
    if (grows) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_UNSUPPORTED,
                           "comm_grow: nobody can join this job: start it by tutti run --max-ranks M -n %d PROGRAM, on "
                           "one host, and those that are to join by tutti run --join JOB PROGRAM",
                           comm->size);
}

/* Refuses a comm that is known to be broken. One that has lost a rank may not know it yet: then the first call inside
 * finds out. */
static tutti_status check_whole(tutti_comm *comm)
{
    tutti_error why;
    if (!tti_comm_failure(comm, &why)) return TUTTI_OK;
    return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_BROKEN,
                           "comm_grow: this comm is broken: go on with tutti_comm_rebuild or tutti_comm_shrink first; "
                           "it failed with: %.300s",
                           why.text);
}

tutti_status tutti_comm_grow(tutti_comm *comm, tutti_comm **made)
{
    if (made != NULL) *made = NULL;
    TTI_TRY(tti_heal_begin(comm, TTI_COMM_GROW));
    if (made == NULL)
        return tti_comm_refuse(comm, TTI_COMM_GROW, TUTTI_ERR_ARGUMENT,
                               "comm_grow: there is no place for the new comm (NULL)");
    TTI_TRY(check_whole(comm));
    TTI_TRY(check_world(comm));
    TTI_TRY(check_launcher(comm));
    struct growth growth = {.comm = comm};
    tutti_status status = grow(&growth, made);
    tti_healing_close(&growth.healing);
    tti_call_forget(comm);
    return status;
}

int tutti_comm_waiting(const tutti_comm *comm)
{
    if (comm == NULL || tti_comm_is_stillborn(comm)) return 0;
    return tti_growth_waiting(comm->world->options.board, comm->world->options.job);
}
