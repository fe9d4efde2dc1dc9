/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport between hosts: each pair of ranks has a tcp connection, or several that share large frames.
 *
 *     tti_tcp_listen    an endpoint, and its peer info: its addresses
 *     tti_tcp_expect    gives it the peer info of each rank to which it connects
 *     tti_tcp_connect   connects all with all, or says which two cannot be connected; then the endpoint listens no more
 *     tti_tcp_transport returns the endpoint as a transport, which is closed by its close()
 *
 * Of two ranks the higher connects and the lower accepts. Each connection proves the job's key before anything else
 * (proof.h). Frames travel as a fixed head (tcp_head.h) and their data.
 *
 * Liveness. A process that ends closes its connections, which the other end sees at once. A host that falls silent is
 * found by a connection per pair of ranks that carries nothing: the system's keepalive on it needs no call of a rank at
 * either end, so that a rank may compute for hours. It cannot be one of the connections with data: with unacknowledged
 * data keepalive rests and the system waits for many minutes, and TCP_USER_TIMEOUT, which would end that, also ends
 * connections to ranks that are alive and slow to read.
 */
#ifndef TTI_TRANSPORT_TCP_H
#define TTI_TRANSPORT_TCP_H

#include "base/key.h"
#include "transport/socket.h"
#include "transport/transport.h"

enum { TTI_TCP_STREAMS = 8, TTI_TCP_HOST = 64 };

struct tti_tcp;

struct tti_tcp_settings {
    const char *job;
    int rank, size;
    uint32_t epoch;
    const char *interface; /* NULL or "": all interfaces */
    const char *ports;     /* NULL or "": any port */
    /* 1 to TTI_TCP_STREAMS; 0: one within a host, else by size. Two ranks use the lower of their numbers */
    int streams;
    int64_t heartbeat_ms; /* 0: hosts are not watched */
};

/* The facts that another rank needs about an endpoint; sent as it is in memory, without the addresses beyond
 * `count`. */
struct tti_tcp_peer_info {
    uint16_t version, count;
    uint16_t streams, streams_asked; /* asked: a number that was asked for, not the usual one */
    uint64_t network;                /* loopback addresses are valid within the same network */
    char host[TTI_TCP_HOST];
    struct tti_address at[TTI_ADDRESSES];
};

tutti_status tti_tcp_listen(const struct tti_tcp_settings *settings, struct tti_tcp **tcp, tutti_error *error);
/* Fills in the peer info; returns its bytes. */
size_t tti_tcp_peer_info(const struct tti_tcp *tcp, struct tti_tcp_peer_info *peer_info);
/* Called before it is connected: sets the epoch, if that was not known when it began to listen. */
void tti_tcp_set_epoch(struct tti_tcp *tcp, uint32_t epoch);
/* Takes a peer's info. ERR_JOIN: these bytes are none. */
tutti_status tti_tcp_expect(struct tti_tcp *tcp, int peer, const void *bytes, size_t count, tutti_error *error);
/* Connects `count` endpoints of this process, which may be peers of each other, with all their peers. `stop` (may be
 * NULL) is called now and then: if it returns true this ends with *error as stop() has set it. */
tutti_status tti_tcp_connect(struct tti_tcp *const *endpoints, int count, const struct tti_key *key,
                             int64_t deadline_ns, bool (*stop)(void *context, tutti_error *error), void *context,
                             tutti_error *error);
struct tti_transport *tti_tcp_transport(struct tti_tcp *tcp);

#endif
