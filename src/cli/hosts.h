/* SPDX-License-Identifier: Apache-2.0
 *
 * The hosts of a job in the launcher that decides: hosts.c keeps them, hosts_tell.c writes what they are told.
 */
#ifndef TUTTI_CLI_HOSTS_H
#define TUTTI_CLI_HOSTS_H

#include "cli/cli_run.h"
#include <stdio.h>

enum { WORDS_MOST = 64 };

struct host {
    char *name;                /* as given, with user@ */
    int slots;                 /* ranks; spares have none */
    int node, first;           /* its number among the hosts that have ranks, and its first rank */
    char *command[WORDS_MOST]; /* the remote shell's argv */
    int input, control;        /* the shell's end of the pipe, and the launcher's */
    bool linked;               /* its launcher is connected: there is no shell */
    int link;                  /* that connection, -1: none, or a process of the guard has it */
    char address[64];          /* of its other end */
};

struct hosts {
    struct host *list;
    int count;
    char *key;    /* the order's line with the job's key, or "" */
    char *words;  /* the remote shell's command, split into words */
    char *remote; /* the command to run there, quoted for a shell */
};

/* ---- hosts_tell.c ---- */

/* Makes the job's key if there is none, and writes each host's order into a new pipe. Returns CLI_GO_ON or an exit
 * status. */
int hosts_send_orders(const struct run_values *values, struct launch *launch);
/* Writes the places of a host's ranks, their command, and their settings. */
void hosts_tell_all(FILE *stream, const struct run_values *values, const struct launch *launch, const struct host *host,
                    int generation);

#endif
