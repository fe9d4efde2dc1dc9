/* SPDX-License-Identifier: Apache-2.0
 *
 * The messages between `tutti run --join` and the guard of the job, over a unix socket. Both ends have checked that
 * they belong to the same user.
 *
 *     hello: how many processes        ->
 *                                      <-   welcome, or full, or ending
 *     start, with their descriptors    ->                        once for each
 *                                      <-   started, or failed
 *                                      <-   taken, when the job's ranks take it in; ended
 *     signal                           ->                        for all of them
 *
 * The processes are children of the guard, like all processes of the job. When the socket closes, it kills those that
 * were started over it.
 */
#ifndef TUTTI_CLI_JOIN_TALK_H
#define TUTTI_CLI_JOIN_TALK_H

#include <stdint.h>
#include <sys/socket.h>
#include <sys/un.h>

enum { JOIN_MAGIC = 0x6a747475, JOIN_VERSION = 1, JOIN_FDS = 4, JOIN_TEXT_MOST = 64 << 20 };

enum join_kind {
    JOIN_HELLO,  /* value: how many processes are to join */
    JOIN_START,  /* index: which of them; value, more: words and variables in the text, see JOIN_FD_TEXT */
    JOIN_SIGNAL, /* value: the signal */
    JOIN_WELCOME,
    JOIN_FULL,    /* value: how many processes the job may have; more: how many it has, waiting ones included */
    JOIN_ENDING,  /* the job ends */
    JOIN_STARTED, /* index, pid */
    JOIN_FAILED,  /* index, value: errno of the failure; more: why the process was not started */
    JOIN_TAKEN,   /* index, value: its rank */
    JOIN_ENDED    /* index, pid, value: wait status; it is not restarted */
};

/* Why a process was not started: a failed call (by errno), a failed exec, or another transport than the job's. */
enum { JOIN_BY_ERRNO, JOIN_BY_EXEC, JOIN_BY_TRANSPORT };

/* Descriptors that come with JOIN_START: a file with the words and the variables, each with its zero; the working
 * folder; and the files for its output. */
enum { JOIN_FD_TEXT, JOIN_FD_FOLDER, JOIN_FD_OUT, JOIN_FD_ERR };

struct join_message {
    uint32_t magic, version;
    int32_t kind, index, pid, value, more;
};

/* Sets the socket's name, by the job's, which has a random part: a pid is the same in two containers of one network.
 * Returns its length. */
socklen_t join_address(const char *job, struct sockaddr_un *address);
/* They return 0, or an errno: EAGAIN if nothing has come, EPIPE if the other end is gone, EPROTO for anything that is
 * no such message. `fds`: JOIN_FDS descriptors, -1 for those that did not come; NULL: none are taken. */
int join_send(int fd, const struct join_message *message, const int *fds);
int join_receive(int fd, struct join_message *message, int *fds);
/* Returns true if the other end is of this user. */
int join_is_own(int fd);

#endif
