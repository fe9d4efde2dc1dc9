/* SPDX-License-Identifier: Apache-2.0 */
#include "check_program.h"

#include "base/clock.h"

#include <pthread.h>
#include <sched.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

atomic_ulong (*program_arrivals)[PROGRAM_RANKS];

void program_begin(void)
{
    program_arrivals = mmap(NULL, PROGRAM_ITEMS * sizeof *program_arrivals, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    program_faulted = mmap(NULL, sizeof *program_faulted, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    program_fault_worst = mmap(NULL, sizeof *program_fault_worst, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                               -1, 0);
    if (program_arrivals == MAP_FAILED || program_faulted == MAP_FAILED || program_fault_worst == MAP_FAILED) abort();
}

void program_reset(void)
{
    memset((void *)program_arrivals, 0, PROGRAM_ITEMS * sizeof *program_arrivals);
    memset((void *)program_faulted, 0, sizeof *program_faulted);
    atomic_store(&program_faulted->family, -1);
}

bool program_check(const struct program_run *run, bool condition, const char *format, ...)
{
    char what[600], action[300], fault[100];
    if (condition) return CHECK_THAT(true, " ");
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const struct program *program = run->program;
    atomic_store(&run->state->failed, true);
    return CHECK_THAT(
        false, "seed %llu, %srank %d of %d, %s: %s; to see it alone: %s %llu:1 \"%s\"",
        (unsigned long long)program->seed, program_fault_text(program, fault, sizeof fault), run->rank, program->size,
        run->action == NULL ? "at the end" : program_action_text(program, run->action, action, sizeof action), what,
        program->test, (unsigned long long)program->seed, program->world);
}

bool program_ok(const struct program_run *run, tutti_comm *comm, tutti_status status, const char *call)
{
    int family = 0;
    while (family < PROGRAM_FAMILIES && run->comms[family] != comm) family++;
    if (status != TUTTI_OK && program_fault_excuses(run, family, status, call)) return false;
    const tutti_error *error = status == TUTTI_OK ? NULL : tutti_comm_error(comm);
    return program_check(run, status == TUTTI_OK, "%s: %s: %s", call, tutti_status_name(status),
                         error == NULL ? "" : error->text);
}

static int group_of(const struct program_run *run, const struct program_item *item)
{
    return run->program->families[item->family].group[run->rank];
}

/* ---- Items on their way ------------------------------------------------------------------------------------------ */

struct program_live *program_item_take(struct program_run *run, int number)
{
    struct program_live *live = calloc(1, sizeof *live);
    live->item = &run->program->items[number];
    live->comm = run->comms[live->item->family];
    live->rank = tutti_rank(live->comm);
    live->size = tutti_size(live->comm);
    run->live[number] = live;
    return live;
}

void program_lay_down(struct program_run *run, struct program_live *live)
{
    for (int i = 0; i < live->piece_count; i++) program_piece_free(&live->pieces[i], run->memory);
    run->live[live->item->number] = NULL;
    free(live);
}

static bool on_stream(const struct program_run *run, const struct program_item *item)
{
    return item->on_stream && run->program->fault.kind == FAULT_NONE;
}

bool program_item_place(struct program_run *run, struct program_live *live)
{
    const struct program_item *item = live->item;
    const struct program_device *device = on_stream(run, item) ? program_device(run) : NULL;
    if (on_stream(run, item) && device == NULL) return false;
    int size = live->size, rank = live->rank, group = group_of(run, item);
    for (int i = 0; i < item->pieces; i++) {
        struct program_piece *piece = &live->pieces[live->piece_count++];
        *piece = (struct program_piece){.table = program_table(item), .rank = rank};
        if (device != NULL) piece->device = device->device;
        piece->one = program_case(item, i, group, size);
        conf_layout_of(&piece->one, size, rank, &piece->layout);
        if (!program_check(
                run, program_piece_place(piece, run->memory, conf_hash(item->seed, (uint64_t)(run->rank * 64 + i))),
                "no memory"))
            return false;
    }
    return true;
}

void program_item_fill(struct program_run *run, struct program_live *live)
{
    uint64_t call = conf_hash(live->item->seed, 3000 + (uint64_t)(live->turn++ * 16 + group_of(run, live->item)));
    for (int i = 0; i < live->piece_count; i++)
        program_piece_fill(&live->pieces[i], (size_t)program_pick(call, (uint64_t)i, PROGRAM_SHIFTS));
    if (live->item->one.kind == TTI_BARRIER)
        atomic_fetch_add_explicit(&program_arrivals[live->item->number][group_of(run, live->item)], 1,
                                  memory_order_relaxed);
}

static tutti_status start_orphan(struct program_run *run, struct program_live *live)
{
    const struct program_item *item = live->item;
    struct program_piece *piece = &live->pieces[live->piece_count++];
    size_t count = item->one.count;
    *piece = (struct program_piece){.one = item->one, .table = program_table(item)};
    piece->layout = item->sends ? (struct conf_layout){.in_used = true, .in_count = count}
                                : (struct conf_layout){.out_used = true, .out_count = count};
    if (!program_piece_place(piece, run->memory, item->seed + (uint64_t)run->rank)) return TUTTI_ERR_MEMORY;
    program_piece_fill(piece, 0);
    int peer = item->any_source ? TUTTI_ANY_SOURCE : program_pick(item->seed, (uint64_t)run->rank, live->size);
    if (item->sends)
        return tutti_send_start(live->comm, piece->in_pointer, count, item->one.type, peer, item->tag,
                                &live->ops[live->op_count++]);
    return tutti_recv_start(live->comm, piece->out_pointer, count, item->one.type, peer, item->tag, NULL,
                            &live->ops[live->op_count++]);
}

/* ---- Ends -------------------------------------------------------------------------------------------------------- */

bool program_item_check(struct program_run *run, struct program_live *live)
{
    const struct program_item *item = live->item;
    char text[200] = "";
    bool good = true;
    if (item->content == CONTENT_LETTERS) return program_letters_check(run, live);
    for (int i = 0; i < live->piece_count && good; i++)
        good = program_check(run, program_piece_check(&live->pieces[i], text, sizeof text),
                             "item %d, piece %d of %d, %s", item->number, i, live->piece_count, text);
    if (item->one.kind != TTI_BARRIER) return good;
    unsigned long least = (unsigned long)live->turn *
                          (unsigned long)run->program->families[item->family].size[run->rank];
    unsigned long came = atomic_load_explicit(&program_arrivals[item->number][group_of(run, item)],
                                              memory_order_relaxed);
    return program_check(run, came >= least, "item %d, a barrier ended when %lu of %lu had come", item->number, came,
                         least);
}

bool program_settle(struct program_run *run, int family, bool freed)
{
    if (run->memory != run->world) return true; /* a thread that is aside: it has no items but its own */
    for (int i = 0; i < run->program->item_count; i++) {
        struct program_live *live = run->program->items[i].family == family ? run->live[i] : NULL;
        if (live == NULL || !(live->dropped || freed)) continue;
        if (live->item->drops != DROPS_NONE && !freed) continue;
        for (int k = 0; k < live->op_count && !live->dropped; k++)
            program_check(run, tutti_test(live->ops[k]) == TUTTI_ERR_HANDLE, "the handle of item %d is not void", i);
        bool sure = !live->failed && !(freed && program_fault_hits(run, family));
        if (live->started && sure && !program_item_check(run, live)) return false;
        program_lay_down(run, live);
    }
    return true;
}

struct waited {
    tutti_op ops[PROGRAM_TOGETHER * 2 * PROGRAM_LETTERS];
    struct program_live *owners[PROGRAM_TOGETHER * 2 * PROGRAM_LETTERS];
    int count;
};

/* False: in a way it should not have. */
static bool ended(struct program_run *run, const struct waited *waited, int index, tutti_status status,
                  const char *call)
{
    struct program_live *live = waited->owners[index];
    if (status == TUTTI_OK) return true;
    live->failed = true;
    if (program_fault_excuses(run, live->item->family, status, call)) return true;
    const tutti_error *error = tutti_comm_error(live->comm);
    return program_check(run, false, "%s: item %d: %s: %s", call, live->item->number, tutti_status_name(status),
                         error == NULL ? "" : error->text);
}

static bool wait_each(struct program_run *run, const struct waited *waited, int how)
{
    int count = waited->count;
    int first = count == 0 ? 0 : program_pick(run->action->seed, (uint64_t)run->rank + 10, count);
    for (int i = 0; i < count; i++) {
        int index = (first + i * (how == 0 ? 1 : count - 1)) % count;
        tutti_op op = waited->ops[index];
        tutti_status status = TUTTI_IN_PROGRESS;
        for (int k = 0; k < 3 && how == 2 && status == TUTTI_IN_PROGRESS; k++) status = tutti_test(op);
        while (how == 3 && status == TUTTI_IN_PROGRESS) status = tutti_wait_for(op, i % 3);
        if (status == TUTTI_IN_PROGRESS) status = tutti_wait(op);
        if (!ended(run, waited, index, status, "wait")) return false;
    }
    return true;
}

static bool wait_any(struct program_run *run, struct waited *waited)
{
    int count = waited->count;
    for (int left = count; left > 0;) {
        size_t index = (size_t)count;
        tutti_status status = tutti_wait_any(waited->ops, (size_t)count, left % 2 == 0 ? -1 : 1, &index);
        if (status == TUTTI_IN_PROGRESS) continue;
        if (!program_check(run, index < (size_t)count, "wait_any: %s, %zu of %d", tutti_status_name(status), index,
                           count) ||
            !ended(run, waited, (int)index, status, "wait_any"))
            return false;
        waited->ops[index].id = 0;
        left--;
    }
    return true;
}

/* Which of them have failed is not said. */
static bool wait_all(struct program_run *run, const struct waited *waited)
{
    tutti_status status = tutti_wait_all(waited->ops, (size_t)waited->count);
    bool excused = false;
    for (int i = 0; i < waited->count && status != TUTTI_OK; i++) {
        waited->owners[i]->failed = true;
        excused = program_fault_suspects(run, waited->owners[i]->item->family) || excused;
    }
    return program_check(run, status == TUTTI_OK || excused, "wait_all: %s", tutti_status_name(status));
}

/* What could not be started has no handle. */
static void collect(struct program_run *run, const struct program_action *action, struct waited *waited)
{
    waited->count = 0;
    for (int i = 0; i < action->count; i++) {
        struct program_live *live = run->live[action->items[i]];
        for (int k = 0; live != NULL && k < live->op_count; k++) {
            if (live->ops[k].id == 0 || !live->started) continue;
            waited->owners[waited->count] = live;
            waited->ops[waited->count++] = live->ops[k];
        }
    }
}

static bool wait_for_items(struct program_run *run, const struct program_action *action)
{
    struct waited waited;
    int how = program_pick(action->seed, (uint64_t)run->rank, 6);
    collect(run, action, &waited);
    if (!(how == 4 ? wait_any(run, &waited) : how == 5 ? wait_all(run, &waited) : wait_each(run, &waited, how)))
        return false;
    for (int i = 0; i < action->count; i++) {
        struct program_live *live = run->live[action->items[i]];
        if (live != NULL && live->started && !live->failed && !program_item_check(run, live)) return false;
    }
    return true;
}

static void lay_down_waited(struct program_run *run, const struct program_action *action)
{
    for (int i = 0; i < action->count; i++) {
        struct program_live *live = run->live[action->items[i]];
        if (live == NULL) continue;
        live->dropped = live->item->drops != DROPS_NONE;
        live->started = live->dropped;
        if (!live->item->prepared && !live->dropped) program_lay_down(run, live);
    }
}

static bool cancel(struct program_run *run, struct program_live *live)
{
    tutti_op op = live->ops[0];
    char text[200] = "";
    tutti_status status = tutti_cancel(op);
    if (!program_check(run, status == TUTTI_OK, "cancel: %s", tutti_status_name(status))) return false;
    status = program_pick(run->action->seed, (uint64_t)run->rank, 3) == 0 ? tutti_drop(op) : tutti_wait(op);
    if (status != TUTTI_OK && status != TUTTI_ERR_CANCELLED &&
        program_fault_excuses(run, live->item->family, status, "cancelled")) {
        program_lay_down(run, live);
        return false;
    }
    if (!program_check(run, status == TUTTI_OK || status == TUTTI_ERR_CANCELLED, "cancelled: %s",
                       tutti_status_name(status)))
        return false;
    program_fault_suspects(run, live->item->family); /* another rank's cancelling has the same status */
    if (status == TUTTI_OK) { /* its end is seen by nobody: it keeps its memory until the comm is freed */
        live->dropped = true;
        live->started = false;
        return true;
    }
    bool right = program_check(run, program_piece_check(&live->pieces[0], text, sizeof text), "%s", text);
    program_lay_down(run, live);
    return right;
}

/* ---- Items ------------------------------------------------------------------------------------------------------- */

bool program_item_is_message(const struct program_item *item)
{
    return item->content == CONTENT_LETTERS || item->content == CONTENT_ORPHAN;
}

static bool run_item(struct program_run *run, int number)
{
    struct program_live *live = program_item_take(run, number);
    int family = live->item->family;
    if (program_item_is_message(live->item)) {
        if (!program_letters_post(run, live, false) || !program_letters_check(run, live)) return false;
        program_lay_down(run, live);
        return true;
    }
    if (!program_item_place(run, live)) return false;
    program_item_fill(run, live);
    bool streams = on_stream(run, live->item);
    if (streams) tutti_on(live->comm, program_device(run)->stream);
    if (!program_ok(run, live->comm, program_call(live, NULL), "call")) return false;
    if (streams && !program_device_sync(run)) return false;
    if (!program_item_check(run, live)) return false;
    program_lay_down(run, live);
    return program_settle(run, family, false);
}

/* Between ranks that share memory, what was said to the receiver cannot be taken back. */
static bool can_take_back(const struct program_run *run, const struct program_item *item)
{
    if (item->sends && !run->program->withdraws) return false;
    return !item->sends || strstr(tutti_comm_transport(run->comms[item->family]), "tcp") != NULL;
}

static bool start_item(struct program_run *run, int number)
{
    if (!can_take_back(run, &run->program->items[number])) return true;
    struct program_live *live = program_item_take(run, number);
    live->started = true;
    if (live->item->content == CONTENT_ORPHAN)
        return program_ok(run, live->comm, start_orphan(run, live), "recv_start") && program_ends_watch(run, live);
    if (live->item->content == CONTENT_LETTERS)
        return program_letters_post(run, live, false) && program_ends_watch(run, live);
    if (!program_item_place(run, live)) return false;
    program_item_fill(run, live);
    if (on_stream(run, live->item)) tutti_on(live->comm, program_device(run)->stream);
    return program_ok(run, live->comm, program_call(live, &live->ops[live->op_count++]), "start") &&
           program_ends_watch(run, live);
}

static bool prepare_item(struct program_run *run, int number)
{
    struct program_live *live = program_item_take(run, number);
    if (program_item_is_message(live->item))
        return program_letters_post(run, live, false) && program_ends_watch(run, live);
    if (!program_item_place(run, live)) return false;
    if (on_stream(run, live->item)) tutti_on(live->comm, program_device(run)->stream);
    tutti_prepared(live->comm);
    return program_ok(run, live->comm, program_call(live, &live->ops[live->op_count++]), "prepare") &&
           program_ends_watch(run, live);
}

static bool start_again(struct program_run *run, struct program_live *live)
{
    if (program_item_is_message(live->item)) {
        live->started = program_letters_again(run, live);
    } else {
        program_item_fill(run, live);
        live->started = program_ok(run, live->comm, tutti_start(live->ops[0]), "start again");
    }
    if (live->started) program_ends_expect(run, live);
    return live->started;
}

static bool drop_item(struct program_run *run, struct program_live *live)
{
    for (int i = 0; i < live->op_count; i++)
        if (!program_check(run, tutti_drop(live->ops[i]) == TUTTI_OK, "drop failed")) return false;
    live->dropped = true;
    if (!live->started) program_lay_down(run, live);
    return true;
}

static bool run_items(struct program_run *run, const struct program_action *action)
{
    for (int i = 0; i < action->count; i++)
        if ((run->program->messages || !program_item_is_message(&run->program->items[action->items[i]])) &&
            !run_item(run, action->items[i]))
            return false;
    return true;
}

/* ---- Threads ----------------------------------------------------------------------------------------------------- */

struct program_aside {
    pthread_t thread;
    struct program_run run;
    bool good;
};

static void *do_aside(void *argument)
{
    struct program_aside *aside = argument;
    const struct program_action *action = aside->run.action;
    aside->good = action->kind == DO_WAIT ? wait_for_items(&aside->run, action) : run_items(&aside->run, action);
    return NULL;
}

static bool start_aside(struct program_run *run, const struct program_action *action)
{
    struct program_aside *aside = calloc(1, sizeof *aside);
    aside->run = *run;
    aside->run.asides[action->other] = aside;
    if (action->kind == DO_RUN) aside->run.memory = run->comms[action->family];
    if (!program_check(run, pthread_create(&aside->thread, NULL, do_aside, aside) == 0, "no thread")) return false;
    run->asides[action->other] = aside;
    return true;
}

bool program_is_calling(const struct program_run *run, int slot)
{
    return run->asides[slot] != NULL && run->asides[slot]->run.action->kind == DO_RUN;
}

bool program_join_aside(struct program_run *run, int slot)
{
    struct program_aside *aside = run->asides[slot];
    if (aside == NULL) return true;
    pthread_join(aside->thread, NULL);
    run->asides[slot] = NULL;
    bool good = aside->good;
    if (good && aside->run.action->kind == DO_WAIT) lay_down_waited(run, aside->run.action);
    free(aside);
    return good;
}

/* ---- Actions ----------------------------------------------------------------------------------------------------- */

static bool wait_here(struct program_run *run, const struct program_action *action)
{
    if (!wait_for_items(run, action)) return false;
    lay_down_waited(run, action);
    return true;
}

static bool look_at_stats(struct program_run *run, tutti_comm *comm)
{
    tutti_stats stats = {.struct_size = sizeof stats};
    int64_t waits[PROGRAM_RANKS];
    return program_ok(run, comm, tutti_comm_stats(comm, &stats), "comm_stats") &&
           program_ok(run, comm, tutti_comm_waits(comm, waits), "comm_waits");
}

static bool act_on_item(struct program_run *run, int number)
{
    struct program_live *live = run->live[number];
    switch (run->action->kind) {
    case DO_START: return start_item(run, number);
    case DO_PREPARE: return prepare_item(run, number);
    case DO_SECOND: return program_letters_post(run, live, true) && program_ends_watch(run, live);
    case DO_AGAIN: return start_again(run, live);
    case DO_DROP: return drop_item(run, live);
    default: return live == NULL || cancel(run, live);
    }
}

static bool act(struct program_run *run, const struct program_action *action)
{
    const struct program *program = run->program;
    tutti_comm *comm = run->comms[action->family];
    tutti_tuning tuning = conf_tuning_of(action->tuning);
    run->action = action;
    run->began_ns = tti_now_ns();
    bool aside = action->aside && program->threads;
    if (action->kind == DO_GROUP) return program_group_run(run, action);
    if (action->kind == DO_JOIN) return program_join_aside(run, action->other);
    if (action->kind == DO_WAIT) return aside ? start_aside(run, action) : wait_here(run, action);
    if (comm == NULL) {
        if (action->kind == DO_MAKE && program->fault.kind != FAULT_NONE) /* it was there before the fault */
            program_fault_made(run, action->other, action->family, false);
        return true;
    }
    if (program_fault_has_broken(run, action->family) && action->kind != DO_FREE) {
        if (action->kind == DO_MAKE) program_fault_made(run, action->other, action->family, false);
        return program_fault_stays(run, action->family);
    }
    for (int i = program_pick(action->seed, (uint64_t)run->rank + 99, 12); i > 8; i--) sched_yield();
    switch (action->kind) {
    case DO_MAKE: return program_comms_make(run, comm);
    case DO_FREE: return program_comms_free(run);
    case DO_TUNE:
        return program_ok(run, comm, tutti_tuning_set(comm, &tuning), "tuning_set") &&
               program_settle(run, action->family, false);
    case DO_BY_HOST: return program_comms_by_host(run, comm);
    case DO_STATS: return look_at_stats(run, comm);
    case DO_RUN: return aside ? start_aside(run, action) : run_items(run, action);
    default: break;
    }
    if (!program->messages && program_item_is_message(&program->items[action->items[0]])) return true;
    bool good = act_on_item(run, action->items[0]);
    if (!good && run->live[action->items[0]] != NULL) run->live[action->items[0]]->failed = true;
    return good;
}

/* This one and those that go together with it, in an order of this rank's own. */
static bool act_together(struct program_run *run, const struct program_action *first)
{
    int count = first->together + 1, begin = program_pick(first->seed, (uint64_t)run->rank, count);
    for (int i = 0; i < count; i++)
        if (!act(run, &first[(begin + i) % count]) && atomic_load(&run->state->failed)) return false;
    return true;
}

/* With a fault, what fails by it is left alone, and all else goes on. */
static bool act_all(struct program_run *run)
{
    const struct program *program = run->program;
    const struct program_fault *fault = &program->fault;
    for (int i = 0, next; i < program->action_count; i = next) {
        next = i + 1 + program->actions[i].together;
        bool struck = fault->kind != FAULT_NONE && fault->victim == run->rank && fault->at >= i && fault->at < next;
        if (struck && !program_fault_strike(run)) return false;
        if (!act_together(run, &program->actions[i])) return false;
    }
    return true;
}

static void end(struct program_run *run)
{
    bool broken = program_fault_has_broken(run, 0);
    run->action = NULL;
    run->began_ns = tti_now_ns();
    if (!atomic_load(&run->state->failed) && !broken &&
        program_ok(run, run->world, tutti_barrier(run->world), "the last barrier"))
        program_settle(run, 0, false);
    for (int i = 0; i < run->program->item_count && run->program->fault.kind == FAULT_NONE; i++)
        if (run->live[i] != NULL) program_lay_down(run, run->live[i]); /* prepared, and not dropped */
    if (run->program->fault.kind == FAULT_NONE && !atomic_load(&run->state->failed)) program_ends_check(run);
    program_device_close(run);
}

void program_run(tutti_comm *world, void *context)
{
    struct program_run *run = calloc(1, sizeof *run);
    run->program = context;
    run->world = run->memory = run->comms[0] = world;
    run->live = calloc(PROGRAM_ITEMS, sizeof *run->live);
    run->state = calloc(1, sizeof *run->state);
    run->ends = calloc(PROGRAM_ITEMS, sizeof *run->ends);
    run->device = calloc(1, sizeof *run->device);
    run->rank = tutti_rank(world);
    bool whole = act_all(run);
    for (int i = 0; i < PROGRAM_ASIDES; i++) program_join_aside(run, i);
    if (whole) end(run);
    atomic_store(&program_faulted->ended_ns, tti_now_ns());
    if (run->program->fault.kind != FAULT_NONE) {
        program_fault_keep(run);
        return;
    }
    free(run->state);
    free(run->live);
    free(run->ends);
    free(run->device);
    free(run);
}
