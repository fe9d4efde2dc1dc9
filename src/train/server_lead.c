/* SPDX-License-Identifier: Apache-2.0
 *
 * The lead of the servers makes updates, one after the other, and lets workers go on.
 *
 * Invariant: a worker's commit is kept until its update was made by all servers and it is at most `ahead` steps before
 * the slowest worker that is here; then it is answered, once.
 */
#include "train/server.h"

#include "base/alloc.h"
#include "base/clock.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MS = 1000000, WAIT_TIMER = 1 };

/* ---- Commits --------------------------------------------------------------------------------------------------- */

static const struct tti_server_subtree *subtrees_of(const struct tti_server_commit *commit)
{
    return (const struct tti_server_subtree *)(commit + 1);
}

static const struct tti_server_loss *losses_of(const struct tti_server_commit *commit)
{
    return (const struct tti_server_loss *)(subtrees_of(commit) + commit->subtrees);
}

static bool fits(const tutti_server *server, const tutti_request *request)
{
    const struct tti_server_commit *commit = request->data;
    const int worker = tti_worker_of(server, request->rank);
    if (worker < 0 || worker >= server->workers || request->bytes < sizeof *commit ||
        (commit->subtrees == 0) != (commit->call.what != TTI_SERVER_COMMIT) ||
        commit->subtrees > server->shard.room[worker])
        return false;
    if (request->bytes != sizeof *commit + commit->subtrees * sizeof(struct tti_server_subtree) +
                              commit->losses * sizeof(struct tti_server_loss))
        return false;
    for (uint32_t i = 0; i < commit->losses; i++)
        if (losses_of(commit)[i].leaf >= commit->leaves) return false;
    return true;
}

/* Returns the worker that asks, of which `fits` knows that it is one. */
static struct tti_server_member *member_of(const tutti_server *server, const tutti_request *request)
{
    return &server->members[tti_worker_of(server, request->rank)];
}

static void forget(struct tti_server_member *member)
{
    tti_free(member->commit);
    member->commit = NULL;
    member->pushed = member->answered = member->met = false;
    member->kept = 0;
}

/* ---- Waiting for the slowest ----------------------------------------------------------------------------------- */

/* Returns the worker of those that are here which has made the fewest steps; -1: there is none. */
static int slowest(const tutti_server *server)
{
    int found = -1;
    for (int w = 0; w < server->workers; w++) {
        const struct tti_server_member *member = &server->members[w];
        if (member->here && (found < 0 || member->done < server->members[found].done)) found = w;
    }
    return found;
}

static void answer(tutti_server *server, struct tti_server_member *member)
{
    const uint64_t kept = member->kept;
    struct tti_server_done done = member->answer;
    done.updates = tutti_optimizer_steps(server->shard.optimizer);
    forget(member);
    (void)tutti_actors_answer(server->actors, kept, TUTTI_OK, &done, sizeof done);
}

/* Answers workers that need not wait any longer. After the last step all wait for the slowest. */
static void release(tutti_server *server)
{
    const int last = slowest(server);
    for (int w = 0; w < server->workers; w++) {
        struct tti_server_member *member = &server->members[w];
        if (!member->answered) continue;
        const bool stops = server->stop_at != 0 && member->done >= server->stop_at;
        member->answer.stop = stops;
        member->answer.ahead = last < 0 ? 0 : (int64_t)(member->done - server->members[last].done);
        if (member->answer.ahead <= (stops ? 0 : member->commit->ahead)) answer(server, member);
    }
}

/* Notes that a worker was asked to stop, before it pushed the step that it has made now. All stop after the latest step
 * whose push has not been answered: workers that still wait for the answer will hear of it. */
static void note_stop(tutti_server *server)
{
    if (server->stop_at != 0) return;
    for (int w = 0; w < server->workers; w++) {
        const struct tti_server_member *member = &server->members[w];
        const uint64_t step = member->done + !member->answered;
        if (member->here && step > server->stop_at) server->stop_at = step;
    }
}

static void refuse(tutti_server *server, struct tti_server_member *member, tutti_status status, const char *text)
{
    const uint64_t kept = member->kept;
    forget(member);
    if (kept != 0) (void)tutti_actors_answer(server->actors, kept, status, text, strlen(text));
}

void tti_lead_refuse_all(tutti_server *server, const tutti_error *error)
{
    for (int w = 0; w < server->workers; w++) refuse(server, &server->members[w], error->status, error->text);
}

void tti_lead_interrupt(tutti_server *server, const tutti_error *error)
{
    for (int w = 0; w < server->workers; w++) {
        struct tti_server_member *member = &server->members[w];
        if (member->answered)
            answer(server, member);
        else
            refuse(server, member, error->status, error->text);
    }
}

/* ---- An update ------------------------------------------------------------------------------------------------- */

struct update {
    struct tti_server_member **members; /* [count] the members whose gradients it is made of */
    size_t count;
    struct tti_server_term *terms; /* [term_count], ordered by leaves */
    size_t term_count;
    double loss, norm, rows, rate, scale;
};

static int by_leaf(const void *a, const void *b)
{
    const struct tti_server_term *x = a, *y = b;
    return (x->lo > y->lo) - (x->lo < y->lo);
}

/* Lists the terms behind the call with which they are sent. Returns false if there is no memory. */
static bool list_terms(const tutti_server *server, struct update *update, struct tti_server_call **call)
{
    for (size_t i = 0; i < update->count; i++) update->term_count += update->members[i]->commit->subtrees;
    *call = tti_calloc(1, sizeof **call + update->term_count * sizeof *update->terms);
    if (*call == NULL) return false;
    **call = (struct tti_server_call){.what = TTI_SERVER_SUM};
    struct tti_server_term *next = update->terms = (struct tti_server_term *)(*call + 1);
    for (size_t i = 0; i < update->count; i++) {
        const struct tti_server_commit *commit = update->members[i]->commit;
        for (uint32_t s = 0; s < commit->subtrees; s++)
            *next++ = (struct tti_server_term){.worker = (uint32_t)(update->members[i] - server->members),
                                               .index = s,
                                               .lo = subtrees_of(commit)[s].lo,
                                               .hi = subtrees_of(commit)[s].hi};
    }
    qsort(update->terms, update->term_count, sizeof *update->terms, by_leaf);
    return true;
}

static bool overlaps(const struct update *update)
{
    for (size_t i = 0; i < update->term_count; i++) {
        if (update->terms[i].lo >= update->terms[i].hi) return true;
        if (i > 0 && update->terms[i - 1].hi > update->terms[i].lo) return true;
    }
    return false;
}

/* Adds up the losses of all leaves, in the tree; a leaf that was not pushed has 0. */
static tutti_status add_losses(struct update *update)
{
    const uint32_t leaves = update->members[0]->commit->leaves;
    if (leaves == 0) return TUTTI_OK; /* a meeting without losses */
    double *sums = tti_calloc(2 * (size_t)leaves, sizeof *sums), *counts = sums + leaves;
    if (sums == NULL) return TUTTI_ERR_MEMORY;
    for (size_t i = 0; i < update->count; i++) {
        const struct tti_server_commit *commit = update->members[i]->commit;
        for (uint32_t k = 0; k < commit->losses; k++) {
            const struct tti_server_loss *loss = &losses_of(commit)[k];
            if (loss->leaf >= leaves) continue;
            sums[loss->leaf] += loss->sum;
            counts[loss->leaf] += loss->count;
        }
    }
    update->loss = tti_tree_sum(sums, leaves);
    update->rows = tti_tree_sum(counts, leaves);
    update->rate = update->members[0]->commit->rate;
    tti_free(sums);
    return TUTTI_OK;
}

/* Asks all other servers and waits for all; their answers (bytes of each in `sizes`) are stored behind the lead's
 * own. */
static tutti_status ask_others(tutti_server *server, const void *request, size_t bytes, double *answers)
{
    const int servers = server->options.servers;
    const struct tti_blocks blocks = {server->starts, server->count};
    tutti_op ops[servers];
    tutti_status first = TUTTI_OK;
    for (int s = 1; s < servers; s++) {
        const struct tti_span span = tti_server_span(server, s);
        const size_t from = tti_blocks_before(&blocks, span.lo), to = tti_blocks_before(&blocks, span.hi);
        ops[s] = (tutti_op){0};
        tutti_status status = tutti_actor_ask_start(server->actors, tti_server_rank(server, s), TTI_SERVER_ACTOR,
                                                    request, bytes, answers == NULL ? NULL : answers + from,
                                                    answers == NULL ? 0 : (to - from) * sizeof *answers, NULL, 0,
                                                    &ops[s]);
        if (first == TUTTI_OK) first = status;
    }
    for (int s = 1; s < servers; s++) {
        tutti_status status = ops[s].id == 0 ? TUTTI_OK : tutti_wait(ops[s]);
        if (first == TUTTI_OK) first = status;
    }
    return first;
}

static tutti_status sum_all(tutti_server *server, struct update *update, const struct tti_server_call *call)
{
    const struct tti_blocks blocks = {server->starts, server->count};
    double *sums = server->shard.sums;
    tutti_status status = ask_others(server, call, sizeof *call + update->term_count * sizeof *update->terms, sums);
    if (status != TUTTI_OK) return status;
    tti_shard_sum(server, update->terms, update->term_count, sums);
    update->norm = sqrt(tti_tree_sum(sums, tti_blocks_before(&blocks, server->elements))) / update->rows;
    update->scale = 1 / update->rows;
    const double clip = server->options.clip;
    if (clip > 0 && update->norm > clip) update->scale *= clip / update->norm;
    return TUTTI_OK;
}

static tutti_status make_update(tutti_server *server, struct update *update, const char **why)
{
    struct tti_server_call *call = NULL;
    *why = "server: no memory for an update";
    if (add_losses(update) != TUTTI_OK || !list_terms(server, update, &call)) return TUTTI_ERR_MEMORY;
    tutti_status status = TUTTI_ERR_ARGUMENT;
    *why = "server: two workers have pushed gradients of the same part of the batch";
    if (!overlaps(update)) {
        status = sum_all(server, update, call);
        *why = "server: another server has failed in an update";
    }
    tti_free(call);
    if (status != TUTTI_OK) return status;
    *why = "server: the loss or the norm of the gradient is not finite; nothing was changed; a lower learning rate may "
           "help";
    if (!isfinite(update->loss) || !isfinite(update->norm)) return TUTTI_ERR_DIVERGED;
    const struct tti_server_call step = {.what = TTI_SERVER_APPLY, .rate = update->rate, .scale = update->scale};
    *why = "server: another server has failed in an update";
    status = ask_others(server, &step, sizeof step, NULL);
    if (status != TUTTI_OK) return status;
    tti_shard_step(server, update->rate, update->scale);
    return TUTTI_OK;
}

static void finish(const tutti_server *server, const struct update *update, struct tti_server_member *member)
{
    member->done++;
    member->pushed = false;
    member->answered = true;
    member->answer = (struct tti_server_done){.step = member->done,
                                              .update = tutti_optimizer_steps(server->shard.optimizer),
                                              .loss = update->loss / update->rows,
                                              .norm = update->norm,
                                              .count = update->rows};
}

/* Makes an update of the gradients that these members have committed. */
static void update_with(tutti_server *server, struct tti_server_member **members, size_t count)
{
    struct update update = {.members = members, .count = count};
    const char *why = "";
    tutti_status status = make_update(server, &update, &why);
    const tutti_error *error = tutti_actors_error(server->actors);
    if (status != TUTTI_OK && status != TUTTI_ERR_DIVERGED && error != NULL && error->status == status)
        why = error->text;
    bool stop = false;
    for (size_t i = 0; i < count; i++) {
        stop |= members[i]->commit->stop != 0;
        if (status == TUTTI_OK)
            finish(server, &update, members[i]);
        else
            refuse(server, members[i], status, why);
    }
    if (stop) note_stop(server);
}

/* Staleness 0: makes an update once all that are here have committed. */
static void update_together(tutti_server *server)
{
    struct tti_server_member *members[server->workers];
    size_t count = 0;
    for (int w = 0; w < server->workers; w++) {
        if (server->members[w].here && !server->members[w].pushed) return;
        if (server->members[w].pushed) members[count++] = &server->members[w];
    }
    if (count > 0) update_with(server, members, count);
}

/* ---- Meeting ------------------------------------------------------------------------------------------------------- */

static int rank_of(const tutti_server *server, const struct tti_server_member *member)
{
    return tti_worker_rank(server, (int)(member - server->members));
}

static void answer_meeting(tutti_server *server, struct tti_server_member **members, size_t count,
                           const struct update *update)
{
    struct tti_server_done done = {
        .loss = update->loss, .count = update->rows, .lowest = rank_of(server, members[0]), .odd = -1};
    for (size_t i = count; i-- > 0;)
        if (members[i]->commit->hash != members[0]->commit->hash) done.odd = rank_of(server, members[i]);
    for (size_t i = 0; i < count; i++) {
        done.step = members[i]->done;
        members[i]->answer = done;
        answer(server, members[i]);
    }
}

/* Ends a meeting once all that are here have come. */
static void meet(tutti_server *server)
{
    struct tti_server_member *members[server->workers];
    size_t count = 0;
    for (int w = 0; w < server->workers; w++) {
        if (server->members[w].here && !server->members[w].met) return;
        if (server->members[w].met) members[count++] = &server->members[w];
    }
    struct update update = {.members = members, .count = count};
    if (count == 0) return;
    if (add_losses(&update) == TUTTI_OK)
        answer_meeting(server, members, count, &update);
    else
        for (size_t i = 0; i < count; i++) refuse(server, members[i], TUTTI_ERR_MEMORY, "server: no memory for losses");
}

/* ---- What the actor is told -------------------------------------------------------------------------------------- */

/* Keeps a commit until it is answered. Returns false if it was refused. */
static bool keep_commit(tutti_server *server, tutti_request *request, tutti_status *status)
{
    struct tti_server_member *member = member_of(server, request);
    *status = TUTTI_OK;
    forget(member);
    member->commit = tti_malloc(1, request->bytes);
    if (member->commit == NULL) {
        *status = tutti_request_refuse(request, TUTTI_ERR_MEMORY, "server: no memory for a worker's push");
        return false;
    }
    memcpy(member->commit, request->data, request->bytes);
    member->kept = tutti_request_keep(request);
    member->until_ns = tti_now_ns() + member->commit->deadline_ms * MS;
    return true;
}

/* Checks and keeps a commit. Returns false if it was refused. */
static bool accept_commit(tutti_server *server, tutti_request *request, tutti_status *status)
{
    if (!fits(server, request)) {
        *status = tutti_request_refuse(request, TUTTI_ERR_COUNT, "server: this push does not fit the parameters here");
        return false;
    }
    if (member_of(server, request)->here) return keep_commit(server, request, status);
    *status = tutti_request_refuse(request, TUTTI_ERR_ARGUMENT,
                                   "server: this worker has left: tutti_server_join comes before a push");
    return false;
}

tutti_status tti_lead_commit(tutti_server *server, tutti_request *request)
{
    tutti_status status;
    if (!accept_commit(server, request, &status)) return status;
    struct tti_server_member *member = member_of(server, request);
    member->met = member->commit->subtrees == 0;
    member->pushed = !member->met;
    if (member->met)
        meet(server);
    else if (server->options.staleness == 0)
        update_together(server);
    else
        update_with(server, &member, 1);
    release(server);
    return TUTTI_OK;
}

tutti_status tti_lead_wait(tutti_server *server, tutti_request *request)
{
    tutti_status status;
    if (!accept_commit(server, request, &status)) return status;
    struct tti_server_member *member = member_of(server, request);
    member->answer = (struct tti_server_done){.step = member->done};
    member->answered = true;
    release(server);
    return TUTTI_OK;
}

void tti_lead_join(tutti_server *server, int worker)
{
    struct tti_server_member *member = &server->members[worker];
    const int last = slowest(server);
    if (member->here) return;
    if (last >= 0) member->done = server->members[last].done;
    member->here = true;
}

void tti_lead_leave(tutti_server *server, int worker)
{
    struct tti_server_member *member = &server->members[worker];
    if (!member->here) return;
    member->here = false;
    refuse(server, member, TUTTI_ERR_CANCELLED, "server: this worker has left");
    if (server->options.staleness == 0) update_together(server);
    meet(server);
    release(server);
}

/* Describes for whom a worker waits. */
static void describe_wait(const tutti_server *server, const struct tti_server_member *waiting, char *text, size_t bytes)
{
    int last = slowest(server);
    for (int w = server->workers; w-- > 0;) { /* the first that has not pushed its part, or not come to meet */
        const struct tti_server_member *member = &server->members[w];
        if (member->here && ((waiting->pushed && !member->pushed) || (waiting->met && !member->met))) last = w;
    }
    (void)snprintf(
        text, bytes,
        "server: rank %d waited %lld ms for rank %d, which has made %llu steps; its own are %llu, and it may be "
        "%lld ahead",
        rank_of(server, waiting), (long long)waiting->commit->deadline_ms,
        last < 0 ? -1 : tti_worker_rank(server, last), (unsigned long long)(last < 0 ? 0 : server->members[last].done),
        (unsigned long long)waiting->done, (long long)waiting->commit->ahead);
}

void tti_lead_expire(tutti_server *server, tutti_actor *self)
{
    const int64_t now = tti_now_ns();
    int64_t next = INT64_MAX;
    for (int w = 0; w < server->workers; w++) {
        struct tti_server_member *member = &server->members[w];
        if (member->kept == 0) continue;
        if (member->until_ns <= now) {
            char text[256];
            describe_wait(server, member, text, sizeof text);
            refuse(server, member, TUTTI_ERR_TIMEOUT, text);
        } else if (member->until_ns < next) {
            next = member->until_ns;
        }
    }
    const bool wanted = next != INT64_MAX;
    if (wanted || server->timed) (void)tutti_actor_timer(self, WAIT_TIMER, wanted ? (next - now) / MS + 1 : -1, 0);
    server->timed = wanted;
}
