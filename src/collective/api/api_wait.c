/* SPDX-License-Identifier: Apache-2.0
 *
 * A process that joins a job which runs already (world/ticket.h). It waits until the job's ranks call it, joins with
 * them, and waits once more until they have agreed that all could. When the attempt has failed for the sake of another
 * process, it waits for the next one.
 */
#define TUTTI_NO_CALL_SITES
#include "base/clock.h"
#include "base/status.h"
#include "collective/api/heal.h"
#include "world/cluster.h"
#include "world/ticket.h"
#include <poll.h>
#include <stdio.h>

#define MS INT64_C(1000000)
enum { LOOK_MS = 5 };

struct waiting {
    const tutti_launch *launch;
    const tutti_options *options;
    struct tti_waiter waiter;
    struct tti_growth attempt;
    int process; /* this process's number in it */
    int64_t deadline_ns;
    tutti_error *error;
};

static tutti_status refuse(struct waiting *waiting, const char *text)
{
    return tti_error_set(waiting->error, TUTTI_ERR_JOIN, 0, "job %.128s %s", waiting->launch->job, text);
}

/* Waits until the process is called. */
static tutti_status await_call(struct waiting *waiting)
{
    const tutti_options *options = waiting->options;
    for (;;) {
        switch (tti_waiter_look(&waiting->waiter, &waiting->attempt, &waiting->process)) {
        case TTI_WAITER_CALLED: return TUTTI_OK;
        case TTI_WAITER_LATE:
            return refuse(waiting,
                          "has called this process, which did not come within the deadline, and does without it");
        case TTI_WAITER_FINISHED: return refuse(waiting, "has ended, and has not taken this process in");
        case TTI_WAITER_WAITS: break;
        }
        if (tti_now_ns() >= waiting->deadline_ns)
            return tti_error_set(waiting->error, TUTTI_ERR_JOIN, 0,
                                 "this process waited %lld ms for the ranks of job %.128s to take it in: they have to "
                                 "call tutti_comm_grow (--deadline-ms waits longer)",
                                 (long long)options->deadline_ms, waiting->launch->job);
        poll(NULL, 0, LOOK_MS);
    }
}

/* A job may begin to end while it is decided: then nobody says what became of the attempt. */
static enum tti_outcome await_outcome(struct waiting *waiting)
{
    struct tti_growth unused;
    int process;
    for (;;) {
        bool finished = tti_waiter_look(&waiting->waiter, &unused, &process) == TTI_WAITER_FINISHED;
        enum tti_outcome outcome = tti_waiter_outcome(&waiting->waiter, &waiting->attempt);
        if (outcome != TTI_OUTCOME_OPEN) return outcome;
        if (finished) return TTI_OUTCOME_FAILED;
        poll(NULL, 0, 1);
    }
}

/* Joins the new world, as the process of that number. */
static tutti_status join(struct waiting *waiting, tutti_comm **world)
{
    tutti_options options = *waiting->options;
    options.rank = waiting->process;
    options.size = waiting->attempt.size;
    options.ticket = -1; /* from here on it is a process of the job like any other */
    struct tti_board board;
    tti_board_open(&board, options.board, waiting->launch->job, waiting->attempt.size, 1);
    struct tti_cluster_launch how = {.job = waiting->launch->job,
                                     .process = waiting->process,
                                     .process_count = waiting->attempt.size,
                                     .ranks_each = 1,
                                     .one_host = true,
                                     .sequel = {.epoch = tti_board_epochs(&board),
                                                .attempt = waiting->attempt.number,
                                                .timeout_ms = options.join_timeout_ms}};
    tti_board_close(&board);
    return tti_join_job(&how, &options, world, waiting->error);
}

/* Returns true if this process is to blame that it could not join. */
static bool is_own_fault(const struct waiting *waiting)
{
    const tutti_error *error = waiting->error;
    return error->status != TUTTI_ERR_JOIN ||
           (error->peer == waiting->process && error->system_errno != TTI_ATTEMPT_OVER);
}

/* Joins with the others once. Returns OK with no world if the process must wait for the next attempt. */
static tutti_status attempt(struct waiting *waiting, tutti_comm **world)
{
    tutti_status status = join(waiting, world);
    if (status != TUTTI_OK) *world = NULL;
    if (status != TUTTI_OK && is_own_fault(waiting)) return status;
    if (status != TUTTI_OK) tti_waiter_give_up(&waiting->waiter, &waiting->attempt);
    enum tti_outcome outcome = await_outcome(waiting);
    if (outcome == TTI_OUTCOME_TAKEN && *world != NULL) return TUTTI_OK;
    tti_comm_destroy(*world);
    *world = NULL;
    return TUTTI_OK;
}

static tutti_status check(const struct waiting *waiting, int ranks)
{
    if (ranks > 1)
        return tti_error_set(waiting->error, TUTTI_ERR_UNSUPPORTED, 0,
                             "a process that joins a job which runs is one rank of it, not %d (TUTTI_RANKS)", ranks);
    return TUTTI_OK;
}

tutti_status tti_join_waiting(const tutti_launch *launch, const tutti_options *options, int ranks, tutti_comm **world,
                              tutti_error *error)
{
    struct waiting waiting = {
        .launch = launch, .options = options, .deadline_ns = tti_now_ns() + options->deadline_ms * MS, .error = error};
    TTI_TRY(check(&waiting, ranks));
    if (!tti_waiter_open(&waiting.waiter, options->board, launch->job, (int)options->ticket))
        return tti_error_set(
            error, TUTTI_ERR_JOIN, 0,
            "job %.128s has no place for this process: its launcher is gone, or the process has joined "
            "and left before",
            launch->job);
    tutti_status status = TUTTI_OK;
    *world = NULL;
    while (status == TUTTI_OK && *world == NULL) {
        status = await_call(&waiting);
        if (status == TUTTI_OK) status = attempt(&waiting, world);
    }
    tti_waiter_close(&waiting.waiter);
    return status;
}
