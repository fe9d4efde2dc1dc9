/* SPDX-License-Identifier: Apache-2.0 */
#include "cli/join_talk.h"

#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

socklen_t join_address(const char *job, struct sockaddr_un *address)
{
    *address = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "tutti-guard-%.80s", job);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

int join_is_own(int fd)
{
    struct ucred peer;
    socklen_t bytes = sizeof peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes) == 0 && peer.uid == geteuid();
}

int join_send(int fd, const struct join_message *message, const int *fds)
{
    struct join_message whole = *message;
    whole.magic = JOIN_MAGIC;
    whole.version = JOIN_VERSION;
    struct iovec part = {&whole, sizeof whole};
    union {
        char bytes[CMSG_SPACE(JOIN_FDS * sizeof(int))];
        struct cmsghdr align;
    } control = {{0}};
    struct msghdr head = {.msg_iov = &part, .msg_iovlen = 1};
    if (fds != NULL) {
        head.msg_control = control.bytes;
        head.msg_controllen = sizeof control.bytes;
        struct cmsghdr *first = CMSG_FIRSTHDR(&head);
        *first = (struct cmsghdr){
            .cmsg_len = CMSG_LEN(JOIN_FDS * sizeof(int)), .cmsg_level = SOL_SOCKET, .cmsg_type = SCM_RIGHTS};
        memcpy(CMSG_DATA(first), fds, JOIN_FDS * sizeof(int));
    }
    return sendmsg(fd, &head, MSG_NOSIGNAL) < 0 ? errno : 0;
}

/* Takes the descriptors of a message, and closes those that nobody asked for. */
static void take_descriptors(struct msghdr *head, int *fds)
{
    for (struct cmsghdr *each = CMSG_FIRSTHDR(head); each != NULL; each = CMSG_NXTHDR(head, each)) {
        if (each->cmsg_level != SOL_SOCKET || each->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (each->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;
            memcpy(&fd, CMSG_DATA(each) + i * sizeof fd, sizeof fd);
            if (fds != NULL && i < JOIN_FDS)
                fds[i] = fd;
            else
                (void)close(fd);
        }
    }
}

int join_receive(int fd, struct join_message *message, int *fds)
{
    struct iovec part = {message, sizeof *message};
    union {
        char bytes[CMSG_SPACE(JOIN_FDS * sizeof(int))];
        struct cmsghdr align;
    } control;
    struct msghdr head = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    for (int i = 0; fds != NULL && i < JOIN_FDS; i++) fds[i] = -1;
    ssize_t length = recvmsg(fd, &head, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (length < 0) return errno == EINTR ? EAGAIN : errno == ECONNRESET ? EPIPE : errno;
    take_descriptors(&head, fds);
    if (length == 0) return EPIPE;
    bool good = length == (ssize_t)sizeof *message && message->magic == JOIN_MAGIC && message->version == JOIN_VERSION;
    return good ? 0 : EPROTO;
}
