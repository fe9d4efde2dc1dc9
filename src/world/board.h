/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: memory in which this host's launcher notes which processes of its job have ended, and how. A process that
 * waits for one of them while joining is told so at once, instead of at the end of the join's time.
 *
 * Invariant: a process is noted when it has ended and left no process behind that could join in its place; and a world
 * needs all processes of its job. So a process that waits for another which has not come, while one is noted, waits in
 * vain. Processes whose world may have been formed read these notes no more: there a process may have joined, left and
 * ended.
 *
 * If the launcher starts processes again, the board counts how often: its generation. A process joins with those that
 * have seen the same generation, and begins anew when it has moved: so no process waits for one that is gone, and all
 * meet in the end. A process is noted only if it is not started again.
 *
 * For ranks that agree who is lost, the end of a process is a fact. Ends are counted and numbered: the first rank that
 * asks who was lost in an epoch settles for all up to which number. Launchers of several hosts that know each other tell
 * all ends to all; one of them gives the numbers, and settles.
 *
 * A process that is told in an operation that another rank is the cause notes this: if both have failed, it was not the
 * first, in whatever order they end.
 */
#ifndef TTI_WORLD_BOARD_H
#define TTI_WORLD_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/experimental.h>

enum { TTI_BOARD_MS = 20 }; /* how often the board is read */

/* One reader's view of the board. */
struct tti_board {
    const struct tti_board_page *page; /* NULL: there is no board */
    size_t bytes;
    int ranks_each;      /* ranks of a process, for messages */
    uint32_t generation; /* the generation when it was opened */
    int size;            /* the number of processes of the job when it was opened */
    uint32_t attempt;    /* the attempt to take processes in that this reader takes part in (ticket.h); 0: none */
};

/* Opens the board. `name` is the option `board`: "" for none, as with another launcher. A board that cannot be opened,
 * or belongs to another job or number of processes, counts as none: then a process that ends is missed only at the end
 * of the join's time. */
void tti_board_open(struct tti_board *board, const char *name, const char *job, int process_count, int ranks_each);
void tti_board_close(struct tti_board *board);

/* All functions take NULL for no board. This one returns the process that was the at-th to end, from 0, or -1 if fewer
 * have. */
int tti_board_ended(const struct tti_board *board, int at);
/* Writes "rank 2 (process 4711) ended with status 0 before joining job x, …": ERR_JOIN about that process. */
tutti_status tti_board_blame(const struct tti_board *board, int at, tutti_error *error);
/* Does both for the first end, the likely cause of the others. For processes that have not found rank 0 yet: returns OK
 * while all are running, and the generation is the one of the beginning. */
tutti_status tti_board_check(const struct tti_board *board, tutti_error *error);
/* Checks only what also holds for processes whose world may have been formed, and is formed anew: no process was
 * started again or taken in since the beginning, and this host is heard. */
tutti_status tti_board_go_on(const struct tti_board *board, tutti_error *error);
/* Return how many processes the job has, and true if it may get more. */
int tti_board_size(const struct tti_board *board);
bool tti_board_grows(const struct tti_board *board);
/* Return how often processes may be started again, 0: never; how often they were; and true if that happened while the
 * board was open. */
int tti_board_restarts(const struct tti_board *board);
uint32_t tti_board_generation(const struct tti_board *board);
bool tti_board_moved(const struct tti_board *board);
/* Returns true if the launcher that decides has not heard this host for too long: the others go on without it, and its
 * processes are ended. */
bool tti_board_excluded(const struct tti_board *board);
/* Writes where process 0 waits, if that is another host than at first. */
void tti_board_master(const struct tti_board *board, char *host, size_t bytes);
/* Returns how many epochs the job's world has had. */
uint32_t tti_board_epochs(const struct tti_board *board);
/* The next functions write. This one notes that the process, if it fails, does so because of another one, or not any
 * more. */
void tti_board_follow(const char *name, const char *job, int process, bool follows);
/* Notes that the world was formed in this epoch. */
void tti_board_form(const char *name, const char *job, uint32_t epoch);
/* Asks the launcher to end a process, and to start it again if it does that, since others have waited too long for it:
 * one of this host, or any if ranks are started again. Returns false if the launcher will not. */
bool tti_board_end(const char *name, const char *job, const struct tti_board *seen, int process);
/* Returns the rows in which ranks show what they do, mapped for writing; NULL: there is no board of this job. Given
 * back by tti_board_close. */
struct tti_rows *tti_board_open_rows(struct tti_board *board, const char *name, const char *job);
/* counts: returns true if the launcher counts the ends of this process. is_here: returns true if it is one of this
 * host. decides: returns true if a launcher decides whether the process goes on, and ends it when others have waited too
 * long. */
bool tti_board_counts(const struct tti_board *board, int process);
bool tti_board_is_here(const struct tti_board *board, int process);
bool tti_board_decides(const struct tti_board *board, int process);
/* Returns true if launchers of several hosts tell each other which processes have ended, which takes them a while. */
bool tti_board_is_linked(const struct tti_board *board);
/* lives: returns how often the process has ended. has_ended: returns true if it has ended since it joined, when it had
 * ended `life` times. was_lost: returns true if that end was among the first `ends` of all. */
uint32_t tti_board_lives(const struct tti_board *board, int process);
bool tti_board_has_ended(const struct tti_board *board, int process, uint32_t life);
bool tti_board_was_lost(const struct tti_board *board, int process, uint32_t life, uint32_t ends);
/* Writes: settles that processes which have ended by now are the lost ones of this epoch, unless that was settled
 * before. IN_PROGRESS: the launchers of all hosts were asked, and have not answered yet. ERR_EPOCH: there is no board, or
 * a later epoch was settled. */
tutti_status tti_board_settle(const char *name, const char *job, uint32_t epoch, uint32_t *ends);
/* Returns a poll's time, shortened if there is a board to read. */
int tti_board_poll_ms(const struct tti_board *board, int poll_ms);

#endif
