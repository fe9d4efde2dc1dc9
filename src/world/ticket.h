/* SPDX-License-Identifier: Apache-2.0
 *
 * Processes that wait to be taken into a job that grows. Each has a ticket on the launcher's board, which the launcher hands out when
 * it starts the process.
 *
 *     coming ──► waiting ──► called ──► taken        by the launcher, the process, rank 0, any rank of the world
 *                   ▲           │
 *                   └───────────┘  the attempt failed
 *
 * An attempt: rank 0 of the world calls those that wait and gives them numbers; all join; the ranks that were there before agree
 * whether all could, and each of them writes the outcome here. Invariant: there is one attempt at a time, since every rank of the
 * world takes part in it. A process that was called looks here for the outcome: what it has joined is the job's world only when
 * the attempt's number is that of the last one that succeeded.
 *
 * Whoever gives an attempt up calls nobody any more, and all others see that. So does whoever sees that a process which takes part
 * has ended, before it came.
 */
#ifndef TTI_WORLD_TICKET_H
#define TTI_WORLD_TICKET_H

#include "world/board.h"

struct tti_board_page;

/* In system_errno of the ERR_JOIN of those that see that another one has given the attempt up. */
#define TTI_ATTEMPT_OVER ECANCELED

/* One attempt: its number, how many processes there were before, and with those that are called. */
struct tti_growth {
    uint32_t number;
    int32_t present, size;
};

/* Those that wait. */
int tti_tickets_count(const struct tti_board_page *page);
/* OK while nobody that takes part in the reader's attempt has ended or given it up, and once it has succeeded. The error's peer is a
 * process that was called, or nobody (-1). */
tutti_status tti_attempt_check(const struct tti_board *board, tutti_error *error);

/* ---- A rank of the world ---------------------------------------------------------------------------------------------- */

/* By the board's name and job, as in board.h. How many wait now; 0 where there is no board. */
int tti_growth_waiting(const char *name, const char *job);
/* For rank 0: calls as many as there is room for. Nobody waits: attempt->size is attempt->present. False: there is no board. */
bool tti_growth_call(const char *name, const char *job, int present, struct tti_growth *attempt);
/* What all do at the end. If one that was called did not come in time (-1: no such), it is to be ended. */
void tti_growth_succeed(const char *name, const char *job, const struct tti_growth *attempt);
void tti_growth_fail(const char *name, const char *job, const struct tti_growth *attempt, int late);

/* ---- A process that waits --------------------------------------------------------------------------------------------- */

struct tti_waiter {
    struct tti_board board;
    struct tti_board_page *page;
    int ticket;
};
/* False: there is no such ticket, or no board that can be written on. */
bool tti_waiter_open(struct tti_waiter *waiter, const char *name, const char *job, int ticket);
void tti_waiter_close(struct tti_waiter *waiter);
enum tti_waiter_state {
    TTI_WAITER_WAITS,
    TTI_WAITER_CALLED,  /* with `process` its number in `attempt` */
    TTI_WAITER_LATE,    /* it did not come in time when it was called, and is to end */
    TTI_WAITER_FINISHED /* the job ends */
};
enum tti_waiter_state tti_waiter_look(const struct tti_waiter *waiter, struct tti_growth *attempt, int *process);
/* What became of an attempt that it was called in. */
enum tti_outcome { TTI_OUTCOME_OPEN, TTI_OUTCOME_TAKEN, TTI_OUTCOME_FAILED };
enum tti_outcome tti_waiter_outcome(const struct tti_waiter *waiter, const struct tti_growth *attempt);
/* It gives the attempt up, and waits for the next one. */
void tti_waiter_give_up(const struct tti_waiter *waiter, const struct tti_growth *attempt);

#endif
