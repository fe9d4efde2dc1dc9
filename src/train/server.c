/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes and frees a parameter server, and keeps its errors. Everything is made on every rank, and every rank learns of
 * the first failure.
 */
#define TUTTI_NO_CALL_SITES
#include "train/server.h"

#include "base/alloc.h"
#include "base/sized.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include "train/parameter_list.h"
#include "train/trainer.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- Errors ---------------------------------------------------------------------------------------------------- */

tutti_status tti_server_fail(tutti_server *server, const char *call, tutti_status status, int peer, const char *format,
                             ...)
{
    va_list arguments;
    server->error = (tutti_error){.status = status, .rank = server->rank, .peer = peer};
    (void)snprintf(server->error.operation, sizeof server->error.operation, "server_%s", call);
    va_start(arguments, format);
    (void)vsnprintf(server->error.text, sizeof server->error.text, format, arguments);
    va_end(arguments);
    tti_comm_note(server->comm, &server->error);
    return status;
}

tutti_status tti_server_request_failed(tutti_server *server, const char *call, tutti_status status, int peer)
{
    const tutti_error *why = tutti_actors_error(server->actors);
    const bool known = why != NULL && why->status == status;
    return tti_server_fail(server, call, status, peer, "parameter server on rank %d: %.400s", peer,
                           known ? why->text : tutti_status_text(status));
}

const tutti_error *tutti_server_error(const tutti_server *server)
{
    return server == NULL || server->error.status == TUTTI_OK ? NULL : &server->error;
}

bool tutti_server_serves(const tutti_server *server)
{
    return server != NULL && server->serves;
}

/* ---- What is asked for ----------------------------------------------------------------------------------------- */

static tutti_status check_options(const tutti_comm *comm, const tutti_server_options *options, tutti_error *error)
{
    const int size = tutti_size(comm);
    if (options->servers < 1 || options->servers >= size)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "%d parameter servers of %d ranks: at least one rank serves, and one works",
                             options->servers, size);
    if (options->staleness < 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "a staleness of %d: it is 0 (all workers together) or the steps that one may be ahead",
                             options->staleness);
    if (!(options->clip >= 0) || options->deadline_ms < 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "clip %g and a deadline of %lld ms must be 0 or more",
                             options->clip, (long long)options->deadline_ms);
    return TUTTI_OK;
}

/* Compares the settings that must be the same on every rank. */
tutti_status tti_server_compare(tutti_server *server, tutti_error *error)
{
    const double mine[] = {server->options.servers, server->options.staleness, server->options.clip,
                           (double)server->count, (double)server->elements};
    double all[sizeof mine / sizeof *mine];
    memcpy(all, mine, sizeof all);
    tutti_status status = tutti_broadcast(tti_inside(server->comm, "server", "compare"), all, all,
                                          sizeof all / sizeof *all, TUTTI_F64, 0);
    if (status != TUTTI_OK) {
        *error = *tutti_comm_error(server->comm);
        return status;
    }
    if (memcmp(all, mine, sizeof all) == 0) return TUTTI_OK;
    return tti_error_set(
        error, TUTTI_ERR_MISMATCH, 0,
        "rank %d has %g servers, staleness %g, clip %g, %g parameters of %g elements; rank 0 has %g, %g, "
        "%g, %g of %g",
        server->rank, mine[0], mine[1], mine[2], mine[3], mine[4], all[0], all[1], all[2], all[3], all[4]);
}

static tutti_status make_lists(tutti_server *server, const tutti_server_options *options, tutti_error *error)
{
    size_t unused;
    if (server->rejoined && !server->serves) /* one that has joined the world knows only now that it works */
        TTI_TRY(tti_list_check_needs(server->parameters, server->count, (struct tti_list_needs){true, false}, &unused,
                                     error));
    server->starts = tti_calloc(server->count + 1, sizeof *server->starts);
    if (server->starts == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "server: no memory for a list");
    for (size_t i = 0; i < server->count; i++) server->starts[i + 1] = server->starts[i] + server->parameters[i].count;
    if (options->optimizer == NULL) TTI_TRY(tutti_optimizer_defaults("adamw", &server->settings, error));
    if (options->optimizer != NULL) server->settings = *options->optimizer;
    if (server->serves) return tti_shard_make(server, error);
    server->chunk = tti_malloc(1, sizeof(struct tti_server_call) + TTI_SERVER_CHUNK * sizeof(float));
    if (server->chunk == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "server: no memory to send %zu parameters", server->elements);
    return TUTTI_OK;
}

/* ---- First values ---------------------------------------------------------------------------------------------- */

/* Sends rank 0's values to all workers, and to each server those of its part. */
static tutti_status share_values(tutti_server *server, tutti_error *error)
{
    float *chunk = tti_malloc(TTI_SERVER_CHUNK, sizeof *chunk);
    tutti_status status = chunk == NULL ? tti_error_set(error, TUTTI_ERR_MEMORY, 0, "server: no memory") : TUTTI_OK;
    TTI_TRY(tti_agree(server->comm, status, error));
    for (size_t i = 0; i < server->count; i++)
        for (size_t from = 0; status == TUTTI_OK && from < server->parameters[i].count; from += TTI_SERVER_CHUNK) {
            const size_t left = server->parameters[i].count - from,
                         count = left < TTI_SERVER_CHUNK ? left : TTI_SERVER_CHUNK;
            float *to = server->serves ? chunk : server->parameters[i].value + from;
            status = tutti_broadcast(tti_inside(server->comm, "server", server->parameters[i].name), to, to, count,
                                     TUTTI_F32, 0);
            const struct tti_span span = server->shard.span;
            for (size_t k = 0; server->serves && k < count; k++) {
                const size_t element = server->starts[i] + from + k;
                if (element >= span.lo && element < span.hi) server->shard.values[element - span.lo] = chunk[k];
            }
        }
    tti_free(chunk);
    if (status != TUTTI_OK) *error = *tutti_comm_error(server->comm);
    return status;
}

/* ---- Actors ---------------------------------------------------------------------------------------------------- */

/* The handler of a worker's actor, which only exists to be watched. */
static tutti_status refuse_all(tutti_actor *self, void *state, tutti_request *request)
{
    (void)self, (void)state;
    return tutti_request_refuse(request, TUTTI_ERR_ACTOR, "a worker of a parameter server is asked nothing");
}

tutti_status tti_server_actors_failed(tutti_server *server, tutti_status status, tutti_error *error)
{
    const tutti_error *why = server->actors == NULL ? tutti_comm_error(server->comm)
                                                    : tutti_actors_error(server->actors);
    if (status != TUTTI_OK && why != NULL) *error = *why;
    return status;
}

/* Returns the largest size of a request: a chunk, a push of many grains, or sums of squares of a shard. */
static size_t payload_bytes(const tutti_server *server)
{
    const size_t chunk = sizeof(struct tti_server_call) + TTI_SERVER_CHUNK * sizeof(float);
    const size_t sums = (server->elements / TTI_BLOCK + server->count + 1) * sizeof(double);
    return chunk > sums ? chunk : sums;
}

tutti_actors_options tti_server_actors_options(const tutti_server *server)
{
    return (tutti_actors_options){
        .struct_size = sizeof(tutti_actors_options), .threads = 1, .payload_bytes = payload_bytes(server)};
}

tutti_status tti_server_make_worker(tutti_server *server, tutti_error *error)
{
    tutti_actor_options options = {
        .struct_size = sizeof options, .name = TTI_WORKER_ACTOR, .handle = refuse_all, .context = server};
    if (server->serves) return TUTTI_OK;
    return tti_server_actors_failed(server, tutti_actor_create(server->actors, &options), error);
}

static tutti_status watch(tutti_server *server, tutti_error *error)
{
    const struct tti_server_call call = {.what = TTI_SERVER_WATCH};
    if (!server->serves) return TUTTI_OK;
    return tti_server_actors_failed(
        server, tutti_actor_ask(server->actors, server->rank, TTI_SERVER_ACTOR, &call, sizeof call, NULL, 0, NULL, 0),
        error);
}

/* Makes the actors: those of workers before servers, and those before the first push. */
static tutti_status make_actors(tutti_server *server, tutti_error *error)
{
    const tutti_actors_options options = tti_server_actors_options(server);
    tutti_status status = tutti_actors_create(tti_inside(server->comm, "server", "actors"), &options, &server->actors);
    TTI_TRY(tti_server_actors_failed(server, status, error));
    TTI_TRY(tti_agree(server->comm, tti_server_make_worker(server, error), error));
    status = server->serves ? tti_server_start(server, error) : TUTTI_OK;
    TTI_TRY(tti_agree(server->comm, status, error));
    return tti_agree(server->comm, watch(server, error), error);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

static tutti_status make(tutti_server *server, const tutti_server_options *options, tutti_error *error)
{
    struct tti_server_presence all[tutti_size(server->comm)];
    if (tutti_epoch(server->comm) > 0) TTI_TRY(tti_server_find_others(server, all, &server->rejoined, error));
    TTI_TRY(tti_agree(server->comm, tti_server_compare(server, error), error));
    TTI_TRY(tti_agree(server->comm, make_lists(server, options, error), error));
    if (server->rejoined) return tti_server_come_back(server, all, true, error);
    TTI_TRY(share_values(server, error));
    return make_actors(server, error);
}

/* Does the checks that this rank can do by itself; the others learn of the result. */
static tutti_status prepare(tutti_comm *comm, const tutti_server_options *options, const tutti_parameter *parameters,
                            size_t count, size_t *elements, tutti_error *error)
{
    TTI_TRY(check_options(comm, options, error));
    const bool works = tutti_rank(comm) < tutti_size(comm) - options->servers;
    TTI_TRY(tti_list_check_needs(parameters, count, (struct tti_list_needs){works, false}, elements, error));
    if (*elements == 0) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "server: there are no parameters");
    return TUTTI_OK;
}

tutti_status tti_server_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                               const struct tti_server_tie *tie, const tutti_server_options *options,
                               tutti_server **server, tutti_error *error)
{
    size_t elements = 0;
    tutti_server *made = NULL;
    tutti_status status = prepare(comm, options, parameters, count, &elements, error);
    if (status == TUTTI_OK && (made = tti_calloc(1, sizeof *made)) == NULL)
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "server: no memory");
    status = tti_agree(comm, status, error);
    if (status == TUTTI_OK) {
        const int rank = tutti_rank(comm), workers = tutti_size(comm) - options->servers;
        *made = (tutti_server){.comm = comm,
                               .options = *options,
                               .rank = rank,
                               .first = workers,
                               .workers = workers,
                               .serves = rank >= workers,
                               .heals = tutti_comm_can_rebuild(comm),
                               .parameters = parameters,
                               .count = count,
                               .elements = elements,
                               .tie = tie == NULL ? (struct tti_server_tie){0} : *tie};
        status = make(made, options, error);
    }
    if (status != TUTTI_OK)
        tutti_server_free(made);
    else
        *server = made;
    return status;
}

tutti_status tutti_server_create(tutti_comm *comm, const tutti_parameter *parameters, size_t count,
                                 const tutti_server_options *given, tutti_server **server, tutti_error *error)
{
    tutti_server_options options = {0};
    tutti_error unused;
    if (error == NULL) error = &unused;
    if (server != NULL) *server = NULL;
    *error = (tutti_error){.rank = tutti_rank(comm), .peer = -1, .operation = "server_create"};
    const bool taken = given == NULL || tti_sized_take(&options, sizeof options, given);
    if (options.servers == 0) options.servers = 1;
    tutti_status status;
    if (comm == NULL || server == NULL)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "a parameter server needs a comm and a place to go");
    else if (!taken)
        status = tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                               "server_create: set struct_size to sizeof(tutti_server_options); nothing of it is read");
    else
        status = tti_server_create(comm, parameters, count, NULL, &options, server, error);
    if (status != TUTTI_OK) tti_comm_note(comm, error);
    return status;
}

/* ---- A server's turn, and the end ------------------------------------------------------------------------------ */

/* Asks the own actor to say when serving ends. ERR_ACTOR: it has ended before it was asked. */
static tutti_status wait_for_loss(tutti_server *server)
{
    const struct tti_server_call call = {.what = TTI_SERVER_SERVE};
    for (;;) {
        tutti_status status = tutti_actor_ask(server->actors, server->rank, TTI_SERVER_ACTOR, &call, sizeof call, NULL,
                                              0, NULL, 0);
        if (status != TUTTI_ERR_TIMEOUT) return status;
    }
}

tutti_status tutti_server_serve(tutti_server *server)
{
    if (server == NULL || !server->serves)
        return server == NULL
                   ? TUTTI_ERR_ARGUMENT
                   : tti_server_fail(server, "serve", TUTTI_ERR_ARGUMENT, -1, "rank %d is a worker", server->rank);
    tutti_status asked = wait_for_loss(server);
    if (asked != TUTTI_OK && asked != TUTTI_ERR_ACTOR)
        return tti_server_request_failed(server, "serve", asked, server->rank);
    if (server->ended.id != 0) {
        tutti_status status = tutti_wait(server->ended);
        server->ended = (tutti_op){0};
        if (status != TUTTI_OK) return tti_server_request_failed(server, "serve", status, server->rank);
    }
    if (server->broken.status == TUTTI_OK) return TUTTI_OK;
    return tti_server_fail(server, "serve", server->broken.status, server->broken.peer, "%s", server->broken.text);
}

void tutti_server_free(tutti_server *server)
{
    if (server == NULL) return;
    if (!server->serves && server->actors != NULL && !server->left) (void)tutti_server_leave(server);
    if (server->ended.id != 0) (void)tutti_drop(server->ended);
    (void)tutti_actors_free(server->actors);
    tti_shard_free(server);
    tti_free(server->starts);
    tti_free(server->flat);
    tti_free(server->chunk);
    tti_free(server);
}
