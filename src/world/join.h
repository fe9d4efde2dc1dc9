/* SPDX-License-Identifier: Apache-2.0
 *
 * What the two sides of a join share; for join*.c only. The messages are in join_messages.h.
 */
#ifndef TTI_WORLD_JOIN_H
#define TTI_WORLD_JOIN_H

#include "world/board.h"
#include "world/join_messages.h"
#include "world/names.h"
#include "world/world.h"

struct tti_join {
    const char *job, *title;
    int process, process_count, ranks_each; /* as in struct tti_member; process 0 is the root */
    const int *firsts;
    size_t area_bytes;
    const struct tti_apart *apart; /* as in struct tti_member */
    const tutti_options *options;
    struct tti_sequel sequel;
    int64_t deadline_ns, timeout_ms;
    struct tti_board board;
    bool ended_late;         /* the launcher was asked to end processes that are late */
    struct tti_world *world; /* NULL until prepared */
    tutti_error *error;
};

/* Process 0, the root, collects the others, the members, which come to it. Both prepare the world first, and tell each
 * other if that fails; after a failure join->world may be half built, and the caller releases it. */
tutti_status tti_join_root(struct tti_join *join);
tutti_status tti_join_member(struct tti_join *join);

/* Checks and prepares this process alone: limits, memory, arena. */
tutti_status tti_join_prepare(struct tti_join *join);
/* Sends the hello, with the arena unless this process cannot join. Returns 0 or an errno. */
int tti_join_send_hello(const struct tti_join *join, tutti_status prepared, int fd);
/* Sends a hello with join->error as the reason not to join, and receives what rank 0 says to it. Returns 0 or an errno:
 * EBADMSG if that is no verdict. */
int tti_join_complain(const struct tti_join *join, int fd, struct tti_wire_verdict *verdict);
/* Maps another process's arena (takes fd over; the memfd stays open); tti_join_watch opens its pidfd. */
tutti_status tti_join_map_arena(struct tti_join *join, int process, int fd, uint64_t bytes);
tutti_status tti_join_watch(struct tti_join *join, int process, int pid);

/* Called if a process does not come to a world that is rebuilt: it may be stopped, and should be ended and started
 * again. Returns true if the launcher will do that; then the join has a little more time, in which the board moves. */
bool tti_join_end_late(struct tti_join *join, int process);

/* Returns the number of a process's first rank, for messages. */
int tti_join_first(const struct tti_join *join, int process);
struct tti_ranks_name tti_join_name(const struct tti_join *join, int process);

/* Returns ERR_JOIN about a process (-1: none in particular). */
tutti_status tti_join_fail(struct tti_join *join, int process, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* Returns ERR_LIMIT if file descriptors ran out, else ERR_SYSTEM. */
tutti_status tti_join_socket_failed(struct tti_join *join, int why);

void tti_join_error_to_verdict(const tutti_error *error, struct tti_wire_verdict *verdict);
/* Takes over another process's verdict as this one's error. */
tutti_status tti_join_take_verdict(struct tti_join *join, const struct tti_wire_verdict *verdict);

#endif
