/* SPDX-License-Identifier: Apache-2.0
 *
 * Connects all ranks with all. Of two ranks the higher one knocks: first for the connection that carries frames, at all
 * addresses of the other; then for the others, at the address that succeeded. The lower one's door admits connections
 * that prove the key. Both know beforehand how many connections there will be.
 */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "transport/tcp_inside.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

enum { CARD_VERSION = 1, CARD_FIXED = offsetof(struct tti_tcp_peer_info, at), POLL_MS = 5, GIVE_UP_ROUNDS = 10 };

/* The other endpoint listens already: if all its addresses refuse for so long, waiting longer will not help. */
#define GIVE_UP_NS ((int64_t)3 * 1000000000)
#define ASK_NS ((int64_t)20 * 1000000)

/* ---- An endpoint ----------------------------------------------------------------------------------------------- */

static bool make_parts(struct tti_tcp *tcp)
{
    size_t size = (size_t)tcp->base.size;
    tcp->peers = tti_calloc(size, sizeof *tcp->peers);
    tcp->connected = tti_calloc(size, sizeof *tcp->connected);
    tcp->links = tti_calloc(size, sizeof *tcp->links);
    tcp->door = tti_calloc(1, sizeof *tcp->door);
    if (tcp->door != NULL) tti_door_init(tcp->door, &tcp->proof, TTI_PROOF_MESH);
    if (tcp->peers == NULL || tcp->connected == NULL || tcp->links == NULL || tcp->door == NULL) {
        errno = ENOMEM;
        return false;
    }
    tcp->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
    tcp->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = TTI_TCP_WAKE}};
    return tcp->epoll_fd >= 0 && tcp->wake_fd >= 0 &&
           epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, tcp->wake_fd, &event) == 0;
}

/* Several connections are good for large frames only, and each takes a descriptor on both sides. */
static int usual_streams(int size)
{
    return size <= 32 ? 4 : size <= 128 ? 2 : 1;
}

/* Within a host one connection is faster than several that share the same cores, so there are more only if they were
 * asked for. */
static int streams_with(const struct tti_tcp *tcp, const struct tti_tcp_peer_info *peer_info, bool near)
{
    if (near && !tcp->streams_asked && peer_info->streams_asked == 0) return 1;
    return peer_info->streams < tcp->streams ? peer_info->streams : tcp->streams;
}

static void fill_settings(struct tti_tcp *tcp, const struct tti_tcp_settings *settings)
{
    tcp->base = (struct tti_transport){.ops = &tti_tcp_ops, .rank = settings->rank, .size = settings->size};
    tcp->epoch = settings->epoch;
    tcp->streams = settings->streams > 0 ? settings->streams : usual_streams(settings->size);
    if (tcp->streams > TTI_TCP_STREAMS) tcp->streams = TTI_TCP_STREAMS;
    tcp->streams_asked = settings->streams > 0;
    tcp->heartbeat_ms = settings->heartbeat_ms;
    tcp->epoll_fd = tcp->wake_fd = -1;
    tcp->finished_end = &tcp->finished;
    snprintf(tcp->job, sizeof tcp->job, "%s", settings->job);
    tti_host_name(tcp->host, sizeof tcp->host);
}

tutti_status tti_tcp_listen(const struct tti_tcp_settings *settings, struct tti_tcp **tcp, tutti_error *error)
{
    uint16_t low, high;
    *tcp = NULL;
    TTI_TRY(tti_key_setup(error));
    TTI_TRY(tti_ports_parse(settings->ports, &low, &high, error));
    struct tti_tcp *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for an endpoint ran out");
    fill_settings(made, settings);
    tutti_status status = TUTTI_OK;
    if (!make_parts(made))
        status = tti_error_set(error, errno == ENOMEM ? TUTTI_ERR_MEMORY : TUTTI_ERR_SYSTEM, errno,
                               "an endpoint for %d ranks cannot be made%s", settings->size,
                               errno == EMFILE ? ": raise the limit of open files, ulimit -n" : "");
    if (status == TUTTI_OK) status = tti_door_open(made->door, settings->interface, low, high, &made->addresses, error);
    if (status == TUTTI_OK)
        *tcp = made;
    else
        tti_tcp_free(made);
    return status;
}

void tti_tcp_set_epoch(struct tti_tcp *tcp, uint32_t epoch)
{
    tcp->epoch = epoch;
}

static void end_knock(struct tti_tcp_link *link, int stream)
{
    tti_knock_free(link->knocks[stream]);
    link->knocks[stream] = NULL;
}

static void free_link(struct tti_tcp_link *link)
{
    for (int i = 0; i <= TTI_TCP_STREAMS; i++) {
        if (link->fds[i] >= 0) close(link->fds[i]);
        link->fds[i] = -1;
        if (link->knocks[i] != NULL) end_knock(link, i);
    }
}

void tti_tcp_free_links(struct tti_tcp *tcp)
{
    for (int i = 0; i < tcp->link_count; i++) free_link(&tcp->links[i]);
    tti_free(tcp->links);
    tcp->links = NULL;
    tcp->link_count = 0;
    if (tcp->door != NULL) tti_door_close(tcp->door);
    tti_free(tcp->door);
    tcp->door = NULL;
}

/* ---- Cards ----------------------------------------------------------------------------------------------------- */

size_t tti_tcp_peer_info(const struct tti_tcp *tcp, struct tti_tcp_peer_info *peer_info)
{
    memset(peer_info, 0, sizeof *peer_info);
    peer_info->version = CARD_VERSION;
    peer_info->count = (uint16_t)tcp->addresses.count;
    peer_info->streams = (uint16_t)tcp->streams;
    peer_info->streams_asked = tcp->streams_asked;
    peer_info->network = tti_network_here();
    memcpy(peer_info->host, tcp->host, sizeof peer_info->host);
    memcpy(peer_info->at, tcp->addresses.at, peer_info->count * sizeof peer_info->at[0]);
    return CARD_FIXED + peer_info->count * sizeof peer_info->at[0];
}

static bool read_peer_info(const void *bytes, size_t count, struct tti_tcp_peer_info *peer_info)
{
    memset(peer_info, 0, sizeof *peer_info);
    if (count < CARD_FIXED || count > sizeof *peer_info) return false;
    memcpy(peer_info, bytes, count);
    if (peer_info->version != CARD_VERSION || peer_info->count > TTI_ADDRESSES || peer_info->streams < 1) return false;
    if (count != CARD_FIXED + peer_info->count * sizeof peer_info->at[0] || peer_info->host[TTI_TCP_HOST - 1] != '\0')
        return false;
    for (int i = 0; i < peer_info->count; i++)
        if (peer_info->at[i].family != 4 && peer_info->at[i].family != 6) return false;
    return true;
}

/* Lists loopback first within a network, since it is the fastest; leaves it out for another network. */
static void choose_addresses(const struct tti_tcp_peer_info *peer_info, bool near, struct tti_address_list *list)
{
    list->count = 0;
    for (int loopback = near; loopback >= 0; loopback--)
        for (int i = 0; i < peer_info->count; i++)
            if ((peer_info->at[i].loopback != 0) == (loopback != 0)) list->at[list->count++] = peer_info->at[i];
}

tutti_status tti_tcp_expect(struct tti_tcp *tcp, int peer, const void *bytes, size_t count, tutti_error *error)
{
    struct tti_tcp_peer_info peer_info;
    error->peer = peer;
    if (!read_peer_info(bytes, count, &peer_info))
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "rank %d did not say how it can be reached by tcp; does it run "
                             "another version of the library?",
                             peer);
    struct tti_tcp_link *link = &tcp->links[tcp->link_count++];
    *link = (struct tti_tcp_link){.rank = peer, .near = peer_info.network == tti_network_here()};
    link->stream_count = streams_with(tcp, &peer_info, link->near);
    link->fd_count = link->stream_count + (tcp->heartbeat_ms > 0);
    memcpy(link->host, peer_info.host, sizeof link->host);
    choose_addresses(&peer_info, link->near, &link->list);
    for (int i = 0; i <= TTI_TCP_STREAMS; i++) link->fds[i] = -1;
    error->peer = -1;
    return TUTTI_OK;
}

/* ---- Connecting ------------------------------------------------------------------------------------------------ */

struct mesh {
    struct tti_tcp *const *endpoints;
    int count;
    int64_t deadline_ns;
    struct pollfd *polled; /* room for all descriptors that may be polled */
    tutti_error *error;
};

static tutti_status start_knock(struct tti_tcp *tcp, struct tti_tcp_link *link, int stream,
                                const struct tti_address_list *list, tutti_error *error)
{
    link->knocks[stream] = tti_knock_new(&tcp->proof, TTI_PROOF_MESH, link->rank, stream, list);
    if (link->knocks[stream] != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a connection ran out");
}

static void keep_connection(struct tti_tcp_link *link, int stream, int fd)
{
    if (link->fds[stream] >= 0)
        close(link->fds[stream]); /* the knocking end gave that one up */
    else
        link->have++;
    link->fds[stream] = fd;
}

static tutti_status cannot_connect(const struct tti_tcp *tcp, const struct tti_tcp_link *link,
                                   const struct tti_knock *knock, tutti_error *error)
{
    char tried[256];
    error->peer = link->rank;
    if (link->list.count == 0)
        return tti_error_set(error, TUTTI_ERR_JOIN, 0,
                             "no route between rank %d on %s and rank %d on %s: the latter has no address that other "
                             "hosts can use (only loopback); see the option interface",
                             tcp->base.rank, tcp->host, link->rank, link->host);
    tutti_status status = tti_error_set(error, TUTTI_ERR_JOIN, 0,
                                        "no route between rank %d on %s and rank %d on %s (%s)", tcp->base.rank,
                                        tcp->host, link->rank, link->host, tti_knock_text(knock, tried, sizeof tried));
    error->system_errno = knock->attempts[0].system_errno;
    return status;
}

static tutti_status step_knock(struct tti_tcp *tcp, struct tti_tcp_link *link, int stream, bool late,
                               tutti_error *error)
{
    struct tti_knock *knock = link->knocks[stream];
    struct tti_address used;
    int fd = tti_knock_step(knock, &used);
    if (fd < 0) {
        bool hopeless = knock->rounds >= GIVE_UP_ROUNDS && tti_now_ns() - link->since_ns > GIVE_UP_NS;
        return late || hopeless || knock->list.count == 0 ? cannot_connect(tcp, link, knock, error) : TUTTI_OK;
    }
    end_knock(link, stream);
    keep_connection(link, stream, fd);
    struct tti_address_list good = {.count = 1, .at = {used}};
    for (int i = 1; stream == 0 && i < link->fd_count; i++) TTI_TRY(start_knock(tcp, link, i, &good, error));
    return TUTTI_OK;
}

static tutti_status step_link(struct tti_tcp *tcp, struct tti_tcp_link *link, bool late, tutti_error *error)
{
    for (int i = 0; i < link->fd_count; i++)
        if (link->knocks[i] != NULL) TTI_TRY(step_knock(tcp, link, i, late, error));
    return TUTTI_OK;
}

static void let_in(struct tti_tcp *tcp)
{
    struct tti_hello who;
    for (int fd; (fd = tti_door_next(tcp->door, &who)) >= 0;) {
        struct tti_tcp_link *link = NULL;
        for (int i = 0; i < tcp->link_count; i++)
            if (tcp->links[i].rank == who.from && who.from > tcp->base.rank) link = &tcp->links[i];
        if (link != NULL && who.stream < link->fd_count)
            keep_connection(link, who.stream, fd);
        else
            close(fd);
    }
}

static tutti_status nobody_came(const struct tti_tcp *tcp, const struct tti_tcp_link *link, tutti_error *error)
{
    char at[160] = "";
    size_t used = 0;
    for (int i = 0; i < tcp->addresses.count && used < sizeof at; i++) {
        char text[TTI_ADDRESS_TEXT];
        int wrote = snprintf(at + used, sizeof at - used, "%s%s", i > 0 ? ", " : "",
                             tti_address_text(&tcp->addresses.at[i], text));
        used += wrote > 0 ? (size_t)wrote : 0;
    }
    error->peer = link->rank;
    return tti_error_set(error, TUTTI_ERR_JOIN, tcp->door->system_errno,
                         "rank %d on %s has not connected to rank %d on %s in time, which listened at %s%s%s",
                         link->rank, link->host, tcp->base.rank, tcp->host, at,
                         tcp->door->refusal[0] != '\0' ? "; " : "", tcp->door->refusal);
}

/* Returns OK when this endpoint is connected to all, IN_PROGRESS before that. */
static tutti_status step_endpoint(struct tti_tcp *tcp, bool late, tutti_error *error)
{
    const struct tti_tcp_link *missing = NULL;
    let_in(tcp);
    for (int i = 0; i < tcp->link_count; i++) {
        TTI_TRY(step_link(tcp, &tcp->links[i], late, error));
        if (tcp->links[i].have < tcp->links[i].fd_count) missing = &tcp->links[i];
    }
    if (missing == NULL) return TUTTI_OK;
    return late ? nobody_came(tcp, missing, error) : TUTTI_IN_PROGRESS;
}

static void await_anything(const struct mesh *mesh)
{
    int count = 0;
    for (int e = 0; e < mesh->count; e++) {
        const struct tti_tcp *tcp = mesh->endpoints[e];
        count += tti_door_poll_set(tcp->door, mesh->polled + count);
        for (int i = 0; i < tcp->link_count; i++)
            for (int k = 0; k < tcp->links[i].fd_count; k++)
                if (tcp->links[i].knocks[k] != NULL)
                    count += tti_knock_poll_set(tcp->links[i].knocks[k], mesh->polled + count);
    }
    tti_poll(mesh->polled, (nfds_t)count, POLL_MS);
}

static tutti_status step_all(const struct mesh *mesh, bool late)
{
    tutti_status all = TUTTI_OK;
    for (int e = 0; e < mesh->count; e++) {
        mesh->error->rank = mesh->endpoints[e]->base.rank;
        tutti_status status = step_endpoint(mesh->endpoints[e], late, mesh->error);
        if (status < 0) return status;
        if (status != TUTTI_OK) all = status;
    }
    return all;
}

static tutti_status connect_all(const struct mesh *mesh, bool (*stop)(void *context, tutti_error *error), void *context)
{
    int64_t ask_ns = 0;
    for (;;) {
        int64_t now_ns = tti_now_ns();
        tutti_status status = step_all(mesh, now_ns >= mesh->deadline_ns);
        if (status != TUTTI_IN_PROGRESS) return status;
        if (stop != NULL && now_ns >= ask_ns) {
            if (stop(context, mesh->error)) return mesh->error->status;
            ask_ns = now_ns + ASK_NS;
        }
        await_anything(mesh);
    }
}

/* ---- Around it ------------------------------------------------------------------------------------------------- */

static tutti_status check_descriptors(const struct mesh *mesh)
{
    enum { SPARE = 64 };
    struct rlimit limit;
    rlim_t needed = SPARE;
    for (int e = 0; e < mesh->count; e++)
        for (int i = 0; i < mesh->endpoints[e]->link_count; i++)
            needed += (rlim_t)mesh->endpoints[e]->links[i].fd_count;
    if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur >= needed)
        return TUTTI_OK;
    return tti_error_set(mesh->error, TUTTI_ERR_LIMIT, EMFILE,
                         "connections to all ranks take about %llu file descriptors in this process, but the limit is "
                         "%llu; raise it (ulimit -n)",
                         (unsigned long long)needed, (unsigned long long)limit.rlim_cur);
}

static tutti_status begin(struct mesh *mesh, const struct tti_key *key)
{
    int64_t now_ns = tti_now_ns();
    size_t room = 0;
    for (int e = 0; e < mesh->count; e++) {
        struct tti_tcp *tcp = mesh->endpoints[e];
        tti_proof_setup(&tcp->proof, key, tcp->job, tcp->epoch, tcp->base.rank, tcp->base.size);
        room += TTI_LISTENERS + TTI_GUESTS;
        for (int i = 0; i < tcp->link_count; i++) {
            struct tti_tcp_link *link = &tcp->links[i];
            link->since_ns = now_ns;
            room += (size_t)link->list.count + (size_t)link->fd_count; /* all addresses for the first connection only */
            if (link->rank < tcp->base.rank) TTI_TRY(start_knock(tcp, link, 0, &link->list, mesh->error));
        }
    }
    mesh->polled = tti_calloc(room, sizeof *mesh->polled);
    if (mesh->polled != NULL) return TUTTI_OK;
    return tti_error_set(mesh->error, TUTTI_ERR_MEMORY, ENOMEM, "memory for connections ran out");
}

/* Makes peers of the endpoints' connections, and closes the doors. */
static tutti_status settle(const struct mesh *mesh)
{
    for (int e = 0; e < mesh->count; e++) {
        struct tti_tcp *tcp = mesh->endpoints[e];
        for (int i = 0; i < tcp->link_count; i++) TTI_TRY(tti_tcp_adopt(tcp, &tcp->links[i], mesh->error));
        tti_tcp_enlist(tcp);
        tti_tcp_free_links(tcp);
    }
    return TUTTI_OK;
}

tutti_status tti_tcp_connect(struct tti_tcp *const *endpoints, int count, const struct tti_key *key,
                             int64_t deadline_ns, bool (*stop)(void *context, tutti_error *error), void *context,
                             tutti_error *error)
{
    struct mesh mesh = {.endpoints = endpoints, .count = count, .deadline_ns = deadline_ns, .error = error};
    TTI_TRY(check_descriptors(&mesh));
    tutti_status status = begin(&mesh, key);
    if (status == TUTTI_OK) status = connect_all(&mesh, stop, context);
    if (status == TUTTI_OK) status = settle(&mesh);
    tti_free(mesh.polled);
    return status;
}
