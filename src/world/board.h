/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: memory in which this host's launcher notes which processes of its job have ended, and how. Who waits for one of
 * them while joining is told so at once, instead of at the end of the join's time.
 *
 * Invariant: a process is noted when it has ended and left no process behind that could join in its place; and a world needs
 * all processes of its job. So whoever waits for somebody that has not come, while one is noted, waits in vain. It is not
 * looked at any more by those whose world may have been formed: there a process may have joined, left and ended.
 *
 * Where the launcher starts processes again, the board counts how often: its generation. Who joins does so with those that have seen
 * the same one, and begins anew when it has moved: so nobody waits for a process that is gone, and all meet in the end. Such a
 * process is noted only when it is not started again.
 *
 * That a process has ended is a fact, for those that agree who is lost. It is counted, and all ends have numbers: the first rank that
 * asks who was lost in an epoch settles for all up to which number.
 *
 * A process that is told in an operation that another rank is the cause notes this: when both have failed, it was not the
 * first, in whatever order they end.
 */
#ifndef TTI_WORLD_BOARD_H
#define TTI_WORLD_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <tutti/experimental.h>

enum { TTI_BOARD_MS = 20 }; /* how often it is looked at */

/* One reader's view. */
struct tti_board {
    const struct tti_board_page *page; /* NULL: there is none */
    size_t bytes;
    int ranks_each;      /* of a process, for words */
    uint32_t generation; /* when it was opened */
};

/* `name` is the option `board`: "" for none, as with another launcher. A board that cannot be opened, or is of another job or
 * number of processes, is none either: then a process that ends is missed at the end of the join's time. */
void tti_board_open(struct tti_board *board, const char *name, const char *job, int process_count, int ranks_each);
void tti_board_close(struct tti_board *board);

/* All take NULL for no board. The process that was the at-th to end, from 0, or -1 when fewer have. */
int tti_board_ended(const struct tti_board *board, int at);
/* "rank 2 (process 4711) ended with status 0 before joining job x, …": ERR_JOIN about that one. */
tutti_status tti_board_blame(const struct tti_board *board, int at, tutti_error *error);
/* Both for the first, the likely cause of the others' end: for those that have not found rank 0 yet: OK while all are
 * running, and the generation is that of the beginning. */
tutti_status tti_board_check(const struct tti_board *board, tutti_error *error);
/* The part of it that also holds for those whose world may have been formed, and is formed anew: no process was started again since
 * the beginning, and this host is heard. */
tutti_status tti_board_go_on(const struct tti_board *board, tutti_error *error);
/* How often processes may be started again, 0: never; how often they were; whether that was while the board was open. */
int tti_board_restarts(const struct tti_board *board);
uint32_t tti_board_generation(const struct tti_board *board);
bool tti_board_moved(const struct tti_board *board);
/* True if the launcher that decides has not heard this host for too long: the others go on without it, and its processes are ended. */
bool tti_board_excluded(const struct tti_board *board);
/* Writes where process 0 waits, where that is another host than at first. */
void tti_board_master(const struct tti_board *board, char *host, size_t bytes);
/* How many epochs the job's world has had. */
uint32_t tti_board_epochs(const struct tti_board *board);
/* These write. That if this process fails, it does so because of another, or not any more; */
void tti_board_follow(const char *name, const char *job, int process, bool follows);
/* that the world was formed in this epoch; */
void tti_board_form(const char *name, const char *job, uint32_t epoch);
/* and that a process is to be ended, and started again where that is done, since others have waited too long for it: one of this
 * host, or of any where ranks are started again. False: nobody does that. */
bool tti_board_end(const char *name, const char *job, const struct tti_board *seen, int process);
/* What ranks show there of themselves, mapped to write; NULL: there is no board of this job. Given back by tti_board_close. */
struct tti_rows *tti_board_open_rows(struct tti_board *board, const char *name, const char *job);
/* True if the launcher watches this process: it counts when it ends, and ends it when others have waited too long. How often it has
 * ended. Whether it has since it joined, having ended `life` times; whether that was among the first so many ends of all. */
bool tti_board_has(const struct tti_board *board, int process);
uint32_t tti_board_lives(const struct tti_board *board, int process);
bool tti_board_has_ended(const struct tti_board *board, int process, uint32_t life);
bool tti_board_was_lost(const struct tti_board *board, int process, uint32_t life, uint32_t ends);
/* Writes: who had ended by now is who was lost in this epoch, unless that was settled before. False: there is no board, or an
 * epoch after it was settled. */
bool tti_board_settle(const char *name, const char *job, uint32_t epoch, uint32_t *ends);
/* A poll's time, shortened where there is a board to look at. */
int tti_board_poll_ms(const struct tti_board *board, int poll_ms);

#endif
