/* SPDX-License-Identifier: Apache-2.0
 *
 * The board: memory in which this host's launcher notes which processes of its job have ended, and how. Who waits for one of
 * them while joining is told so at once, instead of at the end of the join's time.
 *
 * Invariant: a process is noted when it has ended and left no process behind that could join in its place; and a world needs
 * all processes of its job. So whoever waits for somebody that has not come, while one is noted, waits in vain. It is not
 * looked at any more by those whose world may have been formed: there a process may have joined, left and ended.
 *
 * A process that is told in an operation that another rank is the cause notes this: when both have failed, it was not the
 * first, in whatever order they end.
 */
#ifndef TTI_WORLD_BOARD_H
#define TTI_WORLD_BOARD_H

#include <stdbool.h>
#include <stddef.h>
#include <tutti/experimental.h>

enum { TTI_BOARD_MS = 20 }; /* how often it is looked at */

/* One reader's view. */
struct tti_board {
    const struct tti_board_page *page; /* NULL: there is none */
    size_t bytes;
    int ranks_each; /* of a process, for words */
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
 * running. */
tutti_status tti_board_check(const struct tti_board *board, tutti_error *error);
/* Notes that if this process fails, it does so because of another. */
void tti_board_follow(const char *name, const char *job, int process);
/* A poll's time, shortened where there is a board to look at. */
int tti_board_poll_ms(const struct tti_board *board, int poll_ms);

#endif
