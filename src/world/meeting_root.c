/* SPDX-License-Identifier: Apache-2.0
 *
 * The rendezvous as rank 0 does it: it lets all in, collects what they give, and hands out all of it; or it tells all
 * whose fault it is that this is impossible.
 */
#include "base/clock.h"
#include "base/status.h"
#include "world/join_messages.h"
#include "world/meeting.h"
#include "world/ticket.h"
#include <errno.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

/* ---- Opening --------------------------------------------------------------------------------------------------- */

/* Accepts a connection on a unix socket: it comes from this user, on this host, as the system has said. */
static int accept_local(int listener, struct tti_address *from)
{
    memset(from, 0, sizeof *from);
    return tti_wire_accept(listener);
}

static tutti_status open_local(struct tti_meeting *meeting, tutti_error *error)
{
    char name[TTI_MEETING_SOCKET], foreign[TTI_WIRE_TEXT];
    tti_meeting_socket(meeting, name);
    int fd = tti_wire_listen(name, SOCK_STREAM);
    if (fd < 0 && errno == EADDRINUSE && tti_wire_is_foreign(name, SOCK_STREAM, foreign))
        return tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s", foreign);
    if (fd < 0 && errno == EADDRINUSE)
        return tti_error_set(
            error, TUTTI_ERR_JOIN, EADDRINUSE,
            "job %s has a rank 0 already, or a process that does not answer holds its name (ss -xap shows it); "
            "jobs that run at the same time need names of their own",
            meeting->job);
    if (fd < 0) return tti_error_set(error, TUTTI_ERR_SYSTEM, errno, "the socket of job %s failed", meeting->job);
    meeting->door.accept = accept_local;
    meeting->door.listeners[meeting->door.listener_count++] = fd;
    snprintf(meeting->place, sizeof meeting->place, "this host");
    return TUTTI_OK;
}

/* Writes as many addresses as there is room for: the store of a launcher may take little. */
static void addresses_to_text(const struct tti_address_list *list, char *text, size_t bytes)
{
    size_t used = 0;
    text[0] = '\0';
    for (int i = 0; i < list->count; i++) {
        char address[TTI_ADDRESS_TEXT];
        tti_address_text(&list->at[i], address);
        if (used + strlen(address) + 2 > bytes) return;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", i > 0 ? "," : "", address);
    }
}

static tutti_status open_network(struct tti_meeting *meeting, tutti_error *error)
{
    const struct tti_rendezvous *where = &meeting->where;
    struct tti_address_list list = {.count = 0};
    uint16_t port = 0;
    bool given = where->address != NULL && tti_port_of(where->address, &port);
    if ((!given || port == 0) && where->publish == NULL)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "\"%.128s\" is no address to meet at: give HOST:PORT, with a port other than 0",
                             where->address == NULL ? "" : where->address);
    /* The others come to the address that they were told, whatever interface the data use. If that is an address of
     * this host alone, they were told no other; by a name, or an address of the network, they may reach any
     * interface. */
    bool chosen = where->interface != NULL && where->interface[0] != '\0';
    bool here = port != 0 && !chosen && tti_addresses_are_here(where->address);
    if (!here) TTI_TRY(tti_door_open(&meeting->door, where->interface, port, port, &list, error));
    if (port != 0 && (here || chosen)) TTI_TRY(tti_door_add(&meeting->door, where->address, &list, error));
    if (list.count == 0)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s 0 cannot listen at %.128s: this host has no such address",
                             where->each, where->address);
    addresses_to_text(&list, meeting->place, sizeof meeting->place);
    return where->publish == NULL ? TUTTI_OK : where->publish(where->context, meeting->place, error);
}

/* Checks the limit first: connections that cannot be accepted would wait until the deadline. */
static tutti_status check_descriptors(const struct tti_meeting *meeting, tutti_error *error)
{
    enum { SPARE = 64 };
    struct rlimit limit;
    rlim_t needed = (rlim_t)meeting->where.size + SPARE;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed)
        return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_LIMIT, EMFILE,
                         "%s 0 takes about %llu file descriptors to meet the others of job %.64s, but the limit is "
                         "%llu; raise it (ulimit -n)",
                         meeting->where.each, (unsigned long long)needed, meeting->job,
                         (unsigned long long)limit.rlim_cur);
}

tutti_status tti_meeting_open_root(struct tti_meeting *meeting, tutti_error *error)
{
    if (meeting->where.size == 1) return TUTTI_OK;
    TTI_TRY(check_descriptors(meeting, error));
    return meeting->local ? open_local(meeting, error) : open_network(meeting, error);
}

/* ---- Trouble --------------------------------------------------------------------------------------------------- */

/* Sends a member its last message. If the member does not take it within a moment, it is not sent again. */
static void notify_one(const struct tti_meeting *meeting, struct tti_meeting_member *member, const tutti_error *why)
{
    bool begun = member->out.head_done > 0 && member->out.body_done < member->out.head.bytes;
    if (begun) return; /* in the middle of another message: the member only sees the end of the connection */
    tti_meeting_message_drop(&member->out);
    if (tti_meeting_message_trouble(&member->out, meeting->round, why))
        tti_meeting_message_send(&member->out, member->fd);
}

/* Counts those that have not come, and still may. */
static int count_missing(const struct tti_meeting *meeting)
{
    int count = 0;
    for (int rank = 1; rank < meeting->where.size; rank++)
        count += meeting->members[rank].fd < 0 && !meeting->members[rank].ended;
    for (int at = 0, gone; (gone = tti_board_ended(tti_meeting_board(meeting), at)) >= 0; at++)
        count -= gone > 0 && meeting->members[gone].fd < 0 && !meeting->members[gone].ended;
    return count;
}

/* Stays for a moment, so that ranks on their way find rank 0 still here, and need not wait until their deadline. */
static void linger(struct tti_meeting *meeting, const tutti_error *why)
{
    int64_t until_ns = tti_now_ns() + TTI_JOIN_LINGER_NS;
    if (until_ns > meeting->deadline_ns) until_ns = meeting->deadline_ns;
    while (count_missing(meeting) > 0 && tti_now_ns() < until_ns) {
        struct tti_hello who;
        int fd = tti_door_next(&meeting->door, &who);
        if (fd < 0) {
            nfds_t count = (nfds_t)tti_door_poll_set(&meeting->door, meeting->polled);
            tti_poll(meeting->polled, count, tti_poll_ms(until_ns));
            continue;
        }
        struct tti_meeting_member *member = &meeting->members[who.from];
        if (member->fd >= 0) close(member->fd);
        member->fd = fd;
        notify_one(meeting, member, why);
    }
}

void tti_meeting_root_notify(struct tti_meeting *meeting, const tutti_error *why)
{
    for (int rank = 0; rank < meeting->where.size; rank++)
        if (meeting->members[rank].fd >= 0) notify_one(meeting, &meeting->members[rank], why);
    if (!meeting->told && !meeting->where.again) linger(meeting, why);
    meeting->told = true;
}

static tutti_status fail(struct tti_meeting *meeting, tutti_error *error)
{
    tti_meeting_root_notify(meeting, error);
    return error->status;
}

/* Writes "3, 5-7 and 9" for the ranks that have not given. Returns how many they are, and the first. */
static int missing_ranks(const struct tti_meeting *meeting, char *text, size_t bytes, int *first)
{
    int count = 0, size = meeting->where.size;
    size_t used = 0;
    text[0] = '\0';
    for (int rank = 1; rank < size; rank++) {
        if (meeting->members[rank].given) continue;
        int last = rank;
        while (last + 1 < size && !meeting->members[last + 1].given) last++;
        int low = tti_meeting_first(meeting, rank), high = tti_meeting_first(meeting, last + 1) - 1;
        if (count == 0) *first = low;
        count += high - low + 1;
        int wrote = 0;
        if (used < bytes && high > low)
            wrote = snprintf(text + used, bytes - used, "%s%d-%d", used > 0 ? ", " : "", low, high);
        else if (used < bytes)
            wrote = snprintf(text + used, bytes - used, "%s%d", used > 0 ? ", " : "", low);
        used += wrote > 0 ? (size_t)wrote : 0;
        rank = last;
    }
    return count;
}

static tutti_status too_late(struct tti_meeting *meeting, tutti_error *error)
{
    char ranks[160], refused[200] = "";
    int first = -1, count = missing_ranks(meeting, ranks, sizeof ranks, &first);
    if (meeting->door.refusal[0] != '\0')
        snprintf(refused, sizeof refused, "; %s", meeting->door.refusal);
    else if (meeting->door.system_errno != 0)
        snprintf(refused, sizeof refused, "; %s 0 could not accept connections: %s", meeting->where.each,
                 strerror(meeting->door.system_errno));
    error->peer = first;
    tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s%s %s of job %.64s %s not come to the rendezvous at %.100s in time%s",
                  meeting->where.each, count == 1 ? "" : "s", ranks, meeting->job, count == 1 ? "has" : "have",
                  meeting->place, refused);
    if (meeting->where.attempt != 0) error->system_errno = TTI_ATTEMPT_LATE;
    return fail(meeting, error);
}

static tutti_status member_broken(struct tti_meeting *meeting, int rank, int why, tutti_error *error)
{
    struct tti_ranks_name name = tti_meeting_name(meeting, rank);
    error->peer = tti_meeting_first(meeting, rank);
    if (why == EBADMSG)
        tti_error_set(error, TUTTI_ERR_JOIN, 0, "%s of job %s said something that is not understood", name.text,
                      meeting->job);
    else
        tti_error_set(error, TUTTI_ERR_JOIN, why == EPIPE ? 0 : why, "%s of job %s ended during the rendezvous",
                      name.text, meeting->job);
    close(meeting->members[rank].fd);
    meeting->members[rank].fd = -1;
    meeting->members[rank].ended = true;
    return fail(meeting, error);
}

/* ---- Collecting ------------------------------------------------------------------------------------------------ */

static bool has_ended(int fd)
{
    char byte;
    ssize_t got = recv(fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
    return got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR);
}

static tutti_status let_in(struct tti_meeting *meeting, tutti_error *error)
{
    struct tti_hello who;
    for (int fd; (fd = tti_door_next(&meeting->door, &who)) >= 0;) {
        struct tti_meeting_member *member = &meeting->members[who.from];
        if (member->fd >= 0 && !has_ended(member->fd)) {
            meeting->members[0] = (struct tti_meeting_member){
                .fd = fd}; /* place 0 is free: this one is told like the others */
            error->peer = tti_meeting_first(meeting, who.from);
            tti_error_set(error, TUTTI_ERR_JOIN, 0,
                          "two processes say that they are %s of job %s; each needs a number of its own",
                          tti_meeting_name(meeting, who.from).text, meeting->job);
            return fail(meeting, error);
        }
        if (member->fd >= 0) close(member->fd); /* its last attempt, which it gave up */
        tti_meeting_message_drop(&member->in);
        *member = (struct tti_meeting_member){.fd = fd};
    }
    return TUTTI_OK;
}

static tutti_status take_request(struct tti_meeting *meeting, int rank, tutti_error *error)
{
    struct tti_meeting_member *member = &meeting->members[rank];
    const struct tti_meeting_head *head = &member->in.head;
    if (head->kind == TTI_MEETING_TROUBLE) {
        tti_meeting_take_trouble(&member->in, error);
        if (error->peer < 0) error->peer = tti_meeting_first(meeting, rank);
        return fail(meeting, error);
    }
    if (head->round != meeting->round) return member_broken(meeting, rank, EBADMSG, error);
    int64_t deadline_ns = tti_now_ns() + (int64_t)head->left_ms * 1000000;
    if (deadline_ns < meeting->deadline_ns) meeting->deadline_ns = deadline_ns;
    member->given = true;
    member->came_ns = tti_now_ns();
    return TUTTI_OK;
}

/* Returns true if the bytes that are here may wait: they belong to the member's GIVE for the next round, or are part of
 * a head. */
static bool may_wait(int fd)
{
    struct tti_meeting_head head;
    ssize_t got = recv(fd, &head, sizeof head, MSG_PEEK | MSG_DONTWAIT);
    if (got < (ssize_t)sizeof head) return got > 0 || (got < 0 && errno == EAGAIN);
    return head.kind == TTI_MEETING_GIVE;
}

/* Reads from a member. After it has given, it sends nothing more before it has received everything, except that it
 * cannot go on. */
static tutti_status listen_to(struct tti_meeting *meeting, int rank, bool *moved, tutti_error *error)
{
    struct tti_meeting_member *member = &meeting->members[rank];
    if (member->fd < 0) return TUTTI_OK;
    if (member->given && may_wait(member->fd)) return TUTTI_OK;
    if (member->given) tti_meeting_message_drop(&member->in); /* its GIVE was in vain */
    member->given = false;
    enum tti_meeting_message_state state = tti_meeting_message_receive(&member->in, member->fd, false,
                                                                       meeting->where.size);
    if (state == TTI_MEETING_PARTLY) return TUTTI_OK;
    *moved = true;
    return state == TTI_MEETING_WHOLE ? take_request(meeting, rank, error) : member_broken(meeting, rank, errno, error);
}

bool tti_meeting_root_trouble(struct tti_meeting *meeting, tutti_error *error)
{
    bool moved;
    for (int rank = 1; rank < meeting->where.size; rank++) {
        struct tti_meeting_member *member = &meeting->members[rank];
        member->given = false;
        if (may_wait(member->fd)) continue;
        if (listen_to(meeting, rank, &moved, error) != TUTTI_OK) return true;
    }
    return false;
}

static void await_anything(struct tti_meeting *meeting, bool sending)
{
    int count = sending ? 0 : tti_door_poll_set(&meeting->door, meeting->polled);
    for (int rank = 1; rank < meeting->where.size; rank++) {
        const struct tti_meeting_member *member = &meeting->members[rank];
        bool out = sending && member->out.body != NULL;
        if (member->fd >= 0 && (out || !sending))
            meeting->polled[count++] = (struct pollfd){.fd = member->fd, .events = out ? POLLOUT : POLLIN};
    }
    int poll_ms = tti_meeting_poll_ms(meeting, tti_poll_ms(meeting->deadline_ns));
    tti_poll(meeting->polled, (nfds_t)count, poll_ms);
}

static int count_given(const struct tti_meeting *meeting)
{
    int count = 0;
    for (int rank = 1; rank < meeting->where.size; rank++) count += meeting->members[rank].given;
    return count;
}

/* Fails if a process has not come and cannot any more. One that has come is heard by its connection. */
static tutti_status check_board(struct tti_meeting *meeting, tutti_error *error)
{
    const struct tti_board *board = tti_meeting_board(meeting);
    bool again = meeting->round <= 1 || meeting->where.again;
    if (again && tti_board_go_on(meeting->where.board, error) != TUTTI_OK) return fail(meeting, error);
    for (int at = 0, gone; (gone = tti_board_ended(board, at)) >= 0; at++) {
        if (gone == 0 || meeting->members[gone].fd >= 0) continue;
        tti_board_blame(board, at, error);
        return fail(meeting, error);
    }
    return TUTTI_OK;
}

/* Returns true if some processes that are late will be ended, and started again. */
static bool end_late(struct tti_meeting *meeting)
{
    bool any = false;
    for (int rank = 1; rank < meeting->where.size; rank++)
        if (!meeting->members[rank].given) any = tti_meeting_end_late(meeting, rank) || any;
    meeting->ended_late = true;
    return any;
}

static tutti_status collect(struct tti_meeting *meeting, tutti_error *error)
{
    for (int rank = 1; rank < meeting->where.size; rank++) meeting->members[rank].given = false;
    for (;;) {
        bool moved = false;
        TTI_TRY(let_in(meeting, error));
        for (int rank = 1; rank < meeting->where.size; rank++) TTI_TRY(listen_to(meeting, rank, &moved, error));
        if (count_given(meeting) == meeting->where.size - 1) return TUTTI_OK;
        TTI_TRY(check_board(meeting, error));
        if (tti_now_ns() >= meeting->deadline_ns && !end_late(meeting)) return too_late(meeting, error);
        if (!moved) await_anything(meeting, false);
    }
}

/* ---- Handing out ----------------------------------------------------------------------------------------------- */

static tutti_status assemble(struct tti_meeting *meeting, const void *mine, size_t bytes,
                             struct tti_meeting_message *message, tutti_error *error)
{
    int size = meeting->where.size;
    size_t table = (size_t)size * sizeof(uint32_t), total = table + bytes;
    for (int rank = 1; rank < size; rank++) total += (size_t)meeting->members[rank].in.head.bytes;
    if (!tti_meeting_message_make(message, TTI_MEETING_ALL, meeting->round, total)) {
        tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for what %d ranks gave ran out", size);
        return fail(meeting, error);
    }
    size_t used = table;
    for (int rank = 0; rank < size; rank++) {
        const struct tti_meeting_message *in = &meeting->members[rank].in;
        uint32_t length = rank == 0 ? (uint32_t)bytes : (uint32_t)in->head.bytes;
        memcpy(message->body + (size_t)rank * sizeof length, &length, sizeof length);
        if (length > 0) memcpy(message->body + used, rank == 0 ? mine : in->body, length);
        used += length;
    }
    return TUTTI_OK;
}

/* Forgets the messages' common body, which belongs to the caller. */
static void forget_bodies(struct tti_meeting *meeting)
{
    for (int rank = 1; rank < meeting->where.size; rank++) meeting->members[rank].out.body = NULL;
}

static tutti_status hand_out(struct tti_meeting *meeting, const struct tti_meeting_message *message, tutti_error *error)
{
    int left = meeting->where.size - 1;
    for (int rank = 1; rank < meeting->where.size; rank++) {
        meeting->members[rank].out = *message;
        tti_meeting_message_drop(&meeting->members[rank].in);
    }
    while (left > 0) {
        left = 0;
        for (int rank = 1; rank < meeting->where.size; rank++) {
            struct tti_meeting_member *member = &meeting->members[rank];
            if (member->out.body == NULL) continue;
            if (member->out.head_done == 0) {
                member->out.head.came_ns = member->came_ns;
                member->out.head.sent_ns = tti_now_ns();
            }
            enum tti_meeting_message_state state = tti_meeting_message_send(&member->out, member->fd);
            if (state == TTI_MEETING_BROKEN) {
                forget_bodies(meeting);
                return member_broken(meeting, rank, EPIPE, error);
            }
            if (state == TTI_MEETING_WHOLE) member->out.body = NULL;
            left += state == TTI_MEETING_PARTLY;
        }
        if (left > 0 && tti_now_ns() >= meeting->deadline_ns)
            return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                                 "%d ranks of job %s did not take what they were sent in time", left, meeting->job);
        if (left > 0) await_anything(meeting, true);
    }
    return TUTTI_OK;
}

tutti_status tti_meeting_root_exchange(struct tti_meeting *meeting, const void *mine, size_t bytes,
                                       struct tti_blobs *all, tutti_error *error)
{
    struct tti_meeting_message message;
    TTI_TRY(collect(meeting, error));
    TTI_TRY(assemble(meeting, mine, bytes, &message, error));
    tutti_status status = hand_out(meeting, &message, error);
    forget_bodies(meeting);
    if (status == TUTTI_OK && !tti_blobs_take(all, message.body, (size_t)message.head.bytes, meeting->where.size))
        status = tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for what %d ranks gave ran out",
                               meeting->where.size);
    if (status != TUTTI_OK) tti_meeting_message_drop(&message);
    return status;
}
