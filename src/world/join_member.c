/* SPDX-License-Identifier: Apache-2.0
 *
 * The join as every process but the root does it: it goes to the root, maps the memory that the root sends, and waits
 * for its verdict. In messages the root is called by its first rank, which is rank 0 of the job unless that is on
 * another host.
 */
#include "base/clock.h"
#include "base/status.h"
#include "transport/socket.h"
#include "world/apart.h"
#include "world/build.h"
#include "world/join.h"
#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

enum { BACK_OFF_MS = 5 };

/* Rank 0 knows why other processes have gone: it is asked for at most this long. */
#define WHY_NS ((int64_t)2000 * 1000000)

struct member {
    struct tti_join *join;
    int fd;
    int mapped; /* processes 0 to mapped-1 are mapped */
    bool done;
};

static tutti_status nobody_there(struct tti_join *join)
{
    return tti_join_fail(join, 0,
                         "rank %d has not opened job %s's socket within %lld ms; is it running with the same job name, "
                         "user and TUTTI_TRANSPORT, or had it given up before?",
                         tti_join_first(join, 0), join->title, (long long)join->timeout_ms);
}

/* Returns true if rank 0's process will be ended, and started again. */
static bool end_root(struct tti_join *join)
{
    bool ended = tti_join_end_late(join, 0);
    join->ended_late = true;
    return ended;
}

static bool may_come(int why)
{
    return why == ECONNREFUSED || why == EAGAIN || why == EINTR || why == EACCES || why == ENOENT;
}

/* Connects to the root. Rank 0 may start later than this one: tries again, soon at first, every few milliseconds
 * later. */
static tutti_status reach_root(struct tti_join *join, int *fd)
{
    char foreign[TTI_WIRE_TEXT];
    for (int pause_ms = 1;; pause_ms = pause_ms < BACK_OFF_MS ? pause_ms + 1 : BACK_OFF_MS) {
        *fd = tti_wire_connect(join->job, SOCK_SEQPACKET);
        if (*fd >= 0) return TUTTI_OK;
        int why = errno;
        if (why == EACCES && tti_wire_is_foreign(join->job, SOCK_SEQPACKET, foreign))
            return tti_join_fail(join, -1, "%s", foreign);
        if (!may_come(why)) return tti_join_socket_failed(join, why);
        TTI_TRY(tti_board_check(&join->board, join->error));
        TTI_TRY(tti_apart_poll_meeting(join->apart, join->error));
        if (tti_now_ns() >= join->deadline_ns && !end_root(join)) return nobody_there(join);
        tti_poll(NULL, 0, pause_ms);
    }
}

static tutti_status root_gone(struct member *member)
{
    struct tti_join *join = member->join;
    return tti_join_fail(join, 0, "rank %d ended while job %s was being joined", tti_join_first(join, 0), join->title);
}

static tutti_status unexpected(struct tti_join *join)
{
    return tti_join_fail(join, 0, "rank %d of job %s sent something unexpected", tti_join_first(join, 0), join->title);
}

static tutti_status take_segment(struct member *member, struct tti_wire_packet *packet)
{
    struct tti_join *join = member->join;
    struct tti_world *world = join->world;
    if (packet->fd_count != 1 || world->segment != NULL) return unexpected(join);
    packet->fd_count = 0; /* the mapping owns it now */
    TTI_TRY(
        tti_mapping_open(&world->segment_mapping, packet->fds[0], (size_t)packet->as.world.segment_bytes, join->error));
    tti_mapping_close_fd(&world->segment_mapping);
    if (!tti_world_segment_fits(world, join->area_bytes))
        return tti_join_fail(join, 0, "rank %d of job %s runs another version of the library", tti_join_first(join, 0),
                             join->title);
    tti_world_attach_segment(world);
    return TUTTI_OK;
}

/* A process that was there before has ended: it may have been told that joining failed because of another one, and so
 * is this one then. Returns that reason if it comes. */
static tutti_status hear_why(struct member *member)
{
    struct tti_join *join = member->join;
    struct tti_wire_packet packet;
    tutti_error mine = *join->error;
    int64_t until = tti_now_ns() + WHY_NS;
    for (int why = 0; why == 0 || why == EAGAIN;) {
        why = tti_poll_until(member->fd, POLLIN, until);
        if (why == 0) why = tti_wire_receive(member->fd, &packet);
        if (why != 0) continue;
        tti_wire_drop_fds(&packet);
        bool bad = packet.as.head.kind == TTI_WIRE_VERDICT && packet.as.verdict.status != TUTTI_OK;
        if (bad) return tti_join_take_verdict(join, &packet.as.verdict);
    }
    *join->error = mine;
    return mine.status;
}

static tutti_status take_arena(struct member *member, int *fd, uint64_t bytes, int64_t pid)
{
    struct tti_join *join = member->join;
    int process = member->mapped++;
    if (process == join->process) return TUTTI_OK;
    int taken = *fd;
    *fd = -1;
    TTI_TRY(tti_join_map_arena(join, process, taken, bytes));
    tti_mapping_close_fd(&join->world->processes[process].arena);
    tutti_status status = tti_join_watch(join, process, (int)pid);
    return status == TUTTI_ERR_JOIN ? hear_why(member) : status;
}

static tutti_status take_arenas(struct member *member, struct tti_wire_packet *packet)
{
    struct tti_join *join = member->join;
    const struct tti_wire_arenas *arenas = &packet->as.arenas;
    if (arenas->first != member->mapped || arenas->count != packet->fd_count || join->world->segment == NULL ||
        arenas->count > join->process_count - arenas->first)
        return unexpected(join);
    for (int i = 0; i < arenas->count; i++)
        TTI_TRY(take_arena(member, &packet->fds[i], arenas->processes[i].bytes, arenas->processes[i].pid));
    if (member->mapped < join->process_count) return TUTTI_OK;
    struct tti_wire_verdict ready = {.status = TUTTI_OK, .peer = -1};
    int why = tti_wire_send(member->fd, TTI_WIRE_VERDICT, &ready, sizeof ready, NULL, 0, join->deadline_ns);
    /* a closed socket still holds rank 0's verdict: the next read finds it, or the end */
    return why == 0 || why == EPIPE ? TUTTI_OK : tti_join_socket_failed(join, why);
}

static tutti_status take_verdict(struct member *member, const struct tti_wire_verdict *verdict)
{
    if (verdict->status != TUTTI_OK) return tti_join_take_verdict(member->join, verdict);
    if (member->mapped < member->join->process_count) return unexpected(member->join);
    member->done = true;
    return TUTTI_OK;
}

static tutti_status take_packet(struct member *member, struct tti_wire_packet *packet)
{
    struct tti_join *join = member->join;
    if (packet->as.head.version != TTI_WIRE_VERSION)
        return tti_join_fail(join, 0, "rank %d of job %s runs another version of the library (protocol %u, here %d)",
                             tti_join_first(join, 0), join->title, packet->as.head.version, TTI_WIRE_VERSION);
    switch (packet->as.head.kind) {
    case TTI_WIRE_WORLD: return take_segment(member, packet);
    case TTI_WIRE_ARENAS: return take_arenas(member, packet);
    case TTI_WIRE_VERDICT: return take_verdict(member, &packet->as.verdict);
    default: return unexpected(join);
    }
}

static tutti_status next_packet(struct member *member)
{
    struct tti_join *join = member->join;
    struct tti_wire_packet packet;
    int why = tti_poll_until(member->fd, POLLIN, join->deadline_ns + TTI_JOIN_GRACE_NS);
    if (why == ETIMEDOUT && end_root(join)) return TUTTI_OK;
    if (why == ETIMEDOUT)
        return tti_join_fail(join, 0, "rank %d has not answered within %lld ms while job %s was being joined",
                             tti_join_first(join, 0), (long long)join->timeout_ms, join->title);
    if (why == 0) why = tti_wire_receive(member->fd, &packet);
    if (why == EAGAIN) return TUTTI_OK;
    if (why == EPIPE) return root_gone(member);
    if (why != 0) return tti_join_socket_failed(join, why);
    tutti_status status = take_packet(member, &packet);
    tti_wire_drop_fds(&packet);
    return status;
}

/* Tells rank 0 why this rank goes, so that it need not guess. It knows its own verdicts, and if it has ended it hears
 * nothing. */
static void notify_root(struct member *member)
{
    struct tti_wire_verdict trouble;
    tti_join_error_to_verdict(member->join->error, &trouble);
    tti_wire_send(member->fd, TTI_WIRE_VERDICT, &trouble, sizeof trouble, NULL, 0, member->join->deadline_ns);
}

static tutti_status talk(struct member *member, tutti_status prepared)
{
    struct tti_join *join = member->join;
    int why = tti_join_send_hello(join, prepared, member->fd);
    if (prepared != TUTTI_OK) return prepared;
    if (why != 0 && why != EPIPE) return tti_join_socket_failed(join, why);
    while (!member->done) {
        tutti_status status = next_packet(member);
        if (status == TUTTI_OK) continue;
        notify_root(member);
        return status;
    }
    return TUTTI_OK;
}

tutti_status tti_join_member(struct tti_join *join)
{
    struct member member = {.join = join, .fd = -1};
    tutti_status prepared = tti_join_prepare(join);
    tutti_error mine = *join->error;
    tutti_status status = reach_root(join, &member.fd);
    if (status != TUTTI_OK) {
        if (prepared != TUTTI_OK) *join->error = mine;
        return prepared != TUTTI_OK ? prepared : status;
    }
    status = talk(&member, prepared);
    tti_wire_close(member.fd);
    return status;
}
