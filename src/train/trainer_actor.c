/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer as an actor. The actor of rank 0 passes each request to those of all other ranks before it carries it out
 * itself, so that all do the same in the same order; it answers when all have answered.
 *
 * After a rebuild each rank asks its own actor to restore the trainer, which all do together. Invariant: no actor waits
 * for another one that waits for it there. So rank 0 passes nothing on while its trainer's comm is broken, and does not wait for
 * long then; and a part says its epoch, since one that rank 0 has given up may be met after the restore.
 */
#define TUTTI_NO_CALL_SITES
#include "actor/actors.h"
#include "base/alloc.h"
#include "base/status.h"
#include "collective/comm/epoch.h"
#include "train/trainer.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { RESTORE = 100 };      /* a request of the own rank, besides those of tutti_train_request */
enum { PATIENCE_MS = 1000 }; /* how long others may take to notice that the comm is broken */

struct call {
    uint32_t request; /* tutti_train_request, or RESTORE */
    uint32_t part;    /* 1: from rank 0's actor, to be carried out; 0: for all ranks */
    uint64_t epoch;   /* of a part */
    tutti_comm *comm; /* for RESTORE */
};

/* The failure of one rank's part of a request. */
struct failure {
    tutti_status status;
    char text[480];
};

/* The actor's state. */
struct trained {
    tutti_trainer *trainer;
    struct failure over; /* at rank 0: why the trainer's comm is broken, until it is restored */
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
    if (call->epoch != tutti_epoch(t->comm))
        return tutti_request_refuse(request, TUTTI_ERR_EPOCH,
                                    "the trainer was restored, or is to be, since it was asked");
    tutti_status status = carry_out(t, call->request, &step);
    describe(&failure, status, t->error.rank, t->error.text);
    return answer_with(request, &failure, &step);
}

static tutti_status restore(struct trained *trained, tutti_request *request, const struct call *call)
{
    struct failure failure = {0};
    tutti_trainer *t = trained->trainer;
    trained->over = (struct failure){0};
    const tutti_status status = tutti_trainer_restore(t, call->comm);
    const tutti_train_step step = {.struct_size = sizeof step, .step = t->step};
    describe(&failure, status, t->error.rank, t->error.text);
    return answer_with(request, &failure, &step);
}

/* ---- All ranks' ------------------------------------------------------------------------------------------------ */

/* Returns true if nothing can be carried out until the trainer is restored, and why. */
static bool is_over(struct trained *trained, struct failure *failure)
{
    tutti_trainer *t = trained->trainer;
    char text[sizeof failure->text];
    tutti_status status = tti_trainer_usable(t);
    describe(failure, status, t->error.rank, t->error.text);
    if (status != TUTTI_OK || !tti_comm_is_broken(t->comm)) return status != TUTTI_OK;
    if (trained->over.status == TUTTI_OK) {
        status = tti_epoch_is_old(t->comm) ? tti_epoch_refuse_call(t->comm, TTI_ACTOR_ASK)
                                           : tti_comm_notify(t->comm, TTI_ACTOR_ASK);
        (void)snprintf(text, sizeof text, "%.330s; tutti_trainer_actor_restore goes on after a rebuild",
                       tutti_comm_error(t->comm)->text);
        describe(&trained->over, status, tutti_rank(t->comm), text);
    }
    *failure = trained->over;
    return true;
}

/* Waits for the answer to a part: where the comm is broken not for long, see above. */
static tutti_status await_part(const tutti_trainer *t, tutti_op op)
{
    for (;;) {
        tutti_status status = tutti_wait_for(op, PATIENCE_MS);
        if (status != TUTTI_IN_PROGRESS) return status;
        if (!tti_comm_is_broken(t->comm)) continue;
        (void)tutti_cancel(op);
        return tutti_wait(op);
    }
}

/* Carries out a request on all ranks. Rank 0's own failure comes first, since the trainer tells every rank whose it is;
 * otherwise that of the lowest rank. */
static tutti_status do_all(tutti_actor *self, struct trained *trained, tutti_request *request, const struct call *call)
{
    tutti_trainer *t = trained->trainer;
    tutti_actors *actors = tutti_actor_actors(self);
    const struct call part = {.request = call->request, .part = 1, .epoch = tutti_epoch(t->comm)};
    const int size = tutti_size(t->comm);
    struct failure failure = {0};
    tutti_train_step step, unused[size];
    tutti_op ops[size];
    if (is_over(trained, &failure)) return answer_with(request, &failure, &step);
    for (int r = 1; r < size; r++) {
        ops[r] = (tutti_op){0};
        tutti_status asked = tutti_actor_ask_start(actors, r, tutti_actor_name(self), &part, sizeof part, &unused[r],
                                                   sizeof unused[r], NULL, 0, &ops[r]);
        if (asked != TUTTI_OK) describe(&failure, asked, r, tutti_actors_error(actors)->text);
    }
    if (failure.status == TUTTI_OK) {
        tutti_status status = carry_out(t, call->request, &step);
        describe(&failure, status, t->error.rank, t->error.text);
    } else {
        (void)tutti_comm_revoke(t->comm); /* otherwise some would wait for ranks that were not asked */
    }
    for (int r = 1; r < size; r++) {
        tutti_status status = ops[r].id == 0 ? TUTTI_OK : await_part(t, ops[r]);
        if (status != TUTTI_OK) describe(&failure, status, r, tutti_actors_error(actors)->text);
    }
    if (tti_comm_is_broken(t->comm)) trained->over = failure;
    return answer_with(request, &failure, &step);
}

static tutti_status handle(tutti_actor *self, void *state, tutti_request *request)
{
    struct trained *trained = state;
    const struct call *call = request->data;
    const bool asked = request->kind == TUTTI_ASKED && request->bytes == sizeof *call;
    if (asked && call->request == RESTORE && tti_request_of(request)->source < 0)
        return restore(trained, request, call);
    if (!asked || call->request > TUTTI_TRAIN_SAVE)
        return tutti_request_refuse(request, TUTTI_ERR_ARGUMENT, "a trainer is asked by tutti_trainer_ask");
    return call->part != 0 ? do_part(trained->trainer, request, call) : do_all(self, trained, request, call);
}

static void end(tutti_actor *self, void *state)
{
    (void)self;
    tti_free(state);
}

/* ---- For users ------------------------------------------------------------------------------------------------- */

static tutti_status refuse(tutti_actors *actors, const char *call, const char *text)
{
    tutti_error error;
    (void)tti_actors_describe(actors, &error, TTI_ACTORS, TUTTI_ERR_ARGUMENT, -1, "%s: %s", call, text);
    return tti_actors_refuse(actors, &error);
}

/* Returns NULL, or why a trainer of these actors cannot have the comm. */
static const char *check_comm(const tutti_actors *actors, const tutti_comm *comm)
{
    if (comm == actors->parent)
        return "the trainer's comm is the one that the actors were created on, whose collectives no handler may "
               "call; give the trainer a comm of its own (tutti_comm_duplicate)";
    if (tutti_size(comm) != tutti_size(actors->parent) || tutti_rank(comm) != tutti_rank(actors->parent))
        return "the trainer's comm has other ranks than the actors'";
    return NULL;
}

tutti_status tutti_trainer_actor(tutti_trainer *t, tutti_actors *actors, const char *name)
{
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    if (t == NULL) return refuse(actors, "trainer_actor", "there is no trainer");
    if (t->server != NULL)
        return refuse(actors, "trainer_actor", "server: workers of parameter servers take their steps by themselves");
    const char *why = check_comm(actors, t->comm);
    if (why != NULL) return refuse(actors, "trainer_actor", why);
    struct trained *trained = tti_calloc(1, sizeof *trained);
    if (trained == NULL) return TUTTI_ERR_MEMORY;
    trained->trainer = t;
    tutti_actor_options options = {.struct_size = sizeof options,
                                   .name = name,
                                   .context = trained,
                                   .handle = handle,
                                   .stop = end,
                                   .restarts = -1,
                                   .pinned = true};
    tutti_status status = tutti_actor_create(actors, &options);
    if (status != TUTTI_OK) tti_free(trained);
    return status;
}

tutti_status tutti_trainer_actor_restore(tutti_actors *actors, const char *name, tutti_comm *comm, uint64_t *step)
{
    const struct call call = {.request = RESTORE, .comm = comm};
    tutti_train_step answer = {0};
    if (actors == NULL) return TUTTI_ERR_ARGUMENT;
    const char *why = comm == NULL ? "there is no comm" : check_comm(actors, comm);
    if (why != NULL) return refuse(actors, "trainer_actor_restore", why);
    tutti_status status = tutti_actor_ask(actors, actors->comm->rank, name, &call, sizeof call, &answer, sizeof answer,
                                          NULL, 0);
    if (status == TUTTI_OK && step != NULL) *step = answer.step;
    return status;
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
