/* SPDX-License-Identifier: Apache-2.0
 *
 * A ticket's state is one word: its kind, if its process has ended, the number that the process was given, and the
 * attempt in which. It is changed by compare-and-swap, so of two different decisions one comes too late.
 */
#include "world/ticket.h"

#include "base/status.h"
#include "world/board_page.h"
#include <errno.h>
#include <signal.h>

enum kind { FREE, COMING, WAITING, CALLED, TAKEN, LATE };
enum { ENDED = 16, PROCESS_SHIFT = 8, ATTEMPT_SHIFT = 32, PROCESS_MASK = 0xffffff };

static uint64_t compose(enum kind kind, uint64_t ended, uint32_t attempt, int process)
{
    return (uint64_t)attempt << ATTEMPT_SHIFT | (uint64_t)(uint32_t)process << PROCESS_SHIFT | ended | (uint64_t)kind;
}

static enum kind kind_of(uint64_t state)
{
    return (enum kind)(state & (ENDED - 1));
}

static uint32_t attempt_of(uint64_t state)
{
    return (uint32_t)(state >> ATTEMPT_SHIFT);
}

static int process_of(uint64_t state)
{
    return (int)(state >> PROCESS_SHIFT & PROCESS_MASK);
}

static uint64_t look(const struct tti_board_page *page, int ticket)
{
    const struct tti_ticket *tickets = tti_board_tickets((struct tti_board_page *)(uintptr_t)page);
    return atomic_load_explicit(&tickets[ticket].state, memory_order_acquire);
}

/* Changes a ticket's kind, unless its state has changed since `seen`; the mark that its process has ended stays. */
static bool change(struct tti_board_page *page, int ticket, uint64_t seen, enum kind kind, uint32_t attempt,
                   int process)
{
    uint64_t next = compose(kind, seen & ENDED, attempt, process);
    return atomic_compare_exchange_strong_explicit(&tti_board_tickets(page)[ticket].state, &seen, next,
                                                   memory_order_acq_rel, memory_order_relaxed);
}

int tti_tickets_count(const struct tti_board_page *page)
{
    int count = 0;
    for (int i = 0; page->grows && i < page->room; i++) {
        uint64_t state = look(page, i);
        count += (kind_of(state) == WAITING || kind_of(state) == CALLED) && (state & ENDED) == 0;
    }
    return count;
}

/* ---- The launcher ----------------------------------------------------------------------------------------------------- */

/* Returns true if the ticket counts as a process of its own. A process that was just taken in is counted among the
 * job's already. */
static bool is_in_use(uint64_t state, int size)
{
    bool has_number = kind_of(state) == CALLED || kind_of(state) == TAKEN;
    return kind_of(state) != FREE && !(has_number && process_of(state) < size);
}

int tutti_board_ticket_create(tutti_board *board)
{
    struct tti_board_page *page = tti_board_page_of(board);
    int size = atomic_load_explicit(&page->size, memory_order_acquire), used = 0, free = -1;
    for (int i = 0; i < page->room; i++) {
        uint64_t state = look(page, i);
        if (kind_of(state) == FREE) free = i;
        used += is_in_use(state, size);
    }
    if (!page->grows || free < 0 || size + used >= page->most) return -1;
    struct tti_ticket *ticket = &tti_board_tickets(page)[free];
    ticket->arrival = atomic_fetch_add_explicit(&page->arrivals, 1, memory_order_relaxed);
    atomic_store_explicit(&ticket->state, compose(COMING, 0, 0, 0), memory_order_release);
    return free;
}

void tutti_board_ticket_end(tutti_board *board, int ticket)
{
    struct tti_board_page *page = tti_board_page_of(board);
    atomic_fetch_or_explicit(&tti_board_tickets(page)[ticket].state, ENDED, memory_order_acq_rel);
}

tutti_ticket_state tutti_board_ticket_look(const tutti_board *board, int ticket, int *process)
{
    const struct tti_board_page *page = tti_board_page_of(board);
    uint64_t state = look(page, ticket);
    /* ranks write this memory, and the caller uses the number as a place */
    bool taken = kind_of(state) == TAKEN && process_of(state) < page->most;
    *process = taken ? process_of(state) : -1;
    if (taken) return TUTTI_TICKET_TAKEN;
    if (kind_of(state) == LATE) return TUTTI_TICKET_LATE;
    return kind_of(state) == CALLED ? TUTTI_TICKET_CALLED : TUTTI_TICKET_WAITS;
}

void tutti_board_ticket_free(tutti_board *board, int ticket)
{
    struct tti_board_page *page = tti_board_page_of(board);
    atomic_store_explicit(&tti_board_tickets(page)[ticket].state, compose(FREE, 0, 0, 0), memory_order_release);
}

void tutti_board_finish(tutti_board *board)
{
    atomic_store_explicit(&tti_board_page_of(board)->finished, 1, memory_order_release);
}

/* ---- An attempt ------------------------------------------------------------------------------------------------------- */

static bool has_grown(const struct tti_board_page *page, uint32_t attempt)
{
    return atomic_load_explicit(&page->grown, memory_order_acquire) == attempt;
}

/* Returns the first called process that does not take part any more; -1: all do. */
static int find_missing(const struct tti_board_page *page, uint32_t attempt)
{
    int present = atomic_load_explicit(&page->attempt_present, memory_order_relaxed);
    int size = atomic_load_explicit(&page->attempt_size, memory_order_relaxed);
    for (int process = present; process < size; process++) {
        uint64_t wanted = compose(CALLED, 0, attempt, process);
        int ticket = 0;
        while (ticket < page->room && look(page, ticket) != wanted) ticket++;
        if (ticket == page->room) return process;
    }
    return -1;
}

tutti_status tti_attempt_check(const struct tti_board *board, tutti_error *error)
{
    const struct tti_board_page *page = board->page;
    if (page == NULL) return TUTTI_OK;
    bool ended = atomic_load_explicit(&page->ends, memory_order_acquire) !=
                 atomic_load_explicit(&page->attempt_ends, memory_order_relaxed);
    int missing = find_missing(page, board->attempt);
    if ((!ended && missing < 0) || has_grown(page, board->attempt)) return TUTTI_OK;
    error->peer = -1;
    if (ended)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0, "a process of job %.128s ended while others were taken in",
                             page->job);
    return tti_error_set(
        error, TUTTI_ERR_JOIN, TTI_ATTEMPT_OVER,
        "rank %d, which waited to join job %.128s, has ended, or another one has given up taking it in", missing,
        page->job);
}

/* ---- A rank of the world ---------------------------------------------------------------------------------------------- */

int tti_growth_waiting(const char *name, const char *job)
{
    struct tti_board board;
    const struct tti_board_page *page = tti_board_open_page(&board, name, job);
    int count = page == NULL ? 0 : tti_tickets_count(page);
    tti_board_close(&board);
    return count;
}

/* Returns the ticket that has waited longest and was not called in this attempt yet; -1: none. */
static int next_ticket(struct tti_board_page *page, uint32_t attempt)
{
    const struct tti_ticket *tickets = tti_board_tickets(page);
    uint32_t now = atomic_load_explicit(&page->arrivals, memory_order_relaxed), oldest = 0;
    int found = -1;
    for (int i = 0; i < page->room; i++) {
        uint64_t state = look(page, i);
        bool waits = kind_of(state) == WAITING || (kind_of(state) == CALLED && attempt_of(state) != attempt);
        if (!waits || (state & ENDED) != 0 || (found >= 0 && now - tickets[i].arrival <= oldest)) continue;
        oldest = now - tickets[i].arrival;
        found = i;
    }
    return found;
}

bool tti_growth_call(const char *name, const char *job, int present, struct tti_growth *attempt)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    *attempt = (struct tti_growth){.present = present, .size = present};
    if (page == NULL) return false;
    attempt->number = atomic_load_explicit(&page->attempt, memory_order_relaxed) + 1;
    uint32_t ends = atomic_load_explicit(&page->ends, memory_order_acquire);
    for (int ticket; attempt->size < page->most && (ticket = next_ticket(page, attempt->number)) >= 0;) {
        uint64_t seen = look(page, ticket);
        attempt->size += change(page, ticket, seen, CALLED, attempt->number, attempt->size);
    }
    atomic_store_explicit(&page->attempt_ends, ends, memory_order_relaxed);
    atomic_store_explicit(&page->attempt_present, present, memory_order_relaxed);
    atomic_store_explicit(&page->attempt_size, attempt->size, memory_order_relaxed);
    atomic_store_explicit(&page->attempt, attempt->number,
                          memory_order_release); /* now those that were called may come */
    tti_board_close(&board);
    return true;
}

/* Wakes the keeper of the board, which handles processes that were taken in, are late, or have ended meanwhile. */
static void wake_keeper(const struct tti_board_page *page)
{
    (void)kill((pid_t)page->keeper, SIGUSR1);
}

/* A process that is taken in may begin `work` once `grown` says so. */
void tti_growth_succeed(const char *name, const char *job, const struct tti_growth *attempt)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    if (page == NULL) return;
    atomic_store_explicit(&page->size, attempt->size, memory_order_release);
    atomic_store_explicit(&page->grown, attempt->number, memory_order_release);
    for (int i = 0; i < page->room; i++) {
        uint64_t seen = look(page, i);
        /* rank 0 may be in the next attempt already: those that it has called then are not taken in yet */
        while (kind_of(seen) == CALLED && attempt_of(seen) == attempt->number &&
               !change(page, i, seen, TAKEN, attempt_of(seen), process_of(seen)))
            seen = look(page, i);
    }
    wake_keeper(page);
    tti_board_close(&board);
}

/* Number 0 also resets processes that were called in an attempt which rank 0 did not live to publish. */
void tti_growth_fail(const char *name, const char *job, const struct tti_growth *attempt, int late)
{
    struct tti_board board;
    struct tti_board_page *page = tti_board_open_page(&board, name, job);
    if (page == NULL) return;
    for (int i = 0; i < page->room; i++) {
        uint64_t seen = look(page, i);
        while (kind_of(seen) == CALLED && (attempt->number == 0 || attempt_of(seen) == attempt->number)) {
            bool is_late = process_of(seen) == late && attempt_of(seen) == attempt->number;
            if (change(page, i, seen, is_late ? LATE : WAITING, 0, 0)) break;
            seen = look(page, i);
        }
    }
    wake_keeper(page);
    tti_board_close(&board);
}

/* ---- A process that waits --------------------------------------------------------------------------------------------- */

bool tti_waiter_open(struct tti_waiter *waiter, const char *name, const char *job, int ticket)
{
    *waiter = (struct tti_waiter){.ticket = ticket};
    waiter->page = tti_board_open_page(&waiter->board, name, job);
    if (waiter->page != NULL && waiter->page->grows && ticket >= 0 && ticket < waiter->page->room) {
        uint64_t seen = look(waiter->page, ticket);
        if (kind_of(seen) == COMING && change(waiter->page, ticket, seen, WAITING, 0, 0)) return true;
    }
    tti_waiter_close(waiter);
    return false;
}

void tti_waiter_close(struct tti_waiter *waiter)
{
    tti_board_close(&waiter->board);
    waiter->page = NULL;
}

/* An attempt that has begun but was not published yet is known only from the tickets. */
enum tti_waiter_state tti_waiter_look(const struct tti_waiter *waiter, struct tti_growth *attempt, int *process)
{
    const struct tti_board_page *page = waiter->page;
    uint64_t state = look(page, waiter->ticket);
    if (kind_of(state) == LATE) return TTI_WAITER_LATE;
    if (atomic_load_explicit(&page->finished, memory_order_acquire) != 0) return TTI_WAITER_FINISHED;
    attempt->number = attempt_of(state);
    if (kind_of(state) != CALLED || atomic_load_explicit(&page->attempt, memory_order_acquire) != attempt->number)
        return TTI_WAITER_WAITS;
    attempt->present = atomic_load_explicit(&page->attempt_present, memory_order_relaxed);
    attempt->size = atomic_load_explicit(&page->attempt_size, memory_order_relaxed);
    *process = process_of(state);
    return TTI_WAITER_CALLED;
}

enum tti_outcome tti_waiter_outcome(const struct tti_waiter *waiter, const struct tti_growth *attempt)
{
    uint64_t state = look(waiter->page, waiter->ticket); /* read before the next line, since it changes after that */
    if (has_grown(waiter->page, attempt->number)) return TTI_OUTCOME_TAKEN;
    bool open = kind_of(state) == CALLED && attempt_of(state) == attempt->number;
    return open ? TTI_OUTCOME_OPEN : TTI_OUTCOME_FAILED;
}

void tti_waiter_give_up(const struct tti_waiter *waiter, const struct tti_growth *attempt)
{
    uint64_t seen = look(waiter->page, waiter->ticket);
    if (kind_of(seen) == CALLED && attempt_of(seen) == attempt->number)
        (void)change(waiter->page, waiter->ticket, seen, WAITING, 0, 0);
}
