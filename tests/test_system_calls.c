/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=90 waits
 *
 * System calls that fail: one of them, once, at each of the first places where two ranks make it that join, compute, make a
 * comm and leave. The rank gets over it, or each gets an error that says something; nobody dies, waits for a deadline, or has
 * other descriptors open than before.
 *     test_system_calls [CALL]
 */
#include "check.h"
#include "sanitized.h"

#include <tutti/experimental.h>

#if SANITIZED
int main(void)
{
    printf("sanitizers have these calls for themselves\n");
    return 77;
}
#else

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* WAIT_MS: deadlines of the library; LONG_S: half of them; HANG_S ends a rank that hangs. */
enum { WAIT_MS = 30000, LONG_S = 15, HANG_S = 100, PLACES_MOST = 5, COUNT = 40000 };

/* ---- The calls --------------------------------------------------------------------------------------------------- */

static atomic_bool *fired; /* in memory of both ranks */
static const char *call_name;
static int call_errno;
static bool call_is_over;
static atomic_long allowed;
static bool armed; /* in the rank that it fails for */

static bool fails(const char *name)
{
    if (!armed || strcmp(name, call_name) != 0) return false;
    if (atomic_fetch_sub_explicit(&allowed, 1, memory_order_relaxed) != 0) return false;
    atomic_store(fired, true);
    errno = call_errno;
    return true;
}

#define CALL(type, name, parameters, ...)                                                                              \
    type name parameters                                                                                               \
    {                                                                                                                  \
        return fails(#name) ? (type)-1 : (type)syscall(SYS_##name, __VA_ARGS__);                                       \
    }
CALL(int, socket, (int domain, int kind, int protocol), domain, kind, protocol)
CALL(int, bind, (int fd, const struct sockaddr *address, socklen_t bytes), fd, address, bytes)
CALL(int, listen, (int fd, int backlog), fd, backlog)
CALL(int, connect, (int fd, const struct sockaddr *address, socklen_t bytes), fd, address, bytes)
CALL(int, accept4, (int fd, struct sockaddr *address, socklen_t *bytes, int flags), fd, address, bytes, flags)
CALL(int, epoll_create1, (int flags), flags)
CALL(int, epoll_ctl, (int epoll, int what, int fd, struct epoll_event *event), epoll, what, fd, event)
CALL(int, memfd_create, (const char *name, unsigned flags), name, flags)
CALL(int, ftruncate, (int fd, off_t bytes), fd, bytes)
CALL(int, fallocate, (int fd, int mode, off_t at, off_t bytes), fd, mode, at, bytes)
CALL(void *, mmap, (void *at, size_t bytes, int how, int flags, int fd, off_t offset), at, bytes, how, flags, fd,
     offset)
CALL(ssize_t, process_vm_readv,
     (pid_t pid, const struct iovec *here, unsigned long heres, const struct iovec *there, unsigned long theres,
      unsigned long flags),
     pid, here, heres, there, theres, flags)
CALL(ssize_t, process_vm_writev,
     (pid_t pid, const struct iovec *here, unsigned long heres, const struct iovec *there, unsigned long theres,
      unsigned long flags),
     pid, here, heres, there, theres, flags)
CALL(ssize_t, sendmsg, (int fd, const struct msghdr *message, int flags), fd, message, flags)
CALL(ssize_t, recvmsg, (int fd, struct msghdr *message, int flags), fd, message, flags)

/* A connection that is reset is so for both ends. */
static bool breaks(const char *name, int fd)
{
    if (!fails(name)) return false;
    if (call_errno == ECONNRESET) shutdown(fd, SHUT_RDWR);
    errno = call_errno;
    return true;
}

ssize_t send(int fd, const void *bytes, size_t count, int flags)
{
    return breaks("send", fd) ? -1 : syscall(SYS_sendto, fd, bytes, count, flags, NULL, 0);
}

ssize_t recv(int fd, void *bytes, size_t count, int flags)
{
    return breaks("recv", fd) ? -1 : syscall(SYS_recvfrom, fd, bytes, count, flags, NULL, 0);
}

/* What is got over, and what may not be. */
static const struct {
    const char *name;
    int why;
    bool is_over; /* soon, by itself */
} calls[] = {
    {"socket", EMFILE, false},
    {"bind", EPERM, false},
    {"listen", EPERM, false},
    {"connect", EPERM, false},
    {"connect", ECONNREFUSED, false},
    {"accept4", EMFILE, false},
    {"accept4", ECONNABORTED, true},
    {"epoll_create1", EMFILE, false},
    {"epoll_ctl", ENOMEM, false},
    {"memfd_create", EMFILE, false},
    {"ftruncate", ENOMEM, false},
    {"fallocate", ENOSPC, false},
    {"mmap", ENOMEM, false},
    {"process_vm_readv", EPERM, false},
    {"process_vm_writev", ENOMEM, false},
    {"sendmsg", EINTR, true},
    {"sendmsg", ENOBUFS, true},
    {"recvmsg", EINTR, true},
    {"send", EINTR, true},
    {"send", ECONNRESET, false},
    {"recv", EINTR, true},
    {"recv", ECONNRESET, false},
};

/* ---- A rank ------------------------------------------------------------------------------------------------------ */

enum end { WELL, WITH_ERROR, WITHOUT_TEXT, WRONG_DATA, LEAKED };

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder) != NULL) count++;
    closedir(folder);
    return count;
}

static enum end end_of(const tutti_comm *comm, tutti_status status)
{
    const tutti_error *error = tutti_comm_error(comm);
    if (status == TUTTI_OK) return WELL;
    return error != NULL && error->text[0] != '\0' ? WITH_ERROR : WITHOUT_TEXT;
}

static enum end compute(tutti_comm *comm, float *x)
{
    int size = tutti_size(comm), peer = 1 - tutti_rank(comm);
    for (int i = 0; i < COUNT; i++) x[i] = 1;
    tutti_status status = tutti_all_reduce(comm, x, x, COUNT, TUTTI_F32, TUTTI_SUM);
    if (status == TUTTI_OK && (x[0] != (float)size || x[COUNT - 1] != (float)size)) return WRONG_DATA;
    if (status == TUTTI_OK) status = tutti_broadcast(comm, x, x, COUNT, TUTTI_F32, size - 1);
    if (status == TUTTI_OK)
        status = tutti_sendrecv(comm, x, COUNT, peer, 0, x + COUNT, COUNT, peer, 0, TUTTI_F32, NULL);
    return end_of(comm, status);
}

static enum end work(tutti_comm *world)
{
    tutti_comm *comm = NULL;
    float *own = calloc(2 * COUNT, sizeof *own), *x = tutti_alloc(world, 2 * COUNT * sizeof *x);
    enum end end = x == NULL ? end_of(world, TUTTI_ERR_MEMORY) : compute(world, x);
    if (end == WELL) end = compute(world, own);
    if (end == WELL) end = end_of(world, tutti_comm_split(world, 0, 0, &comm));
    if (end == WELL) end = compute(comm, own);
    tutti_comm_free(comm);
    free(own);
    return end;
}

static enum end be_rank(const char *job, int rank, const char *transport, const char *board)
{
    tutti_options options;
    tutti_comm *world = NULL;
    int before = open_descriptors();
    if (tutti_options_init(&options, NULL) != TUTTI_OK) return WITHOUT_TEXT;
    options.join_timeout_ms = options.deadline_ms = WAIT_MS;
    options.transport = transport;
    options.board = board;
    tutti_status status = tutti_join_as(job, rank, 2, &options, &world);
    enum end end = status == TUTTI_OK ? work(world) : end_of(world, status);
    tutti_leave(world);
    armed = false;
    return end <= WITH_ERROR && open_descriptors() != before ? LEAKED : end;
}

/* ---- Two of them ------------------------------------------------------------------------------------------------- */

static const char *what_ended(int status)
{
    static const char *const ends[] = {"well", "with an error", "with an error that says nothing", "with wrong data",
                                       "with other descriptors than before"};
    return WIFEXITED(status) && WEXITSTATUS(status) <= LEAKED ? ends[WEXITSTATUS(status)] : "by a signal";
}

/* As a launcher does: who has ended is noted for those that are joining. */
static void await_both(const pid_t *pids, tutti_board *board, const char *text)
{
    for (int ended = 0; ended < 2; ended++) {
        int status = -1;
        pid_t pid = waitpid(-1, &status, 0);
        int rank = pid == pids[1];
        tutti_board_note(board, rank, (int)pid, status);
        CHECK_THAT(WIFEXITED(status) && WEXITSTATUS(status) <= (call_is_over ? WELL : WITH_ERROR),
                   "%s; rank %d ended %s", text, rank, what_ended(status));
    }
}

/* Whether there was such a call: number `place` of rank `victim`'s. */
static bool run(const char *transport, int victim, int place)
{
    char job[64], name[64], text[160];
    pid_t pids[2];
    tutti_board *board;
    struct timespec began, ended;
    snprintf(job, sizeof job, "calls-%d-%s-%d-%d-%d", (int)getpid(), call_name, call_errno, victim, place);
    snprintf(text, sizeof text, "%s, %s number %d of rank %d: %s", transport, call_name, place, victim,
             strerror(call_errno));
    CHECK(tutti_board_create(job, 0, 2, 2, &board, NULL) == TUTTI_OK);
    tutti_board_name(board, name, sizeof name);
    atomic_store(fired, false);
    clock_gettime(CLOCK_MONOTONIC, &began);
    for (int rank = 0; rank < 2; rank++) {
        pids[rank] = fork();
        if (pids[rank] != 0) continue;
        alarm(HANG_S);
        atomic_store(&allowed, place);
        armed = rank == victim;
        _exit((int)be_rank(job, rank, transport, name));
    }
    await_both(pids, board, text);
    clock_gettime(CLOCK_MONOTONIC, &ended);
    CHECK_THAT(ended.tv_sec - began.tv_sec < LONG_S, "%s; it took %ld s", text, (long)(ended.tv_sec - began.tv_sec));
    tutti_board_free(board);
    return atomic_load(fired);
}

int main(int argc, char **argv)
{
    static const char *const transports[] = {"shm", "tcp"};
    setvbuf(stdout, NULL, _IOLBF, 0);
    tutti_log_set_level(TUTTI_QUIET);
    fired = mmap(NULL, sizeof *fired, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++) {
        call_name = calls[i].name;
        call_errno = calls[i].why;
        call_is_over = calls[i].is_over;
        if (argc > 1 && strcmp(argv[1], call_name) != 0) continue;
        for (int k = 0; k < 4; k++) {
            int place = 0;
            while (place < PLACES_MOST && run(transports[k / 2], k % 2, place)) place++;
            if (argc > 1) printf("%s, rank %d: %s fails at %d places\n", transports[k / 2], k % 2, call_name, place);
        }
    }
    return check_end();
}
#endif
