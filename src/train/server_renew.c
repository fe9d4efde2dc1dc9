/* SPDX-License-Identifier: Apache-2.0
 *
 * A parameter server in a world that was rebuilt, or has grown. Servers have kept their parts, and those workers that were not
 * lost their steps; a worker that was started again, or has joined, creates the server while the others renew it, joins, and goes
 * on where the slowest one is.
 *
 * Invariant: from the loss or the pause on, until this has succeeded on every rank, no update is made (`lost` of struct
 * tutti_server). So a push that was refused has changed nothing, and may be made once more.
 */
#define TUTTI_NO_CALL_SITES
#include "train/server.h"

#include "base/status.h"
#include "collective/comm/comm.h"
#include "train/trainer.h"
#include <stdio.h>
#include <string.h>

/* Returns an error, the same on all ranks, if a server was lost: nobody can go on without a part of the parameters. */
static tutti_status find_lost_server(const tutti_server *server, const struct tti_server_presence *all,
                                     tutti_error *error)
{
    for (int r = server->first; r < server->first + server->options.servers; r++) {
        if (all[r].has) continue;
        error->peer = r;
        return tti_error_set(
            error, TUTTI_ERR_UNSUPPORTED, 0,
            "rank %d, a parameter server, was lost, and its part of the parameters with it; all ranks can free "
            "this server and create one anew, with values that rank 0 has, or from a checkpoint",
            r);
    }
    return TUTTI_OK;
}

tutti_status tti_server_find_others(tutti_server *server, struct tti_server_presence *all, bool *again,
                                    tutti_error *error)
{
    const struct tti_server_presence mine = {server->actors != NULL, server->left, server->first};
    tutti_status status = tutti_all_gather(tti_inside(server->comm, "server", "renew"), &mine, all, sizeof mine,
                                           TUTTI_U8);
    *again = false;
    if (status != TUTTI_OK) *error = *tutti_comm_error(server->comm);
    for (int r = 0; status == TUTTI_OK && r < tutti_size(server->comm); r++) {
        *again |= all[r].has != 0;
        if (all[r].has && server->actors == NULL) server->first = all[r].first;
    }
    if (server->actors == NULL) server->serves = tti_worker_of(server, server->rank) < 0;
    return status == TUTTI_OK && *again ? find_lost_server(server, all, error) : status;
}

static tutti_status renew_actors(tutti_server *server, bool is_new, tutti_error *error)
{
    const tutti_actors_options options = tti_server_actors_options(server);
    tutti_comm *comm = tti_inside(server->comm, "server", "actors");
    tutti_status status = is_new ? tutti_actors_create(comm, &options, &server->actors)
                                 : tutti_actors_renew(server->actors, comm);
    if (status != TUTTI_OK) *error = *tutti_comm_error(server->comm);
    return status;
}

/* Tells a server's actor which workers the others wait for, and watches its end on the new comm. */
static tutti_status watch_again(tutti_server *server, const struct tti_server_presence *all, tutti_error *error)
{
    const struct tti_server_call call = {.what = TTI_SERVER_WATCH};
    const int workers = tutti_size(server->comm) - server->options.servers;
    unsigned char request[sizeof call + (size_t)workers];
    if (!server->serves) return TUTTI_OK;
    if (server->ended.id != 0) (void)tutti_drop(server->ended);
    server->ended = (tutti_op){0};
    tutti_status status = tutti_actor_watch_start(server->actors, server->rank, TTI_SERVER_ACTOR, &server->ended);
    TTI_TRY(tti_server_actors_failed(server, status, error));
    memcpy(request, &call, sizeof call);
    for (int w = 0; w < workers; w++) {
        const struct tti_server_presence *worker = &all[tti_worker_rank(server, w)];
        request[sizeof call + (size_t)w] = worker->has && !worker->left;
    }
    return tti_server_actors_failed(
        server,
        tutti_actor_ask(server->actors, server->rank, TTI_SERVER_ACTOR, request, sizeof request, NULL, 0, NULL, 0),
        error);
}

static tutti_status failed(const tutti_server *server, tutti_status status, tutti_error *error)
{
    if (status != TUTTI_OK) *error = server->error;
    return status;
}

tutti_status tti_server_come_back(tutti_server *server, const struct tti_server_presence *all, bool goes_on,
                                  tutti_error *error)
{
    const bool is_new = server->actors == NULL;
    if (is_new || goes_on) TTI_TRY(renew_actors(server, is_new, error));
    TTI_TRY(tti_agree(server->comm, is_new ? tti_server_make_worker(server, error) : TUTTI_OK, error));
    TTI_TRY(tti_agree(server->comm, watch_again(server, all, error), error));
    tutti_status status = is_new ? failed(server, tutti_server_join(server), error) : TUTTI_OK;
    TTI_TRY(tti_agree(server->comm, status, error));
    if (is_new || server->serves || server->left) return TUTTI_OK;
    return failed(server, tti_server_wait(server), error);
}

/* Makes the same collectives as tti_server_create. */
tutti_status tti_server_renew(tutti_server *server, tutti_comm *comm, tutti_error *error)
{
    struct tti_server_presence all[tutti_size(comm)];
    bool again;
    tutti_status status = TUTTI_OK;
    const int size = tutti_size(server->comm);
    const bool goes_on = tutti_epoch(comm) > tutti_epoch(server->comm);
    if (tutti_size(comm) < size || tutti_rank(comm) != server->rank)
        status = tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "the comm has %d ranks, and this is rank %d; the server had %d, and this was rank %d: it "
            "goes on with all its ranks, or with more",
            tutti_size(comm), tutti_rank(comm), size, server->rank);
    TTI_TRY(tti_agree(comm, status, error));
    server->comm = comm;
    TTI_TRY(tti_server_find_others(server, all, &again, error));
    TTI_TRY(tti_agree(comm, tti_server_compare(server, error), error));
    TTI_TRY(tti_agree(comm, TUTTI_OK, error)); /* those that were started again make their lists */
    if (!server->serves) server->workers = tutti_size(comm) - server->options.servers;
    return tti_server_come_back(server, all, goes_on, error);
}

tutti_status tutti_server_renew(tutti_server *server, tutti_comm *comm)
{
    if (server == NULL || comm == NULL) return TUTTI_ERR_ARGUMENT;
    tutti_error error = {.rank = server->rank, .peer = -1, .operation = "server_renew"};
    if (comm != server->comm && tutti_epoch(comm) <= tutti_epoch(server->comm))
        return tti_server_fail(
            server, "renew", TUTTI_ERR_ARGUMENT, -1,
            "the comm is neither the server's, nor of a world that was rebuilt or has grown since the "
            "server was made (tutti_comm_rebuild, tutti_comm_grow)");
    tutti_status status = tti_server_renew(server, comm, &error);
    server->error = error;
    if (status != TUTTI_OK) tti_comm_note(comm, &server->error);
    return status;
}
