/* SPDX-License-Identifier: Apache-2.0 */
#include "tcp_mesh.h"

#include "base/clock.h"
#include "ranks.h"
#include "transport/door.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static atomic_int mesh_number;

void tcp_mesh_init(struct tcp_mesh *mesh, int size, int streams)
{
    memset(mesh, 0, sizeof *mesh);
    snprintf(mesh->job, sizeof mesh->job, "mesh-%d-%d", (int)getpid(), atomic_fetch_add(&mesh_number, 1));
    mesh->size = size;
    mesh->streams = streams;
    mesh->heartbeat_ms = 2000;
    mesh->interface = "127.0.0.1";
}

tutti_status tcp_mesh_listen(struct tcp_mesh *mesh, int rank, tutti_error *error)
{
    struct tti_tcp_settings settings = {.job = mesh->job,
                                        .rank = rank,
                                        .size = mesh->size,
                                        .interface = mesh->interface,
                                        .streams = mesh->streams,
                                        .heartbeat_ms = mesh->heartbeat_ms};
    tutti_status status = tti_tcp_listen(&settings, &mesh->endpoints[rank], error);
    if (status == TUTTI_OK)
        mesh->peer_info_bytes[rank] = tti_tcp_peer_info(mesh->endpoints[rank], &mesh->peer_infos[rank]);
    return status;
}

void tcp_mesh_expect(struct tcp_mesh *mesh, int rank)
{
    tutti_error error;
    for (int peer = 0; peer < mesh->size; peer++)
        if (peer != rank)
            CHECK(tti_tcp_expect(mesh->endpoints[rank], peer, &mesh->peer_infos[peer], mesh->peer_info_bytes[peer],
                                 &error) == TUTTI_OK);
}

tutti_status tcp_mesh_open(struct tcp_mesh *mesh, size_t largest, tutti_error *error)
{
    tutti_status status = TUTTI_OK;
    for (int rank = 0; rank < mesh->size && status == TUTTI_OK; rank++) status = tcp_mesh_listen(mesh, rank, error);
    if (status == TUTTI_OK) {
        for (int rank = 0; rank < mesh->size; rank++) tcp_mesh_expect(mesh, rank);
        status = tti_tcp_connect(mesh->endpoints, mesh->size, &mesh->key, tti_now_ns() + LONG_MS * MS, NULL, NULL,
                                 error);
    }
    for (int rank = 0; rank < mesh->size; rank++) {
        if (mesh->endpoints[rank] == NULL) continue;
        mesh_node_init(&mesh->nodes[rank], tti_tcp_transport(mesh->endpoints[rank]), largest);
        if (status != TUTTI_OK) tcp_mesh_close(mesh, rank);
    }
    return status;
}

void tcp_mesh_close(struct tcp_mesh *mesh, int rank)
{
    if (mesh->endpoints[rank] == NULL) return;
    struct tti_transport *transport = tti_tcp_transport(mesh->endpoints[rank]);
    transport->ops->close(transport, BOUND_MS * MS);
    mesh->endpoints[rank] = NULL;
}

int tcp_mesh_impostor(const struct tcp_mesh *mesh, const struct tti_key *key, int from, int to, int stream,
                      int64_t timeout_ms)
{
    struct tti_proof_job job;
    struct tti_address used;
    struct tti_address_list list = {.count = 1, .at = {mesh->peer_infos[to].at[0]}};
    int64_t deadline_ns = tti_now_ns() + timeout_ms * MS;
    int fd = -1;
    tti_proof_setup(&job, key, mesh->job, 0, from, mesh->size);
    struct tti_knock *knock = tti_knock_new(&job, TTI_PROOF_MESH, to, stream, &list);
    while ((fd = tti_knock_step(knock, &used)) < 0 && tti_now_ns() < deadline_ns) poll(NULL, 0, 1);
    tti_knock_free(knock);
    return fd;
}

int tcp_mesh_stranger(const struct tcp_mesh *mesh, int to)
{
    int fd = tti_connect(&mesh->peer_infos[to].at[0]);
    struct pollfd polled = {.fd = fd, .events = POLLOUT};
    poll(&polled, 1, BOUND_MS);
    return fd;
}
