/* SPDX-License-Identifier: Apache-2.0
 *
 * The board's memory, for board.c and ticket.c only.
 */
#ifndef TTI_WORLD_BOARD_PAGE_H
#define TTI_WORLD_BOARD_PAGE_H

#include "base/memory.h"
#include "world/board.h"
#include <stdatomic.h>

#define BOARD_MAGIC 0x6472616f62747476u
enum { MASTER_BYTES = 256 };

struct note {
    int32_t process, pid, status; /* the status as waitpid gives it */
    int32_t unused;               /* aligns the marks behind it, which have 8 bytes */
};

/* State of one process of the job, which its ranks and the launcher write. For a process of another host only its ends
 * are known, if the hosts' launchers exchange them. */
struct mark {
    _Atomic int32_t follows; /* the process was told that another one is the cause; it sets this itself */
    _Atomic int32_t restarts;
    /* upper half: how often it has ended; lower half: the number of its last end among all ends */
    _Atomic uint64_t ended;
};

struct tti_board_page {
    uint64_t magic;
    char job[256];
    int32_t first, room;      /* processes of this host: the first one, and how many there can be */
    int32_t most;             /* how many processes the job can have */
    _Atomic int32_t size;     /* how many processes the job has */
    int32_t gathers;          /* its rows are of other hosts */
    int32_t grows;            /* processes that wait can be taken in (ticket.h) */
    _Atomic uint32_t attempt; /* how often that was attempted */
    /* the last attempt: how many processes there were before, how many there would be then, and how many had ended */
    _Atomic int32_t attempt_present, attempt_size;
    _Atomic uint32_t attempt_ends;
    _Atomic uint32_t grown;      /* the last attempt that succeeded; 0: none has */
    _Atomic uint32_t arrivals;   /* how many tickets were handed out */
    _Atomic uint32_t finished;   /* the job ends, and takes nobody in any more */
    int32_t keeper;              /* the process that keeps the board */
    int32_t watches;             /* the keeper counts all ends, and ends processes that are late */
    int32_t linked;              /* the keeper also counts the ends on other hosts; all hosts number them alike */
    int32_t decides;             /* a launcher decides which processes of the job go on */
    int32_t restarts_most;       /* 0: a process that has ended is not started again */
    _Atomic uint32_t generation; /* how often processes were started again */
    _Atomic uint32_t formed;     /* the epoch after the last one in which a world was formed; 0: none was */
    _Atomic uint32_t ends;       /* ends of processes so far; counted after they are in the process's mark */
    _Atomic uint64_t lost;       /* see tti_board_settle: an epoch + 1, and below it the number of ends */
    _Atomic uint32_t asked;      /* if linked: the epoch + 1 of which ranks want to know who was lost */
    _Atomic int32_t noted;       /* how many notes there are; only the launcher's guard writes it */
    _Atomic int32_t excluded; /* the launcher that decides does not hear this host; the others may go on without it */
    /* where process 0 waits after its host was lost; written before the generation. "": where it was at first */
    char master[MASTER_BYTES];
    /* [room] notes in the order in which processes ended; behind them marks [most] (mark_of), tickets [room],
     * late [most] (late_of), and rows */
    _Alignas(8) struct note notes[];
};

/* A place for a process that waits to be taken in. */
struct tti_ticket {
    _Atomic uint64_t state; /* see ticket.c */
    uint32_t arrival;       /* tickets are called in this order */
    int32_t unused;
};

struct tutti_board {
    struct tti_mapping mapping;
};

struct tti_board_page *tti_board_page_of(const tutti_board *board);
struct tti_ticket *tti_board_tickets(struct tti_board_page *page); /* [room] */
/* Opens the board of this job for writing; NULL: there is none. */
struct tti_board_page *tti_board_open_page(struct tti_board *board, const char *name, const char *job);

#endif
