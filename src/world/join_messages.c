/* SPDX-License-Identifier: Apache-2.0
 *
 * The sockets of the join. They have names in the abstract namespace: there is no file, so nothing is left to remove
 * after a crash. The name holds the user, and either side also checks the other's user, since anyone can take a name.
 */
#include "world/join_messages.h"

#include "base/clock.h"
#include "base/hash.h"
#include "transport/sim_socket.h"
#include "transport/socket.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

enum { BACKLOG = 4096, RETRY_MS = 1, DROPPED_AT_ONCE = 64 };

union control {
    struct cmsghdr align;
    char bytes[CMSG_SPACE(sizeof(int) * TTI_WIRE_FDS)];
};

static const size_t sizes[] = {
    [TTI_WIRE_HELLO] = sizeof(struct tti_wire_hello),
    [TTI_WIRE_WORLD] = sizeof(struct tti_wire_world),
    [TTI_WIRE_ARENAS] = sizeof(struct tti_wire_arenas),
    [TTI_WIRE_VERDICT] = sizeof(struct tti_wire_verdict),
};

/* ---- The job's socket ------------------------------------------------------------------------------------------ */

/* Sets the socket's name. If a job's name is too long for it, the name has its hash; the job in the hello tells two of
 * those apart. */
static socklen_t name_of(const char *job, struct sockaddr_un *address)
{
    char *name = address->sun_path + 1; /* the zero before it makes the name abstract */
    size_t room = sizeof address->sun_path - 1;
    unsigned long user = (unsigned long)geteuid();
    memset(address, 0, sizeof *address);
    address->sun_family = AF_UNIX;
    int length = snprintf(name, room, "tutti-%lu-%s", user, job);
    if ((size_t)length >= room)
        length = snprintf(name, room, "tutti-%lu-#%016llx", user,
                          (unsigned long long)tti_hash_bytes(TTI_HASH_START, job, strlen(job)));
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static bool peer_of(int fd, struct ucred *peer)
{
    socklen_t length = sizeof *peer;
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, peer, &length) == 0;
}

static bool is_mine(int fd)
{
    struct ucred peer;
    return peer_of(fd, &peer) && peer.uid == geteuid();
}

pid_t tti_wire_peer_pid(int fd)
{
    struct ucred peer;
    return peer_of(fd, &peer) ? peer.pid : 0;
}

/* Closes, and returns -1 with this errno. */
static int close_failed(int fd, int why)
{
    close(fd);
    errno = why;
    return -1;
}

int tti_wire_listen(const char *job, int type)
{
    struct sockaddr_un address;
    socklen_t length = name_of(job, &address);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (bind(fd, (struct sockaddr *)&address, length) != 0 || listen(fd, BACKLOG) != 0) return close_failed(fd, errno);
    return tti_sim_own_socket(fd);
}

int tti_wire_connect(const char *job, int type)
{
    struct sockaddr_un address;
    socklen_t length = name_of(job, &address);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) return -1;
    if (connect(fd, (struct sockaddr *)&address, length) != 0) return close_failed(fd, errno);
    if (!is_mine(fd)) return close_failed(fd, EACCES);
    return tti_sim_own_socket(fd);
}

/* Returns the process that listens; others are not known. */
static bool holder_of(const char *job, int type, struct ucred *holder)
{
    struct sockaddr_un address;
    socklen_t length = name_of(job, &address);
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    bool known = fd >= 0 && connect(fd, (struct sockaddr *)&address, length) == 0 && peer_of(fd, holder);
    if (fd >= 0) close(fd);
    return known;
}

bool tti_wire_is_foreign(const char *job, int type, char *text)
{
    struct ucred holder;
    struct sockaddr_un address;
    char process[32] = "";
    int before = errno;
    bool foreign = holder_of(job, type, &holder) && holder.uid != geteuid();
    errno = before;
    if (!foreign) return false;
    if (holder.pid > 0)
        snprintf(process, sizeof process, " (process %d)", (int)holder.pid); /* otherwise it is not visible here */
    name_of(job, &address);
    snprintf(
        text, TTI_WIRE_TEXT,
        "user %u%s holds the name of job %.64s's socket, @%.107s, which any user of this host can take first; give "
        "the job a name that nobody can guess (TUTTI_JOB, the same for all ranks; tutti run makes one), or have that "
        "process ended",
        (unsigned)holder.uid, process, job, address.sun_path + 1);
    return true;
}

int tti_wire_accept(int listener)
{
    for (int dropped = 0; dropped < DROPPED_AT_ONCE; dropped++) {
        int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (fd >= 0 && is_mine(fd)) return tti_sim_own_socket(fd);
        if (fd >= 0)
            close(fd);
        else if (errno != EINTR && errno != ECONNABORTED)
            return -1;
    }
    errno = EAGAIN; /* some process connects without end: the caller has other things to do as well */
    return -1;
}

/* ---- Sending --------------------------------------------------------------------------------------------------- */

static void attach_fds(struct msghdr *message, union control *control, const int *fds, int fd_count)
{
    if (fd_count == 0) return;
    size_t bytes = sizeof(int) * (size_t)fd_count;
    memset(control, 0, sizeof *control);
    message->msg_control = control->bytes;
    message->msg_controllen = CMSG_SPACE(bytes);
    struct cmsghdr *part = CMSG_FIRSTHDR(message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(bytes);
    memcpy(CMSG_DATA(part), fds, bytes);
}

/* Waits for errors that pass: a full buffer, and the system's limit on descriptors under way, which are fewer as others
 * receive theirs. Returns 0 to try again. */
static int await_room(int fd, int why, int64_t deadline_ns)
{
    if (why == EINTR) return 0;
    if (why == EAGAIN) return tti_poll_until(fd, POLLOUT, deadline_ns);
    if (why == ECONNRESET) return EPIPE;
    if (why != ETOOMANYREFS && why != ENOBUFS && why != ENOMEM) return why;
    if (tti_now_ns() >= deadline_ns) return why;
    tti_poll(NULL, 0, RETRY_MS);
    return 0;
}

int tti_wire_send(int fd, enum tti_wire_kind kind, void *message, size_t bytes, const int *fds, int fd_count,
                  int64_t deadline_ns)
{
    struct iovec part = {message, bytes};
    struct msghdr header = {.msg_iov = &part, .msg_iovlen = 1};
    union control control;
    struct tti_wire_head head = {TTI_WIRE_MAGIC, TTI_WIRE_VERSION, kind};
    memcpy(message, &head, sizeof head);
    attach_fds(&header, &control, fds, fd_count);
    for (;;) {
        if (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return 0;
        int why = await_room(fd, errno, deadline_ns);
        if (why != 0) return why;
    }
}

/* ---- Receiving ------------------------------------------------------------------------------------------------- */

void tti_wire_drop_fds(struct tti_wire_packet *packet)
{
    for (int i = 0; i < packet->fd_count; i++)
        if (packet->fds[i] >= 0) close(packet->fds[i]);
    packet->fd_count = 0;
}

static void collect_fds(struct msghdr *message, struct tti_wire_packet *packet)
{
    packet->fd_count = 0;
    for (struct cmsghdr *part = CMSG_FIRSTHDR(message); part != NULL; part = CMSG_NXTHDR(message, part)) {
        if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
        size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count && packet->fd_count < TTI_WIRE_FDS; i++)
            memcpy(&packet->fds[packet->fd_count++], CMSG_DATA(part) + i * sizeof(int), sizeof(int));
    }
}

/* Messages of another version may have other sizes: the head says so, and only the head is read. */
static bool is_message(const struct tti_wire_packet *packet, size_t bytes)
{
    const struct tti_wire_head *head = &packet->as.head;
    if (bytes < sizeof *head || head->magic != TTI_WIRE_MAGIC) return false;
    if (head->version != TTI_WIRE_VERSION) return true;
    return head->kind >= TTI_WIRE_HELLO && head->kind <= TTI_WIRE_VERDICT && bytes == sizes[head->kind];
}

int tti_wire_receive(int fd, struct tti_wire_packet *packet)
{
    struct iovec part = {&packet->as, sizeof packet->as};
    union control control;
    struct msghdr header = {
        .msg_iov = &part, .msg_iovlen = 1, .msg_control = control.bytes, .msg_controllen = sizeof control.bytes};
    ssize_t got;
    packet->fd_count = 0;
    do got = recvmsg(fd, &header, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    while (got < 0 && errno == EINTR);
    if (got < 0) return errno == EWOULDBLOCK ? EAGAIN : errno == ECONNRESET ? EPIPE : errno;
    collect_fds(&header, packet);
    if (got == 0 && packet->fd_count == 0) return EPIPE;
    if ((header.msg_flags & MSG_CTRUNC) != 0) { /* descriptors were lost: this process has no room for more */
        tti_wire_drop_fds(packet);
        return EMFILE;
    }
    if ((header.msg_flags & MSG_TRUNC) != 0 || !is_message(packet, (size_t)got)) {
        tti_wire_drop_fds(packet);
        return EBADMSG;
    }
    return 0;
}

/* Closing a socket with unread packets resets it, and the other end would lose what was sent to it. So this accepts no
 * more, reads what is there, and closes. */
void tti_wire_close(int fd)
{
    struct tti_wire_packet packet;
    if (fd < 0) return;
    shutdown(fd, SHUT_RD);
    for (;;) {
        int why = tti_wire_receive(fd, &packet);
        if (why != 0 && why != EBADMSG && why != EMFILE) break;
        tti_wire_drop_fds(&packet);
    }
    close(fd);
}
