/* SPDX-License-Identifier: Apache-2.0
 *
 * The jobs that run on this host. They are found by their guards, processes of this user that `tutti run` has named so; who may
 * open a guard's descriptors may read the board it keeps, and the system lets nobody else.
 */
#ifndef TUTTI_CLI_JOB_FIND_H
#define TUTTI_CLI_JOB_FIND_H

#include <stdbool.h>
#include <tutti/experimental.h>

struct job_found {
    tutti_board *board; /* the caller's to free */
    tutti_board_about about;
    int launcher; /* its pid */
};

/* The job of that name, or whose name begins so, or whose launcher has that pid; NULL: the only one there is. CLI_GO_ON, or an
 * exit status after a message of `command`. */
int job_find(const char *command, const char *name, struct job_found *found);
bool job_is_guard(int pid);

#endif
