/* SPDX-License-Identifier: Apache-2.0
 *
 * What goes wrong in a random program, and what follows from it for every rank: calls on comms that are hit may fail from
 * then on, in time and with an error that names the victim, and say later that the comm is broken; all else goes on as if
 * nothing had been.
 */
#include "base/clock.h"
#include "base/sim.h"
#include "check_program.h"

#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { MET_MS = 60000, EXTRA_MS = 500, SLACK_MS = 15000 };

struct program_faulted *program_faulted;
_Atomic int64_t (*program_fault_worst)[FAULT_KINDS];

static _Atomic(struct program_run *) kept;

static const struct {
    const char *name;
    tutti_status status; /* of what fails by it */
    int64_t limit_ms;    /* from the fault, or from when the call began, until it does */
} kinds[FAULT_KINDS] = {
    [FAULT_NONE] = {"nothing happens", TUTTI_OK, 0},
    [FAULT_KILL] = {"is killed", TUTTI_ERR_PEER_LOST, 200},
    [FAULT_END] = {"ends", TUTTI_ERR_PEER_LOST, 200},
    [FAULT_STOP] = {"is stopped for a while", TUTTI_OK, 0},
    [FAULT_CALL] = {"makes another call", TUTTI_ERR_MISMATCH, EXTRA_MS + 200},
    [FAULT_CANCEL] = {"cancels", TUTTI_ERR_CANCELLED, 200},
    [FAULT_LATE] = {"has no time", TUTTI_ERR_TIMEOUT, 200},
    [FAULT_FREE] = {"frees a comm", TUTTI_ERR_MISMATCH, 200},
    [FAULT_LEAVE] = {"leaves", TUTTI_ERR_MISMATCH, 200},
};

const char *program_fault_text(const struct program *program, char *text, size_t bytes)
{
    const struct program_fault *fault = &program->fault;
    text[0] = '\0';
    if (fault->kind != FAULT_NONE)
        snprintf(text, bytes, "rank %d %s at action %d (family %d), ", fault->victim, kinds[fault->kind].name,
                 fault->at, atomic_load(&program_faulted->family));
    return text;
}

static void pause_us(int64_t us)
{
    struct timespec time = {us / 1000000, us % 1000000 * 1000};
    if (tti_sim != NULL)
        tti_sim_sleep(us * 1000);
    else
        nanosleep(&time, NULL);
}

/* A thread that waits for ops of the comm may overwrite its error at any time. */
static bool is_readable(const struct program_run *run)
{
    return run->asides[0] == NULL && run->asides[1] == NULL;
}

/* ---- By the test ------------------------------------------------------------------------------------------------- */

void program_fault_meanwhile(const struct conf_world *world, const pid_t *pids)
{
    const struct program *program = world->context;
    const struct program_fault *fault = &program->fault;
    int each = world->ranks == WORLD_PAIRS && world->size % 2 == 0 ? 2 : 1;
    if (fault->kind != FAULT_KILL && fault->kind != FAULT_STOP) return;
    for (int64_t until = tti_now_ns() + MET_MS * INT64_C(1000000); !atomic_load(&program_faulted->reached);) {
        if (tti_now_ns() > until) return;
        pause_us(50);
    }
    pause_us(program_pick(program->seed, 61, 2) == 0 ? 0 : program_pick(program->seed, 62, 3000));
    atomic_store(&program_faulted->struck_ns, tti_now_ns());
    if (fault->kind == FAULT_STOP) {
        kill(pids[fault->victim / each], SIGSTOP);
        pause_us(1000 + program_pick(program->seed, 63, 150000));
        kill(pids[fault->victim / each], SIGCONT);
        return;
    }
    for (int rank = 0; rank < world->size; rank += each) {
        if ((fault->gone >> rank & 1) == 0) continue;
        kill(pids[rank / each], SIGKILL);
        pause_us(program_pick(program->seed, 64, 500));
    }
}

/* ---- By the victim ----------------------------------------------------------------------------------------------- */

static void strike(int family)
{
    atomic_store(&program_faulted->family, family);
    atomic_store(&program_faulted->struck_ns, tti_now_ns());
}

/* Who frees a comm waits for these, and others may meanwhile wait for it elsewhere. */
static bool has_messages(const struct program_run *run, int family)
{
    for (int i = 0; i < PROGRAM_ITEMS; i++)
        if (run->live[i] != NULL && run->live[i]->started && run->live[i]->item->family == family &&
            run->live[i]->item->content >= CONTENT_LETTERS)
            return true;
    return false;
}

static bool can_leave(const struct program_run *run)
{
    int family = 1;
    while (family < PROGRAM_FAMILIES && !has_messages(run, family)) family++;
    return family == PROGRAM_FAMILIES;
}

/* A comm that no thread has for itself; -1: there is none with others. */
static int pick_family(const struct program_run *run, bool to_free)
{
    int first = program_pick(run->program->seed, 71, PROGRAM_FAMILIES);
    for (int i = 0; i < PROGRAM_FAMILIES; i++) {
        int family = (first + i) % PROGRAM_FAMILIES;
        if (run->comms[family] == NULL || tutti_size(run->comms[family]) == 1) continue;
        bool usable = !to_free ||
                      (family != 0 && run->program->families[family].sibling < 0 && !has_messages(run, family));
        if (usable) return family;
    }
    return -1;
}

static void join_asides(struct program_run *run)
{
    for (int i = 0; i < PROGRAM_ASIDES; i++) program_join_aside(run, i);
}

void program_fault_keep(struct program_run *run)
{
    run->kept = atomic_load(&kept);
    while (!atomic_compare_exchange_weak(&kept, &run->kept, run)) {}
}

static void end_here(struct program_run *run)
{
    strike(-1);
    if (!run->program->fault.thread && !SANITIZED && program_pick(run->program->seed, 72, 2) == 0) exit(3);
    if (!run->program->fault.thread) _exit(3);
    program_fault_keep(run);
    pthread_exit(NULL);
}

static void call_another(struct program_run *run, int family)
{
    static const size_t counts[] = {7, 777, 77777};
    size_t count = counts[program_pick(run->program->seed, 73, 3)];
    uint16_t *x = calloc(count, sizeof *x);
    strike(family);
    tutti_status status = tutti_all_reduce(tutti_within(run->comms[family], EXTRA_MS), x, x, count, TUTTI_U16,
                                           TUTTI_XOR);
    if (status == TUTTI_OK)
        program_check(run, false, "a call that nobody else makes has ended");
    else
        program_fault_excuses(run, family, status, "another call");
    free(x);
}

static bool may_cancel(const struct program_live *live)
{
    return live != NULL && live->item->content <= CONTENT_MANY && live->started && !live->dropped && !live->failed &&
           live->op_count == 1 && live->size > 1;
}

static void cancel_one(struct program_run *run)
{
    int first = program_pick(run->program->seed, 74, PROGRAM_ITEMS);
    for (int i = 0; i < PROGRAM_ITEMS; i++) {
        struct program_live *live = run->live[(first + i) % PROGRAM_ITEMS];
        if (!may_cancel(live)) continue;
        strike(live->item->family);
        tutti_status status = tutti_cancel(live->ops[0]);
        bool waited = status == TUTTI_ERR_HANDLE && !is_readable(run); /* a thread was faster */
        program_check(run, status == TUTTI_OK || waited, "cancel: %s", tutti_status_name(status));
        return;
    }
}

static void free_one(struct program_run *run, int family)
{
    strike(family);
    tutti_status status = tutti_comm_free(run->comms[family]);
    bool well = status == TUTTI_OK || status == TUTTI_ERR_MISMATCH; /* others may have gone on, and freed it, before */
    program_check(run, well, "freeing a comm early: %s", tutti_status_name(status));
    run->comms[family] = NULL;
    for (int i = 0; i < PROGRAM_ITEMS; i++)
        if (run->live[i] != NULL && run->live[i]->item->family == family) program_lay_down(run, run->live[i]);
}

/* The world is left after these. */
static void leave_comms(struct program_run *run)
{
    strike(-1);
    for (int family = PROGRAM_FAMILIES; family-- > 1;) {
        if (run->meshes[family] != NULL)
            tutti_mesh_free(run->meshes[family]);
        else if (run->comms[family] != NULL && run->program->families[family].sibling < 0)
            tutti_comm_free(run->comms[family]);
    }
}

bool program_fault_strike(struct program_run *run)
{
    const struct program_fault *fault = &run->program->fault;
    if (fault->kind == FAULT_KILL || fault->kind == FAULT_STOP) {
        atomic_store(&program_faulted->reached, true);
        return true;
    }
    if (fault->kind == FAULT_CANCEL) {
        for (int i = 0; i < PROGRAM_ASIDES; i++)
            if (program_is_calling(run, i)) program_join_aside(run, i);
        cancel_one(run);
        return true;
    }
    if (fault->kind != FAULT_END || fault->thread) join_asides(run);
    if (fault->kind == FAULT_END) end_here(run);
    if (fault->kind == FAULT_LEAVE && !can_leave(run)) return true;
    if (fault->kind == FAULT_LEAVE) {
        leave_comms(run);
        return false;
    }
    int family = pick_family(run, fault->kind == FAULT_FREE);
    if (family < 0) return true;
    if (fault->kind == FAULT_CALL) call_another(run, family);
    if (fault->kind == FAULT_FREE) free_one(run, family);
    if (fault->kind == FAULT_LATE) {
        strike(family);
        tutti_within(run->comms[family], 1 + program_pick(run->program->seed, 75, 3));
    }
    return true;
}

/* ---- By all ------------------------------------------------------------------------------------------------------ */

bool program_fault_hits(const struct program_run *run, int family)
{
    const struct program_fault *fault = &run->program->fault;
    const struct program_family *hit = &run->program->families[family];
    if (fault->kind == FAULT_NONE || fault->kind == FAULT_STOP || hit->group[run->rank] < 0) return false;
    if (fault->gone == 0)
        return family == atomic_load(&program_faulted->family) && hit->group[fault->victim] == hit->group[run->rank];
    for (int rank = 0; rank < run->program->size; rank++)
        if ((fault->gone >> rank & 1) != 0 && hit->group[rank] == hit->group[run->rank]) return true;
    return false;
}

bool program_fault_has_broken(const struct program_run *run, int family)
{
    return atomic_load(&run->state->broken[family]);
}

bool program_fault_suspects(const struct program_run *run, int family)
{
    bool hits = program_fault_hits(run, family);
    if (hits) atomic_store(&run->state->vague[family], true);
    return hits;
}

/* The victim, or one of them, by its rank there. */
static bool names_victim(const struct program_run *run, int family, const tutti_error *error)
{
    const struct program_fault *fault = &run->program->fault;
    const struct program_family *hit = &run->program->families[family];
    unsigned victims = fault->gone | 1u << fault->victim;
    for (int rank = 0; rank < run->program->size; rank++) {
        char name[16];
        if ((victims >> rank & 1) == 0 || hit->group[rank] != hit->group[run->rank]) continue;
        snprintf(name, sizeof name, "rank %d", hit->place[rank]);
        if (strstr(error->text, name) == NULL) continue;
        if (kinds[fault->kind].status != TUTTI_ERR_PEER_LOST || error->peer == hit->place[rank]) return true;
    }
    return false;
}

/* Another thread of this rank may just be told first. */
static bool is_expected(const struct program_run *run, tutti_status status, bool first)
{
    const struct program_fault *fault = &run->program->fault;
    bool broken = status == TUTTI_ERR_BROKEN && (!first || !is_readable(run));
    if (status == kinds[fault->kind].status || broken) return true;
    if (run->rank == fault->victim) return true;
    return fault->kind == FAULT_CALL && status == TUTTI_ERR_TIMEOUT;
}

static void look_at_time(const struct program_run *run, const char *call)
{
    int64_t struck = atomic_load(&program_faulted->struck_ns), since = run->began_ns > struck ? run->began_ns : struck;
    int64_t took = tti_now_ns() - since;
    int kind = (int)run->program->fault.kind;
    int64_t slack = tti_sim != NULL ? 0 : SLACK_MS;
    if (took > atomic_load(&(*program_fault_worst)[kind])) atomic_store(&(*program_fault_worst)[kind], took);
    program_check(run, took <= (kinds[kind].limit_ms + slack) * 1000000, "%s failed after %.1f ms", call,
                  (double)took / 1e6);
}

bool program_fault_excuses(const struct program_run *run, int family, tutti_status status, const char *call)
{
    if (family >= PROGRAM_FAMILIES || !program_fault_hits(run, family)) return false;
    if (atomic_load(&program_faulted->struck_ns) == 0) return false;
    bool first = !atomic_load(&run->state->broken[family]) && !atomic_load(&run->state->vague[family]);
    if (!is_expected(run, status, first)) return false;
    atomic_store(&run->state->broken[family], true);
    look_at_time(run, call);
    const tutti_error *error = is_readable(run) && run->comms[family] != NULL ? tutti_comm_error(run->comms[family])
                                                                              : NULL;
    bool sure = is_readable(run) && run->comms[family] != NULL && run->rank != run->program->fault.victim;
    if (!sure || !program_check(run, error != NULL, "%s: %s without an error", call, tutti_status_name(status)))
        return true;
    return program_check(run, names_victim(run, family, error), "%s: %s about rank %d: %s", call,
                         tutti_status_name(status), error->peer, error->text);
}

bool program_fault_stays(struct program_run *run, int family)
{
    tutti_comm *comm = run->comms[family];
    tutti_status status = tutti_barrier(comm);
    const tutti_error *error = is_readable(run) ? tutti_comm_error(comm) : NULL;
    return program_check(run, status == TUTTI_ERR_BROKEN && (error == NULL || names_victim(run, family, error)),
                         "a broken comm: %s: %s", tutti_status_name(status), error == NULL ? "" : error->text);
}

bool program_fault_made(struct program_run *run, int family, int from, bool here)
{
    enum { UNKNOWN, MADE, NOT_MADE };
    const struct program_family *parent = &run->program->families[from];
    bool all = here;
    if (parent->group[run->rank] < 0) return here;
    atomic_store(&program_faulted->made[family][run->rank], here ? MADE : NOT_MADE);
    int64_t until = tti_now_ns() + MET_MS * INT64_C(1000000);
    for (int rank = 0; rank < run->program->size; rank++) {
        if (parent->group[rank] != parent->group[run->rank] || (run->program->fault.gone >> rank & 1) != 0) continue;
        while (atomic_load(&program_faulted->made[family][rank]) == UNKNOWN) {
            if (tti_now_ns() > until)
                return program_check(run, false, "rank %d has not made its comm, nor failed to", rank);
            pause_us(50);
        }
        all = all && atomic_load(&program_faulted->made[family][rank]) == MADE;
    }
    return all;
}
