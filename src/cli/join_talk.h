/* SPDX-License-Identifier: Apache-2.0
 *
 * What `tutti run --join` and the guard of the job say to each other, over a unix socket whose ends have seen that they are of the
 * same user.
 *
 *     hello: how many processes        ->
 *                                      <-   welcome, or full, or ending
 *     start, with their descriptors    ->                        once for each
 *                                      <-   started, or failed
 *                                      <-   taken, when the job's ranks take it in; ended
 *     signal                           ->                        for all of them
 *
 * The processes are the guard's, as all of the job are. When the socket closes it ends those that were started over it.
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
    JOIN_FULL,    /* value: processes that the job may have; more: those that it has, with those that wait */
    JOIN_ENDING,  /* the job is */
    JOIN_STARTED, /* index, pid */
    JOIN_FAILED,  /* index, value: errno of what could not be done for it, more: 1 where that is exec */
    JOIN_TAKEN,   /* index, value: its rank */
    JOIN_ENDED    /* index, pid, value: wait status; it is not started again */
};

/* Descriptors that come with JOIN_START: a file with the words and the variables, each with its zero; the folder; and where output
 * goes. */
enum { JOIN_FD_TEXT, JOIN_FD_FOLDER, JOIN_FD_OUT, JOIN_FD_ERR };

struct join_message {
    uint32_t magic, version;
    int32_t kind, index, pid, value, more;
};

/* The socket's name; returns its length. */
socklen_t join_address(int guard, struct sockaddr_un *address);
/* 0, or an errno: EAGAIN where nothing has come, EPIPE where the other end is gone, EPROTO for something else than a message of
 * these. `fds`: JOIN_FDS, -1 where none came; NULL: none are taken. */
int join_send(int fd, const struct join_message *message, const int *fds);
int join_receive(int fd, struct join_message *message, int *fds);
/* Returns true if the other end is of this user. */
int join_is_own(int fd);

#endif
