/* SPDX-License-Identifier: Apache-2.0
 *
 * The transport between hosts: each pair of ranks has a tcp connection, or several that share large frames.
 *
 *     tti_tcp_listen    an endpoint, and its peer info: where it can be reached
 *     tti_tcp_expect    for each rank to be connected to: its peer info
 *     tti_tcp_connect   connects everyone with everyone, or says which two cannot; then the endpoint listens no more
 *     tti_tcp_transport what it is from here on; closed by its close()
 *
 * Of two ranks the higher connects and the lower accepts. Each connection proves the job's key before anything else
 * (proof.h). Frames travel as a fixed head (tcp_head.h) and their data.
 *
 * Who is alive. A process that ends closes its connections, which the other end sees at once. A host that falls silent is
 * found by a connection per pair of ranks that carries nothing: the system's keepalive on it needs no rank to call in,
 * neither here nor there, so that a rank may compute for hours. It cannot be one of the connections with data: with
 * unacknowledged data keepalive rests and the system waits for many minutes, and TCP_USER_TIMEOUT, which would end that,
 * also ends connections to ranks that are alive and slow to read.
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
    const char *interface; /* NULL or "": all */
    const char *ports;     /* NULL or "": any */
    int streams;           /* 1 to TTI_TCP_STREAMS; 0: one within a host, else by size. Two ranks use the lower of
                            * their numbers */
    int64_t heartbeat_ms;  /* 0: hosts are not watched */
};

/* What another rank must know of an endpoint; travels as it lies, addresses beyond `count` left out. */
struct tti_tcp_peer_info {
    uint16_t version, count;
    uint16_t streams, streams_asked; /* asked: not just the usual number */
    uint64_t network;                /* loopback addresses are good within the same one */
    char host[TTI_TCP_HOST];
    struct tti_address at[TTI_ADDRESSES];
};

tutti_status tti_tcp_listen(const struct tti_tcp_settings *settings, struct tti_tcp **tcp, tutti_error *error);
/* Fills in the peer info; returns its bytes. */
size_t tti_tcp_peer_info(const struct tti_tcp *tcp, struct tti_tcp_peer_info *peer_info);
/* Before it is connected: the epoch, where it was not known when it began to listen. */
void tti_tcp_set_epoch(struct tti_tcp *tcp, uint32_t epoch);
/* ERR_JOIN when these bytes are no peer info. */
tutti_status tti_tcp_expect(struct tti_tcp *tcp, int peer, const void *bytes, size_t count, tutti_error *error);
/* Connects `count` endpoints of this process, which may be peers of each other, with all they expect. `stop` (may be NULL)
 * is asked now and then: true ends it with *error as stop() has set it. */
tutti_status tti_tcp_connect(struct tti_tcp *const *endpoints, int count, const struct tti_key *key,
                             int64_t deadline_ns, bool (*stop)(void *context, tutti_error *error), void *context,
                             tutti_error *error);
struct tti_transport *tti_tcp_transport(struct tti_tcp *tcp);

#endif
