/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups: collectives and messages, of one or several comms, that are noted first and done together.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "collective/api/api_message.h"
#include "collective/comm/stats.h"
#include "collective/comm/trace.h"
#include "collective/message/message_device.h"
#include "collective/op/callback.h"
#include "collective/op/pending.h"
#include "collective/op/queue_group.h"
#include "collective/op/turn.h"
#include <string.h>

/* ---- Comms of a group ------------------------------------------------------------------------------------------ */

static bool began_on(const struct tti_group *group, const tutti_comm *comm)
{
    return group->comms->comm == comm;
}

static struct tti_group_comm *part_of(tutti_comm *comm)
{
    struct tti_group_comm *part = comm->caller.group->comms;
    while (part->comm != comm) part++;
    return part;
}

static bool add_comm(struct tti_group *group, tutti_comm *comm)
{
    struct tti_group_comm *more = tti_calloc((size_t)group->comm_count + 1, sizeof *more);
    if (more == NULL) return false;
    if (group->comm_count > 0) memcpy(more, group->comms, (size_t)group->comm_count * sizeof *more);
    tti_free(group->comms);
    group->comms = more;
    more[group->comm_count++].comm = comm;
    comm->caller.group = group;
    return true;
}

/* Forgets what was noted and not started. */
static void empty(struct tti_group_comm *part)
{
    while (part->first != NULL) {
        struct tti_started *noted = part->first;
        part->first = noted->next;
        tti_started_free(noted);
    }
    tti_message_requests_forget(part->requests, part->request_count);
    tti_free(part->requests);
}

static void take_apart(struct tti_group *group)
{
    for (int i = 0; i < group->comm_count; i++) group->comms[i].comm->caller.group = NULL;
}

static void free_group(struct tti_group *group)
{
    if (group == NULL) return;
    for (int i = 0; i < group->comm_count; i++) empty(&group->comms[i]);
    tti_free(group->comms);
    tti_free(group);
}

void tti_group_close(tutti_comm *comm)
{
    struct tti_group *group = comm->caller.group;
    if (group == NULL || !began_on(group, comm)) return;
    take_apart(group);
    free_group(group);
}

void tti_group_leave(tutti_comm *comm)
{
    tti_group_close(comm);
    struct tti_group *group = comm->caller.group;
    if (group == NULL) return;
    struct tti_group_comm *part = part_of(comm), *end = group->comms + group->comm_count;
    empty(part);
    memmove(part, part + 1, (size_t)(end - part - 1) * sizeof *part);
    group->comm_count--;
    comm->caller.group = NULL;
    if (group->error.status == TUTTI_OK)
        tti_comm_describe(group->comms->comm, &group->error, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                          "group_end: a comm that was added to the group was freed before its end; nothing was done");
}

/* ---- Noting ---------------------------------------------------------------------------------------------------- */

tutti_status tti_group_without(tutti_comm *comm, enum tti_kind kind)
{
    if (comm->caller.group == NULL) return TUTTI_OK;
    return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT,
                           "%s: this comm is in a group, which holds nothing but collectives and messages; end the "
                           "group first",
                           tti_kind_name(kind));
}

/* Refuses calls that cannot be part of a group. */
static tutti_status check(tutti_comm *comm, enum tti_kind kind, const tutti_op *handle)
{
    const struct tti_caller *caller = &comm->caller;
    const char *name = tti_kind_name(kind);
    if (caller->preparing)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT,
                               "%s: a call of a group cannot be prepared; leave tutti_prepared out", name);
    if (handle != NULL)
        return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT,
                               "%s: a call of a group has no handle of its own; use tutti_%s, and "
                               "tutti_group_end_start for one of the group",
                               name, name);
    if (caller->site.inside && caller->site.name[0] != '\0')
        return tti_comm_refuse(comm, kind, TUTTI_ERR_ARGUMENT,
                               "%s: the library needs its result at once, for \"%.31s\", but this comm is in a group; "
                               "end the group first",
                               name, caller->site.name);
    return TUTTI_OK;
}

static tutti_status no_memory(tutti_comm *comm, enum tti_kind kind)
{
    return tti_comm_refuse(comm, kind, TUTTI_ERR_MEMORY, "%s: no memory for call %d of a group", tti_kind_name(kind),
                           comm->caller.group->calls + 1);
}

tutti_status tti_group_note(struct tti_op *op, struct tti_turn *turn, tutti_op *handle)
{
    tutti_comm *comm = op->comm;
    enum tti_kind kind = (enum tti_kind)op->call.kind;
    TTI_TRY(check(comm, kind, handle));
    struct tti_started *noted = tti_queue_copy(op);
    if (noted == NULL) return no_memory(comm, kind);
    struct tti_group_comm *part = part_of(comm);
    noted->turn = turn;
    noted->next = NULL;
    noted->group_part = ++comm->caller.group->calls;
    if (part->first == NULL)
        part->first = noted;
    else
        part->last->next = noted;
    part->last = noted;
    part->op_count++;
    return TUTTI_OK;
}

static bool make_room(struct tti_group_comm *part, int more_of_them)
{
    if (part->request_count + more_of_them <= part->request_room) return true;
    int room = part->request_room == 0 ? 16 : 2 * part->request_room;
    struct tti_message_request *more = tti_calloc((size_t)room, sizeof *more);
    if (more == NULL) return false;
    if (part->request_count > 0) memcpy(more, part->requests, (size_t)part->request_count * sizeof *more);
    tti_free(part->requests);
    part->requests = more;
    part->request_room = room;
    return true;
}

tutti_status tti_group_post(tutti_comm *comm, enum tti_kind kind, const struct tti_message_request *requests, int count,
                            const tutti_op *handle)
{
    TTI_TRY(check(comm, kind, handle));
    struct tti_group_comm *part = part_of(comm);
    if (!make_room(part, count)) return no_memory(comm, kind);
    comm->caller.group->calls++;
    for (int i = 0; i < count; i++) {
        struct tti_message_request *request = &part->requests[part->request_count++];
        *request = requests[i];
        request->site = comm->caller.site;
        request->number = comm->caller.group->calls;
    }
    tti_call_end(comm);
    return TUTTI_OK;
}

/* ---- The beginning --------------------------------------------------------------------------------------------- */

tutti_status tutti_group_begin(tutti_comm *comm)
{
    TTI_TRY(tti_api_begin(comm, TTI_GROUP));
    struct tti_group *group = comm->caller.group;
    if (group != NULL && began_on(group, comm))
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                               "group_begin: a group of %d calls has begun on this comm and not ended", group->calls);
    if (group != NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                               "group_begin: this comm was added to a group that has not ended");
    group = tti_calloc(1, sizeof *group);
    if (group == NULL || !add_comm(group, comm)) {
        tti_free(group);
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group");
    }
    tti_call_end(comm);
    return TUTTI_OK;
}

/* Returns why a comm cannot be added, or NULL. */
static const char *unfit(const tutti_comm *comm, const tutti_comm *other)
{
    if (other == NULL) return "`other` is NULL";
    if (tti_comm_is_stillborn(other)) return "`other` has left its world, or never joined it";
    if (other->traits.fork_count != tti_fork_count()) return "`other` belongs to the parent process";
    if (other->caller.group == comm->caller.group) return "this comm is in the group already";
    if (other->caller.group != NULL) return "this comm is in another group, which has not ended";
    if (other->job_rank != comm->job_rank && strcmp(tutti_job(other), tutti_job(comm)) == 0)
        return "`other` is another rank's comm; a group is of one rank's";
    return NULL;
}

/* A call on a comm that was not added would run at once, so the group must not end as if nothing was wrong. */
static tutti_status refuse_adding(tutti_comm *comm, tutti_status status, const char *why)
{
    struct tti_group *group = comm->caller.group;
    tti_comm_refuse(comm, TTI_GROUP, status, "group_add: %s", why);
    if (group != NULL && group->error.status == TUTTI_OK) group->error = comm->errors.call;
    return status;
}

tutti_status tutti_group_add(tutti_comm *comm, tutti_comm *other)
{
    TTI_TRY(tti_api_begin(comm, TTI_GROUP));
    struct tti_group *group = comm->caller.group;
    if (group == NULL || !began_on(group, comm))
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT, "group_add: no group has begun on this comm");
    const char *why = unfit(comm, other);
    if (why != NULL) return refuse_adding(comm, TUTTI_ERR_ARGUMENT, why);
    if (!add_comm(group, other)) return refuse_adding(comm, TUTTI_ERR_MEMORY, "no memory for one more comm");
    tti_call_end(comm);
    return TUTTI_OK;
}

/* ---- The end: messages of one comm ----------------------------------------------------------------------------- */

static tutti_status results(tutti_comm *comm, struct tti_group_comm *part)
{
    tutti_status status = TUTTI_OK;
    for (int i = 0; i < part->request_count; i++) {
        struct tti_message_request *request = &part->requests[i];
        const struct tti_letter *letter = tti_letter_of(request);
        if (letter->status != TUTTI_OK && status == TUTTI_OK) {
            tutti_error error;
            status = tti_group_explain(request, &error);
            tti_comm_show(comm, &error);
        }
        if (letter->status == TUTTI_OK && !request->sends)
            tti_recv_results(&request->recv, request->received, request->message);
    }
    return status;
}

static tutti_status exchange(tutti_comm *comm, struct tti_group_comm *part)
{
    int count = part->request_count;
    if (count == 0) return TUTTI_OK;
    struct tti_letter **letters = tti_calloc((size_t)count, sizeof(struct tti_letter *));
    if (letters == NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group of %d messages", count);
    for (int i = 0; i < count; i++) letters[i] = tti_letter_of(&part->requests[i]);
    int64_t deadline_ms = comm->caller.deadline_ms;
    tti_message_requests_post(part->requests, count);
    tutti_status status = tti_letters_wait(comm, TTI_GROUP, letters, count, deadline_ms);
    tti_free(letters);
    return status == TUTTI_OK ? results(comm, part) : status;
}

/* Forgets the device part of the requests, which an op owns now. */
static void give_away(struct tti_group_comm *part)
{
    for (int i = 0; i < part->request_count; i++) tti_letter_of(&part->requests[i])->device = NULL;
}

static bool is_on_streams(const struct tti_group_comm *part)
{
    for (int i = 0; i < part->request_count; i++)
        if (tti_letter_of(&part->requests[i])->device != NULL) return true;
    return false;
}

static tutti_status exchange_messages(tutti_comm *comm, struct tti_group_comm *part, tutti_op *handle)
{
    if (handle == NULL && tti_is_in_callback()) return tti_callback_refuse(comm, TTI_GROUP);
    bool runs = part->request_count > 0 && (comm->traits.tolerant || is_on_streams(part));
    if (handle != NULL || runs) {
        tutti_status status = handle != NULL
                                  ? tti_queue_pending(comm, TTI_GROUP, part->requests, part->request_count, handle)
                                  : tti_message_requests_run(comm, TTI_GROUP, part->requests, part->request_count);
        give_away(part);
        return status;
    }
    tti_queue_hold(comm);
    tti_trace_message_begin(comm);
    tutti_status status = exchange(comm, part);
    tti_trace_message_end(comm, TTI_GROUP, -1, 0, status);
    return tti_queue_let_go(comm, status);
}

/* ---- The end: everything else ---------------------------------------------------------------------------------- */

static bool is_of_messages(const struct tti_group *group)
{
    bool others = group->comms->op_count > 0 || group->broken_at != 0;
    for (int i = 1; i < group->comm_count; i++)
        others = others || group->comms[i].op_count > 0 || group->comms[i].request_count > 0;
    return !others;
}

/* Makes all comms of the group ready for ops. Errors are copied to the comm that the group was begun on. */
static tutti_status make_ready(tutti_comm *comm, struct tti_group *group)
{
    for (int i = 0; i < group->comm_count; i++) {
        tutti_comm *other = group->comms[i].comm;
        tutti_status status = tti_queue_ready(other, TTI_GROUP);
        if (status == TUTTI_OK) continue;
        if (other != comm) comm->errors.call = other->errors.call;
        return status;
    }
    return TUTTI_OK;
}

/* Returns the group's messages on one comm as an op; NULL: no memory. */
static struct tti_started *make_pending(tutti_comm *comm, struct tti_group_comm *part)
{
    struct tti_started *pending = tti_pending_new(part->comm, TTI_GROUP, part->requests, part->request_count);
    if (pending == NULL) return NULL;
    give_away(part);
    pending->pending->group_site = comm->caller.site;
    pending->op.deadline_ms = comm->caller.deadline_ms;
    return pending;
}

static void add_collectives(tutti_comm *comm, struct tti_group_op *whole, int side, struct tti_group_comm *part,
                            bool starts)
{
    while (part->first != NULL) {
        struct tti_started *noted = part->first;
        part->first = noted->next;
        if (noted->op.deadline_ms == 0) noted->op.deadline_ms = comm->caller.deadline_ms;
        if (noted->turn == NULL) tti_stats_count(part->comm, &noted->op, starts);
        tti_group_op_add(whole, side, noted, noted->group_part);
    }
}

/* Returns the group as one op that is not started; NULL: no memory. Messages come first, so that they need not wait for
 * anything else of this rank. */
static struct tti_started *make_whole(tutti_comm *comm, struct tti_group *group, bool starts)
{
    int parts = group->broken_at != 0;
    for (int i = 0; i < group->comm_count; i++) parts += group->comms[i].op_count + (group->comms[i].request_count > 0);
    struct tti_started *whole = tti_group_op_new(comm, group->comm_count, parts);
    for (int i = 0; i < group->comm_count && whole != NULL; i++) {
        struct tti_group_comm *part = &group->comms[i];
        struct tti_started *pending = part->request_count > 0 ? make_pending(comm, part) : NULL;
        if (pending != NULL) tti_group_op_add(whole->group, i, pending, part->requests->number);
        if (part->request_count == 0 || pending != NULL) continue;
        tti_started_free(whole); /* frees the pending messages of other comms, too */
        whole = NULL;
    }
    for (int i = 0; i < group->comm_count && whole != NULL; i++)
        add_collectives(comm, whole->group, i, &group->comms[i], starts);
    if (whole != NULL && group->broken_at != 0) tti_group_op_add_failed(whole->group, group->broken_at, &group->broken);
    return whole;
}

/* Puts the messages on their streams, before anything of the group is started. */
static tutti_status put_messages(tutti_comm *comm, struct tti_started *whole)
{
    tutti_error error = {0};
    for (int i = 0; i < whole->group->part_count; i++) {
        const struct tti_group_part *part = &whole->group->parts[i];
        struct tti_pending *pending = part->started == NULL ? NULL : part->started->pending;
        if (pending == NULL || pending->on_devices == 0 || tti_pending_put(pending, &error) == TUTTI_OK) continue;
        tti_started_free(whole);
        return tti_comm_refuse(comm, TTI_GROUP, error.status, "group_end: call %d of the group: %s", part->number,
                               error.text);
    }
    return TUTTI_OK;
}

static void start_part(struct tti_started *part)
{
    tutti_comm *comm = part->comm;
    if (part->turn == NULL) {
        tti_queue_start(part);
        return;
    }
    tutti_status status = tti_stream_op_start(part);
    if (status == TUTTI_OK) return;
    /* it ends as an op in flight does, which takes it off this count */
    part->queued = true;
    atomic_store_explicit(&part->status, TUTTI_IN_PROGRESS, memory_order_relaxed);
    atomic_fetch_add_explicit(&part->op.comm->queue.count, 1, memory_order_release);
    tti_turn_fail(part, status, &comm->errors.call);
}

static tutti_status await(tutti_comm *comm, struct tti_started *whole)
{
    tutti_status status = tti_queue_await(whole, INT64_MAX);
    if (status != TUTTI_OK && whole->error != NULL)
        comm->errors.call = *whole->error;
    else if (status != TUTTI_OK)
        tti_comm_refuse(comm, TTI_GROUP, status, "a call of the group failed, and there is no memory to say more");
    tti_started_free(whole);
    return status;
}

static tutti_status run_all(tutti_comm *comm, struct tti_group *group, tutti_op *handle)
{
    comm->errors.call.status = TUTTI_OK;
    if (comm->caller.preparing)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_UNSUPPORTED,
                               "group_end: only a group of messages of one comm can be prepared");
    if (handle == NULL && tti_is_in_callback()) return tti_callback_refuse(comm, TTI_GROUP);
    TTI_TRY(make_ready(comm, group));
    struct tti_started *whole = make_whole(comm, group, handle != NULL);
    if (whole != NULL) TTI_TRY(put_messages(comm, whole));
    if (whole == NULL)
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_MEMORY, "no memory for a group of %d calls", group->calls);
    if (handle == NULL) {
        tti_group_op_start(whole->group, start_part);
        tti_group_end_hopeless(whole->group);
        return await(comm, whole);
    }
    handle->id = atomic_load_explicit(&whole->id, memory_order_relaxed);
    tti_group_op_start(whole->group, start_part);
    return TUTTI_OK;
}

static tutti_status tell_refused(tutti_comm *comm, const struct tti_group *group)
{
    const tutti_error *error = &group->error;
    comm->errors.call = *error;
    if (group->refused > 0)
        snprintf(comm->errors.call.text, sizeof comm->errors.call.text,
                 "call %d of the group was refused, and nothing was done: %.400s", group->refused, error->text);
    return error->status;
}

static tutti_status run(tutti_comm *comm, struct tti_group *group, tutti_op *handle)
{
    if (group->error.status != TUTTI_OK) return tell_refused(comm, group);
    return is_of_messages(group) ? exchange_messages(comm, group->comms, handle) : run_all(comm, group, handle);
}

/* Returns true if other comms have calls to make though the first one is broken: the other ranks make them. */
static bool concerns_others(const struct tti_group *group)
{
    const tutti_comm *comm = group->comms->comm;
    return comm->traits.fork_count == tti_fork_count() && tti_comm_is_broken(comm) && !is_of_messages(group);
}

static tutti_status end(tutti_comm *comm, tutti_op *handle)
{
    if (comm == NULL) return tti_api_no_comm(TTI_GROUP);
    if (tti_comm_is_stillborn(comm)) return comm->errors.call.status;
    struct tti_group *group = comm->caller.group;
    if (group != NULL && !began_on(group, comm))
        return tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT,
                               "group_end: the group was begun on another comm, to which this one was added; end it "
                               "there");
    if (group != NULL) take_apart(group);
    tutti_status status = tti_api_begin(comm, TTI_GROUP);
    if (status != TUTTI_OK && group != NULL && concerns_others(group)) status = TUTTI_OK;
    if (status == TUTTI_OK && group == NULL)
        status = tti_comm_refuse(comm, TTI_GROUP, TUTTI_ERR_ARGUMENT, "group_end: no group has begun on this comm");
    if (status == TUTTI_OK) status = run(comm, group, handle);
    tti_call_end(comm);
    free_group(group);
    return status;
}

tutti_status tutti_group_end(tutti_comm *comm)
{
    return end(comm, NULL);
}

tutti_status tutti_group_end_start(tutti_comm *comm, tutti_op *op)
{
    if (tti_api_has_handle(op)) return end(comm, op);
    tutti_status status = tti_api_no_handle(comm, TTI_GROUP);
    if (comm != NULL) tti_group_close(comm); /* the group ends in any case */
    return status;
}
