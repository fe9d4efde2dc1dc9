/* SPDX-License-Identifier: Apache-2.0
 *
 * The program of one seed. Ranks do random collectives, some at a time, and agree behind them whether all went well; where not, they
 * shrink and do them again. Everything follows from the seed and the number of the attempt, so that each rank knows what all others
 * give. Ranks run one at a time in one thread: what they note for each other needs no locks.
 */
#include "cli/sim_faults.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ELEMENTS = 16384, ATTEMPTS = 64, DEADLINE_MS = 10000, LIMIT_MS = 20000 };
#define LONGEST_NS INT64_C(100000000000) /* simulated, of a run in which each op has ended by DEADLINE_MS */

struct outcome { /* of one agreement, and the shrink behind it; as the first rank that had it saw it */
    bool is_known, lost_known, made_known;
    int rank, lost_rank, made_rank;
    uint64_t all, lost, epoch;
    uint64_t members; /* of what shrink has made */
    uint64_t given;   /* who gave that all went well */
};

struct survivor {
    uint64_t in_buffer[ELEMENTS], out_buffer[ELEMENTS];
    enum faults_doing doing;
    bool ended, finished; /* work has returned; with all steps done */
    int attempts;
    uint64_t members, epoch;
};

struct program {
    uint64_t seed;
    int size, hosts, steps, slow_rank;
    bool shared; /* buffers are the library's */
    enum faults_plant plant;
    tutti_sim_death deaths[FAULTS_MOST_DEATHS];
    int death_count;
    int64_t start_ns;
    struct outcome outcomes[ATTEMPTS];
    struct survivor *ranks; /* (size) */
    struct faults_finding *finding;
    struct faults_counts *counts;
};

/* One rank's view while it runs. */
struct self {
    struct program *program;
    tutti_comm *world, *comm;
    int id;           /* rank in the world; the others are numbered so, too: */
    uint64_t members; /* of comm */
    int places[FAULTS_MOST_RANKS];
    uint64_t *in, *out;
    int attempt;
    struct survivor *notes;
};

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
                   self->attempt, (long long)(tutti_clock_ns() - self->program->start_ns), what);
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
    for (int i = 0; i < program->death_count; i++)
        if (program->deaths[i].rank == id && program->deaths[i].at_ns < before_ns - program->start_ns) return true;
    return false;
}

/* Those of the comm that may be gone: they have died by now, this instant included, or their work has returned. */
static uint64_t gone_by_now(const struct self *self)
{
    const struct program *program = self->program;
    uint64_t gone = 0;
    for (int id = 0; id < program->size; id++)
        if (program->ranks[id].ended || has_died(program, id, tutti_clock_ns() + 1)) gone |= UINT64_C(1) << id;
    return gone & self->members;
}

static uint64_t dead_at(const struct self *self, int64_t ns)
{
    uint64_t dead = 0;
    for (int id = 0; id < self->program->size; id++)
        if (!self->program->ranks[id].ended && has_died(self->program, id, ns)) dead |= UINT64_C(1) << id;
    return dead & self->members;
}

/* More than half of the comm, or half of it with its rank 0. On one host nobody needs it. */
static bool may_go_on(const struct self *self, uint64_t gone)
{
    int size = __builtin_popcountll(self->members), left = size - __builtin_popcountll(gone);
    return self->program->hosts == 1 || 2 * left > size || (2 * left == size && (gone >> self->places[0] & 1) == 0);
}

/* An agreement or a shrink that began at that time with as many as lived then. False: the rank does not go on. */
static bool check_exclusion(const struct self *self, const char *what, tutti_status status, int64_t began_ns)
{
    if (status == TUTTI_OK)
        return blame(self, may_go_on(self, dead_at(self, began_ns)), FAULTS_DISAGREEMENT,
                     "%s succeeded, and of the comm's ranks %llx only a minority lived when it began", what,
                     (unsigned long long)self->members);
    if (status != TUTTI_ERR_EXCLUDED) return blame_status(self, what, status);
    self->program->counts->excluded++;
    (void)blame(self, !may_go_on(self, gone_by_now(self)), FAULTS_DISAGREEMENT,
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

/* Fails as it may: somebody is gone, or the comm was given up on purpose in this attempt. */
static bool check_failure(const struct self *self, const struct sim_step *s, tutti_status status, bool revoked)
{
    bool may = status == TUTTI_ERR_PEER_LOST ? gone_by_now(self) != 0 : revoked && status == TUTTI_ERR_CANCELLED;
    if (revoked && status == TUTTI_ERR_BROKEN) may = true; /* by another rank, before this op began */
    if (may) return true;
    return blame_status(self, s->name, status);
}

/* Some collectives. *ok: all of them succeeded. False: something was wrong. */
static bool do_steps(struct self *self, bool *ok)
{
    uint64_t random = sim_mix(self->program->seed + 1, (uint64_t)self->attempt);
    int count = 1 + (int)sim_draw(&random, 4);
    bool revoked = sim_draw(&random, 12) == 0;
    int by = (int)sim_draw(&random, (uint64_t)tutti_size(self->comm)), at = (int)sim_draw(&random, (uint64_t)count);
    *ok = true;
    for (int i = 0; i < count && *ok; i++) {
        uint64_t key = sim_mix(self->program->seed, (uint64_t)(self->attempt * 16 + i));
        struct sim_step step = {.comm = self->comm, .ids = self->places, .in = self->in, .out = self->out};
        sim_step_choose(&step, key, ELEMENTS);
        uint64_t pause = sim_mix(step.key, (uint64_t)self->id) % 3000;
        tutti_spend_ns((int64_t)(self->id == self->program->slow_rank ? pause * 30 : pause));
        if (revoked && i == at && step.rank == by) {
            tutti_status status = tutti_comm_revoke(self->comm);
            *ok = false;
            return status == TUTTI_OK || blame_status(self, "revoke", status);
        }
        sim_step_fill(&step);
        self->notes->doing = DOING_COLLECTIVE;
        tutti_status status = sim_step_do(&step);
        self->notes->doing = DOING_OTHER;
        self->program->counts->collectives++;
        *ok = status == TUTTI_OK;
        if (!(*ok ? check_data(self, &step) : check_failure(self, &step, status, revoked))) return false;
    }
    return true;
}

/* ---- Agreement ------------------------------------------------------------------------------------------------------------ */

#define WELL (UINT64_C(1) << 63) /* of a value: all went well; the other bits: all but the giver's own */

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

/* The outcome is that of all others, nobody who lives is left out, and it is what those gave that took part. */
static bool check_outcome(const struct self *self, struct outcome *outcome, uint64_t all)
{
    uint64_t took_part = ~all & ~WELL, living = self->members & ~gone_by_now(self);
    if (!outcome->is_known)
        *outcome = (struct outcome){.is_known = true, .rank = self->id, .all = all, .given = outcome->given};
    bool well = (took_part & ~outcome->given) == 0;
    return same(self, "what agree gave", all, outcome->rank, outcome->all) &&
           blame(self, (living & ~took_part) == 0 && (took_part & ~self->members) == 0, FAULTS_DISAGREEMENT,
                 "%llx took part in agree, and %llx live", (unsigned long long)took_part, (unsigned long long)living) &&
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

static bool agree(struct self *self, bool ok, bool *well)
{
    struct program *program = self->program;
    struct outcome *outcome = &program->outcomes[self->attempt];
    uint64_t mine = (ok ? WELL : 0) | (~WELL & ~(UINT64_C(1) << self->id)), all = 0;
    int64_t began_ns = tutti_clock_ns();
    bool plants = gone_by_now(self) != 0 && (self->places[0] == self->id || self->places[1] == self->id);
    if (plants && program->plant == PLANT_HANG) tutti_spend_ns(INT64_C(3600000000000));
    if (ok) outcome->given |= UINT64_C(1) << self->id;
    self->notes->doing = DOING_AGREE;
    tutti_status status = tutti_comm_agree(self->comm, mine, &all);
    self->notes->doing = DOING_OTHER;
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

/* The same ranks for all, in order and of the same epoch; nobody is left out who lives. */
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
    if (!same(self, "who is left", left, outcome->made_rank, outcome->members) ||
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
    int64_t began_ns = tutti_clock_ns();
    tutti_status status = ok ? tutti_comm_revoke(self->comm) : TUTTI_OK; /* it has not failed here */
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
        bool ok, well;
        if (!blame(self, self->attempt < ATTEMPTS, FAULTS_HANG, "%d steps of %d are done, and no more", done,
                   program->steps))
            return;
        if (!do_steps(self, &ok) || !agree(self, ok, &well)) return;
        if (!well && !shrink(self, ok)) return;
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
    if (program->start_ns < 0) program->start_ns = tutti_clock_ns();
    set_members(&self, (UINT64_C(1) << program->size) - 1);
    self.in = program->shared ? tutti_alloc(world, sizeof self.notes->in_buffer) : self.notes->in_buffer;
    self.out = program->shared ? tutti_alloc(world, sizeof self.notes->out_buffer) : self.notes->out_buffer;
    if (self.in == NULL || self.out == NULL)
        (void)blame_status(&self, "alloc", TUTTI_ERR_MEMORY);
    else
        live(&self);
    self.notes->ended = true;
    (void)free_comm(&self);
    return 0;
}

/* ---- One seed --------------------------------------------------------------------------------------------------------------- */

/* Hosts have as many ranks each. */
static void choose_ranks(uint64_t *random, int least, int most, struct program *program, tutti_sim_setup *setup)
{
    program->size = least + (int)sim_draw(random, (uint64_t)(most - least + 1));
    setup->hosts = 1 + (int)sim_draw(random, 3);
    while (program->size % setup->hosts != 0) setup->hosts--;
    setup->ranks_per_host = program->size / setup->hosts;
    program->hosts = setup->hosts;
    program->steps = 3 + (int)sim_draw(random, 8);
    program->slow_rank = sim_draw(random, 2) == 0 ? -1 : (int)sim_draw(random, (uint64_t)program->size);
    program->shared = sim_draw(random, 2) == 0;
}

static void choose_links(uint64_t *random, tutti_sim_setup *setup, tutti_sim_point delay[2])
{
    static const double rates[] = {1e8, 1e9, 12.5e9};
    static const int64_t noise[] = {0, 0, 300, 20000}, overheads[] = {100, 100, 3000, 30000};
    setup->link_bytes_per_s = rates[sim_draw(random, 3)];
    setup->link_latency_ns = 500 + (int64_t)sim_draw(random, 100000);
    setup->local_latency_ns = 50 + (int64_t)sim_draw(random, 2000);
    setup->overhead_ns = overheads[sim_draw(random, 4)];
    setup->noise_ns = noise[sim_draw(random, 4)];
    delay[0] = (tutti_sim_point){.bytes = 0, .ns = (int64_t)sim_draw(random, 50000)};
    delay[1] = (tutti_sim_point){.bytes = 1 << 20, .ns = delay[0].ns + (int64_t)sim_draw(random, 500000)};
    setup->delay = delay;
    setup->delay_count = sim_draw(random, 3) == 0 ? 2 : 0;
}

/* Within the time that all takes if nobody dies; half of those behind the first while the others may still deal with it. The lowest
 * ranks die more often, since they coordinate. */
static void choose_deaths(uint64_t *random, int64_t time_ns, struct program *program, tutti_sim_setup *setup)
{
    uint64_t most = (uint64_t)time_ns + 1;
    program->death_count = 1 + (int)sim_draw(random, FAULTS_MOST_DEATHS);
    for (int i = 0; i < program->death_count; i++) {
        tutti_sim_death *death = &program->deaths[i];
        int rank = sim_draw(random, 3) == 0 ? i : (int)sim_draw(random, (uint64_t)program->size);
        *death = (tutti_sim_death){.rank = rank, .at_ns = (int64_t)sim_draw(random, most)};
        if (i > 0 && sim_draw(random, 2) == 0)
            death->at_ns = program->deaths[0].at_ns + (int64_t)sim_draw(random, most / (5u << sim_draw(random, 4)) + 2);
    }
    setup->deaths = program->deaths;
    setup->death_count = (size_t)program->death_count;
}

static void describe(const struct program *program, struct faults_finding *finding)
{
    size_t room = sizeof finding->setup;
    int at = snprintf(finding->setup, room, "%d ranks on %d host%s", program->size, program->hosts,
                      program->hosts == 1 ? "" : "s");
    for (int i = 0; i < program->death_count; i++)
        at += snprintf(finding->setup + at, room - (size_t)at, ", rank %d ends at %lld ns", program->deaths[i].rank,
                       (long long)program->deaths[i].at_ns);
}

/* All that have lived to the end did the same, and nobody is missing who lives. */
static void check_ends(struct program *program)
{
    const struct survivor *first = NULL;
    for (int id = 0; id < program->size; id++) {
        const struct survivor *notes = &program->ranks[id];
        struct self self = {.program = program, .id = id, .attempt = notes->attempts};
        bool dies = has_died(program, id, INT64_MAX);
        (void)blame(&self, notes->ended || dies, FAULTS_HANG, "it has neither ended nor died");
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
    tutti_sim_report report = {0};
    tutti_error error = {0};
    struct self nobody = {.program = program, .id = -1};
    program->start_ns = -1;
    memset(program->outcomes, 0, sizeof program->outcomes);
    memset(program->ranks, 0, (size_t)program->size * sizeof *program->ranks);
    tutti_status status = tutti_sim_run(setup, work, program, &report, &error);
    *time_ns = report.time_ns;
    if (status != TUTTI_OK && program->finding->kind == FAULTS_NONE) {
        program->finding->kind = status == TUTTI_ERR_TIMEOUT || status == TUTTI_ERR_LIMIT ? FAULTS_HANG : FAULTS_FAILED;
        (void)snprintf(program->finding->text, sizeof program->finding->text, "%s", error.text);
    }
    if (status != TUTTI_OK) return;
    check_ends(program);
    (void)blame(&nobody, report.time_ns < LONGEST_NS, FAULTS_HANG, "the run took %.1f s", (double)report.time_ns / 1e9);
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
    int64_t time_ns = 0;
    *finding = (struct faults_finding){.seed = seed};
    tutti_sim_setup_init(&setup);
    setup.seed = seed;
    setup.stack_bytes = 1 << 18;
    setup.limit_ms = LIMIT_MS;
    setup.options = &options;
    choose_ranks(&random, least, most, &program, &setup);
    choose_links(&random, &setup, delay);
    program.ranks = calloc((size_t)program.size, sizeof *program.ranks);
    if (program.ranks == NULL || tutti_options_init(&options, &error) != TUTTI_OK) {
        finding->kind = FAULTS_FAILED;
        (void)snprintf(finding->text, sizeof finding->text, "%s", program.ranks == NULL ? "no memory" : error.text);
    } else {
        options.deadline_ms = DEADLINE_MS;
        run_once(&program, &setup, &time_ns); /* nobody dies */
        choose_deaths(&random, time_ns, &program, &setup);
        if (finding->kind != FAULTS_NONE)
            program.death_count = 0;
        else
            run_once(&program, &setup, &time_ns);
    }
    describe(&program, finding);
    free(program.ranks);
}
