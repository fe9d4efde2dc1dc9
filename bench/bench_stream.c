/* SPDX-License-Identifier: Apache-2.0
 *
 * A broadcast beside one plain stream, between two ranks, in turns: 64 MiB from rank 0 to rank 1, which answers. The stream
 * goes to the address of rank 1 that is given; it is driven in two ways, with calls that block and with calls that poll.
 *
 *     bench_stream ADDRESS [ROUNDS]     within a job of two ranks; bench/veth.sh starts one between two network namespaces
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <tutti/tutti.h>
#include <unistd.h>

enum { BYTES = 64 << 20, ROUNDS = 15 };
enum { BLOCKING, POLLING, BROADCAST, WAYS };

static void must(int good, const char *what)
{
    if (good) return;
    fprintf(stderr, "%s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* ---- The stream ------------------------------------------------------------------------------------------------ */

static int accept_one(tutti_comm *world, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    socklen_t length = sizeof at;
    int listener = socket(AF_INET, SOCK_STREAM, 0);
    must(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
    must(bind(listener, (struct sockaddr *)&at, sizeof at) == 0 && listen(listener, 1) == 0, address);
    must(getsockname(listener, (struct sockaddr *)&at, &length) == 0, "getsockname");
    int32_t port = at.sin_port;
    must(tutti_send(world, &port, 1, TUTTI_I32, 0, 0) == TUTTI_OK, "the port could not be told");
    int fd = accept(listener, NULL, NULL);
    close(listener);
    return fd;
}

static int connect_one(tutti_comm *world, const char *address)
{
    struct sockaddr_in at = {.sin_family = AF_INET};
    int32_t port = 0;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    must(tutti_recv(world, &port, 1, TUTTI_I32, 1, 0, NULL) == TUTTI_OK, "the port was not told");
    must(inet_pton(AF_INET, address, &at.sin_addr) == 1, address);
    at.sin_port = (in_port_t)port;
    must(connect(fd, (struct sockaddr *)&at, sizeof at) == 0, address);
    return fd;
}

static void send_all(int fd, const char *data, size_t bytes, int flags)
{
    while (bytes > 0) {
        ssize_t sent = send(fd, data, bytes, flags | MSG_NOSIGNAL);
        must(sent >= 0 || errno == EAGAIN || errno == EINTR, "send");
        if (sent < 0) continue;
        data += sent;
        bytes -= (size_t)sent;
    }
}

static void receive_all(int fd, char *data, size_t bytes, int flags)
{
    while (bytes > 0) {
        ssize_t got = recv(fd, data, bytes, flags);
        must(got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR)), "recv");
        if (got < 0) continue;
        data += got;
        bytes -= (size_t)got;
    }
}

static void stream_once(int fd, int rank, char *memory, int flags)
{
    if (rank == 0) {
        send_all(fd, memory, BYTES, flags);
        receive_all(fd, memory, 1, flags);
    } else {
        receive_all(fd, memory, BYTES, flags);
        send_all(fd, memory, 1, flags);
    }
}

/* ---- Both ------------------------------------------------------------------------------------------------------ */

static void broadcast_once(tutti_comm *world, int rank, char *memory)
{
    char answer = 1;
    must(tutti_broadcast(world, memory, memory, BYTES, TUTTI_I8, 0) == TUTTI_OK, "broadcast");
    if (rank == 0)
        must(tutti_recv(world, &answer, 1, TUTTI_I8, 1, 0, NULL) == TUTTI_OK, "recv");
    else
        must(tutti_send(world, &answer, 1, TUTTI_I8, 0, 0) == TUTTI_OK, "send");
}

static double turn_s(tutti_comm *world, int fd, char *memory, int way)
{
    int rank = tutti_rank(world);
    tutti_barrier(world);
    double start = now_s();
    if (way == BROADCAST)
        broadcast_once(world, rank, memory);
    else
        stream_once(fd, rank, memory, way == POLLING ? MSG_DONTWAIT : 0);
    return now_s() - start;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int work(tutti_comm *world, int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : ROUNDS, rank = tutti_rank(world);
    must(argc > 1 && tutti_size(world) == 2 && rounds > 0, "bench_stream ADDRESS [ROUNDS], by two ranks");
    double *times = calloc((size_t)rounds * WAYS, sizeof *times);
    char *memory = tutti_alloc(world, BYTES);
    must(memory != NULL && times != NULL, "memory");
    int fd = rank == 1 ? accept_one(world, argv[1]) : connect_one(world, argv[1]);
    for (int way = 0; way < WAYS; way++) turn_s(world, fd, memory, way);
    for (int round = 0; round < rounds; round++)
        for (int way = 0; way < WAYS; way++) times[way * rounds + round] = turn_s(world, fd, memory, way);
    for (int way = 0; way < WAYS; way++) qsort(times + way * rounds, (size_t)rounds, sizeof *times, by_value);
    static const char *const names[] = {"stream, blocking", "stream, polling", "broadcast"};
    for (int way = 0; way < WAYS && rank == 0; way++)
        printf("%-16s 64 MiB: median %.2f GB/s, best %.2f GB/s of %d rounds\n", names[way],
               BYTES / times[way * rounds + rounds / 2] / 1e9, BYTES / times[way * rounds] / 1e9, rounds);
    close(fd);
    free(times);
    return 0;
}

int main(int argc, char **argv)
{
    return tutti_main(work, argc, argv);
}
