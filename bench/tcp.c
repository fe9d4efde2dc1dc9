/* SPDX-License-Identifier: Apache-2.0
 *
 * The tcp transport beside bare sockets, between two processes of this host: one-way time of 8 bytes, polled and asleep,
 * and the rate of large frames with 1, 2 and 4 connections. All are measured in turn, several times; the best is shown.
 *
 *     build/bench_tcp
 */
#include "transport/tcp.h"
#include "base/clock.h"
#include "world/rendezvous.h"
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HOPS = 20000, SLEEPS = 2000 };

static void must(bool good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

/* ---- The transport --------------------------------------------------------------------------------------------- */

struct side {
    struct tti_transport *transport;
    int rank;
    char *memory;
    uint64_t ended, sent;
    bool lost;
};

static void *begin(void *context, int peer, const struct tti_frame_head *head, void **cookie)
{
    struct side *side = context;
    (void)peer;
    (void)head;
    (void)cookie;
    return side->memory;
}

static void end(void *context, int peer, const struct tti_frame_head *head, void *cookie)
{
    (void)peer;
    (void)head;
    (void)cookie;
    ((struct side *)context)->ended++;
}

static void lost(void *context, int peer, bool closed, int system_errno, const char *text)
{
    (void)peer;
    (void)closed;
    (void)system_errno;
    (void)text;
    ((struct side *)context)->lost = true;
}

struct frame {
    struct tti_outgoing outgoing;
    struct side *side;
};

static void done(struct tti_outgoing *outgoing, tutti_status status)
{
    (void)status;
    ((struct frame *)outgoing)->side->sent++;
}

static void open_side(struct side *side, int rank, int streams, const char *job)
{
    struct tti_tcp_settings settings = {
        .job = job, .rank = rank, .size = 2, .interface = "127.0.0.1", .streams = streams, .heartbeat_ms = 2000};
    struct tti_tcp *tcp;
    struct tti_tcp_peer_info peer_info;
    struct tti_meeting *meeting;
    struct tti_blobs all;
    struct tti_key key = {{7}};
    tutti_error error;
    struct tti_rendezvous where = {.job = job, .rank = rank, .size = 2, .deadline_ns = tti_now_ns() + 5000000000};
    must(tti_tcp_listen(&settings, &tcp, &error) == TUTTI_OK, "listen");
    size_t bytes = tti_tcp_peer_info(tcp, &peer_info);
    must(tti_meeting_open(&where, &meeting, &error) == TUTTI_OK, error.text);
    must(tti_meeting_exchange(meeting, &peer_info, bytes, &all, &error) == TUTTI_OK, error.text);
    tti_meeting_close(meeting);
    const void *other = tti_blob(&all, 1 - rank, &bytes);
    must(tti_tcp_expect(tcp, 1 - rank, other, bytes, &error) == TUTTI_OK, error.text);
    must(tti_tcp_connect(&tcp, 1, &key, where.deadline_ns, NULL, NULL, &error) == TUTTI_OK, error.text);
    tti_blobs_free(&all);
    side->transport = tti_tcp_transport(tcp);
    side->transport->sink = (struct tti_sink){.context = side, .begin = begin, .end = end, .lost = lost};
}

static void send_frame(struct side *side, struct frame *frame, const void *data, size_t bytes)
{
    *frame = (struct frame){.outgoing = {.head = {.bytes = bytes}, .data = data, .done = done}, .side = side};
    bool taken = side->transport->ops->send(side->transport, 1 - side->rank, &frame->outgoing);
    if (taken) done(&frame->outgoing, TUTTI_OK);
}

static void await(struct side *side, const uint64_t *count, uint64_t goal, bool asleep)
{
    while (*count < goal) {
        if (!side->transport->ops->progress(side->transport, 1 - side->rank) && asleep)
            side->transport->ops->sleep(side->transport, 1000000000);
        must(!side->lost || *count >= goal, "the other side is gone");
    }
}

static double hop_us(struct side *side, int hops, bool asleep)
{
    struct frame frame;
    uint64_t goal = side->ended, sent = side->sent;
    int64_t start = tti_now_ns();
    for (int i = 0; i < hops; i++) {
        if (side->rank == 0) send_frame(side, &frame, side->memory, 8);
        await(side, &side->ended, ++goal, asleep);
        if (side->rank == 1) send_frame(side, &frame, side->memory, 8);
        await(side, &side->sent, ++sent, false);
    }
    return (double)(tti_now_ns() - start) / 2e3 / hops;
}

/* Frames one after the other from rank 0, two in flight; the last is answered. */
static double rate(struct side *side, size_t bytes, int frames)
{
    struct frame two[2], answer;
    uint64_t goal = side->ended, sent = side->sent;
    int64_t start = tti_now_ns();
    for (int i = 0; i < frames && side->rank == 0; i++) {
        await(side, &side->sent, sent + (i < 2 ? 0 : (uint64_t)i - 1), false);
        send_frame(side, &two[i % 2], side->memory, bytes);
    }
    if (side->rank == 0) {
        await(side, &side->ended, goal + 1, false);
        await(side, &side->sent, sent + (uint64_t)frames, false);
    } else {
        await(side, &side->ended, goal + (uint64_t)frames, false);
        send_frame(side, &answer, side->memory, 1);
        await(side, &side->sent, sent + 1, false);
    }
    return (double)bytes * frames / (double)(tti_now_ns() - start);
}

/* ---- Bare sockets ---------------------------------------------------------------------------------------------- */

static void bare_send(int fd, const char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, MSG_DONTWAIT | MSG_NOSIGNAL);
        must(sent > 0 || errno == EAGAIN, "send");
        if (sent <= 0) continue;
        data += sent;
        bytes -= (size_t)sent;
    }
}

static void bare_receive(int fd, char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t got = recv(fd, data, bytes, MSG_DONTWAIT);
        must(got > 0 || (got < 0 && errno == EAGAIN), "recv");
        if (got <= 0) continue;
        data += got;
        bytes -= (size_t)got;
    }
}

static double bare_hop_us(int fd, int rank, char *memory, size_t bytes)
{
    int64_t start = tti_now_ns();
    for (int i = 0; i < HOPS; i++) {
        if (rank == 0) bare_send(fd, memory, bytes);
        bare_receive(fd, memory, bytes);
        if (rank == 1) bare_send(fd, memory, bytes);
    }
    return (double)(tti_now_ns() - start) / 2e3 / HOPS;
}

static double bare_rate(int fd, int rank, char *memory, size_t bytes, int frames)
{
    int64_t start = tti_now_ns();
    for (int i = 0; i < frames; i++) {
        if (rank == 0)
            bare_send(fd, memory, bytes);
        else
            bare_receive(fd, memory, bytes);
    }
    if (rank == 0)
        bare_receive(fd, memory, 1);
    else
        bare_send(fd, memory, 1);
    return (double)bytes * frames / (double)(tti_now_ns() - start);
}

/* Each side has a core of its own: the system moves two that talk to each other onto one, which is slow. */
static void bind_to(int core)
{
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET((size_t)core, &set);
    (void)!sched_setaffinity(0, sizeof set, &set);
}

/* ---- Both ------------------------------------------------------------------------------------------------------ */

enum { ROUNDS = 7, KINDS = 3, SIZES = 4 };
static const int stream_counts[KINDS] = {1, 2, 4};
static const size_t sizes[SIZES] = {65536, 1 << 20, 16 << 20, 64 << 20};

struct best {
    double bare8, bare64, polled, asleep;    /* us */
    double bare[SIZES], rates[KINDS][SIZES]; /* GB/s */
};

static double lower(double a, double b)
{
    return a == 0 || b < a ? b : a;
}

static double higher(double a, double b)
{
    return b > a ? b : a;
}

static void measure(int rank, int fd, struct side *sides, struct best *best)
{
    char *memory = sides[0].memory;
    best->bare8 = lower(best->bare8, bare_hop_us(fd, rank, memory, 8));
    best->bare64 = lower(best->bare64, bare_hop_us(fd, rank, memory, 64));
    best->polled = lower(best->polled, hop_us(&sides[0], HOPS, false));
    best->asleep = lower(best->asleep, hop_us(&sides[0], SLEEPS, true));
    for (int i = 0; i < SIZES; i++) {
        int frames = (int)(((size_t)256 << 20) / sizes[i] / (i == 0 ? 4 : 1));
        best->bare[i] = higher(best->bare[i], bare_rate(fd, rank, memory, sizes[i], frames));
        for (int k = 0; k < KINDS; k++)
            best->rates[k][i] = higher(best->rates[k][i], rate(&sides[k], sizes[i], frames));
    }
}

static void print_best(const struct best *best)
{
    printf("best of %d rounds; one way, us: bare 8 B %.2f, bare 64 B %.2f, transport 8 B %.2f, asleep %.2f\n", ROUNDS,
           best->bare8, best->bare64, best->polled, best->asleep);
    for (int i = 0; i < SIZES; i++) {
        printf("%9zu bytes, GB/s: bare %.2f, transport", sizes[i], best->bare[i]);
        for (int k = 0; k < KINDS; k++) printf(" %.2f (%d)", best->rates[k][i], stream_counts[k]);
        printf("\n");
    }
}

static void work(int rank, int fd, const char *job)
{
    struct side sides[KINDS];
    struct best best = {0};
    char *memory = malloc(64 << 20);
    must(memory != NULL, "malloc");
    memset(memory, 1, 64 << 20);
    bind_to(rank);
    for (int k = 0; k < KINDS; k++) {
        char name[80];
        snprintf(name, sizeof name, "%s-%d", job, k);
        sides[k] = (struct side){.rank = rank, .memory = memory};
        open_side(&sides[k], rank, stream_counts[k], name);
    }
    for (int round = 0; round < ROUNDS; round++) measure(rank, fd, sides, &best);
    if (rank == 0) print_best(&best);
    for (int k = 0; k < KINDS; k++) sides[k].transport->ops->close(sides[k].transport, 1000000000);
    free(memory);
}

static void connect_bare(int fds[2])
{
    struct tti_address address = {.family = 4, .ip = {127, 0, 0, 1}};
    int listener = tti_listen(&address, 0, 0);
    must(listener >= 0, "listen");
    fds[0] = tti_connect(&address);
    struct pollfd polled = {.fd = listener, .events = POLLIN};
    must(poll(&polled, 1, 1000) == 1, "poll");
    fds[1] = tti_accept(listener, &address);
    must(fds[0] >= 0 && fds[1] >= 0, "connect");
    close(listener);
}

int main(void)
{
    int fds[2], status = 1;
    char job[64];
    snprintf(job, sizeof job, "bench-tcp-%d", (int)getpid());
    connect_bare(fds);
    pid_t child = fork();
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    work(child == 0, fds[child == 0], job);
    if (child == 0) return 0;
    waitpid(child, &status, 0);
    return status != 0;
}
