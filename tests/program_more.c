/* SPDX-License-Identifier: Apache-2.0
 *
 * Groups of several comms, callbacks, and streams of device host in random programs.
 */
#include "check_program.h"

#include "base/clock.h"

#include <stdlib.h>
#include <string.h>

#define S INT64_C(1000000000)
enum { LONG_MS = 100000 };

/* ---- Device host ------------------------------------------------------------------------------------------------- */

struct program_device *program_device(struct program_run *run)
{
    struct program_device *device = run->device;
    tutti_error error = {0};
    if (device->device == NULL) {
        bool made = tutti_device_open("host", &device->device, &error) == TUTTI_OK &&
                    tutti_stream_create(device->device, &device->stream, &error) == TUTTI_OK;
        if (!program_check(run, made, "device host: %s", error.text)) return NULL;
    }
    return device;
}

bool program_device_sync(struct program_run *run)
{
    tutti_error error = {0};
    return program_check(run, tutti_stream_sync(run->device->stream, LONG_MS, &error) == TUTTI_OK, "%s", error.text);
}

void program_device_close(struct program_run *run)
{
    struct program_device *device = run->device;
    tutti_error error = {0};
    if (device->device == NULL) return;
    program_check(run, tutti_stream_free(device->stream, &error) == TUTTI_OK, "stream_free: %s", error.text);
    program_check(run, tutti_device_free(device->device, &error) == TUTTI_OK, "device_free: %s", error.text);
}

/* ---- Callbacks --------------------------------------------------------------------------------------------------- */

static void count_end(void *context, tutti_status status, const tutti_error *error)
{
    struct program_ends *ends = context;
    bool right = status == TUTTI_OK ? error == NULL : status < 0 && error != NULL && error->status == status;
    if (!right) atomic_fetch_add(&ends->wrong, 1);
    atomic_fetch_add(&ends->calls, 1);
}

bool program_ends_watch(struct program_run *run, struct program_live *live)
{
    const struct program_item *item = live->item;
    struct program_ends *ends = &run->ends[item->number];
    for (; item->notified && live->watched < live->op_count; live->watched++) {
        tutti_op op = live->ops[live->watched];
        tutti_status status = op.id == 0 ? TUTTI_ERR_HANDLE : tutti_when_ended(op, count_end, ends);
        if (status != TUTTI_OK && run->program->fault.kind != FAULT_NONE) continue;
        if (!program_check(run, status == TUTTI_OK, "when_ended of item %d: %s", item->number,
                           tutti_status_name(status)))
            return false;
        ends->expected += !item->prepared;
    }
    return true;
}

void program_ends_expect(struct program_run *run, const struct program_live *live)
{
    run->ends[live->item->number].expected += live->watched;
}

bool program_ends_check(struct program_run *run)
{
    bool right = true;
    int64_t until = tti_now_ns() + 20 * S;
    for (int i = 0; i < run->program->item_count; i++) {
        struct program_ends *ends = &run->ends[i];
        while (atomic_load(&ends->calls) < ends->expected && tti_now_ns() < until) tutti_spend_ns(100000);
        int calls = atomic_load(&ends->calls), wrong = atomic_load(&ends->wrong);
        right = program_check(run, calls == ends->expected && wrong == 0,
                              "item %d ended %d times, its callbacks were called %d times, %d of these wrongly", i,
                              ends->expected, calls, wrong) &&
                right;
    }
    return right;
}

/* ---- Groups ------------------------------------------------------------------------------------------------------ */

struct group {
    tutti_comm *comm; /* on which it was begun */
    bool in[PROGRAM_FAMILIES];
    struct program_live *lives[PROGRAM_TOGETHER];
    int count;
};

static bool enter(struct program_run *run, struct group *group, int family)
{
    tutti_comm *comm = run->comms[family];
    if (group->in[family]) return true;
    group->in[family] = true;
    if (group->comm != NULL) return program_ok(run, group->comm, tutti_group_add(group->comm, comm), "group_add");
    group->comm = comm;
    return program_ok(run, comm, tutti_group_begin(comm), "group_begin");
}

static bool note(struct program_run *run, struct group *group, int number)
{
    const struct program_item *item = &run->program->items[number];
    if (!enter(run, group, item->family)) return false;
    struct program_live *live = program_item_take(run, number);
    group->lives[group->count++] = live;
    live->started = true;
    if (program_item_is_message(item)) return program_letters_post_in_group(run, live);
    if (!program_item_place(run, live)) return false;
    program_item_fill(run, live);
    return program_ok(run, live->comm, program_call(live, NULL), "a call in a group");
}

/* Notes the calls of each comm in the program's order, of comms in this rank's own. */
static bool note_all(struct program_run *run, const struct program_action *action, struct group *group)
{
    int first = program_pick(action->seed, (uint64_t)run->rank + 20, PROGRAM_FAMILIES);
    for (int i = 0; i < PROGRAM_FAMILIES; i++) {
        int family = (first + i) % PROGRAM_FAMILIES;
        for (int k = 0; k < action->count && run->comms[family] != NULL; k++) {
            const struct program_item *item = &run->program->items[action->items[k]];
            bool skipped = item->family != family || (program_item_is_message(item) && !run->program->messages);
            if (!skipped && !note(run, group, item->number)) return false;
        }
    }
    return true;
}

/* Blocking, or started and waited for. */
static bool end_group(struct program_run *run, struct group *group, uint64_t seed)
{
    struct program_ends ends = {0};
    tutti_op op;
    if (program_pick(seed, (uint64_t)run->rank + 30, 2) == 0)
        return program_ok(run, group->comm, tutti_group_end(group->comm), "group_end");
    if (!program_ok(run, group->comm, tutti_group_end_start(group->comm, &op), "group_end_start") ||
        !program_check(run, tutti_when_ended(op, count_end, &ends) == TUTTI_OK, "when_ended of a group") ||
        !program_ok(run, group->comm, tutti_wait(op), "waiting for a group"))
        return false;
    for (int64_t until = tti_now_ns() + 20 * S; atomic_load(&ends.calls) == 0 && tti_now_ns() < until;)
        tutti_spend_ns(100000);
    return program_check(run, atomic_load(&ends.calls) == 1 && atomic_load(&ends.wrong) == 0,
                         "a group's callback was called %d times, %d of these wrongly", atomic_load(&ends.calls),
                         atomic_load(&ends.wrong));
}

bool program_group_run(struct program_run *run, const struct program_action *action)
{
    struct group group = {0};
    if (run->program->fault.kind != FAULT_NONE) return true; /* test_groups has groups that fail */
    if (!note_all(run, action, &group)) return false;
    if (group.comm == NULL) return true; /* this rank is in none of the comms */
    if (!end_group(run, &group, action->seed)) return false;
    for (int i = 0; i < group.count; i++)
        if (!program_item_check(run, group.lives[i])) return false;
    bool settled[PROGRAM_FAMILIES] = {false};
    for (int i = 0; i < group.count; i++) {
        const struct program_item *item = group.lives[i]->item;
        program_lay_down(run, group.lives[i]);
        if (!program_item_is_message(item)) settled[item->family] = true;
    }
    for (int family = 0; family < PROGRAM_FAMILIES; family++)
        if (settled[family] && !program_settle(run, family, false)) return false;
    return true;
}
