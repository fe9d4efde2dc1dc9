/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the jobs that run on this host by their guards: processes of this user that `tutti run` has given a certain
 * name. Only those who may open a guard's descriptors can read its board; the system allows that to nobody else.
 */
#ifndef TUTTI_CLI_JOB_FIND_H
#define TUTTI_CLI_JOB_FIND_H

#include <stdbool.h>
#include <tutti/experimental.h>

struct job_found {
    tutti_board *board; /* the caller frees it */
    tutti_board_about about;
    int launcher; /* its pid */
};

/* Finds the job of that name, or whose name begins so, or whose launcher has that pid; NULL: the only one there is.
 * Returns CLI_GO_ON, or an exit status after a message of `command`. */
int job_find(const char *command, const char *name, struct job_found *found);
bool job_is_guard(int pid);

#endif
