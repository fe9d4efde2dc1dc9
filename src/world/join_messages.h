/* SPDX-License-Identifier: Apache-2.0
 *
 * Messages of the join: whole packets on a unix socket, some with file descriptors.
 *
 *     member                      rank 0
 *     HELLO + its arena     ->                         or, when it cannot join, why
 *                           <-    WORLD + segment      once every process has said hello
 *                           <-    ARENAS + arenas      as many messages as it takes
 *     VERDICT               ->                         "all mapped", or why not
 *                           <-    VERDICT              "go", or whose fault it is; may come at any time
 *
 * Errors of this layer are errno values: ETIMEDOUT at the deadline, EPIPE when the other end is gone, EBADMSG for
 * what is not one of these messages.
 */
#ifndef TTI_WORLD_JOIN_MESSAGES_H
#define TTI_WORLD_JOIN_MESSAGES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <tutti/tutti.h>

#define TTI_WIRE_MAGIC 0x656e696c74757474u
enum {
    TTI_WIRE_VERSION = 4,
    TTI_WIRE_FDS = 64,  /* most descriptors in one message; the system's limit is 253 */
    TTI_WIRE_JOB = 160, /* with the number of the host, if there are several */
    TTI_WIRE_TEXT = 480
};

/* After a failure rank 0 stays this long for processes that are still on their way. */
#define TTI_JOIN_LINGER_NS ((int64_t)1000 * 1000000)
/* Rank 0 knows which process is missing, and keeps the earliest deadline of all: its verdict is worth waiting for so
 * much longer. */
#define TTI_JOIN_GRACE_NS ((int64_t)300 * 1000000)

enum tti_wire_kind { TTI_WIRE_HELLO = 1, TTI_WIRE_WORLD, TTI_WIRE_ARENAS, TTI_WIRE_VERDICT };

/* The head of every message, in this version and all to come. */
struct tti_wire_head {
    uint64_t magic;
    uint32_t version, kind;
};

/* The result of joining for `peer`, or for all if OK. */
struct tti_wire_verdict {
    struct tti_wire_head head;
    int32_t status, peer, system_errno;
    char text[TTI_WIRE_TEXT];
};

struct tti_wire_hello {
    struct tti_wire_head head;
    int32_t process, process_count, ranks_each, pid;
    uint64_t area_bytes, arena_bytes;
    int64_t deadline_ns;   /* all processes of a host have the same clock */
    uint32_t epoch, whole; /* as in struct tti_sequel */
    char job[TTI_WIRE_JOB];
    /* if its status is not OK this process cannot join, and no arena comes with the message */
    struct tti_wire_verdict trouble;
};

struct tti_wire_world {
    struct tti_wire_head head;
    uint64_t segment_bytes;
};

struct tti_wire_arenas {
    struct tti_wire_head head;
    int32_t first, count;
    struct {
        uint64_t bytes;
        int64_t pid;
    } processes[TTI_WIRE_FDS];
};

/* One message as it came, and the descriptors that came with it, which the receiver closes. */
struct tti_wire_packet {
    union {
        struct tti_wire_head head;
        struct tti_wire_hello hello;
        struct tti_wire_world world;
        struct tti_wire_arenas arenas;
        struct tti_wire_verdict verdict;
    } as;
    int fds[TTI_WIRE_FDS];
    int fd_count;
};

/* The job's socket: rank 0 listens, the others connect. `type`: SOCK_SEQPACKET for the messages below, or SOCK_STREAM.
 * All return a non-blocking, close-on-exec descriptor, or -1 with errno: EADDRINUSE, ECONNREFUSED (no process listens),
 * EAGAIN (too many at once), EACCES (another user's socket). */
int tti_wire_listen(const char *job, int type);
int tti_wire_connect(const char *job, int type);
/* Returns true if another user holds the name of the job's socket, which any user of this host can take first. Then
 * `text`, of TTI_WIRE_TEXT bytes, names that user and says what to do. Leaves errno as it was. */
bool tti_wire_is_foreign(const char *job, int type, char *text);
/* Returns the next connection of this user; others are dropped. -1 with EAGAIN if there is none. */
int tti_wire_accept(int listener);
/* Returns the process at the other end, as this process sees it; 0 if it cannot see it. */
pid_t tti_wire_peer_pid(int fd);

/* Fills in the head and sends. Returns 0 or an errno. */
int tti_wire_send(int fd, enum tti_wire_kind kind, void *message, size_t bytes, const int *fds, int fd_count,
                  int64_t deadline_ns);
/* Receives without waiting: returns 0, EAGAIN if nothing has come, or an errno. Only with 0 does the packet hold
 * descriptors. */
int tti_wire_receive(int fd, struct tti_wire_packet *packet);
void tti_wire_drop_fds(struct tti_wire_packet *packet);
/* Closes so that the other end can still read what was sent to it. */
void tti_wire_close(int fd);

#endif
