/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs the program of one seed. Ranks do random collectives, some at a time, and after them agree if all went well; if
 * not, they shrink and do them again. Everything follows from the seed and the number of the attempt, so each rank
 * knows what all others give.
 */
#include "cli/sim_program.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

/* One rank's state while it runs. */
struct self {
    struct program *program;
    tutti_comm *world, *comm;
    int id;           /* its rank in the world; other ranks are numbered so, too */
    uint64_t members; /* ranks of comm, a bit each */
    int places[FAULTS_MOST_RANKS];
    /* comms of the rank's part (see program->parts), or NULL; `renewed` becomes `part` if all agree */
    tutti_comm *part, *renewed;
    uint64_t *in, *out;
    int attempt;
    struct survivor *notes;
};

/* Returns the time since the start, or of the whole run once it is over; the clock may have jumped. */
static int64_t run_ns(const struct program *program)
{
    return program->took_ns >= 0 ? program->took_ns : tutti_sim_time_ns() - program->start_ns;
}

/* ---- What went wrong --------------------------------------------------------------------------------------------------- */

__attribute__((format(printf, 4, 5))) static bool blame(const struct self *self, bool holds, enum faults_kind kind,
                                                        const char *format, ...)
{
    struct faults_finding *finding = self->program->finding;
    char what[400];
    va_list arguments;
    if (holds || finding->kind != FAULTS_NONE) return holds;
    va_start(arguments, format);
    (void)vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    finding->kind = kind;
    (void)snprintf(finding->text, sizeof finding->text, "rank %d of the world, attempt %d, after %lld ns: %s", self->id,
                   self->attempt, (long long)run_ns(self->program), what);
    return false;
}

static bool blame_status(const struct self *self, const char *what, tutti_status status)
{
    const tutti_error *error = tutti_comm_error(self->comm);
    return blame(self, false, status == TUTTI_ERR_TIMEOUT ? FAULTS_HANG : FAULTS_FAILED, "%s gave %s: %s", what,
                 tutti_status_name(status), error != NULL ? error->text : "");
}

/* ---- Who lives --------------------------------------------------------------------------------------------------------- */

static bool has_died(const struct program *program, int id, int64_t before_ns)
{
    for (int i = 0; i < program->death_count && !program->rehearses; i++)
        if (program->deaths[i].rank == id && program->deaths[i].at_ns < before_ns) return true;
    return false;
}

static bool is_unsure(const struct program *program)
{
    return !program->rehearses && run_ns(program) >= program->unsure_ns;
}

/* Returns the ranks of the comm that may be gone: they have died by now, this instant included, or their work has
 * returned; or any, if ranks that live may have been given up. */
static uint64_t gone_by_now(const struct self *self)
{
    const struct program *program = self->program;
    uint64_t gone = 0;
    for (int id = 0; id < program->size; id++)
        if (program->ranks[id].ended || has_died(program, id, run_ns(program) + 1)) gone |= UINT64_C(1) << id;
    return is_unsure(program) ? self->members : gone & self->members;
}

static uint64_t dead_at(const struct self *self, int64_t ns)
{
    uint64_t dead = 0;
    for (int id = 0; id < self->program->size; id++)
        if (!self->program->ranks[id].ended && has_died(self->program, id, ns)) dead |= UINT64_C(1) << id;
    return dead & self->members;
}

/* Returns true if more than half of the comm is left, or half of it with its rank 0. On one host no majority is
 * needed. */
static bool may_go_on(const struct self *self, uint64_t gone)
{
    int size = __builtin_popcountll(self->members), left = size - __builtin_popcountll(gone);
    return self->program->hosts == 1 || 2 * left > size || (2 * left == size && (gone >> self->places[0] & 1) == 0);
}

/* Returns true if a deadline may have passed for a rank whose clock has jumped, or that waits for one that was
 * stopped. */
static bool may_be_late(const struct self *self)
{
    return !self->program->rehearses && run_ns(self->program) >= self->program->late_ns;
}

/* Checks that an agreement or a shrink that began at that time could end like this, with the ranks that lived then.
 * Returns false if the rank does not continue. */
static bool check_exclusion(const struct self *self, const char *what, tutti_status status, int64_t began_ns)
{
    if (status == TUTTI_OK)
        return blame(self, may_go_on(self, dead_at(self, began_ns)), FAULTS_DISAGREEMENT,
                     "%s succeeded, and of the comm's ranks %llx only a minority lived when it began", what,
                     (unsigned long long)self->members);
    bool late = status == TUTTI_ERR_TIMEOUT && may_be_late(self);
    if (status != TUTTI_ERR_EXCLUDED && !late) return blame_status(self, what, status);
    self->program->counts->excluded++;
    (void)blame(self, late || !may_go_on(self, gone_by_now(self)), FAULTS_DISAGREEMENT,
                "%s gave ERR_EXCLUDED, and of the comm's ranks %llx only %llx are gone", what,
                (unsigned long long)self->members, (unsigned long long)gone_by_now(self));
    return false;
}

/* ---- Collectives --------------------------------------------------------------------------------------------------------- */

static bool check_data(const struct self *self, const struct sim_step *step)
{
    size_t place;
    uint64_t right = 0;
    if (self->program->plant == PLANT_WRONG && gone_by_now(self) != 0) sim_step_spoil(step);
    bool is_right = sim_step_check(step, &place, &right);
    return blame(self, is_right, FAULTS_WRONG, "%s of %zu: element %zu is %llx, not %llx", step->name, step->count,
                 place, (unsigned long long)step->out[place], (unsigned long long)right);
}

/* Returns true if a rank was excluded and has ended, while others do not miss it yet. */
static bool somebody_left(const struct self *self)
{
    for (int id = 0; id < self->program->size; id++)
        if ((self->members >> id & 1) != 0 && self->program->ranks[id].ended) return true;
    return false;
}

/* True if a rank has revoked the comm after a failure in this attempt; or before, where the others may have agreed without it. */
static bool was_given_up(const struct self *self)
{
    const struct outcome *outcomes = self->program->outcomes;
    int first = is_unsure(self->program) ? 0 : self->attempt;
    for (int attempt = first; attempt <= self->attempt; attempt++)
        if (outcomes[attempt].given_up) return true;
    return false;
}

/* Checks that a failure is allowed: a rank is gone or late, or the comm was given up on purpose in this attempt. */
static bool check_failure(const struct self *self, const char *what, tutti_status status, bool revoked)
{
    revoked = revoked || was_given_up(self);
    bool may = status == TUTTI_ERR_PEER_LOST ? gone_by_now(self) != 0 : revoked && status == TUTTI_ERR_CANCELLED;
    if (revoked && status == TUTTI_ERR_BROKEN) may = true; /* revoked by another rank, before this op began */
    if (status == TUTTI_ERR_TIMEOUT && may_be_late(self)) may = true;
    if (status == TUTTI_ERR_MISMATCH && is_unsure(self->program) && somebody_left(self)) may = true;
    return may || blame_status(self, what, status);
}

static bool has_part(const struct self *self)
{
    return self->part != NULL && tutti_epoch(self->part) == tutti_epoch(self->comm);
}

/* Returns the comm of the step: the world or what is left of it, or the rank's part of that. `ids` gets its ranks. */
static tutti_comm *choose_comm(const struct self *self, bool part, int ids[FAULTS_MOST_RANKS])
{
    tutti_comm *comm = part && has_part(self) ? self->part : self->comm;
    for (int place = 0; place < tutti_size(comm); place++)
        ids[place] = comm == self->comm ? self->places[place] : tutti_world_rank(comm, place);
    return comm;
}

static bool do_step(struct self *self, uint64_t key, bool part, bool revoked, bool *ok)
{
    int ids[FAULTS_MOST_RANKS];
    struct sim_step step = {.comm = choose_comm(self, part, ids), .ids = ids, .in = self->in, .out = self->out};
    if (step.comm != self->comm) key += (uint64_t)ids[0] % 2;
    sim_step_choose(&step, key, ELEMENTS);
    sim_step_fill(&step);
    self->notes->doing = DOING_COLLECTIVE;
    tutti_status status = sim_step_do(&step);
    self->notes->doing = DOING_OTHER;
    self->program->counts->collectives++;
    *ok = status == TUTTI_OK;
    return *ok ? check_data(self, &step) : check_failure(self, step.name, status, revoked || step.comm != self->comm);
}

/* Revokes both comms: others may wait in one of them for a rank that has seen a failure in the other. */
static bool give_up(const struct self *self)
{
    self->program->outcomes[self->attempt].given_up = true;
    tutti_status status = tutti_comm_revoke(self->comm);
    if (status == TUTTI_OK && has_part(self)) status = tutti_comm_revoke(self->part);
    return status == TUTTI_OK || blame_status(self, "revoke", status);
}

/* Does some collectives. *ok: all of them succeeded. Returns false if something was wrong. */
static bool do_steps(struct self *self, bool *ok)
{
    const struct program *program = self->program;
    uint64_t random = sim_mix(program->seed + 1, (uint64_t)self->attempt);
    int count = 1 + (int)sim_draw(&random, 4);
    bool revoked = sim_draw(&random, 12) == 0;
    int by = (int)sim_draw(&random, (uint64_t)tutti_size(self->comm)), at = (int)sim_draw(&random, (uint64_t)count);
    for (int i = 0; i < count && *ok; i++) {
        uint64_t key = sim_mix(program->seed, (uint64_t)(self->attempt * 16 + i));
        uint64_t pause = sim_mix(key, (uint64_t)self->id) % 3000;
        tutti_spend_ns((int64_t)(self->id == program->slow_rank ? pause * 30 : pause));
        if (revoked && i == at && tutti_rank(self->comm) == by) {
            self->program->outcomes[self->attempt].given_up = true;
            tutti_status status = tutti_comm_revoke(self->comm);
            *ok = false;
            return status == TUTTI_OK || blame_status(self, "revoke", status);
        }
        if (!do_step(self, key, key % 4 == 0, revoked, ok)) return false;
    }
    return true;
}

/* ---- Parts ---------------------------------------------------------------------------------------------------------------- */

static bool free_part(const struct self *self, tutti_comm *comm)
{
    tutti_status status = comm == NULL ? TUTTI_OK : tutti_comm_free(comm);
    return status == TUTTI_OK || blame_status(self, "comm_free", status);
}

/* Checks that the part has all ranks of the comm that are even, or odd, like this one, in order. */
static bool check_part(const struct self *self)
{
    int place = 0, size = tutti_size(self->renewed);
    bool good = true;
    for (int i = 0; i < tutti_size(self->comm); i++) {
        if (self->places[i] % 2 != self->id % 2) continue;
        good = good && place < size && tutti_world_rank(self->renewed, place) == self->places[i];
        place++;
    }
    return blame(self, good && place == size, FAULTS_DISAGREEMENT,
                 "its part of %llx has %d ranks, or others, or in another order, and not %d",
                 (unsigned long long)self->members, size, place);
}

/* Makes the part at the start, and again after each shrink. It is the rank's part once all have agreed. */
static bool make_part(struct self *self, bool *ok)
{
    bool first = self->part == NULL;
    if (!self->program->parts || has_part(self)) return true;
    self->notes->doing = DOING_RENEW;
    tutti_status status = first ? tutti_comm_split(self->comm, self->id % 2, self->id, &self->renewed)
                                : tutti_comm_renew(self->part, self->comm, &self->renewed);
    self->notes->doing = DOING_OTHER;
    *ok = status == TUTTI_OK;
    return *ok ? check_part(self) : check_failure(self, first ? "split" : "renew", status, false);
}

static bool settle_part(struct self *self, bool well)
{
    tutti_comm *dropped = well ? self->part : self->renewed;
    if (self->renewed == NULL) return true;
    if (well) self->part = self->renewed;
    self->renewed = NULL;
    return free_part(self, dropped);
}

/* ---- Agreement ------------------------------------------------------------------------------------------------------------ */

#define WELL (UINT64_C(1) << 63) /* bit of a value: all went well; the other bits: all ranks but the giver */

static uint64_t lost_of(const struct self *self)
{
    int ranks[FAULTS_MOST_RANKS], count = 0;
    uint64_t lost = 0;
    if (tutti_comm_lost(self->comm, ranks, FAULTS_MOST_RANKS, &count) != TUTTI_OK) return UINT64_MAX;
    for (int i = 0; i < count; i++) lost |= UINT64_C(1) << self->places[ranks[i]];
    return lost;
}

static bool same(const struct self *self, const char *what, uint64_t mine, int other, uint64_t theirs)
{
    return blame(self, mine == theirs, FAULTS_DISAGREEMENT, "%s is %llx here, and was %llx on rank %d", what,
                 (unsigned long long)mine, (unsigned long long)theirs, other);
}

/* Checks that the outcome is that of all others, that it leaves out no rank that lives, and that it is what the
 * participants gave. */
static bool check_outcome(const struct self *self, struct outcome *outcome, uint64_t all)
{
    uint64_t took_part = ~all & ~WELL, living = self->members & ~gone_by_now(self);
    bool may = self->program->rehearses || may_go_on(self, self->members & ~took_part);
    if (!outcome->is_known)
        *outcome = (struct outcome){
            .is_known = true, .rank = self->id, .all = all, .given = outcome->given, .given_up = outcome->given_up};
    bool well = (took_part & ~outcome->given) == 0;
    return same(self, "what agree gave", all, outcome->rank, outcome->all) &&
           blame(self, (living & ~took_part) == 0 && (took_part & ~self->members) == 0, FAULTS_DISAGREEMENT,
                 "%llx took part in agree, and %llx live", (unsigned long long)took_part, (unsigned long long)living) &&
           blame(self, may, FAULTS_DISAGREEMENT, "only %llx of %llx took part in agree", (unsigned long long)took_part,
                 (unsigned long long)self->members) &&
           blame(self, well == ((all & WELL) != 0), FAULTS_DISAGREEMENT, "agree says %d, and %llx of %llx gave 1",
                 (all & WELL) != 0, (unsigned long long)outcome->given, (unsigned long long)took_part);
}

static bool check_lost(const struct self *self, struct outcome *outcome)
{
    uint64_t lost = lost_of(self), gone = gone_by_now(self);
    if (!outcome->lost_known) {
        outcome->lost_known = true;
        outcome->lost_rank = self->id;
        outcome->lost = lost;
    }
    return same(self, "who is lost", lost, outcome->lost_rank, outcome->lost) &&
           blame(self, (lost & ~gone) == 0, FAULTS_DISAGREEMENT, "%llx are lost, and only %llx are gone",
                 (unsigned long long)lost, (unsigned long long)gone);
}

/* Returns true if ranks that live hear each other and go on. */
static bool only_deaths(const struct program *program)
{
    for (int i = 0; i < program->fault_count; i++)
        if (program->faults[i].kind != TUTTI_SIM_JUMP) return false;
    return !is_unsure(program);
}

/* Checks in most programs that all are told the same lost ranks as an op fails, before they agree. Ranks that
 * stand still may be waited for in vain, and then each goes by what it knows. */
static bool check_broken(const struct self *self)
{
    struct program *program = self->program;
    struct outcome *outcome = &program->outcomes[self->attempt];
    bool looks = program->seed % 4 != 0 && only_deaths(program) && !program->rehearses;
    const tutti_error *error = tutti_comm_error(self->comm);
    if (!looks || error == NULL || error->status != TUTTI_ERR_PEER_LOST) return true;
    uint64_t lost = lost_of(self);
    if (!outcome->broke_known) {
        outcome->broke_known = true;
        outcome->broke_rank = self->id;
        outcome->broke = lost;
    }
    return same(self, "who is lost as the comm broke", lost, outcome->broke_rank, outcome->broke);
}

static bool agree(struct self *self, bool ok, bool *well)
{
    struct program *program = self->program;
    struct outcome *outcome = &program->outcomes[self->attempt];
    uint64_t mine = (ok ? WELL : 0) | (~WELL & ~(UINT64_C(1) << self->id)), all = 0;
    int64_t began_ns = run_ns(program);
    struct moment *moment = &program->moments[self->attempt];
    bool plants = gone_by_now(self) != 0 && (self->places[0] == self->id || self->places[1] == self->id);
    if (plants && program->plant == PLANT_HANG) tutti_spend_ns(INT64_C(3600000000000));
    if (ok) outcome->given |= UINT64_C(1) << self->id;
    if (program->rehearses) moment->called_ns = began_ns;
    self->notes->doing = DOING_AGREE;
    tutti_status status = tutti_comm_agree(self->comm, mine, &all);
    self->notes->doing = DOING_OTHER;
    if (program->rehearses) {
        moment->returned_ns[self->id] = run_ns(program);
        program->moment_count = self->attempt + 1;
    }
    if (!check_exclusion(self, "agree", status, began_ns)) return false;
    program->counts->agreements++;
    if (plants && program->plant == PLANT_DISAGREEMENT) all ^= WELL;
    *well = (all & WELL) != 0;
    return check_outcome(self, outcome, all) && (*well || check_lost(self, outcome));
}

/* ---- Going on ------------------------------------------------------------------------------------------------------------- */

static void set_members(struct self *self, uint64_t members)
{
    int place = 0;
    self->members = members;
    for (int id = 0; id < self->program->size; id++)
        if ((members >> id & 1) != 0) self->places[place++] = id;
}

static uint64_t members_of(const tutti_comm *comm)
{
    uint64_t members = 0;
    for (int place = 0; place < tutti_size(comm); place++) {
        int id = tutti_world_rank(comm, place);
        if (id >= 0 && id < FAULTS_MOST_RANKS) members |= UINT64_C(1) << id;
    }
    return members;
}

/* Checks that all have made a comm of the same ranks, in order and of the same epoch, which leaves out no rank that
 * lives. */
static bool check_made(struct self *self, const tutti_comm *made)
{
    struct outcome *outcome = &self->program->outcomes[self->attempt];
    uint64_t left = members_of(made), gone = gone_by_now(self), out = self->members & ~left;
    if (!outcome->made_known) {
        outcome->made_known = true;
        outcome->made_rank = self->id;
        outcome->epoch = tutti_epoch(made);
        outcome->members = left;
    }
    bool may = self->program->rehearses || may_go_on(self, out);
    if (!blame(self, may, FAULTS_DISAGREEMENT, "shrink made a comm of %llx out of %llx", (unsigned long long)left,
               (unsigned long long)self->members) ||
        !same(self, "who is left", left, outcome->made_rank, outcome->members) ||
        !same(self, "the epoch", tutti_epoch(made), outcome->made_rank, outcome->epoch) ||
        !blame(self, (out & ~gone) == 0 && (left & ~self->members) == 0, FAULTS_DISAGREEMENT,
               "shrink made a comm of %llx out of %llx, and only %llx are gone", (unsigned long long)left,
               (unsigned long long)self->members, (unsigned long long)gone))
        return false;
    set_members(self, left);
    return blame(self, __builtin_popcountll(left) == tutti_size(made) && self->places[tutti_rank(made)] == self->id,
                 FAULTS_DISAGREEMENT, "shrink made this rank %d of %d; left are %llx", tutti_rank(made),
                 tutti_size(made), (unsigned long long)left);
}

static bool free_comm(struct self *self)
{
    if (self->comm == self->world) return true;
    tutti_status status = tutti_comm_free(self->comm);
    self->comm = self->world;
    return status == TUTTI_OK || blame_status(self, "comm_free", status);
}

static bool shrink(struct self *self, bool ok)
{
    tutti_comm *made = NULL;
    int64_t began_ns = run_ns(self->program);
    /* shrink needs a broken comm, and this one has not failed here */
    tutti_status status = ok ? tutti_comm_revoke(self->comm) : TUTTI_OK;
    if (status != TUTTI_OK) return blame_status(self, "revoke", status);
    self->notes->doing = DOING_SHRINK;
    status = tutti_comm_shrink(self->comm, &made);
    self->notes->doing = DOING_OTHER;
    if (!check_exclusion(self, "shrink", status, began_ns)) return false;
    self->program->counts->shrinks++;
    bool good = check_made(self, made);
    good = free_comm(self) && good;
    self->comm = made;
    return good;
}

static void live(struct self *self)
{
    struct program *program = self->program;
    for (int done = 0; done < program->steps; self->attempt++) {
        bool ok = true, well;
        if (!blame(self, self->attempt < ATTEMPTS, FAULTS_HANG, "%d steps of %d are done, and no more", done,
                   program->steps))
            return;
        if (!make_part(self, &ok) || !do_steps(self, &ok) || !check_broken(self) || !(ok || give_up(self))) return;
        if (!agree(self, ok, &well) || !settle_part(self, well) || (!well && !shrink(self, ok))) return;
        done += well;
    }
    self->notes->finished = true;
    self->notes->attempts = self->attempt;
    self->notes->members = self->members;
    self->notes->epoch = tutti_epoch(self->comm);
}

static int work(tutti_comm *world, void *context)
{
    struct program *program = context;
    struct self self = {.program = program, .world = world, .comm = world, .id = tutti_rank(world)};
    self.notes = &program->ranks[self.id];
    if (program->start_ns < 0) program->start_ns = tutti_sim_time_ns();
    set_members(&self, (UINT64_C(1) << program->size) - 1);
    self.in = program->shared ? tutti_alloc(world, sizeof self.notes->in_buffer) : self.notes->in_buffer;
    self.out = program->shared ? tutti_alloc(world, sizeof self.notes->out_buffer) : self.notes->out_buffer;
    if (self.in == NULL || self.out == NULL)
        (void)blame_status(&self, "alloc", TUTTI_ERR_MEMORY);
    else
        live(&self);
    self.notes->ended = true;
    (void)free_part(&self, self.renewed);
    (void)free_part(&self, self.part);
    (void)free_comm(&self);
    return 0;
}

/* ---- One seed --------------------------------------------------------------------------------------------------------------- */

/* Checks that all that lived to the end did the same, and that no rank is missing that lives. */
static void check_ends(struct program *program)
{
    const struct survivor *first = NULL;
    for (int id = 0; id < program->size; id++) {
        const struct survivor *notes = &program->ranks[id];
        struct self self = {.program = program, .id = id, .attempt = notes->attempts};
        bool dies = has_died(program, id, INT64_MAX);
        bool goes_on = (program->larger >> id & 1) != 0 && !program->rehearses;
        (void)blame(&self, notes->ended || dies, FAULTS_HANG, "it has neither ended nor died");
        (void)blame(&self, notes->finished || !goes_on, FAULTS_HANG,
                    "it is on the side of the partition that goes on, and was not there at the end");
        if (!notes->ended) program->counts->deaths[notes->doing]++;
        if (!notes->finished) continue;
        if (first == NULL) first = notes;
        (void)blame(&self,
                    notes->attempts == first->attempts && notes->members == first->members &&
                        notes->epoch == first->epoch,
                    FAULTS_DISAGREEMENT, "it ended in epoch %llu with %llx, and rank %d in epoch %llu with %llx",
                    (unsigned long long)notes->epoch, (unsigned long long)notes->members, (int)(first - program->ranks),
                    (unsigned long long)first->epoch, (unsigned long long)first->members);
    }
}

static void run_once(struct program *program, const tutti_sim_setup *setup, int64_t *time_ns)
{
    tutti_sim_report report = {.struct_size = sizeof report};
    tutti_error error = {0};
    struct self nobody = {.program = program, .id = -1};
    program->start_ns = program->took_ns = -1;
    memset(program->outcomes, 0, sizeof program->outcomes);
    memset(program->ranks, 0, (size_t)program->size * sizeof *program->ranks);
    tutti_status status = tutti_sim_run(setup, work, program, &report, &error);
    *time_ns = program->took_ns = report.time_ns;
    if (status != TUTTI_OK && program->finding->kind == FAULTS_NONE) {
        program->finding->kind = status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_LIMIT ? FAULTS_HANG : FAULTS_FAILED;
        (void)snprintf(program->finding->text, sizeof program->finding->text, "%s", error.text);
    }
    if (status != TUTTI_OK) return;
    check_ends(program);
    (void)blame(&nobody, report.time_ns < LONGEST_NS, FAULTS_HANG, "the run took %.1f s", (double)report.time_ns / 1e9);
}

static void run_twice(struct program *program, uint64_t *random, tutti_sim_setup *setup)
{
    int64_t time_ns = 0;
    program->rehearses = true;
    run_once(program, setup, &time_ns);
    program->rehearses = false;
    if (program->finding->kind != FAULTS_NONE) return;
    sim_program_disturb(program, random, time_ns, setup);
    for (int i = 0; i < program->fault_count; i++) program->counts->faults[program->faults[i].kind]++;
    run_once(program, setup, &time_ns);
}

void faults_run_seed(uint64_t seed, int least, int most, enum faults_plant plant, struct faults_finding *finding,
                     struct faults_counts *counts)
{
    struct program program = {.seed = seed, .plant = plant, .finding = finding, .counts = counts};
    uint64_t random = sim_mix(seed, 7);
    tutti_sim_setup setup;
    tutti_sim_point delay[2];
    tutti_options options;
    tutti_error error = {0};
    *finding = (struct faults_finding){.seed = seed};
    tutti_sim_setup_init(&setup);
    setup.seed = seed;
    setup.stack_bytes = 1 << 18;
    setup.limit_ms = LIMIT_MS;
    setup.options = &options;
    sim_program_choose(&program, &random, least, most, &setup, delay);
    program.ranks = calloc((size_t)program.size, sizeof *program.ranks);
    if (program.ranks == NULL || tutti_options_init(&options, &error) != TUTTI_OK) {
        finding->kind = FAULTS_FAILED;
        (void)snprintf(finding->text, sizeof finding->text, "%s", program.ranks == NULL ? "no memory" : error.text);
    } else {
        options.deadline_ms = DEADLINE_MS;
        options.heartbeat_ms = program.heartbeat_ns / 1000000;
        run_twice(&program, &random, &setup);
    }
    sim_program_describe(&program, finding);
    free(program.ranks);
}
