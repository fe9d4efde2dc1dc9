/* SPDX-License-Identifier: Apache-2.0 */
#include "transport/sim_socket.h"

#include "base/alloc.h"
#include "base/sim.h"
#include <errno.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
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

/* A connection that is to end by itself. */
struct ending {
    struct tti_event event; /* the first member */
    int fd, how, unread;
    int64_t until_ns;
};

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
    return fd;
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
    return fd;
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
