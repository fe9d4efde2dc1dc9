/* SPDX-License-Identifier: Apache-2.0
 *
 * A worker sends its gradients to all servers and a commit to the lead, and reads values from all servers.
 */
#define TUTTI_NO_CALL_SITES
#include "train/server.h"

#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include <math.h>
#include <string.h>

/* ---- Many requests at once --------------------------------------------------------------------------------------- */

enum { IN_FLIGHT = 16, GRACE_MS = 2000 };

/* Requests to servers that have not ended. */
struct flight {
    tutti_server *server;
    const char *call; /* "push", for errors */
    tutti_op ops[IN_FLIGHT];
    int peers[IN_FLIGHT];
    int next;
    tutti_status status; /* the first failure */
};

static void note(struct flight *flight, tutti_status status, int peer)
{
    if (status == TUTTI_OK || flight->status != TUTTI_OK) return;
    flight->status = tti_server_request_failed(flight->server, flight->call, status, peer);
}

static void land(struct flight *flight, int index)
{
    if (flight->ops[index].id == 0) return;
    note(flight, tutti_wait(flight->ops[index]), flight->peers[index]);
    flight->ops[index] = (tutti_op){0};
}

static void send(struct flight *flight, int peer, const void *data, size_t bytes, void *answer, size_t room)
{
    const int index = flight->next++ % IN_FLIGHT;
    land(flight, index);
    if (flight->status != TUTTI_OK) return;
    flight->peers[index] = peer;
    note(flight,
         tutti_actor_ask_start(flight->server->actors, peer, TTI_SERVER_ACTOR, data, bytes, answer, room, NULL, 0,
                               &flight->ops[index]),
         peer);
}

static tutti_status land_all(struct flight *flight)
{
    for (int i = 0; i < IN_FLIGHT; i++) land(flight, (flight->next + i) % IN_FLIGHT);
    return flight->status;
}

static tutti_status check_worker(tutti_server *server, const char *call)
{
    if (server == NULL) return TUTTI_ERR_ARGUMENT;
    server->error = (tutti_error){.rank = server->rank, .peer = -1};
    if (!server->serves) return TUTTI_OK;
    return tti_server_fail(server, call, TUTTI_ERR_ARGUMENT, -1,
                           "rank %d is a server: it serves (tutti_server_serve), and the ranks below %d work",
                           server->rank, server->first);
}

/* ---- Arrays of all elements -------------------------------------------------------------------------------------- */

/* Cuts a run into chunks and sends each, with its data behind the call; at least one. `from`: where the run begins
 * among the server's elements. */
static void send_run(struct flight *flight, int peer, struct tti_server_call call, const float *run, size_t count)
{
    unsigned char *chunk = flight->server->chunk;
    size_t done = 0;
    const uint64_t from = call.from;
    do {
        const size_t left = count - done, part = left < TTI_SERVER_CHUNK ? left : TTI_SERVER_CHUNK;
        call.from = from + done;
        call.count = part;
        memcpy(chunk, &call, sizeof call);
        if (part > 0) memcpy(chunk + sizeof call, run + done, part * sizeof *run);
        send(flight, peer, chunk, sizeof call + part * sizeof *run, NULL, 0);
        done += part;
    } while (done < count);
}

tutti_status tti_server_write(tutti_server *server, int index, const float *all)
{
    struct flight flight = {.server = server, .call = "write"};
    for (int s = 0; s < server->options.servers; s++) {
        const struct tti_span span = tti_server_span(server, s);
        const struct tti_server_call call = {.what = TTI_SERVER_WRITE, .index = (uint32_t)index};
        send_run(&flight, tti_server_rank(server, s), call, all + span.lo, span.hi - span.lo);
    }
    return land_all(&flight);
}

tutti_status tti_server_read(tutti_server *server, int index, float *all)
{
    struct flight flight = {.server = server, .call = "pull"};
    for (int s = 0; s < server->options.servers; s++) {
        const struct tti_span span = tti_server_span(server, s);
        for (size_t lo = span.lo; lo < span.hi; lo += TTI_SERVER_CHUNK) {
            const size_t hi = span.hi - lo < TTI_SERVER_CHUNK ? span.hi : lo + TTI_SERVER_CHUNK;
            const struct tti_server_call call = {
                .what = TTI_SERVER_READ, .index = (uint32_t)index, .from = lo - span.lo, .count = hi - lo};
            send(&flight, tti_server_rank(server, s), &call, sizeof call, all + lo, (hi - lo) * sizeof *all);
        }
    }
    return land_all(&flight);
}

static tutti_status ask_all(tutti_server *server, const char *name, const struct tti_server_call *call, uint64_t *lead)
{
    struct flight flight = {.server = server, .call = name};
    uint64_t answers[server->options.servers];
    for (int s = 0; s < server->options.servers; s++)
        send(&flight, tti_server_rank(server, s), call, sizeof *call, lead == NULL ? NULL : &answers[s],
             lead == NULL ? 0 : sizeof answers[s]);
    TTI_TRY(land_all(&flight));
    if (lead != NULL) *lead = answers[0];
    return TUTTI_OK;
}

tutti_status tti_server_set_steps(tutti_server *server, uint64_t steps, uint64_t updates)
{
    const struct tti_server_call call = {.what = TTI_SERVER_STEPS, .from = steps, .count = updates};
    server->step = steps;
    return ask_all(server, "resume", &call, NULL);
}

/* ---- Pushing ----------------------------------------------------------------------------------------------------- */

static tutti_status stage(tutti_server *server, const struct tti_server_push *push)
{
    struct flight flight = {.server = server, .call = "push"};
    for (int i = 0; i < push->subtrees; i++)
        for (int s = 0; s < server->options.servers; s++) {
            const struct tti_span span = tti_server_span(server, s), tied = tti_server_tied(server, span);
            struct tti_server_call call = {.what = TTI_SERVER_STAGE, .index = (uint32_t)i};
            send_run(&flight, tti_server_rank(server, s), call, push->gradients[i] + span.lo, span.hi - span.lo);
            if (tied.hi == tied.lo) continue;
            call.from = span.hi - span.lo;
            send_run(&flight, tti_server_rank(server, s), call, push->tied[i] + tied.lo, tied.hi - tied.lo);
        }
    return land_all(&flight);
}

static size_t commit_bytes(const struct tti_server_push *push)
{
    return sizeof(struct tti_server_commit) + (size_t)push->subtrees * sizeof *push->spans +
           push->loss_count * sizeof *push->losses;
}

static void fill_commit(const tutti_server *server, const struct tti_server_push *push,
                        const struct tti_server_commit *given, unsigned char *to)
{
    struct tti_server_commit commit = *given;
    commit.ahead = push->push.catch_up ? 0 : server->options.staleness;
    commit.rate = push->push.rate;
    commit.stop = push->stop;
    commit.leaves = (uint32_t)push->leaves;
    commit.subtrees = (uint32_t)push->subtrees;
    commit.losses = (uint32_t)push->loss_count;
    memcpy(to, &commit, sizeof commit);
    to += sizeof commit;
    if (push->subtrees > 0) memcpy(to, push->spans, (size_t)push->subtrees * sizeof *push->spans);
    to += (size_t)push->subtrees * sizeof *push->spans;
    if (push->loss_count > 0) memcpy(to, push->losses, push->loss_count * sizeof *push->losses);
}

static tutti_status commit(tutti_server *server, const char *call, const struct tti_server_push *push,
                           enum tti_server_what what, uint64_t hash, struct tti_server_done *done)
{
    const int64_t given = server->options.deadline_ms;
    const int64_t deadline_ms = given != 0 ? given : server->comm->world->options.deadline_ms;
    const struct tti_server_commit commit = {.call = {.what = what}, .deadline_ms = deadline_ms, .hash = hash};
    const size_t bytes = commit_bytes(push);
    unsigned char *data = tti_malloc(1, bytes);
    if (data == NULL) return tti_server_fail(server, call, TUTTI_ERR_MEMORY, -1, "no memory for a %s", call);
    fill_commit(server, push, &commit, data);
    tutti_status status = tutti_actor_ask(server->actors, tti_server_lead(server), TTI_SERVER_ACTOR, data, bytes, done,
                                          sizeof *done, NULL, deadline_ms + GRACE_MS);
    tti_free(data);
    return status == TUTTI_OK ? status : tti_server_request_failed(server, call, status, tti_server_lead(server));
}

tutti_status tti_server_push(tutti_server *server, const struct tti_server_push *push, struct tti_server_done *done)
{
    TTI_TRY(stage(server, push));
    TTI_TRY(commit(server, "push", push, TTI_SERVER_COMMIT, 0, done));
    server->step = done->step;
    return TUTTI_OK;
}

tutti_status tti_server_meet(tutti_server *server, const struct tti_server_meeting *meeting,
                             struct tti_server_done *met)
{
    const struct tti_server_push push = {
        .leaves = meeting->leaves, .losses = meeting->losses, .loss_count = meeting->loss_count};
    return commit(server, "meet", &push, TTI_SERVER_MEET, meeting->hash, met);
}

tutti_status tti_server_wait(tutti_server *server)
{
    const struct tti_server_push nothing = {0};
    struct tti_server_done done = {0};
    TTI_TRY(commit(server, "renew", &nothing, TTI_SERVER_WAIT, 0, &done));
    server->step = done.step;
    return TUTTI_OK;
}

/* Makes the memory through which parameters are sent. */
static tutti_status make_flat(tutti_server *server, const char *call)
{
    if (server->flat == NULL) server->flat = tti_malloc(server->elements + 1, sizeof *server->flat);
    if (server->flat != NULL) return TUTTI_OK;
    return tti_server_fail(server, call, TUTTI_ERR_MEMORY, -1, "no memory to send %zu parameters", server->elements);
}

static tutti_status check_push(tutti_server *server, const tutti_push *push)
{
    if (push == NULL || push->struct_size == 0)
        return tti_server_fail(server, "push", TUTTI_ERR_ARGUMENT, -1, "a push needs a rate and a count of samples");
    if (!isfinite(push->rate) || !(push->count >= 0) || !isfinite(push->count))
        return tti_server_fail(server, "push", TUTTI_ERR_ARGUMENT, -1,
                               "a rate of %g and %g samples: both must be finite, and samples 0 or more", push->rate,
                               push->count);
    if (server->left)
        return tti_server_fail(server, "push", TUTTI_ERR_ARGUMENT, -1,
                               "rank %d has left: tutti_server_join comes before a push", server->rank);
    for (size_t i = 0; i < server->count; i++)
        if (server->parameters[i].gradient == NULL && server->parameters[i].count > 0)
            return tti_server_fail(server, "push", TUTTI_ERR_ARGUMENT, -1,
                                   "parameter %zu, \"%.64s\": its gradient is NULL", i, server->parameters[i].name);
    return TUTTI_OK;
}

tutti_status tutti_server_push(tutti_server *server, const tutti_push *push, tutti_pushed *pushed)
{
    TTI_TRY(check_worker(server, "push"));
    TTI_TRY(check_push(server, push));
    TTI_TRY(make_flat(server, "push"));
    const uint32_t leaf = (uint32_t)tti_worker_of(server, server->rank);
    const struct tti_server_subtree span = {leaf, leaf + 1};
    const struct tti_server_loss loss = {leaf, push->loss, push->count};
    const struct tti_server_push all = {.push = *push,
                                        .leaves = server->workers,
                                        .subtrees = 1,
                                        .spans = &span,
                                        .gradients = &server->flat,
                                        .losses = &loss,
                                        .loss_count = 1};
    for (size_t i = 0; i < server->count; i++)
        memcpy(server->flat + server->starts[i], server->parameters[i].gradient,
               server->parameters[i].count * sizeof(float));
    struct tti_server_done done = {0};
    TTI_TRY(tti_server_push(server, &all, &done));
    if (pushed != NULL)
        *pushed = (tutti_pushed){.struct_size = sizeof *pushed,
                                 .step = done.step,
                                 .updates = done.updates,
                                 .loss = done.loss,
                                 .norm = done.norm,
                                 .count = done.count,
                                 .ahead = done.ahead};
    return TUTTI_OK;
}

/* ---- Pulling, coming and going ------------------------------------------------------------------------------------ */

tutti_status tutti_server_pull(tutti_server *server)
{
    TTI_TRY(check_worker(server, "pull"));
    TTI_TRY(make_flat(server, "pull"));
    TTI_TRY(tti_server_read(server, 0, server->flat));
    for (size_t i = 0; i < server->count; i++)
        memcpy(server->parameters[i].value, server->flat + server->starts[i],
               server->parameters[i].count * sizeof(float));
    return TUTTI_OK;
}

tutti_status tutti_server_leave(tutti_server *server)
{
    TTI_TRY(check_worker(server, "leave"));
    if (server->left) return TUTTI_OK;
    server->left = true;
    const struct tti_server_call call = {.what = TTI_SERVER_LEAVE};
    return ask_all(server, "leave", &call, NULL);
}

tutti_status tutti_server_pause(tutti_server *server)
{
    TTI_TRY(check_worker(server, "pause"));
    const struct tti_server_call call = {.what = TTI_SERVER_PAUSE};
    return ask_all(server, "pause", &call, NULL);
}

tutti_status tutti_server_join(tutti_server *server)
{
    TTI_TRY(check_worker(server, "join"));
    const struct tti_server_call call = {.what = TTI_SERVER_JOIN};
    TTI_TRY(ask_all(server, "join", &call, &server->step));
    server->left = false;
    return TUTTI_OK;
}
