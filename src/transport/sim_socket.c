/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/sim_socket.h"

#include "base/alloc.h"
#include "base/sim.h"
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

enum {
    BACKLOG = 4096,
    FIRST_PORT = 1024,
    PORTS = 65536,
    FIRST_STEP_NS = 40000,
    LAST_STEP_NS = 5000000,
    LOOK_NS = 10000
};

static _Thread_local uint64_t break_one_in;
static _Thread_local int64_t break_within_ns;
static _Thread_local int break_unread, broken;

/* A socket and whose it is. The number may be another file's by now, which its inode tells. */
struct owned {
    int fd;
    ino_t inode;
    const struct tti_sim_task *leader;
};
static _Thread_local struct owned *owned;
static _Thread_local size_t owned_count, owned_room;

/* A connection that is to end by itself. */
struct ending {
    struct tti_event event; /* the first member */
    int fd, how, unread;
    int64_t until_ns;
};

static bool is_open(const struct owned *socket)
{
    struct stat about;
    return fstat(socket->fd, &about) == 0 && S_ISSOCK(about.st_mode) && about.st_ino == socket->inode;
}

/* Forgets sockets that were closed, and makes room. */
static bool reserve_owned(void)
{
    size_t kept = 0;
    if (owned_count < owned_room) return true;
    for (size_t i = 0; i < owned_count; i++)
        if (is_open(&owned[i])) owned[kept++] = owned[i];
    owned_count = kept;
    if (2 * kept < owned_room) return true;
    size_t room = owned_room == 0 ? 64 : 2 * owned_room;
    struct owned *more = tti_calloc(room, sizeof *more);
    if (more == NULL) return owned_count < owned_room;
    if (kept > 0) memcpy(more, owned, kept * sizeof *more);
    tti_free(owned);
    owned = more;
    owned_room = room;
    return true;
}

int tti_sim_own_socket(int fd)
{
    struct stat about;
    if (tti_sim == NULL || fd < 0 || fstat(fd, &about) != 0 || !reserve_owned()) return fd;
    owned[owned_count++] = (struct owned){.fd = fd, .inode = about.st_ino, .leader = tti_sim_leader()};
    return fd;
}

void tti_sim_close_sockets(const struct tti_sim_task *leader)
{
    for (size_t i = 0; i < owned_count; i++) {
        if (owned[i].leader != leader || !is_open(&owned[i])) continue;
        close(owned[i].fd);
        owned[i].leader = NULL;
    }
}

static socklen_t name_of(uint16_t port, struct sockaddr_un *name)
{
    *name = (struct sockaddr_un){.sun_family = AF_UNIX};
    int length = snprintf(name->sun_path + 1, sizeof name->sun_path - 1, "tutti-sim-%d-%u", (int)getpid(), port);
    return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)length);
}

static int close_failed(int fd)
{
    int why = errno;
    if (fd >= 0) close(fd);
    errno = why;
    return -1;
}

static int listen_at(int fd, uint16_t port)
{
    struct sockaddr_un name;
    socklen_t length = name_of(port, &name);
    return bind(fd, (struct sockaddr *)&name, length) == 0 ? listen(fd, BACKLOG) : -1;
}

int tti_sim_listen(struct tti_address *address)
{
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), listens = -1;
    unsigned port = address->port != 0 ? address->port : FIRST_PORT;
    if (fd < 0) return -1;
    do listens = listen_at(fd, (uint16_t)port);
    while (listens != 0 && errno == EADDRINUSE && address->port == 0 && ++port < PORTS);
    if (listens != 0) return close_failed(fd);
    address->port = (uint16_t)port;
    return tti_sim_own_socket(fd);
}

static void break_off(struct tti_event *event)
{
    struct ending *ending = (struct ending *)event;
    char lost[256];
    int waiting = 0;
    bool late = tti_sim_now_ns() >= ending->until_ns;
    bool now = ending->unread == 0 || (ioctl(ending->fd, FIONREAD, &waiting) == 0 && waiting == ending->unread);
    if (!now && !late) {
        tti_sim_at(event, tti_sim_now_ns() + LOOK_NS);
        return;
    }
    if (now) {
        while (ending->unread > 0 && recv(ending->fd, lost, sizeof lost, MSG_DONTWAIT) > 0) {}
        shutdown(ending->fd, ending->how);
        broken++;
    }
    close(ending->fd);
    tti_free(ending);
}

static void maybe_break(int fd)
{
    static const int ways[] = {SHUT_RDWR, SHUT_RD, SHUT_WR};
    if (break_one_in == 0 || tti_sim_random() % break_one_in != 0) return;
    struct ending *ending = tti_calloc(1, sizeof *ending);
    if (ending == NULL) return;
    *ending = (struct ending){.event = {.fire = break_off, .id = UINT64_C(11) << 60}, .fd = dup(fd)};
    ending->unread = break_unread;
    ending->how = break_unread > 0 ? SHUT_RDWR : ways[tti_sim_random() % 3];
    ending->until_ns = tti_sim_now_ns() + break_within_ns;
    int64_t after_ns = (int64_t)(tti_sim_random() % (uint64_t)(break_within_ns + 1));
    tti_sim_at(&ending->event, tti_sim_now_ns() + (break_unread > 0 ? LOOK_NS : after_ns));
}

int tti_sim_connect(const struct tti_address *address)
{
    struct sockaddr_un name;
    socklen_t length = name_of(address->port, &name);
    int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&name, length) != 0) return close_failed(fd);
    maybe_break(fd);
    return tti_sim_own_socket(fd);
}

int tti_sim_poll(struct pollfd *set, nfds_t count, int64_t timeout_ns)
{
    int64_t until_ns = tti_sim_now_ns() + timeout_ns, step_ns = FIRST_STEP_NS;
    for (;;) {
        int ready = poll(set, count, 0);
        int64_t left_ns = until_ns - tti_sim_now_ns();
        if (ready != 0) tti_sim_sleep(FIRST_STEP_NS); /* a caller that polls again and again comes to its deadline */
        if (ready != 0 || left_ns <= 0) return ready;
        tti_sim_sleep(left_ns < step_ns ? left_ns : step_ns);
        step_ns = step_ns * 2 < LAST_STEP_NS ? step_ns * 2 : LAST_STEP_NS;
    }
}

void tti_sim_break_sockets(uint64_t one_in, int64_t within_ns, int unread)
{
    break_unread = unread;
    break_one_in = one_in;
    break_within_ns = within_ns;
}

int tti_sim_broken_sockets(void)
{
    return broken;
}
