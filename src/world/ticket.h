/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that wait to be taken into a job that grows. Each has a ticket on the launcher's board, which the launcher
 * gives to the process when it starts it.
 *
 *     coming ──► waiting ──► called ──► taken        by the launcher, the process, rank 0, any rank of the world
 *                   ▲           │
 *                   └───────────┘  the attempt failed
 *
 * An attempt: rank 0 of the world calls those that wait and gives them numbers; all join; the ranks that were there
 * before agree if all could, and each of them writes the outcome here. Invariant: there is one attempt at a time, since
 * every rank of the world takes part in it. A process that was called looks here for the outcome: the world that it has
 * joined is the job's only if the attempt's number is that of the last one that succeeded.
 *
 * When a rank gives an attempt up, no process is called for it any more, and all others see that. A rank gives it up,
 * too, if it sees that a participating process has ended before it came.
 */
#ifndef TTI_WORLD_TICKET_H
#define TTI_WORLD_TICKET_H

#include "world/board.h"

struct tti_board_page;

/* The system_errno of ERR_JOIN when another rank or process has given the attempt up. */
#define TTI_ATTEMPT_OVER ECANCELED
/* The same when a called process has not come in time: error->peer. Rank 0 sees it and tells all. */
#define TTI_ATTEMPT_LATE ETIMEDOUT

/* One attempt: its number, the processes before it, and the processes together with those that are called. */
struct tti_growth {
    uint32_t number;
    int32_t present, size;
};

/* Returns how many processes wait. */
int tti_tickets_count(const struct tti_board_page *page);
/* Returns OK while no participant of the reader's attempt has ended or given it up, and once the attempt has succeeded.
 * The error's peer is a called process, or -1. */
tutti_status tti_attempt_check(const struct tti_board *board, tutti_error *error);

/* ---- A rank of the world ---------------------------------------------------------------------------------------------- */

/* `name` and `job` are those of the board, as in board.h. Returns how many processes wait now; 0 if there is no
 * board. */
int tti_growth_waiting(const char *name, const char *job);
/* Called by rank 0: calls as many processes as there is room for. If none waits, attempt->size is attempt->present.
 * Returns false if there is no board. */
bool tti_growth_call(const char *name, const char *job, int present, struct tti_growth *attempt);
/* They record the outcome; all ranks call one of them. `late`: a called process that did not come in time and must be
 * killed; -1: none. */
void tti_growth_succeed(const char *name, const char *job, const struct tti_growth *attempt);
void tti_growth_fail(const char *name, const char *job, const struct tti_growth *attempt, int late);

/* ---- A process that waits --------------------------------------------------------------------------------------------- */

struct tti_waiter {
    struct tti_board board;
    struct tti_board_page *page;
    int ticket;
};
/* Returns false if there is no such ticket, or no board that can be written to. */
bool tti_waiter_open(struct tti_waiter *waiter, const char *name, const char *job, int ticket);
void tti_waiter_close(struct tti_waiter *waiter);
enum tti_waiter_state {
    TTI_WAITER_WAITS,
    TTI_WAITER_CALLED,  /* it has the number `process` in `attempt` */
    TTI_WAITER_LATE,    /* it did not come in time when it was called, and must end */
    TTI_WAITER_FINISHED /* the job ends */
};
enum tti_waiter_state tti_waiter_look(const struct tti_waiter *waiter, struct tti_growth *attempt, int *process);
/* The outcome of an attempt in which the process was called. */
enum tti_outcome { TTI_OUTCOME_OPEN, TTI_OUTCOME_TAKEN, TTI_OUTCOME_FAILED };
enum tti_outcome tti_waiter_outcome(const struct tti_waiter *waiter, const struct tti_growth *attempt);
/* Gives the attempt up, and waits for the next one. */
void tti_waiter_give_up(const struct tti_waiter *waiter, const struct tti_growth *attempt);

#endif
