/* SPDX-License-Identifier: Apache-2.0
 *
 * A connected endpoint: progress, sleep, and the end of peers and of the endpoint itself.
 *
 * With few peers progress() reads their sockets without asking epoll, which notices data fastest; epoll is told of them
 * only while a thread sleeps, and asked now and then for rare events (a silent host). With many peers epoll says which
 * of them have something.
 */
#include "transport/tcp_inside.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include <errno.h>
#include <linux/sockios.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
    BUFFER_BYTES = 32768,     /* the buffer for small frames */
    SIDE_BUFFER_BYTES = 4096, /* the buffer on connections that carry chunks only */
    DIRECT = 4,               /* up to so many peers are read without asking epoll */
    OTHERS = 8,               /* peers for which nobody waits are read once in so many times */
    LOOK = 64,                /* epoll is asked once in so many times */
    AWAKE = 512,              /* epoll is told of them no more after nobody has slept for so many times */
    EVENTS = 64,
    /* bytes on their way within a host: as much as the caches hold. More would go through memory, twice */
    NEAR_BYTES = 512 << 10,
    LIVE = 255,
    DRAIN_MS = 2
};

/* ---- Peers ----------------------------------------------------------------------------------------------------- */

static uint64_t mark_of(const struct tti_tcp_peer *peer, int stream)
{
    return (uint64_t)peer->rank << 8 | (uint64_t)stream;
}

static bool notify_epoll(struct tti_tcp *tcp, int how, const struct tti_tcp_peer *peer,
                         const struct tti_tcp_stream *stream)
{
    struct epoll_event event = {.data = {.u64 = mark_of(peer, stream->index)}};
    event.events = (stream->paused ? 0u : (uint32_t)EPOLLIN) | (stream->blocked ? (uint32_t)EPOLLOUT : 0u);
    return epoll_ctl(tcp->epoll_fd, how, stream->fd, &event) == 0;
}

void tti_tcp_watch(struct tti_tcp *tcp, struct tti_tcp_peer *peer, struct tti_tcp_stream *stream)
{
    if (tcp->watched) notify_epoll(tcp, EPOLL_CTL_MOD, peer, stream);
}

void tti_tcp_unwatch(struct tti_tcp *tcp, struct tti_tcp_stream *stream)
{
    if (tcp->watched) epoll_ctl(tcp->epoll_fd, EPOLL_CTL_DEL, stream->fd, NULL);
}

/* Returns false if the system has no room for it. */
static bool notify_epoll_of_peer(struct tti_tcp *tcp, int how, const struct tti_tcp_peer *peer)
{
    bool good = true;
    for (int i = 0; i < peer->stream_count && peer->connected; i++)
        if (!peer->streams[i].ended) good &= notify_epoll(tcp, how, peer, &peer->streams[i]);
    return good;
}

static bool notify_epoll_of_all(struct tti_tcp *tcp, int how)
{
    bool good = true;
    for (int i = 0; i < tcp->connected_count; i++)
        good &= notify_epoll_of_peer(tcp, how, tcp->peers[tcp->connected[i]]);
    return good;
}

static void prepare_to_sleep(struct tti_tcp *tcp)
{
    tcp->sleepy = false;
    tcp->awake = 0;
    if (tcp->watched) return;
    bool good = notify_epoll_of_all(tcp, EPOLL_CTL_ADD);
    if (!good) notify_epoll_of_all(tcp, EPOLL_CTL_DEL); /* threads that would sleep poll instead */
    tcp->watched = good;
}

/* Stops telling epoll. Either a sleeper sees that nothing is watched, or this sees the sleeper. */
static void stay_awake(struct tti_tcp *tcp)
{
    tcp->awake = 0;
    if (!tcp->watched) return;
    atomic_store(&tcp->watched, false);
    if (atomic_load(&tcp->sleepers) == 0)
        notify_epoll_of_all(tcp, EPOLL_CTL_DEL);
    else
        atomic_store(&tcp->watched, true);
}

static bool add_watch(struct tti_tcp *tcp, int fd, uint64_t mark)
{
    struct epoll_event event = {.events = EPOLLIN, .data = {.u64 = mark}};
    return epoll_ctl(tcp->epoll_fd, EPOLL_CTL_ADD, fd, &event) == 0;
}

/* Lets the system probe the connection while it is idle, which it always is, at intervals of half the heartbeat; the
 * connection ends when nothing has come for a whole heartbeat. */
static void keep_alive(int fd, int64_t heartbeat_ms)
{
    int one = 1, every_s = (int)(heartbeat_ms / 2000), limit_ms = (int)heartbeat_ms;
    if (every_s < 1) every_s = 1;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &one, sizeof one);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every_s, sizeof every_s);
    setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &limit_ms, sizeof limit_ms);
}

/* Limits the bytes on their way: the system would allow megabytes, which is right for a network and wrong if a copy is
 * all that happens. */
static void keep_in_caches(int fd)
{
    int bytes = NEAR_BYTES;
    setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

static void free_peer(struct tti_tcp_peer *peer)
{
    for (int i = 0; i < peer->stream_count; i++) {
        tti_tcp_close(&peer->streams[i].fd);
        tti_free(peer->streams[i].buffer);
        peer->streams[i] = (struct tti_tcp_stream){.fd = -1};
    }
    peer->stream_count = 0;
    tti_tcp_close(&peer->live_fd);
}

static bool fill_stream(struct tti_tcp_peer *peer, int index, int fd)
{
    struct tti_tcp_stream *stream = &peer->streams[index];
    uint32_t bytes = index == 0 ? BUFFER_BYTES : SIDE_BUFFER_BYTES;
    *stream = (struct tti_tcp_stream){.fd = fd, .index = (uint8_t)index, .buffer_bytes = bytes};
    stream->buffer = tti_calloc(1, bytes);
    return stream->buffer != NULL;
}

static tutti_status no_memory(tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_MEMORY, ENOMEM, "memory for a connection ran out");
}

tutti_status tti_tcp_adopt(struct tti_tcp *tcp, struct tti_tcp_link *link, tutti_error *error)
{
    struct tti_tcp_peer *peer = tti_calloc(1, sizeof *peer);
    if (peer == NULL) return no_memory(error);
    *peer = (struct tti_tcp_peer){.rank = link->rank, .live_fd = -1, .stream_count = link->stream_count};
    memcpy(peer->host, link->host, sizeof peer->host);
    bool good = true;
    for (int i = 0; i < link->stream_count; i++) {
        good &= fill_stream(peer, i, link->fds[i]);
        if (link->near) {
            keep_in_caches(link->fds[i]);
            peer->streams[i].near = true;
        }
        link->fds[i] = -1;
    }
    if (link->fd_count > link->stream_count) {
        peer->live_fd = link->fds[link->stream_count];
        link->fds[link->stream_count] = -1;
        keep_alive(peer->live_fd, tcp->heartbeat_ms);
        good &= add_watch(tcp, peer->live_fd, mark_of(peer, LIVE));
    }
    peer->connected = true;
    if (good && tcp->watched) good = notify_epoll_of_peer(tcp, EPOLL_CTL_ADD, peer);
    if (!good) {
        free_peer(peer);
        tti_free(peer);
        return no_memory(error);
    }
    tcp->peers[link->rank] = peer;
    tcp->connected[tcp->connected_count++] = link->rank;
    tcp->direct = tcp->connected_count <= DIRECT;
    if (tcp->direct || tcp->watched) return TUTTI_OK;
    tcp->watched = notify_epoll_of_all(tcp, EPOLL_CTL_ADD);
    return tcp->watched ? TUTTI_OK : no_memory(error);
}

void tti_tcp_lose(struct tti_tcp *tcp, struct tti_tcp_peer *peer, int system_errno, const char *why)
{
    char text[200];
    if (why != NULL)
        snprintf(text, sizeof text, "rank %d on %s %s", peer->rank, peer->host, why);
    else
        snprintf(text, sizeof text, "the connection to rank %d on %s failed (%s)", peer->rank, peer->host,
                 strerror(system_errno));
    peer->connected = false;
    tcp->prune = true;
    tti_tcp_drop_queue(tcp, peer, TUTTI_ERR_PEER_LOST);
    free_peer(peer);
    if (!tcp->closing) tcp->base.sink.lost(tcp->base.sink.context, peer->rank, peer->goodbye, system_errno, text);
}

/* Returns the milliseconds since anything came over one of the peer's connections, as the system knows it. */
static int64_t silence_ms(const struct tti_tcp_peer *peer)
{
    int64_t least = INT64_MAX;
    for (int i = -1; i < peer->stream_count; i++) {
        struct tcp_info info = {0};
        socklen_t bytes = sizeof info;
        if (getsockopt(i < 0 ? peer->live_fd : peer->streams[i].fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0)
            continue;
        uint32_t last = info.tcpi_last_data_recv < info.tcpi_last_ack_recv ? info.tcpi_last_data_recv
                                                                           : info.tcpi_last_ack_recv;
        if (last < least) least = last;
    }
    return least;
}

/* Checks the connection that carries nothing: only its end means something. After an orderly end, or a reset, the other
 * connections know more. */
static bool check_live(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    char byte, why[100];
    if (peer->live_fd < 0) return false;
    ssize_t got = recv(peer->live_fd, &byte, 1, MSG_DONTWAIT);
    int failed = got < 0 ? errno : 0;
    if (got < 0 && (failed == EAGAIN || failed == EINTR)) return false;
    if (got > 0) {
        tti_tcp_lose(tcp, peer, EPROTO, "sent something on a connection that carries nothing");
        return true;
    }
    int64_t silence = failed == ETIMEDOUT ? silence_ms(peer) : 0;
    tti_tcp_close(&peer->live_fd);
    if (failed == 0 || failed == ECONNRESET) return false;
    snprintf(why, sizeof why, "answers no heartbeats, and has been silent for %lld ms", (long long)silence);
    tti_tcp_lose(tcp, peer, failed, failed == ETIMEDOUT ? why : NULL);
    return true;
}

/* ---- Progress -------------------------------------------------------------------------------------------------- */

static bool report_finished(struct tti_tcp *tcp)
{
    struct tti_outgoing *outgoing = tcp->finished;
    if (outgoing == NULL) return false;
    tcp->finished = NULL;
    atomic_store_explicit(&tcp->due, false, memory_order_relaxed);
    tcp->finished_end = &tcp->finished;
    while (outgoing != NULL) {
        struct tti_outgoing *next = outgoing->next; /* done() may free it */
        outgoing->done(outgoing, (tutti_status)(int64_t)outgoing->sent);
        outgoing = next;
    }
    return true;
}

/* Called when sending failed: loses the peer if there is nothing to read that gives a reason. */
static bool check_failed(struct tti_tcp *tcp, struct tti_tcp_peer *peer, bool moved)
{
    for (int i = 0; i < peer->stream_count && !moved; i++) moved = tti_tcp_receive(tcp, peer, &peer->streams[i]);
    if (peer->connected && peer->send_errno != 0 && !moved) {
        tti_tcp_lose(tcp, peer, peer->send_errno, NULL);
        return true;
    }
    return moved;
}

static bool serve_peer(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    bool moved = tti_tcp_receive(tcp, peer, &peer->streams[0]);
    for (int i = 1; i < peer->stream_count && peer->striped; i++)
        moved |= tti_tcp_receive(tcp, peer, &peer->streams[i]);
    if (peer->first != NULL && peer->connected) moved |= tti_tcp_push(tcp, peer);
    return peer->send_errno == 0 ? moved : check_failed(tcp, peer, moved);
}

static bool serve_event(struct tti_tcp *tcp, const struct epoll_event *event)
{
    if (event->data.u64 == TTI_TCP_WAKE) return false;
    struct tti_tcp_peer *peer = tcp->peers[event->data.u64 >> 8];
    int stream = (int)(event->data.u64 & 255);
    bool moved = false;
    if (!peer->connected) return false;
    if (stream == LIVE) return check_live(tcp, peer);
    if ((event->events & EPOLLOUT) != 0) moved = tti_tcp_push(tcp, peer);
    if ((event->events & ~(uint32_t)EPOLLOUT) != 0) moved |= tti_tcp_receive(tcp, peer, &peer->streams[stream]);
    return peer->send_errno == 0 ? moved : check_failed(tcp, peer, moved);
}

static bool poll_sockets(struct tti_tcp *tcp)
{
    struct epoll_event events[EVENTS];
    bool moved = false;
    int count = epoll_wait(tcp->epoll_fd, events, EVENTS, 0);
    for (int i = 0; i < count; i++) moved |= serve_event(tcp, &events[i]);
    tcp->has_events = false;
    return moved;
}

static void prune(struct tti_tcp *tcp)
{
    int kept = 0;
    for (int i = 0; i < tcp->connected_count; i++)
        if (tcp->peers[tcp->connected[i]]->connected) tcp->connected[kept++] = tcp->connected[i];
    tcp->connected_count = kept;
    tcp->prune = false;
}

/* Polls few peers. A read that finds nothing is a wasted system call, so peers for which nobody waits are read now and
 * then. */
static bool serve_few(struct tti_tcp *tcp, int awaited)
{
    bool moved = false, all = awaited == TTI_ANYBODY || ++tcp->polls % OTHERS == 0;
    for (int i = 0; i < tcp->connected_count; i++) {
        struct tti_tcp_peer *peer = tcp->peers[tcp->connected[i]];
        if (all || peer->rank == awaited || peer->send_errno != 0)
            moved |= serve_peer(tcp, peer);
        else if (peer->first != NULL)
            moved |= tti_tcp_push(tcp, peer);
    }
    if (++tcp->awake % LOOK == 0 || tcp->has_events) moved |= poll_sockets(tcp);
    if (tcp->awake >= AWAKE) stay_awake(tcp);
    return moved;
}

static bool progress(struct tti_transport *transport, int awaited)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    if (tcp->sleepy) prepare_to_sleep(tcp);
    bool moved = tcp->direct ? serve_few(tcp, awaited) : poll_sockets(tcp);
    if (tcp->prune) {
        prune(tcp);
        moved = true; /* a peer was lost */
    }
    return report_finished(tcp) || moved;
}

/* ---- Sleep ----------------------------------------------------------------------------------------------------- */

static int sleep_begin(struct tti_transport *transport)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    atomic_fetch_add(&tcp->sleepers, 1);
    tcp->sleepy = true;
    bool due = atomic_load_explicit(&tcp->due, memory_order_relaxed);
    return !due && atomic_load(&tcp->watched) ? tcp->epoll_fd : -1;
}

/* A wake that comes after the descriptor was read and before `woken` is cleared is lost, which does no harm: the
 * sleeper returns and checks everything. */
static void sleep_end(struct tti_transport *transport)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    atomic_fetch_sub(&tcp->sleepers, 1);
    tcp->has_events = true;
    if (atomic_load_explicit(&tcp->woken, memory_order_acquire) == 0) return;
    uint64_t count;
    (void)!read(tcp->wake_fd, &count, sizeof count);
    atomic_exchange_explicit(&tcp->woken, 0, memory_order_acq_rel);
}

static void sleep_until(struct tti_transport *transport, int64_t timeout_ns)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    if (atomic_load_explicit(&tcp->due, memory_order_relaxed) || timeout_ns <= 0) return;
    struct pollfd polled = {.fd = sleep_begin(transport), .events = POLLIN};
    if (polled.fd >= 0) tti_poll_ns(&polled, 1, timeout_ns);
    sleep_end(transport);
}

static void wake(struct tti_transport *transport)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    uint64_t one = 1;
    if (atomic_exchange_explicit(&tcp->woken, 1, memory_order_acq_rel) == 0)
        (void)!write(tcp->wake_fd, &one, sizeof one);
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

static bool has_unsent(const struct tti_tcp_peer *peer)
{
    for (int i = 0; i < peer->stream_count; i++)
        if (peer->streams[i].head_left > 0 || peer->streams[i].data_left > 0) return true;
    return peer->first != NULL;
}

/* Returns true while the other end's system has not confirmed all bytes. Closing before that could lose them: with
 * unread bytes of the other end a close resets the connection. */
static bool has_unconfirmed(const struct tti_tcp_peer *peer)
{
    for (int i = 0; i < peer->stream_count; i++) {
        int bytes = 0;
        if (ioctl(peer->streams[i].fd, SIOCOUTQ, &bytes) == 0 && bytes > 0) return true;
    }
    return false;
}

static bool is_delivered(struct tti_transport *transport)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    for (int i = 0; i < tcp->connected_count; i++) {
        const struct tti_tcp_peer *peer = tcp->peers[tcp->connected[i]];
        if (peer->connected && (has_unsent(peer) || has_unconfirmed(peer))) return false;
    }
    return true;
}

/* Returns true if nothing more must be done for this peer. */
static bool part_from(struct tti_tcp *tcp, struct tti_tcp_peer *peer)
{
    if (peer->connected) serve_peer(tcp, peer);
    if (!peer->connected) return true;
    if (has_unsent(peer)) {
        tti_tcp_push(tcp, peer);
        return peer->send_errno != 0;
    }
    if (!peer->parting) {
        peer->parting = true;
        tti_tcp_say_goodbye(tcp, peer);
        if (has_unsent(peer)) return peer->send_errno != 0;
    }
    return !has_unconfirmed(peer);
}

static void part_from_all(struct tti_tcp *tcp, int64_t deadline_ns)
{
    for (;;) {
        bool done = true;
        for (int i = 0; i < tcp->connected_count; i++) done &= part_from(tcp, tcp->peers[tcp->connected[i]]);
        if (tcp->prune) prune(tcp);
        int64_t left_ns = deadline_ns - tti_now_ns();
        if (done || left_ns <= 0) return;
        struct pollfd polled = {.fd = tcp->epoll_fd, .events = POLLIN};
        tti_poll(&polled, 1, left_ns < DRAIN_MS * 1000000 ? 1 : DRAIN_MS);
    }
}

/* From here on the layer above is not called, and its memory is not written to. */
static void stop_sink(struct tti_tcp *tcp)
{
    tcp->closing = true;
    for (int i = 0; i < tcp->connected_count; i++) {
        struct tti_tcp_peer *peer = tcp->peers[tcp->connected[i]];
        peer->into = NULL;
        for (int j = 0; j < peer->stream_count; j++) peer->streams[j].into = NULL;
    }
}

void tti_tcp_free(struct tti_tcp *tcp)
{
    tti_tcp_delist(tcp);
    tti_tcp_free_links(tcp);
    for (int rank = 0; tcp->peers != NULL && rank < tcp->base.size; rank++) {
        if (tcp->peers[rank] == NULL) continue;
        free_peer(tcp->peers[rank]);
        tti_free(tcp->peers[rank]);
    }
    tti_tcp_close(&tcp->epoll_fd);
    tti_tcp_close(&tcp->wake_fd);
    tti_free(tcp->connected);
    tti_free(tcp->peers);
    tti_free(tcp);
}

static void part(struct tti_transport *transport, int64_t timeout_ns)
{
    struct tti_tcp *tcp = (struct tti_tcp *)transport;
    stop_sink(tcp);
    if (timeout_ns >= 0) part_from_all(tcp, tti_now_ns() + timeout_ns);
    for (int i = 0; i < tcp->connected_count; i++) {
        struct tti_tcp_peer *peer = tcp->peers[tcp->connected[i]];
        tti_tcp_drop_queue(tcp, peer, TUTTI_ERR_TIMEOUT);
        if (peer->connected) tti_tcp_lose(tcp, peer, 0, "was left");
    }
    prune(tcp);
    while (report_finished(tcp)) {}
}

static void close_endpoint(struct tti_transport *transport, int64_t timeout_ns)
{
    part(transport, timeout_ns);
    tti_tcp_free((struct tti_tcp *)transport);
}

static void drop(struct tti_transport *transport, int rank)
{
    struct tti_tcp_peer *peer = ((struct tti_tcp *)transport)->peers[rank];
    peer->into = NULL;
    for (int i = 0; i < peer->stream_count; i++) peer->streams[i].into = NULL;
}

const struct tti_transport_ops tti_tcp_ops = {
    .name = "tcp",
    .send = tti_tcp_send,
    .progress = progress,
    .keep = tti_tcp_keep,
    .drop = drop,
    .sleep = sleep_until,
    .sleep_begin = sleep_begin,
    .sleep_end = sleep_end,
    .wake = wake,
    .is_delivered = is_delivered,
    .part = part,
    .close = close_endpoint,
};

struct tti_transport *tti_tcp_transport(struct tti_tcp *tcp)
{
    return &tcp->base;
}
