/* SPDX-License-Identifier: Apache-2.0 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "collective/api/heal.h"
#include "collective/comm/comm.h"
#include "nn/pass.h"
#include "train/ddp.h"
#include "train/trainer.h"
#include <math.h>
#include <string.h>

/* ---- What does not go with it ------------------------------------------------------------------------------------ */

static tutti_status refuse(const struct tutti_trainer *t, const char *what, const char *why, tutti_error *error)
{
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "server %lld does not go with %.80s: %s",
                         (long long)t->options.server, what, why);
}

static tutti_status check_others(const struct tutti_trainer *t, tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    char what[120];
    (void)snprintf(what, sizeof what, "mesh %.100s", o->mesh);
    if (o->mesh[0] != '\0')
        return refuse(t, what, "its workers are all data parallel; leave the mesh out (data, shard, pipe, tensor)",
                      error);
    (void)snprintf(what, sizeof what, "zero %lld", (long long)o->zero);
    if (o->zero != 0) return refuse(t, what, "servers share out weights and the optimizer's state already", error);
    (void)snprintf(what, sizeof what, "type %.40s", o->type);
    if (strcmp(o->type, "f32") != 0) return refuse(t, what, "what is pushed and pulled is f32", error);
    if (o->batch_norm)
        return refuse(t, "batch_norm", "its workers go each at their own pace, and do not meet over a batch", error);
    if (o->save_async)
        return refuse(t, "save_async", "one worker writes a checkpoint, and the others do not wait for it", error);
    return TUTTI_OK;
}

tutti_status tti_trainer_server_check(const struct tutti_trainer *t, tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    if (o->server == 0 && o->staleness == 0) return TUTTI_OK;
    if (o->server == 0)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "staleness %lld is how far a worker of parameter servers may be ahead: say how many ranks "
                             "serve, with server",
                             (long long)o->staleness);
    if (t->server == NULL) return refuse(t, "a plan", "only layouts in which all ranks work are planned", error);
    if (o->fast && o->batch < t->server->workers)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "server %lld with fast: %lld samples are too few for %d workers", (long long)o->server,
                             (long long)o->batch, t->server->workers);
    return check_others(t, error);
}

/* ---- Making ------------------------------------------------------------------------------------------------------- */

/* Returns the comm of all, for a collective that is a part of the trainer's call. */
static tutti_comm *all_of(const struct tutti_trainer *t, const char *what)
{
    return tti_inside(tutti_at(t->server->all, t->here.file, t->here.line), "trainer", what);
}

static tutti_status make_part(struct tutti_trainer *t, tutti_error *error)
{
    const int64_t ranks = tutti_size(t->comm), servers = t->options.server;
    if (servers >= ranks)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "server %lld: the last %lld of %lld rank%s would serve, and none is left to work; give "
                             "more ranks",
                             (long long)servers, (long long)servers, (long long)ranks, ranks == 1 ? "" : "s");
    t->server = tti_calloc(1, sizeof *t->server);
    if (t->server == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a trainer");
    *t->server = (struct tti_trainer_server){.all = t->comm, .workers = (int)(ranks - servers)};
    return TUTTI_OK;
}

/* Gives a worker a world of its own, which stays when that of all ranks is rebuilt: workers meet at the servers only. */
static tutti_status join_own(struct tutti_trainer *t, tutti_error *error)
{
    tutti_options options = t->server->all->world->options;
    options.board = options.trace = options.master_addr = "";
    if (tutti_rank(t->server->all) >= t->server->workers) return TUTTI_OK;
    return tti_join_alone(&options, 1, &t->server->own, error);
}

/* Decides which ranks work and which serve, before anything else is made. */
static tutti_status split(struct tutti_trainer *t, tutti_error *error)
{
    tutti_comm *all = t->comm;
    tutti_status status = make_part(t, error);
    if (status == TUTTI_OK) status = join_own(t, error);
    TTI_TRY(tti_agree(tutti_at(all, t->here.file, t->here.line), status, error));
    t->comm = t->server->own; /* NULL on a server, which only has a plan */
    t->world_rank = 0;
    t->world_size = 1;
    return TUTTI_OK;
}

static tutti_server_options options_of(const struct tutti_trainer *t, const tutti_optimizer_settings *settings)
{
    return (tutti_server_options){.struct_size = sizeof(tutti_server_options),
                                  .servers = (int)t->options.server,
                                  .staleness = (int)t->options.staleness,
                                  .optimizer = settings,
                                  .clip = t->options.clip};
}

/* ---- What a checkpoint has ----------------------------------------------------------------------------------------- */

static void free_states(struct tutti_trainer *t)
{
    for (int i = 0; i < TTI_OPTIMIZER_STATES; i++) {
        tti_free(t->server->states[i]);
        t->server->states[i] = NULL;
    }
}

static int state_count(const struct tutti_trainer *t)
{
    int count = 0;
    while (count < TTI_OPTIMIZER_STATES && tti_optimizer_state_name(t->options.optimizer, count) != NULL) count++;
    return count;
}

static tutti_status make_states(struct tutti_trainer *t, tutti_error *error)
{
    for (int i = 0; i < state_count(t); i++) {
        t->server->states[i] = tti_calloc_aligned((t->elements + 1) * sizeof(float));
        if (t->server->states[i] == NULL)
            return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the optimizer's state, which servers have");
    }
    return TUTTI_OK;
}

static tutti_status server_failed(const struct tutti_trainer *t, tutti_status status, tutti_error *error)
{
    const tutti_error *why = tutti_server_error(t->server->server);
    if (status != TUTTI_OK && why != NULL) *error = *why;
    return status;
}

/* Gives a checkpoint to the servers; worker 0 has read it. */
static tutti_status give_checkpoint(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_trainer_server *s = t->server;
    const int states = state_count(t);
    TTI_TRY(make_states(t, error));
    TTI_TRY(tti_trainer_read_newest(t, &s->updates, error));
    TTI_TRY(server_failed(t, tti_server_write(s->server, 0, t->values), error));
    for (int i = 0; i < states; i++) TTI_TRY(server_failed(t, tti_server_write(s->server, i + 1, s->states[i]), error));
    return server_failed(t, tti_server_set_steps(s->server, t->step, s->updates), error);
}

static tutti_status resume(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_trainer_server *s = t->server;
    const bool first = tutti_rank(s->all) == 0;
    tutti_status status = first ? give_checkpoint(t, error) : TUTTI_OK;
    free_states(t);
    TTI_TRY(tti_agree(tutti_at(s->all, t->here.file, t->here.line), status, error));
    uint64_t steps[] = {t->step, s->updates};
    status = tutti_broadcast(all_of(t, "resume"), steps, steps, 2, TUTTI_U64, 0);
    if (status == TUTTI_OK)
        status = tutti_broadcast(all_of(t, "resume"), t->resumed_from, t->resumed_from, sizeof t->resumed_from,
                                 TUTTI_U8, 0);
    if (status != TUTTI_OK) *error = *tutti_comm_error(s->all);
    TTI_TRY(status);
    t->step = s->server->step = steps[0];
    s->updates = steps[1];
    status = tutti_server_serves(s->server) ? TUTTI_OK
                                            : server_failed(t, tti_server_read(s->server, 0, t->values), error);
    return tti_agree(tutti_at(s->all, t->here.file, t->here.line), status, error);
}

/* ---- After a loss --------------------------------------------------------------------------------------------------- */

struct taken {
    uint64_t step;
    tutti_train_step last; /* struct_size 0: none */
};

/* Tells a worker that was started again about its last step, as another worker that has made as many knows it. */
static tutti_status share_last(struct tutti_trainer *t, tutti_error *error)
{
    const int size = tutti_size(t->server->all);
    const struct taken mine = {t->step, t->taken};
    struct taken all[size];
    tutti_status status = tutti_all_gather(all_of(t, "restore"), &mine, all, sizeof mine, TUTTI_U8);
    if (status != TUTTI_OK) *error = *tutti_comm_error(t->server->all);
    for (int w = 0; status == TUTTI_OK && w < t->server->workers; w++)
        if (t->taken.struct_size == 0 && all[w].step == t->step) t->taken = all[w].last;
    return status;
}

/* Takes values and steps from the servers, which are there again. */
static tutti_status take_up(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_trainer_server *s = t->server;
    const bool serves = tutti_server_serves(s->server);
    t->step = s->server->step;
    (void)snprintf(t->restored_from, sizeof t->restored_from, "servers");
    tutti_status status = serves ? TUTTI_OK : server_failed(t, tti_server_read(s->server, 0, t->values), error);
    TTI_TRY(tti_agree(tutti_at(s->all, t->here.file, t->here.line), status, error));
    return share_last(t, error);
}

/* ---- All of it ------------------------------------------------------------------------------------------------------ */

static tutti_status make_servers(struct tutti_trainer *t, tutti_status made, tutti_error *error)
{
    struct tti_trainer_server *s = t->server;
    const struct tti_server_tie tie = {t->tie.first, t->tie.elements};
    tutti_optimizer_settings settings;
    if (made == TUTTI_OK) made = tti_trainer_optimizer_settings(t, &settings, error);
    TTI_TRY(tti_agree(tutti_at(s->all, t->here.file, t->here.line), made, error));
    const tutti_server_options options = options_of(t, &settings);
    tutti_status status = tti_server_create(tutti_at(s->all, t->here.file, t->here.line), t->list, t->list_count, &tie,
                                            &options, &s->server, error);
    if (status == TUTTI_OK) tti_trainer_server_watch(t);
    return status;
}

/* Makes workers and servers, the latter with initial values, if none are there already. */
static tutti_status make_all(struct tutti_trainer *t, tutti_error *error)
{
    TTI_TRY(split(t, error));
    return make_servers(t, tti_trainer_make(t, error), error);
}

/* Continues from the newest checkpoint, if there is one. */
static tutti_status start_over(struct tutti_trainer *t, tutti_error *error)
{
    uint64_t some = tutti_rank(t->server->all) == 0 && tti_trainer_has_checkpoint(t);
    tutti_status status = tutti_broadcast(all_of(t, "restore"), &some, &some, 1, TUTTI_U64, 0);
    if (status != TUTTI_OK) *error = *tutti_comm_error(t->server->all);
    TTI_TRY(status);
    (void)snprintf(t->restored_from, sizeof t->restored_from, "start");
    if (some == 0) return TUTTI_OK;
    TTI_TRY(resume(t, error));
    (void)snprintf(t->restored_from, sizeof t->restored_from, "%s", t->resumed_from);
    return TUTTI_OK;
}

/* Returns true for the error that says that a server was lost, which all ranks have learnt together. */
static bool is_server_lost(tutti_status status, const tutti_error *error)
{
    return status == TUTTI_ERR_UNSUPPORTED && error->peer >= 0;
}

static void release(struct tutti_trainer *t, tutti_comm *all)
{
    if (t->server != NULL && t->server->server != NULL) t->server->server->left = true; /* nobody is there to be told */
    tti_trainer_release(t);
    t->comm = all;
    t->world_rank = tutti_rank(all);
    t->world_size = tutti_size(all);
    t->step = 0;
    t->taken = (tutti_train_step){0};
}

/* Nobody has the part of a lost server: makes everything again on all ranks. */
static tutti_status begin_anew(struct tutti_trainer *t, tutti_comm *all, tutti_error *error)
{
    release(t, all);
    *error = (tutti_error){.rank = t->world_rank, .peer = -1};
    TTI_TRY(make_all(t, error));
    t->unmade = false;
    return start_over(t, error);
}

tutti_status tti_trainer_server_create(struct tutti_trainer *t, tutti_error *error)
{
    tutti_comm *all = t->comm;
    const tutti_status status = make_all(t, error);
    if (is_server_lost(status, error)) return begin_anew(t, all, error);
    TTI_TRY(status);
    if (t->server->server->rejoined) return take_up(t, error);
    return t->options.resume ? resume(t, error) : TUTTI_OK;
}

/* Makes the same collectives as creating a trainer, which ranks do that were started again. */
tutti_status tti_trainer_server_restore(struct tutti_trainer *t, tutti_comm *comm, tutti_error *error)
{
    struct tti_trainer_server *s = t->server;
    if (s == NULL || s->server == NULL) { /* it lost what it had when it began anew, and yet another rank was lost */
        release(t, comm);
        return tti_trainer_server_create(t, error);
    }
    s->all = comm;
    TTI_TRY(tti_agree(tutti_at(comm, t->here.file, t->here.line), TUTTI_OK, error)); /* theirs is split, */
    TTI_TRY(tti_agree(tutti_at(comm, t->here.file, t->here.line), TUTTI_OK, error)); /* and made */
    const tutti_status status = tti_server_renew(s->server, tutti_at(comm, t->here.file, t->here.line), error);
    if (is_server_lost(status, error)) return begin_anew(t, comm, error);
    return status == TUTTI_OK ? take_up(t, error) : status;
}

void tti_trainer_server_free(struct tutti_trainer *t)
{
    if (t->server == NULL) return;
    free_states(t);
    tutti_server_free(t->server->server);
    (void)tutti_leave(t->server->own);
    tti_free(t->server);
    t->server = NULL;
}

/* ---- Between workers ------------------------------------------------------------------------------------------------ */

static tutti_status own_error(struct tutti_trainer *t, tutti_status status)
{
    return server_failed(t, status, &t->error);
}

static tutti_status pull(const struct tutti_trainer *t, uint64_t updates)
{
    t->server->updates = updates;
    return tti_server_read(t->server->server, 0, t->values);
}

static tutti_status meet(const struct tutti_trainer *t, const struct tti_server_meeting *meeting,
                         struct tti_server_done *met)
{
    static const struct tti_server_meeting plain = {0};
    const int64_t began = tti_now_ns();
    tutti_status status = tti_server_meet(t->server->server, meeting == NULL ? &plain : meeting, met);
    t->server->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return status;
}

tutti_status tti_trainer_server_sync(const struct tutti_trainer *t)
{
    struct tti_server_done met;
    TTI_TRY(meet(t, NULL, &met));
    TTI_TRY(pull(t, met.updates));
    return meet(t, NULL, &met);
}

/* Lists the losses of this worker's cells. */
static size_t list_losses(const struct tutti_trainer *t, struct tti_server_loss *losses)
{
    size_t count = 0;
    for (size_t c = t->mine.lo; c < t->mine.hi; c++)
        losses[count++] = (struct tti_server_loss){c, t->losses[c].sum, t->losses[c].count};
    return count;
}

/* ---- A step --------------------------------------------------------------------------------------------------------- */

struct part {
    struct tti_server_subtree spans[TUTTI_SUBTREES_MAX];
    float *const *gradients, *const *tied;
    int subtrees;
};

static void describe_part(const struct tutti_trainer *t, struct part *part)
{
    const int *bounds;
    *part = (struct part){.gradients = &t->gradients, .subtrees = 1};
    part->spans[0] = (struct tti_server_subtree){(uint32_t)t->mine.lo, (uint32_t)t->mine.hi};
    if (t->options.fast) return;
    part->subtrees = tutti_ddp_partials(t->ddp, &bounds, &part->gradients);
    for (int i = 0; i < part->subtrees; i++) {
        part->spans[i].lo = (uint32_t)t->mine.lo + (uint32_t)bounds[i];
        part->spans[i].hi = (uint32_t)t->mine.lo + (uint32_t)bounds[i + 1];
    }
    if (t->tie.ddp != NULL) (void)tutti_ddp_partials(t->tie.ddp, &bounds, &part->tied);
}

static tutti_status push(struct tutti_trainer *t, double rate, struct tti_server_done *done)
{
    struct part part;
    struct tti_server_loss losses[t->mine.hi - t->mine.lo + 1];
    describe_part(t, &part);
    const struct tti_server_push push = {.push = {.rate = rate},
                                         .stop = atomic_load_explicit(&t->stop, memory_order_relaxed) != 0,
                                         .leaves = (int)t->cells,
                                         .subtrees = part.subtrees,
                                         .spans = part.spans,
                                         .gradients = part.gradients,
                                         .tied = part.tied,
                                         .losses = losses,
                                         .loss_count = list_losses(t, losses)};
    return own_error(t, tti_server_push(t->server->server, &push, done));
}

/* Reports a value that is not finite, and where it began, if that was on this rank. */
static tutti_status diverged(struct tutti_trainer *t, double rate)
{
    const char *text = "in the part of another worker, or in the sum";
    char mine[200];
    tutti_fault fault;
    if (tutti_pass_fault(t->pass, &fault)) {
        (void)snprintf(mine, sizeof mine, "%s %.64s of layer %.64s has %g at %zu", fault.what, fault.tensor,
                       fault.layer, (double)fault.value, fault.index);
        text = mine;
    }
    return tti_error_set(
        &t->error, TUTTI_ERR_DIVERGED, 0,
        "step %llu: the loss or the norm of the gradient is not finite: %s; a lower learning rate (now "
        "%g) or more warm-up may help",
        (unsigned long long)t->step + 1, text, rate);
}

static tutti_status check_weights(struct tutti_trainer *t, tutti_train_step *step)
{
    const uint64_t every = (uint64_t)t->options.check_every;
    if (every == 0 || t->step % every != 0 || t->options.staleness > 0) return TUTTI_OK;
    step->hashed = true;
    step->hash = tti_trainer_hash(t);
    struct tti_server_done met;
    TTI_TRY(own_error(t, meet(t, &(struct tti_server_meeting){.hash = step->hash}, &met)));
    if (met.odd < 0) return TUTTI_OK;
    return tti_error_set(&t->error, TUTTI_ERR_MISMATCH, 0, "after step %llu rank %d has other weights than rank %d",
                         (unsigned long long)t->step, met.odd, met.lowest);
}

tutti_status tti_trainer_server_step(struct tutti_trainer *t, tutti_train_step *step)
{
    struct tti_server_done done = {0};
    const int64_t began = tti_now_ns();
    tutti_status status = push(t, step->rate, &done);
    if (status == TUTTI_ERR_DIVERGED) return diverged(t, step->rate);
    TTI_TRY(status);
    t->step = done.step;
    step->loss = done.loss;
    step->norm = done.norm;
    step->rows = done.count;
    step->stop = done.stop != 0;
    step->ahead = done.ahead;
    step->stale = (double)(done.update - 1 - t->server->updates);
    tti_trainer_watched(t, TUTTI_TRAIN_AT_UPDATE, done.step);
    TTI_TRY(own_error(t, pull(t, done.updates)));
    t->server->seconds += (double)(tti_now_ns() - began) * 1e-9;
    return check_weights(t, step);
}

tutti_status tti_trainer_server_validate(struct tutti_trainer *t, double *loss)
{
    struct tti_server_loss losses[t->mine.hi - t->mine.lo + 1];
    struct tti_server_done met;
    TTI_TRY(own_error(t, meet(t, NULL, &met)));
    TTI_TRY(own_error(t, pull(t, met.updates)));
    for (uint64_t at = 0; at < tti_trainer_last_index(t, true); at += (uint64_t)t->options.batch)
        TTI_TRY(tti_trainer_evaluate(t, at));
    const struct tti_server_meeting meeting = {
        .leaves = (int)t->cells, .losses = losses, .loss_count = list_losses(t, losses)};
    TTI_TRY(own_error(t, meet(t, &meeting, &met)));
    *loss = met.loss / met.count;
    return TUTTI_OK;
}

/* ---- Saving --------------------------------------------------------------------------------------------------------- */

static tutti_status read_all(struct tutti_trainer *t, uint64_t updates)
{
    struct tti_trainer_server *s = t->server;
    TTI_TRY(make_states(t, &t->error));
    TTI_TRY(own_error(t, pull(t, updates)));
    for (int i = 0; i < state_count(t); i++) TTI_TRY(own_error(t, tti_server_read(s->server, i + 1, s->states[i])));
    return TUTTI_OK;
}

tutti_status tti_trainer_server_save(struct tutti_trainer *t, bool *saves)
{
    struct tti_server_done met, unused;
    TTI_TRY(own_error(t, meet(t, NULL, &met)));
    *saves = met.lowest == tutti_rank(t->server->all);
    tutti_status status = *saves ? read_all(t, met.updates) : TUTTI_OK;
    tutti_status last = own_error(t, meet(t, NULL, &unused)); /* workers that do not write go on */
    return status == TUTTI_OK ? last : status;
}

void tti_trainer_server_saved(struct tutti_trainer *t)
{
    free_states(t);
}

static void note_update(void *context, uint64_t updates)
{
    tti_trainer_watched(context, TUTTI_TRAIN_AT_UPDATE, updates);
}

void tti_trainer_server_watch(struct tutti_trainer *t)
{
    if (t->watch == NULL || !tutti_trainer_serves(t)) return;
    t->server->watch = (struct tti_server_watch){note_update, t};
    atomic_store(&t->server->server->watch, &t->server->watch);
}

/* ---- A server's rank --------------------------------------------------------------------------------------------------- */

bool tutti_trainer_serves(const tutti_trainer *t)
{
    return t->server != NULL && tutti_server_serves(t->server->server);
}

tutti_status tti_trainer_refuse_server(struct tutti_trainer *t, const char *call)
{
    tutti_status status = tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0,
                                        "rank %d is a parameter server: it serves (tutti_trainer_serve), and the ranks "
                                        "below %d work",
                                        t->error.rank, t->server->workers);
    return tti_trainer_end(t, call, status);
}

tutti_status tutti_trainer_serve(tutti_trainer *t)
{
    tti_trainer_begin(t);
    if (!tutti_trainer_serves(t)) {
        tutti_status none = tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "this rank works; the last ranks serve");
        return tti_trainer_end(t, "serve", none);
    }
    return tti_trainer_end(t, "serve", own_error(t, tutti_server_serve(t->server->server)));
}
