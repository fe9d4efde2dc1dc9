/* SPDX-License-Identifier: Apache-2.0
 *
 * The join as process 0, the root, does it: it collects a hello from every process, hands out the segment and all
 * arenas, hears from every process that it mapped them, and says go. After any failure, all processes that have come,
 * or come soon, hear why.
 *
 * A connection is a visitor until its hello was found good, and a member from then on. Packets of visitors are not
 * trusted: one that is no hello is dropped, and the number of visitors is bounded.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "transport/socket.h"
#include "world/build.h"
#include "world/join.h"
#include "world/ticket.h"
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { SPARE_VISITORS = 64, NAMED_RANKS = 8 };

struct member {
    int fd; /* -1: it has not come */
    int arena_fd;
    uint64_t arena_bytes;
    int pid;
    bool ready;
};

struct root {
    struct tti_join *join;
    int listener;
    int64_t deadline_ns;    /* the earliest of all */
    uint32_t epoch;         /* the lowest epoch that all can have */
    bool whole;             /* all find their world whole */
    struct member *members; /* [process_count]; 0 is the root itself and unused */
    int missing, unready;
    bool handed_out;
    int *visitors; /* [visitors_most], the oldest first */
    int visitor_count, visitors_most;
    struct pollfd *polled; /* [1 + process_count + visitors_most] */
};

/* ---- Hellos ---------------------------------------------------------------------------------------------------- */

static tutti_status check_sizes(struct root *root, const struct tti_wire_hello *hello)
{
    struct tti_join *join = root->join;
    if (hello->process_count != join->process_count)
        return tti_join_fail(
            join, hello->process,
            "rank %d says that job %s has %d ranks, rank 0 says %d; start all ranks with the same number",
            hello->process, join->title, hello->process_count, join->process_count);
    if (hello->ranks_each != join->ranks_each)
        return tti_join_fail(join, hello->process,
                             "process %d of job %s brings %d ranks, process 0 %d; TUTTI_RANKS must be the same for all",
                             hello->process, join->title, hello->ranks_each, join->ranks_each);
    return TUTTI_OK;
}

static tutti_status check_place(struct root *root, const struct tti_wire_hello *hello)
{
    struct tti_join *join = root->join;
    int process = hello->process;
    TTI_TRY(check_sizes(root, hello));
    if (process < 0 || process >= join->process_count)
        return tti_join_fail(join, process, "rank %d is not one of job %s's %d ranks", process, join->title,
                             join->process_count);
    if (process != 0 && root->members[process].fd < 0) return TUTTI_OK;
    bool one = join->ranks_each == 1;
    return tti_join_fail(
        join, process,
        "%s of job %s %s taken twice, by process %d and process %d; each rank needs a number of its own, and each of "
        "several jobs at the same time a name of its own",
        tti_join_name(join, process).text, join->title, one ? "is" : "are",
        process == 0 ? (int)getpid() : root->members[process].pid, hello->pid);
}

static tutti_status check_hello(struct root *root, int fd, const struct tti_wire_packet *packet)
{
    struct tti_join *join = root->join;
    const struct tti_wire_hello *hello = &packet->as.hello;
    const struct tti_wire_verdict *trouble = &hello->trouble;
    TTI_TRY(check_place(root, hello));
    struct tti_ranks_name name = tti_join_name(join, hello->process);
    if (trouble->status != TUTTI_OK)
        return tti_join_fail(join, hello->process, "%s could not join job %s: %.*s", name.text, join->title,
                             (int)sizeof trouble->text - 1, trouble->text);
    if (hello->area_bytes != join->area_bytes)
        return tti_join_fail(join, hello->process,
                             "%s of job %s runs another version of the library than rank %d (a control area of "
                             "%llu bytes, not %zu)",
                             name.text, join->title, tti_join_first(join, 0), (unsigned long long)hello->area_bytes,
                             join->area_bytes);
    if (tti_wire_peer_pid(fd) != hello->pid)
        return tti_join_fail(join, hello->process,
                             "%s of job %s: in another pid namespace than rank %d; its death could not be seen",
                             name.text, join->title, tti_join_first(join, 0));
    return TUTTI_OK;
}

static void admit(struct root *root, int fd, struct tti_wire_packet *packet)
{
    const struct tti_wire_hello *hello = &packet->as.hello;
    root->members[hello->process] = (struct member){fd, packet->fds[0], hello->arena_bytes, hello->pid, false};
    packet->fd_count = 0;
    root->missing--;
    if (hello->epoch > root->epoch) root->epoch = hello->epoch;
    root->whole = root->whole && hello->whole != 0;
    if (hello->deadline_ns < root->deadline_ns) root->deadline_ns = hello->deadline_ns;
}

/* Refuses a process that came here by the hash of a long name; it belongs to another job, and this job goes on. */
static void send_away(struct root *root, int fd)
{
    struct tti_wire_verdict verdict = {.status = TUTTI_ERR_JOIN, .peer = 0};
    snprintf(verdict.text, sizeof verdict.text, "the socket of this job is in use by job %s", root->join->title);
    tti_wire_send(fd, TTI_WIRE_VERDICT, &verdict, sizeof verdict, NULL, 0, root->deadline_ns);
}

static bool is_hello(const struct tti_wire_packet *packet)
{
    if (packet->as.head.version != TTI_WIRE_VERSION) return true; /* of its kind; check_visitor refuses it */
    return packet->as.head.kind == TTI_WIRE_HELLO && packet->fd_count == (packet->as.hello.trouble.status == TUTTI_OK);
}

enum outcome { STAYS, ADMITTED, DROPPED };

/* Checks the packet of a visitor. On an error it stays a visitor, so that it hears of it. */
static tutti_status check_visitor(struct root *root, int fd, struct tti_wire_packet *packet, enum outcome *outcome)
{
    struct tti_join *join = root->join;
    struct tti_wire_hello *hello = &packet->as.hello;
    if (!is_hello(packet)) {
        *outcome = DROPPED;
        return TUTTI_OK;
    }
    if (packet->as.head.version != TTI_WIRE_VERSION)
        return tti_join_fail(join, -1,
                             "process %d came to job %s with another version of the library (protocol %u, "
                             "here %d)",
                             (int)tti_wire_peer_pid(fd), join->title, packet->as.head.version, TTI_WIRE_VERSION);
    hello->job[sizeof hello->job - 1] = '\0';
    if (strcmp(hello->job, join->job) != 0) {
        send_away(root, fd);
        *outcome = DROPPED;
        return TUTTI_OK;
    }
    TTI_TRY(check_hello(root, fd, packet));
    admit(root, fd, packet);
    *outcome = ADMITTED;
    return TUTTI_OK;
}

/* Returns true if this is the hello of a process that had not come before. */
static bool is_awaited(const struct root *root, const struct tti_wire_packet *packet)
{
    int process = packet->as.hello.process;
    if (packet->as.head.version != TTI_WIRE_VERSION || process < 1 || process >= root->join->process_count)
        return false;
    return root->members[process].fd < 0;
}

static tutti_status hear_visitor(struct root *root, int fd, enum outcome *outcome)
{
    struct tti_wire_packet packet;
    int why = tti_wire_receive(fd, &packet);
    *outcome = why == EAGAIN ? STAYS : DROPPED;
    if (why == EMFILE) return tti_join_socket_failed(root->join, why);
    if (why != 0) return TUTTI_OK;
    *outcome = STAYS;
    tutti_status status = check_visitor(root, fd, &packet, outcome);
    if (status != TUTTI_OK && is_awaited(root, &packet)) root->missing--; /* it has come, if in vain */
    tti_wire_drop_fds(&packet);
    return status;
}

static void remove_visitor(struct root *root, int at)
{
    root->visitor_count--;
    memmove(&root->visitors[at], &root->visitors[at + 1], sizeof *root->visitors * (size_t)(root->visitor_count - at));
}

static tutti_status hear_visitors(struct root *root)
{
    for (int i = 0; i < root->visitor_count;) {
        enum outcome outcome;
        int fd = root->visitors[i];
        TTI_TRY(hear_visitor(root, fd, &outcome));
        if (outcome == STAYS) {
            i++;
            continue;
        }
        remove_visitor(root, i);
        if (outcome == DROPPED) tti_wire_close(fd);
    }
    return TUTTI_OK;
}

static tutti_status let_in(struct root *root)
{
    for (int i = 0; i < root->visitors_most; i++) {
        int fd = tti_wire_accept(root->listener);
        if (fd < 0) return errno == EAGAIN ? TUTTI_OK : tti_join_socket_failed(root->join, errno);
        if (root->visitor_count == root->visitors_most) { /* members speak at once, so the oldest visitor is none */
            tti_wire_close(root->visitors[0]);
            remove_visitor(root, 0);
        }
        root->visitors[root->visitor_count++] = fd;
    }
    return TUTTI_OK;
}

/* ---- Members --------------------------------------------------------------------------------------------------- */

static tutti_status hear_member(struct root *root, int process)
{
    struct tti_join *join = root->join;
    struct member *member = &root->members[process];
    struct tti_ranks_name name = tti_join_name(join, process);
    struct tti_wire_packet packet;
    int why = tti_wire_receive(member->fd, &packet);
    if (why == EAGAIN) return TUTTI_OK;
    if (why == EPIPE)
        return tti_join_fail(join, process, "%s (process %d) ended while job %s was being joined", name.text,
                             member->pid, join->title);
    if (why == EMFILE) return tti_join_socket_failed(join, why);
    if (why == 0) tti_wire_drop_fds(&packet);
    const struct tti_wire_verdict *verdict = &packet.as.verdict;
    if (why != 0 || verdict->head.version != TTI_WIRE_VERSION || verdict->head.kind != TTI_WIRE_VERDICT ||
        (verdict->status == TUTTI_OK && !root->handed_out))
        return tti_join_fail(join, process, "%s of job %s sent something unexpected", name.text, join->title);
    if (verdict->status != TUTTI_OK)
        return tti_join_fail(join, process, "%s could not join job %s: %.*s", name.text, join->title,
                             (int)sizeof verdict->text - 1, verdict->text);
    if (!member->ready) root->unready--;
    member->ready = true;
    return TUTTI_OK;
}

/* Called when sending failed: the member has gone, and may have said why. */
static tutti_status member_failed(struct root *root, int process, int why)
{
    if (why == EPIPE)
        for (int i = 0; i < 2; i++) TTI_TRY(hear_member(root, process)); /* reads the reason, then the end */
    if (why == ETIMEDOUT || why == EPIPE)
        return tti_join_fail(root->join, process, "%s of job %s: has stopped listening",
                             tti_join_name(root->join, process).text, root->join->title);
    return tti_join_socket_failed(root->join, why);
}

static bool is_late(const struct root *root, int process)
{
    return root->handed_out ? !root->members[process].ready : root->members[process].fd < 0;
}

/* Writes "rank 3", "ranks 3, 5 and 7", "ranks 1, 2, 3, 4, 5, 6, 7, 8 and 12 more": all that are late; if a process has
 * several, "ranks 2-3, 6-7 and 8-9". Returns the first process. */
static int name_late(const struct root *root, char *text, size_t bytes)
{
    int late = 0, first = -1, named = 0, each = root->join->ranks_each;
    size_t length = 0;
    for (int process = 1; process < root->join->process_count; process++) late += is_late(root, process);
    for (int process = 1; process < root->join->process_count && named < NAMED_RANKS; process++) {
        if (!is_late(root, process)) continue;
        if (first < 0) first = process;
        const char *before = named > 0 ? (named + 1 == late ? " and " : ", ") : late * each > 1 ? "ranks " : "rank ";
        int rank = tti_join_first(root->join, process);
        length += (size_t)snprintf(text + length, bytes - length, "%s%d", before, rank);
        if (each > 1) length += (size_t)snprintf(text + length, bytes - length, "-%d", rank + each - 1);
        named++;
    }
    if (late > named) snprintf(text + length, bytes - length, " and %d more", (late - named) * each);
    return first;
}

static tutti_status too_late(struct root *root)
{
    char names[NAMED_RANKS * 24 + 32] = "";
    struct tti_join *join = root->join;
    long long timeout = (long long)join->timeout_ms;
    int first = name_late(root, names, sizeof names);
    if (root->handed_out)
        tti_join_fail(join, first, "%s of job %s came but did not finish joining within %lld ms", names, join->title,
                      timeout);
    else
        tti_join_fail(join, first,
                      "%s of %d did not join job %s within %lld ms; were all started, with the same job name, "
                      "user and TUTTI_TRANSPORT?",
                      names, join->process_count * join->ranks_each, join->title, timeout);
    if (join->sequel.attempt != 0) join->error->system_errno = TTI_ATTEMPT_LATE;
    return TUTTI_ERR_JOIN;
}

/* Returns true if some processes that are late will be ended, and started again. */
static bool end_late(struct root *root)
{
    bool any = false;
    for (int process = 1; process < root->join->process_count; process++)
        if (is_late(root, process)) any = tti_join_end_late(root->join, process) || any;
    root->join->ended_late = true;
    root->deadline_ns = root->join->deadline_ns;
    return any;
}

static nfds_t list_polled(struct root *root)
{
    nfds_t count = 0;
    root->polled[count++] = (struct pollfd){.fd = root->listener, .events = POLLIN};
    for (int i = 0; i < root->visitor_count; i++)
        root->polled[count++] = (struct pollfd){.fd = root->visitors[i], .events = POLLIN};
    for (int i = 1; i < root->join->process_count; i++)
        if (root->members[i].fd >= 0)
            root->polled[count++] = (struct pollfd){.fd = root->members[i].fd, .events = POLLIN};
    return count;
}

/* Does one round: waits until something comes, at most `timeout_ms`, and takes all that has come. */
static tutti_status turn(struct root *root, int timeout_ms)
{
    int ready = tti_poll(root->polled, list_polled(root), timeout_ms);
    if (ready < 0 && errno != EINTR) return tti_join_socket_failed(root->join, errno);
    if (ready <= 0) return TUTTI_OK;
    TTI_TRY(let_in(root));
    TTI_TRY(hear_visitors(root));
    for (int i = 1; i < root->join->process_count; i++)
        if (root->members[i].fd >= 0) TTI_TRY(hear_member(root, i));
    return TUTTI_OK;
}

/* Returns the index of a process of the job among those that join here; -1: it is elsewhere. */
static int index_of(const struct tti_join *join, int number)
{
    for (int process = 0; process < join->process_count; process++)
        if (tti_join_first(join, process) == number * join->ranks_each) return process;
    return -1;
}

/* Counts the processes that have not come and cannot any more, by the launcher's board. Those that have come are heard
 * by their connections. */
static int count_gone(const struct root *root, int *first)
{
    int count = 0, number;
    for (int at = 0; (number = tti_board_ended(&root->join->board, at)) >= 0; at++) {
        int process = index_of(root->join, number);
        if (process <= 0 || root->members == NULL || root->members[process].fd >= 0) continue;
        if (count++ == 0) *first = at;
    }
    return count;
}

static tutti_status check_board(const struct root *root)
{
    int first;
    if (root->handed_out) return TUTTI_OK;
    TTI_TRY(tti_board_go_on(&root->join->board, root->join->error));
    if (count_gone(root, &first) == 0) return TUTTI_OK;
    return tti_board_blame(&root->join->board, first, root->join->error);
}

static tutti_status turn_until_zero(struct root *root, const int *left)
{
    while (*left > 0) {
        TTI_TRY(turn(root, tti_board_poll_ms(&root->join->board, tti_poll_ms(root->deadline_ns))));
        if (*left > 0) TTI_TRY(check_board(root));
        if (*left > 0 && tti_now_ns() >= root->deadline_ns && !end_late(root)) return too_late(root);
    }
    return TUTTI_OK;
}

/* ---- Handing out ----------------------------------------------------------------------------------------------- */

static void place_ranks(struct tti_join *join, int process, int pid)
{
    for (int i = 0; i < join->ranks_each; i++)
        tti_world_place_rank(join->world, process * join->ranks_each + i, process, pid);
}

static tutti_status map_all(struct root *root)
{
    struct tti_join *join = root->join;
    TTI_TRY(tti_world_make_segment(join->world, join->area_bytes, true, join->error));
    join->world->segment->epoch = root->epoch;
    place_ranks(join, 0, getpid());
    for (int process = 1; process < join->process_count; process++) {
        struct member *member = &root->members[process];
        int fd = member->arena_fd;
        member->arena_fd = -1;
        TTI_TRY(tti_join_map_arena(join, process, fd, member->arena_bytes));
        place_ranks(join, process, member->pid);
    }
    return TUTTI_OK;
}

static int send_arenas(const struct root *root, int to, int first)
{
    const struct tti_world *world = root->join->world;
    struct tti_wire_arenas arenas = {.first = first};
    int fds[TTI_WIRE_FDS];
    for (int process = first; process < world->process_count && arenas.count < TTI_WIRE_FDS; process++) {
        const struct tti_mapping *arena = process == 0 ? &world->arena->mapping : &world->processes[process].arena;
        fds[arenas.count] = arena->fd;
        arenas.processes[arenas.count].bytes = arena->bytes;
        arenas.processes[arenas.count].pid = process == 0 ? getpid() : root->members[process].pid;
        arenas.count++;
    }
    int fd = root->members[to].fd;
    return tti_wire_send(fd, TTI_WIRE_ARENAS, &arenas, sizeof arenas, fds, arenas.count, root->deadline_ns);
}

static tutti_status hand_out(struct root *root)
{
    struct tti_world *world = root->join->world;
    struct tti_wire_world message = {.segment_bytes = world->segment_mapping.bytes};
    for (int process = 1; process < world->process_count; process++) {
        int fd = root->members[process].fd;
        int why = tti_wire_send(fd, TTI_WIRE_WORLD, &message, sizeof message, &world->segment_mapping.fd, 1,
                                root->deadline_ns);
        for (int first = 0; first < world->process_count && why == 0; first += TTI_WIRE_FDS)
            why = send_arenas(root, process, first);
        if (why != 0) return member_failed(root, process, why);
    }
    root->handed_out = true;
    tti_mapping_close_fd(&world->segment_mapping);
    for (int process = 1; process < world->process_count; process++)
        tti_mapping_close_fd(&world->processes[process].arena);
    return TUTTI_OK;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

static void say_go(struct root *root)
{
    struct tti_wire_verdict go = {.status = TUTTI_OK, .peer = -1};
    /* closed before any process goes on: one that comes now belongs to the next world of this name */
    close(root->listener);
    root->listener = -1;
    for (int i = 1; i < root->join->process_count; i++) /* a process that died just now is lost to a formed world */
        tti_wire_send(root->members[i].fd, TTI_WIRE_VERDICT, &go, sizeof go, NULL, 0, root->deadline_ns);
}

static void notify(int fd, struct tti_wire_verdict *verdict)
{
    tti_wire_send(fd, TTI_WIRE_VERDICT, verdict, sizeof *verdict, NULL, 0, tti_now_ns());
    tti_wire_close(fd);
}

/* Fills in what the others are told: the root's own error with its rank, any other as it is. */
static void fill_bad_news(const struct root *root, struct tti_wire_verdict *verdict)
{
    const struct tti_join *join = root->join;
    tti_join_error_to_verdict(join->error, verdict);
    if (join->error->status == TUTTI_ERR_JOIN) return;
    verdict->peer = tti_join_first(join, 0);
    snprintf(verdict->text, sizeof verdict->text, "rank %d could not join job %s: %.300s", verdict->peer, join->title,
             join->error->text);
}

/* Stays for a moment, so that ranks on their way find rank 0 still here, and need not wait until their deadline. */
static void linger(struct root *root, struct tti_wire_verdict *verdict, int expected)
{
    int64_t until = tti_now_ns() + TTI_JOIN_LINGER_NS;
    if (until > root->deadline_ns) until = root->deadline_ns;
    while (expected > 0 && tti_poll_until(root->listener, POLLIN, until) == 0) {
        int fd = tti_wire_accept(root->listener);
        if (fd < 0 && errno != EAGAIN) return;
        if (fd < 0) continue;
        notify(fd, verdict);
        expected--;
    }
}

static void break_off(struct root *root)
{
    struct tti_wire_verdict verdict;
    fill_bad_news(root, &verdict);
    int first, expected = root->missing - count_gone(root, &first);
    /* processes that are still to come read the board, and begin anew */
    if (root->join->sequel.epoch > 0) expected = 0;
    for (int i = 1; root->members != NULL && i < root->join->process_count; i++) {
        if (root->members[i].fd < 0) continue;
        notify(root->members[i].fd, &verdict);
        root->members[i].fd = -1;
    }
    while (root->visitor_count > 0) notify(root->visitors[--root->visitor_count], &verdict);
    linger(root, &verdict, expected);
}

static void put_away(struct root *root)
{
    for (int i = 1; root->members != NULL && i < root->join->process_count; i++) {
        tti_wire_close(root->members[i].fd);
        if (root->members[i].arena_fd >= 0) close(root->members[i].arena_fd);
    }
    while (root->visitor_count > 0) tti_wire_close(root->visitors[--root->visitor_count]);
    if (root->listener >= 0) close(root->listener);
    tti_free(root->members);
    tti_free(root->visitors);
    tti_free(root->polled);
}

/* ---- The whole ------------------------------------------------------------------------------------------------- */

static tutti_status make_lists(struct root *root)
{
    size_t count = (size_t)root->join->process_count;
    root->visitors_most = root->join->process_count + SPARE_VISITORS;
    root->members = tti_calloc(count, sizeof *root->members);
    for (size_t i = 0; root->members != NULL && i < count; i++)
        root->members[i] = (struct member){.fd = -1, .arena_fd = -1};
    root->visitors = tti_calloc((size_t)root->visitors_most, sizeof *root->visitors);
    root->polled = tti_calloc(1 + count + (size_t)root->visitors_most, sizeof *root->polled);
    if (root->members == NULL || root->visitors == NULL || root->polled == NULL)
        return tti_error_set(root->join->error, TUTTI_ERR_MEMORY, ENOMEM, "memory for joining %zu processes ran out",
                             count);
    return TUTTI_OK;
}

static tutti_status all_whole(struct tti_join *join)
{
    tti_join_fail(join, -1, "the world of job %s is whole: all its ranks are there", join->title);
    join->error->system_errno = TTI_WORLD_WHOLE;
    return TUTTI_ERR_JOIN;
}

static tutti_status form(struct root *root)
{
    struct tti_join *join = root->join;
    TTI_TRY(make_lists(root));
    TTI_TRY(tti_join_prepare(join));
    TTI_TRY(turn_until_zero(root, &root->missing));
    if (root->whole) return all_whole(join);
    TTI_TRY(map_all(root));
    TTI_TRY(hand_out(root));
    for (int i = 1; i < join->process_count; i++) TTI_TRY(tti_join_watch(join, i, root->members[i].pid));
    TTI_TRY(turn_until_zero(root, &root->unready));
    return turn(root, 0); /* a process that ended since it was ready is seen now, before any goes on */
}

/* Called when the name is taken. Asks the holder, which learns of it this way: two ranks 0 are an error for both
 * worlds. Returns false if the holder has just gone, or was only telling late ranks of its failure: the name will be
 * free soon. */
static bool is_taken_twice(struct tti_join *join)
{
    struct tti_wire_verdict verdict;
    tti_error_set(
        join->error, TUTTI_ERR_JOIN, 0,
        "rank %d of job %s is taken twice; each rank needs a number of its own, and each of several jobs at the "
        "same time a name of its own",
        tti_join_first(join, 0), join->title);
    int fd = tti_wire_connect(join->job, SOCK_SEQPACKET);
    if (fd < 0) return false;
    int why = tti_join_complain(join, fd, &verdict);
    bool twice = why == ETIMEDOUT || (why == 0 && verdict.peer == tti_join_first(join, 0));
    if (why == 0 && twice) tti_join_take_verdict(join, &verdict);
    tti_wire_close(fd);
    return twice;
}

static tutti_status open_socket(struct tti_join *join, int *listener)
{
    char foreign[TTI_WIRE_TEXT];
    for (;;) {
        *listener = tti_wire_listen(join->job, SOCK_SEQPACKET);
        if (*listener >= 0) return TUTTI_OK;
        if (errno != EADDRINUSE) return tti_join_socket_failed(join, errno);
        if (tti_wire_is_foreign(join->job, SOCK_SEQPACKET, foreign)) return tti_join_fail(join, -1, "%s", foreign);
        if (is_taken_twice(join)) return TUTTI_ERR_JOIN;
        if (tti_now_ns() >= join->deadline_ns)
            return tti_join_fail(join, 0,
                                 "rank %d of job %s cannot open its socket: a process that does not answer holds the "
                                 "name (ss -xap shows it), maybe another user's; end it, or give the job another name",
                                 tti_join_first(join, 0), join->title);
        tti_poll(NULL, 0, 1);
    }
}

tutti_status tti_join_root(struct tti_join *join)
{
    struct root root = {.join = join,
                        .listener = -1,
                        .deadline_ns = join->deadline_ns,
                        .epoch = join->sequel.epoch,
                        .whole = join->sequel.whole};
    root.missing = root.unready = join->process_count - 1;
    TTI_TRY(open_socket(join, &root.listener)); /* first of all, so that from here on the others can be told */
    tutti_status status = form(&root);
    if (status == TUTTI_OK)
        say_go(&root);
    else
        break_off(&root);
    put_away(&root);
    return status;
}
