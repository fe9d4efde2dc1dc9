/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer as an actor. The actor of rank 0 passes each request to those of all other ranks before it carries it out
 * itself, so that all do the same in the same order; it answers when all have answered.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/actors.h"
#include "base/alloc.h"
#include "base/status.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct call {
    uint32_t request; /* tutti_train_request */
    uint32_t part;    /* 1: from rank 0's actor, to be carried out; 0: for all ranks */
};

/* The failure of one rank's part of a request. */
struct failure {
    tutti_status status;
    char text[480];
};

/* ---- One rank's part ------------------------------------------------------------------------------------------- */

static tutti_status carry_out(tutti_trainer *t, uint32_t request, tutti_train_step *answer)
{
    *answer = (tutti_train_step){.struct_size = sizeof *answer, .step = t->step, .idle = NAN, .predicted_idle = NAN};
    if (request == TUTTI_TRAIN_STEP) return tutti_trainer_step(t, answer);
    return request == TUTTI_TRAIN_VALIDATE ? tutti_trainer_validate(t, &answer->loss) : tutti_trainer_save(t);
}

static void describe(struct failure *failure, tutti_status status, int rank, const char *text)
{
    if (status == TUTTI_OK || failure->status != TUTTI_OK) return; /* the first failure counts */
    failure->status = status;
    (void)snprintf(failure->text, sizeof failure->text, "rank %d: %.440s", rank, text);
}

static tutti_status answer_with(tutti_request *request, const struct failure *failure, const tutti_train_step *step)
{
    if (failure->status == TUTTI_OK) return tutti_request_answer(request, step, sizeof *step);
    return tutti_request_refuse(request, failure->status, failure->text);
}

static tutti_status do_part(tutti_trainer *t, tutti_request *request, const struct call *call)
{
    struct failure failure = {0};
    tutti_train_step step;
    tutti_status status = carry_out(t, call->request, &step);
    describe(&failure, status, t->error.rank, t->error.text);
    return answer_with(request, &failure, &step);
}

/* ---- All ranks' ------------------------------------------------------------------------------------------------ */

/* Carries out a request on all ranks. Rank 0's own failure comes first, since the trainer tells every rank whose it is;
 * otherwise that of the lowest rank. */
static tutti_status do_all(tutti_actor *self, tutti_trainer *t, tutti_request *request, const struct call *call)
{
    tutti_actors *actors = tutti_actor_actors(self);
    const struct call part = {call->request, 1};
    const int size = tutti_size(t->comm);
    struct failure failure = {0};
    tutti_train_step step, unused[size];
    tutti_op ops[size];
    for (int r = 1; r < size; r++) {
        ops[r] = (tutti_op){0};
        tutti_status asked = tutti_actor_ask_start(actors, r, tutti_actor_name(self), &part, sizeof part, &unused[r],
                                                   sizeof unused[r], NULL, 0, &ops[r]);
        if (asked != TUTTI_OK) describe(&failure, asked, r, tutti_actors_error(actors)->text);
    }
    const bool asked_all = failure.status == TUTTI_OK;
    if (asked_all) { /* otherwise some would wait for ranks that were not asked */
        tutti_status status = carry_out(t, call->request, &step);
        describe(&failure, status, t->error.rank, t->error.text);
    }
    for (int r = 1; r < size; r++) {
        if (ops[r].id == 0) continue;
        if (!asked_all) (void)tutti_comm_revoke(t->comm);
        tutti_status status = tutti_wait(ops[r]);
        if (status != TUTTI_OK) describe(&failure, status, r, tutti_actors_error(actors)->text);
    }
    return answer_with(request, &failure, &step);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    tutti_trainer *t = state;
    const struct call *call = request->data;
    if (request->kind != TUTTI_ASKED || request->bytes != sizeof *call || call->request > TUTTI_TRAIN_SAVE)
        return tutti_request_refuse(request, TUTTI_ERR_ARGUMENT, "a trainer is asked by tutti_trainer_ask");
    return call->part != 0 ? do_part(t, request, call) : do_all(self, t, request, call);
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

static tutti_status refuse(tutti_actors *actors, const char *text)
{
    tutti_error error;
    (void)tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1, "trainer_actor: %s", text);
    return tti_actors_refuse(actors, &error);
}

tutti_status tutti_trainer_actor(tutti_trainer *t, tutti_actors *actors, const char *name)
{
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (t == NULL) return refuse(actors, "there is no trainer");
    if (t->server != NULL) return refuse(actors, "server: workers of parameter servers take their steps by themselves");
    if (t->comm == actors->parent)
        return refuse(actors,
                      "the trainer's comm is the one that the actors were created on, whose collectives no handler may "
                      "call; give the trainer a comm of its own (tutti_comm_duplicate)");
    if (tutti_size(t->comm) != tutti_size(actors->parent) || tutti_rank(t->comm) != tutti_rank(actors->parent))
        return refuse(actors, "the trainer's comm has other ranks than the actors'");
    tutti_actor_options options = {
        .struct_size = sizeof options, .name = name, .context = t, .handle = handle, .pinned = true};
    return tutti_actor_create(actors, &options);
}

tutti_status tutti_trainer_ask_start(tutti_actors *actors, const char *name, tutti_train_request request,
                                     tutti_train_step *answer, int64_t deadline_ms, tutti_op *op)
{
    const struct call call = {.request = (uint32_t)request};
    return tutti_actor_ask_start(actors, 0, name, &call, sizeof call, answer, sizeof *answer, NULL, deadline_ms, op);
}

tutti_status tutti_trainer_ask(tutti_actors *actors, const char *name, tutti_train_request request,
                               tutti_train_step *answer, int64_t deadline_ms)
{
    const struct call call = {.request = (uint32_t)request};
    tutti_train_step unused;
    return tutti_actor_ask(actors, 0, name, &call, sizeof call, answer == NULL ? &unused : answer, sizeof *answer, NULL,
                           deadline_ms);
}
