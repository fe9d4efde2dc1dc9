/* SPDX-License-Identifier: Apache-2.0 */
#include "collective/op/queue_group.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "collective/op/callback.h"
#include "collective/op/handle.h"
#include "collective/op/pending.h"
#include <assert.h>
#include <string.h>

#define MS INT64_C(1000000)

/* ---- Making and freeing ---------------------------------------------------------------------------------------------- */

struct tti_started *tti_group_op_new(tutti_comm *comm, int sides, int parts)
{
    struct tti_group_op *group;
    size_t bytes = sizeof *group + (size_t)parts * sizeof *group->parts + (size_t)sides * sizeof *group->sides;
    struct tti_started *started = tti_started_new(comm);
    group = started == NULL ? NULL : tti_calloc(1, bytes);
    if (group == NULL) {
        if (started != NULL) tti_started_free(started);
        return NULL;
    }
    group->started = started;
    group->side_count = sides;
    group->sides = (struct tti_group_side *)(void *)&group->parts[parts];
    atomic_store_explicit(&group->users, 1, memory_order_relaxed);
    started->group = group;
    started->op = (struct tti_op){.comm = comm, .shape = {.kind = TTI_GROUP}};
    started->op.call.kind = TTI_GROUP;
    started->op.call.site = comm->caller.site;
    return started;
}

void tti_group_op_add(struct tti_group_op *group, int side, struct tti_started *part, int number)
{
    struct tti_group_side *of = &group->sides[side];
    of->comm = part->comm;
    if (part->pending != NULL)
        of->pending = part;
    else
        of->last = part;
    atomic_fetch_add_explicit(&of->left, 1, memory_order_relaxed);
    part->group = group;
    part->group_part = group->part_count;
    group->parts[group->part_count++] = (struct tti_group_part){
        .started = part,
        .id = atomic_load_explicit(&part->id, memory_order_relaxed),
        .side = side,
        .number = number,
        .status = TUTTI_IN_PROGRESS,
    };
}

void tti_group_op_add_failed(struct tti_group_op *group, int number, const tutti_error *error)
{
    struct tti_group_part *part = &group->parts[group->part_count++];
    *part = (struct tti_group_part){.number = number, .status = error->status};
    part->error = tti_calloc(1, sizeof *error);
    if (part->error == NULL) return;
    *part->error = *error;
    snprintf(part->error->text, sizeof part->error->text, "call %d of the group (%s): %.400s", number, error->operation,
             error->text);
}

void tti_group_release(struct tti_group_op *group)
{
    uint32_t users = atomic_fetch_sub_explicit(&group->users, 1, memory_order_acq_rel);
    assert(users > 0);
    if (users != 1) return;
    for (int i = 0; i < group->part_count; i++) {
        struct tti_group_part *part = &group->parts[i];
        struct tti_started *there = tti_handle_at((tutti_op){part->id}); /* NULL: the part's comm is gone */
        if (there != NULL) tti_started_free(there);
        tti_free(part->error);
    }
    tti_free(group);
}

/* ---- The end ----------------------------------------------------------------------------------------------------------- */

/* Describes the part's call; for messages the first one that failed, which says where in the group the failure is. */
static void describe(struct tti_group_part *part, char *text, size_t bytes)
{
    struct tti_started *started = part->started;
    char site[112];
    if (started->pending != NULL) {
        part->number = tti_pending_failed(started->pending, text, bytes);
        return;
    }
    tti_site_describe(&started->op.call.site, site, sizeof site);
    snprintf(text, bytes, "%s%s", tti_kind_name((enum tti_kind)started->op.call.kind), site);
}

/* Notes the failure as "call 2 of the group (all_reduce at x.c:12): …". */
static void note_failure(const struct tti_group_op *group, struct tti_group_part *part)
{
    struct tti_started *started = part->started;
    bool elsewhere = started->comm != group->started->comm;
    tutti_error *error = part->error;
    char call[200], text[sizeof error->text];
    describe(part, call, sizeof call);
    if (error == NULL && started->pending != NULL) { /* the comm is whole */
        part->error = error = tti_calloc(1, sizeof *error);
        if (error != NULL) tti_pending_explain(started->pending, error);
        if (error != NULL) part->status = error->status;
    } else if (error != NULL) {
        memcpy(text, error->text, sizeof text);
        snprintf(error->text, sizeof error->text, "call %d of the group (%.120s%s): %.300s", part->number, call,
                 elsewhere ? ", on another comm" : "", text);
    }
}

static void note_end(const struct tti_group_op *group, struct tti_group_part *part, tutti_status status)
{
    part->status = status;
    part->error = part->started->error;
    part->started->error = NULL;
    if (status != TUTTI_OK) note_failure(group, part);
}

/* Returns the first failure in the order of calls; NULL: none has failed. */
static struct tti_group_part *first_failure(struct tti_group_op *group)
{
    struct tti_group_part *first = NULL;
    for (int i = 0; i < group->part_count; i++) {
        struct tti_group_part *part = &group->parts[i];
        if (part->status != TUTTI_OK && (first == NULL || part->number < first->number)) first = part;
    }
    return first;
}

/* Ends the group's op. The thread that ends the last part may have the right of another comm only, so the count of this
 * comm goes down last: the comm can be gone after that. */
static void end(struct tti_group_op *group)
{
    struct tti_started *started = group->started;
    tutti_comm *comm = started->comm;
    struct tti_group_part *failure = first_failure(group);
    tutti_status status = failure == NULL ? TUTTI_OK : failure->status;
    if (failure != NULL) {
        started->error = failure->error;
        failure->error = NULL;
    }
    tti_started_end_apart(started, status);
    if (tti_callbacks_are_due(comm)) tti_service_wake(comm, TTI_AT_ONCE);
    tti_queue_uncount(&comm->queue);
}

static void count_down(struct tti_group_op *group)
{
    uint32_t left = atomic_fetch_sub_explicit(&group->left, 1, memory_order_acq_rel);
    assert(left > 0);
    if (left == 1) end(group);
}

void tti_group_told(struct tti_started *started, tutti_status status)
{
    struct tti_group_op *group = started->group;
    struct tti_group_part *part = &group->parts[started->group_part];
    assert(part->started == started && part->status == TUTTI_IN_PROGRESS); /* each part ends once */
    note_end(group, part, status);
    uint32_t left = atomic_fetch_sub_explicit(&group->sides[part->side].left, 1, memory_order_release);
    assert(left > 0);
    (void)left;
    count_down(group);
}

/* ---- The start --------------------------------------------------------------------------------------------------------- */

void tti_group_op_start(struct tti_group_op *group, void (*start)(struct tti_started *part))
{
    struct tti_started *started = group->started;
    tti_started_begin_apart(started);
    atomic_store_explicit(&group->left, (uint32_t)group->part_count + 1, memory_order_release);
    for (int i = 0; i < group->part_count; i++) {
        if (group->parts[i].started != NULL)
            start(group->parts[i].started);
        else
            count_down(group);
    }
    count_down(group);
}

bool tti_group_is_on_streams(const struct tti_group_op *group)
{
    for (int i = 0; i < group->part_count; i++)
        if (group->parts[i].started != NULL && tti_started_is_on_stream(group->parts[i].started)) return true;
    return false;
}

/* ---- Waiting ----------------------------------------------------------------------------------------------------------- */

static bool is_under_way(const struct tti_group_side *side)
{
    return atomic_load_explicit(&side->left, memory_order_acquire) != 0;
}

static void set_asked(struct tti_group_op *group, bool asked)
{
    for (int i = 0; i < group->side_count; i++)
        if (is_under_way(&group->sides[i]) && group->sides[i].pending != NULL)
            tti_queue_set_asked(group->sides[i].pending, asked);
}

static void help(struct tti_group_op *group, bool polls)
{
    for (int i = 0; i < group->side_count; i++) {
        tutti_comm *comm = group->sides[i].comm;
        if (!is_under_way(&group->sides[i])) continue;
        tti_queue_help(comm, polls);
        tti_callbacks_call(comm);
    }
}

static bool has_ended(struct tti_started *started)
{
    return started == NULL || atomic_load_explicit(&started->status, memory_order_acquire) != TUTTI_IN_PROGRESS;
}

/* Returns the op to wait for without taking turns, since everything else has ended or goes along with it; NULL: there
 * is none. */
static struct tti_started *find_last(struct tti_group_op *group)
{
    struct tti_group_side *only = NULL;
    for (int i = 0; i < group->side_count; i++) {
        if (!is_under_way(&group->sides[i])) continue;
        if (only != NULL) return NULL;
        only = &group->sides[i];
    }
    if (only == NULL) return NULL;
    if (!has_ended(only->last)) return only->last;
    return has_ended(only->pending) ? NULL : only->pending;
}

/* Waits for the group. Ranks may wait for each other on different comms, so all comms are taken forward while there are
 * several. */
static void wait(struct tti_started *started, int64_t until_ns)
{
    struct tti_wait wait;
    tti_bell nobody = 0;
    tti_wait_begin(&wait, false, MS);
    while (!has_ended(started)) {
        if (until_ns != INT64_MAX && tti_now_ns() >= until_ns) return;
        struct tti_started *last = find_last(started->group);
        if (last != NULL) {
            tti_queue_await(last, until_ns);
            continue;
        }
        help(started->group, tti_wait_slow(&wait));
        if (!tti_wait_pause(&wait, false)) tti_bell_sleep(&nobody, 0, MS / 10, false);
    }
}

tutti_status tti_group_await(struct tti_started *started, int64_t until_ns)
{
    set_asked(started->group, true);
    wait(started, until_ns);
    set_asked(started->group, false);
    tti_callbacks_call(started->comm);
    return (tutti_status)atomic_load_explicit(&started->status, memory_order_acquire);
}

void tti_group_ask(struct tti_started *started, bool polls)
{
    set_asked(started->group, true);
    help(started->group, polls);
    set_asked(started->group, false);
    tti_callbacks_call(started->comm);
}

void tti_group_end_hopeless(struct tti_group_op *group)
{
    for (int i = 0; i < group->side_count; i++)
        if (is_under_way(&group->sides[i]) && group->sides[i].pending != NULL)
            tti_pending_end_hopeless(group->sides[i].pending);
}

/* ---- Cancelling -------------------------------------------------------------------------------------------------------- */

void tti_group_cancel(struct tti_group_op *group)
{
    atomic_fetch_add_explicit(&group->users, 1, memory_order_relaxed);
    for (int i = 0; i < group->part_count; i++) {
        struct tti_started *part = group->parts[i].started;
        if (part == NULL || !is_under_way(&group->sides[group->parts[i].side])) continue;
        atomic_store_explicit(&part->cancelled, TTI_CANCEL, memory_order_seq_cst);
        atomic_store_explicit(&part->comm->queue.cancels, true, memory_order_seq_cst);
    }
}

void tti_group_wake(struct tti_group_op *group)
{
    for (int i = 0; i < group->side_count; i++) {
        tutti_comm *comm = group->sides[i].comm;
        if (!is_under_way(&group->sides[i])) continue;
        comm->peers->wake(comm); /* a thread may sleep while it waits for it */
        tti_service_wake(comm, TTI_AT_ONCE);
    }
    tti_group_release(group);
}

void tti_group_cancel_all(tutti_comm *comm)
{
    for (struct tti_started *started = comm->queue.all; started != NULL; started = started->sibling) {
        tti_lock(&comm->queue.lock);
        struct tti_group_op *group = started->queued && tti_is_group(started) ? started->group : NULL;
        if (group != NULL) tti_group_cancel(group);
        tti_unlock(&comm->queue.lock);
        if (group != NULL) tti_group_wake(group);
    }
}
