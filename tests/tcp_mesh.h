/* SPDX-License-Identifier: Apache-2.0
 *
 * For tests of the tcp transport: endpoints of one process, connected with each other.
 */
#ifndef TEST_TCP_MESH_H
#define TEST_TCP_MESH_H

#include "check_mesh.h"
#include "transport/proof.h"
#include "transport/tcp.h"

struct tcp_mesh {
    char job[64];
    int size, streams;
    int64_t heartbeat_ms;
    const char *interface;
    struct tti_key key;
    struct tti_tcp *endpoints[MESH_MOST];
    struct tti_tcp_peer_info peer_infos[MESH_MOST];
    size_t peer_info_bytes[MESH_MOST];
    struct mesh_node nodes[MESH_MOST];
};

/* Sets the defaults: loopback, no key but zeros, a job of its own. */
void tcp_mesh_init(struct tcp_mesh *mesh, int size, int streams);
/* Makes the endpoint of one rank, and its peer info. */
tutti_status tcp_mesh_listen(struct tcp_mesh *mesh, int rank, tutti_error *error);
/* It expects every other rank by its peer info, which must be there. */
void tcp_mesh_expect(struct tcp_mesh *mesh, int rank);
/* All of it, in this thread. */
tutti_status tcp_mesh_open(struct tcp_mesh *mesh, size_t largest, tutti_error *error);
void tcp_mesh_close(struct tcp_mesh *mesh, int rank);

/* A connection to rank `to` of the mesh as if from rank `from`, proven; for a peer that then misbehaves. -1: no. */
int tcp_mesh_impostor(const struct tcp_mesh *mesh, const struct tti_key *key, int from, int to, int stream,
                      int64_t timeout_ms);
/* One that proves nothing. */
int tcp_mesh_stranger(const struct tcp_mesh *mesh, int to);

#endif
