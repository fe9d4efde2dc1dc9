/* SPDX-License-Identifier: Apache-2.0
 *
 * The actor of a server handles one request after the other. It has a thread of its own, since the lead waits for the
 * other servers.
 */
#include "train/server.h"

#include "base/alloc.h"
#include "base/status.h"
#include <stdio.h>
#include <string.h>

static tutti_status refuse_count(tutti_request *request)
{
    return tutti_request_refuse(request, TUTTI_ERR_COUNT, "server: this request does not fit the parameters here");
}

/* ---- What is asked --------------------------------------------------------------------------------------------- */

static tutti_status stage(tutti_server *server, tutti_request *request, const struct tti_server_call *call)
{
    const char *why;
    const float *data = (const float *)(call + 1);
    const size_t floats = (request->bytes - sizeof *call) / sizeof *data;
    const int worker = tti_worker_of(server, request->rank);
    if (worker < 0) return refuse_count(request);
    tutti_status status = tti_shard_stage(server, worker, call, data, floats, &why);
    return status == TUTTI_OK ? tutti_request_answer(request, NULL, 0) : tutti_request_refuse(request, status, why);
}

static tutti_status sum(tutti_server *server, tutti_request *request, const struct tti_server_call *call)
{
    struct tti_shard *shard = &server->shard;
    const struct tti_server_term *terms = (const struct tti_server_term *)(call + 1);
    const size_t count = (request->bytes - sizeof *call) / sizeof *terms;
    for (size_t i = 0; i < count; i++)
        if (terms[i].worker >= (uint32_t)server->workers || terms[i].index >= shard->room[terms[i].worker])
            return refuse_count(request);
    tti_shard_sum(server, terms, count, shard->sums);
    return tutti_request_answer(request, shard->sums, shard->blocks * sizeof *shard->sums);
}

static tutti_status apply(tutti_server *server, tutti_request *request, const struct tti_server_call *call)
{
    tti_shard_step(server, call->rate, call->scale);
    return tutti_request_answer(request, NULL, 0);
}

/* Reads or writes values, or a state of the optimizer. */
static tutti_status move(tutti_server *server, tutti_request *request, const struct tti_server_call *call)
{
    const size_t elements = server->shard.span.hi - server->shard.span.lo;
    float *array = tti_shard_array(server, call->index);
    if (array == NULL || call->from > elements || call->count > elements - call->from) return refuse_count(request);
    if (call->what == TTI_SERVER_READ)
        return tutti_request_answer(request, array + call->from, call->count * sizeof *array);
    if (request->bytes - sizeof *call != call->count * sizeof *array) return refuse_count(request);
    memcpy(array + call->from, call + 1, call->count * sizeof *array);
    return tutti_request_answer(request, NULL, 0);
}

static tutti_status set_steps(tutti_server *server, tutti_request *request, const struct tti_server_call *call)
{
    tutti_optimizer_set_steps(server->shard.optimizer, call->count);
    for (int w = 0; w < server->workers; w++) server->members[w].done = call->from;
    return tutti_request_answer(request, NULL, 0);
}

static bool is_left(const tutti_server *server)
{
    for (int w = 0; w < server->workers; w++)
        if (server->members[w].here) return false;
    return true;
}

/* Answers the server's rank, which waits in tutti_server_serve. */
static void answer_serve(tutti_server *server, tutti_status status, const char *text)
{
    const uint64_t kept = server->serving;
    server->serving = 0;
    if (kept != 0) (void)tutti_actors_answer(server->actors, kept, status, text, strlen(text));
}

/* Notes that a worker has gone: nobody waits for it. After the last one the actor ends. */
static void leave(tutti_server *server, int worker)
{
    tti_lead_leave(server, worker);
    if (!is_left(server)) return;
    answer_serve(server, TUTTI_OK, "");
    (void)tutti_actor_stop(server->actors, TTI_SERVER_ACTOR);
}

/* Keeps the request until serving ends; an earlier one, whose asker has given up, is forgotten. */
static tutti_status serve(tutti_server *server, tutti_request *request)
{
    if (server->lost.status != TUTTI_OK) return tutti_request_refuse(request, server->lost.status, server->lost.text);
    server->serving = tutti_request_keep(request);
    return TUTTI_OK;
}

static tutti_status join(tutti_server *server, tutti_request *request)
{
    const int worker = tti_worker_of(server, request->rank);
    if (worker < 0 || worker >= server->workers) return refuse_count(request);
    tti_lead_join(server, worker);
    const uint64_t done = server->members[worker].done;
    return tutti_request_answer(request, &done, sizeof done);
}

static tutti_status handle_leave(tutti_server *server, tutti_request *request)
{
    tutti_status status = tutti_request_answer(request, NULL, 0);
    const int worker = tti_worker_of(server, request->rank);
    if (worker >= 0 && worker < server->workers) leave(server, worker);
    return status;
}

/* ---- Who has ended --------------------------------------------------------------------------------------------- */

/* Notes that a server is lost: without its part of the parameters nobody can go on. A server that has ended in order
 * has no workers any more. */
static void lose_server(tutti_server *server, const tutti_request *request)
{
    if (request->error == NULL || server->broken.status != TUTTI_OK) return;
    server->broken = (tutti_error){.rank = server->rank, .peer = request->rank};
    tti_error_set(&server->broken, request->error->status, 0,
                  "rank %d, a parameter server, is lost, and its part of the parameters with it: %.300s", request->rank,
                  request->error->text);
    tti_lead_refuse_all(server, &server->broken);
}

/* Tells all ranks of a lost one that may be started again, so that they come to rebuild the world. Until the server is renewed
 * further losses say nothing new, and ranks that have gone on before this one look like lost ones. */
static void interrupt(tutti_server *server, const tutti_request *request)
{
    if (server->lost.status != TUTTI_OK || is_left(server)) return;
    server->lost = (tutti_error){.rank = server->rank, .peer = request->rank};
    tti_error_set(&server->lost, TUTTI_ERR_PEER_LOST, 0,
                  "rank %d, a %s, is lost; where it is started again, tutti_comm_rebuild and tutti_server_renew go on: "
                  "%.200s",
                  request->rank, tti_worker_of(server, request->rank) >= 0 ? "worker" : "parameter server",
                  request->error->text);
    tti_lead_interrupt(server, &server->lost);
    answer_serve(server, server->lost.status, server->lost.text);
}

static tutti_status ended(tutti_server *server, const tutti_request *request)
{
    const int worker = tti_worker_of(server, request->rank);
    const bool left = worker >= 0 && !server->members[worker].here;
    if (server->lost.status != TUTTI_OK) return TUTTI_OK; /* when the server is renewed it learns who is there */
    if (server->heals && request->error != NULL && !left)
        interrupt(server, request);
    else if (worker >= 0)
        leave(server, worker);
    else
        lose_server(server, request);
    return TUTTI_OK;
}

/* Makes no update until the server is renewed; all ranks hear of it. */
static tutti_status pause_all(tutti_server *server, tutti_request *request)
{
    if (server->lost.status == TUTTI_OK) {
        server->lost = (tutti_error){.rank = server->rank, .peer = request->rank};
        tti_error_set(&server->lost, TUTTI_ERR_EPOCH, 0,
                      "rank %d has paused the parameter servers (tutti_server_pause): tutti_comm_grow and "
                      "tutti_server_renew go on",
                      request->rank);
        tti_lead_interrupt(server, &server->lost);
        answer_serve(server, server->lost.status, server->lost.text);
    }
    return tutti_request_answer(request, NULL, 0);
}

/* ---- The actor ------------------------------------------------------------------------------------------------- */

/* Watches all others. Its own rank asks for this once all actors are there. Workers that were started again are here once they
 * join. */
static tutti_status watch_all(tutti_server *server, tutti_actor *self, tutti_request *request)
{
    const unsigned char *here = (const unsigned char *)request->data + sizeof(struct tti_server_call);
    const int told = (int)(request->bytes - sizeof(struct tti_server_call));
    if (told > server->workers && !tti_shard_grow(server, told))
        return tutti_request_refuse(request, TUTTI_ERR_MEMORY, "server: no memory for more workers");
    for (int w = 0; w < told; w++) server->members[w].here = here[w] != 0;
    server->lost = (tutti_error){0};
    for (int w = 0; w < server->workers; w++)
        TTI_TRY(tutti_actor_watch(self, tti_worker_rank(server, w), TTI_WORKER_ACTOR));
    for (int s = 0; s < server->options.servers; s++) {
        const int rank = tti_server_rank(server, s);
        if (rank != server->rank) TTI_TRY(tutti_actor_watch(self, rank, TTI_SERVER_ACTOR));
    }
    return tutti_request_answer(request, NULL, 0);
}

static tutti_status dispatch(tutti_server *server, tutti_actor *self, tutti_request *request,
                             const struct tti_server_call *call)
{
    switch ((enum tti_server_what)call->what) {
    case TTI_SERVER_STAGE: return stage(server, request, call);
    case TTI_SERVER_COMMIT:
    case TTI_SERVER_MEET: return tti_lead_commit(server, request);
    case TTI_SERVER_SUM: return sum(server, request, call);
    case TTI_SERVER_APPLY: return apply(server, request, call);
    case TTI_SERVER_READ:
    case TTI_SERVER_WRITE: return move(server, request, call);
    case TTI_SERVER_STEPS: return set_steps(server, request, call);
    case TTI_SERVER_JOIN: return join(server, request);
    case TTI_SERVER_LEAVE: return handle_leave(server, request);
    case TTI_SERVER_WAIT: return tti_lead_wait(server, request);
    case TTI_SERVER_WATCH: return watch_all(server, self, request);
    case TTI_SERVER_SERVE: return serve(server, request);
    case TTI_SERVER_PAUSE: return pause_all(server, request);
    }
    return refuse_count(request);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    tutti_server *server = state;
    if (request->kind == TUTTI_ENDED) return ended(server, request);
    if (request->kind == TUTTI_TIMER) {
        tti_lead_expire(server, self);
        return TUTTI_OK;
    }
    const struct tti_server_call *call = request->data;
    if (request->kind != TUTTI_ASKED || request->bytes < sizeof *call) return refuse_count(request);
    if (server->broken.status != TUTTI_OK && call->what != TTI_SERVER_LEAVE)
        return tutti_request_refuse(request, server->broken.status, server->broken.text);
    const bool waits = call->what == TTI_SERVER_COMMIT || call->what == TTI_SERVER_MEET ||
                       call->what == TTI_SERVER_WAIT;
    if (server->lost.status != TUTTI_OK && (waits || call->what == TTI_SERVER_JOIN))
        return tutti_request_refuse(request, server->lost.status, server->lost.text);
    tutti_status status = dispatch(server, self, request, call);
    if (waits) tti_lead_expire(server, self); /* sets the timer if a worker waits */
    return status;
}

tutti_status tti_server_start(tutti_server *server, tutti_error *error)
{
    tutti_actor_options options = {.struct_size = sizeof options,
                                   .name = TTI_SERVER_ACTOR,
                                   .context = server,
                                   .handle = handle,
                                   .mailbox = 1 << 16,
                                   .restarts = -1,
                                   .pinned = true};
    for (int w = 0; w < server->workers; w++) server->members[w].here = true;
    tutti_status status = tutti_actor_create(server->actors, &options);
    if (status == TUTTI_OK)
        status = tutti_actor_watch_start(server->actors, server->rank, TTI_SERVER_ACTOR, &server->ended);
    if (status != TUTTI_OK && tutti_actors_error(server->actors) != NULL) *error = *tutti_actors_error(server->actors);
    return status;
}
