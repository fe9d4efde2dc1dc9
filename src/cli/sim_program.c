/* SPDX-License-Identifier: Apache-2.0
 *
 * Chooses the program of a seed: ranks, hosts and links; then, with the times of a run without faults, the faults and
 * their times. Half of these times are where agreements are decided: between the last call and the last return, or
 * around the first return, which is the coordinator's, while it sends the others the outcome.
 */
#include "cli/sim_program.h"

#define NS_PER_S INT64_C(1000000000)
enum { HEARTBEAT_MS = 2000 };

/* ---- Ranks and links --------------------------------------------------------------------------------------------------- */

/* Chooses the ranks. All hosts have equally many. */
static void choose_ranks(uint64_t *random, int least, int most, struct program *program, tutti_sim_setup *setup)
{
    static const uint64_t hosts[] = {3, 3, 8, FAULTS_MOST_RANKS};
    program->size = least + (int)sim_draw(random, (uint64_t)(most - least + 1));
    setup->hosts = 1 + (int)sim_draw(random, hosts[sim_draw(random, 4)]);
    if (setup->hosts > program->size) setup->hosts = program->size;
    while (program->size % setup->hosts != 0) setup->hosts--;
    setup->ranks_per_host = program->size / setup->hosts;
    program->hosts = setup->hosts;
    program->steps = 3 + (int)sim_draw(random, 8);
    program->slow_rank = sim_draw(random, 2) == 0 ? -1 : (int)sim_draw(random, (uint64_t)program->size);
    program->shared = sim_draw(random, 2) == 0;
    program->parts = sim_draw(random, 3) == 0;
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

void sim_program_choose(struct program *program, uint64_t *random, int least, int most, tutti_sim_setup *setup,
                        tutti_sim_point delay[2])
{
    choose_ranks(random, least, most, program, setup);
    choose_links(random, setup, delay);
    program->heartbeat_ns = HEARTBEAT_MS * (NS_PER_S / 1000);
    program->unsure_ns = program->late_ns = INT64_MAX;
}

/* ---- Times ------------------------------------------------------------------------------------------------------------- */

static const struct moment *choose_moment(const struct program *program, uint64_t *random)
{
    return &program->moments[sim_draw(random, (uint64_t)program->moment_count)];
}

static int64_t choose_time(const struct program *program, uint64_t *random, int64_t time_ns,
                           const tutti_sim_setup *setup)
{
    uint64_t kind = sim_draw(random, 4);
    if (kind < 2 || program->moment_count == 0) return (int64_t)sim_draw(random, (uint64_t)time_ns + 1);
    const struct moment *moment = choose_moment(program, random);
    int64_t last = 0, telling = setup->overhead_ns * program->size, first = moment->returned_ns[0] - telling;
    for (int rank = 0; rank < program->size; rank++)
        if (moment->returned_ns[rank] > last) last = moment->returned_ns[rank];
    int64_t begin = kind == 2 ? moment->called_ns : first - setup->link_latency_ns;
    int64_t end = kind == 2 ? last : first + telling + setup->link_latency_ns;
    if (begin < 0) begin = 0;
    return begin + (int64_t)sim_draw(random, end > begin ? (uint64_t)(end - begin) + 1 : 1);
}

/* ---- Deaths ------------------------------------------------------------------------------------------------------------ */

/* Chooses deaths. The lowest ranks die more often, since they coordinate. Half of the later deaths come after the first
 * one, while the others may still be handling it. */
static void choose_deaths(uint64_t *random, int64_t time_ns, struct program *program, const tutti_sim_setup *setup)
{
    uint64_t most = (uint64_t)time_ns + 1;
    program->death_count = 1 + (int)sim_draw(random, FAULTS_MOST_DEATHS);
    for (int i = 0; i < program->death_count; i++) {
        tutti_sim_death *death = &program->deaths[i];
        int rank = sim_draw(random, 3) == 0 ? i : (int)sim_draw(random, (uint64_t)program->size);
        *death = (tutti_sim_death){.rank = rank, .at_ns = choose_time(program, random, time_ns, setup)};
        if (i > 0 && sim_draw(random, 2) == 0)
            death->at_ns = program->deaths[0].at_ns + (int64_t)sim_draw(random, most / (5u << sim_draw(random, 4)) + 2);
    }
}

/* Returns the first rank that had the outcome, except rank 0, which coordinates while it lives. */
static int find_heir(const struct program *program, const struct moment *moment)
{
    int heir = 1;
    for (int rank = 2; rank < program->size; rank++)
        if (moment->returned_ns[rank] < moment->returned_ns[heir]) heir = rank;
    return heir;
}

/* Returns the time that a rank needs to send another one the outcome: its own time, and that of its link. */
static int64_t telling_ns(const struct program *program, const tutti_sim_setup *setup)
{
    return setup->overhead_ns + (int64_t)((double)(160 + 8 * program->size) / setup->link_bytes_per_s * 1e9) + 1;
}

/* The coordinator dies while it sends the others the outcome, and so does the rank that received it first, while it
 * sends it on. */
static void choose_heirs(uint64_t *random, struct program *program, const tutti_sim_setup *setup)
{
    const struct moment *moment = choose_moment(program, random);
    int heir = find_heir(program, moment);
    int64_t each_ns = telling_ns(program, setup);
    int64_t told = (int64_t)sim_draw(random, 1 + sim_draw(random, (uint64_t)program->size));
    int64_t at_ns = moment->returned_ns[0] - setup->overhead_ns * program->size + told * each_ns +
                    (int64_t)sim_draw(random, (uint64_t)each_ns);
    program->deaths[0] = (tutti_sim_death){.rank = 0, .at_ns = at_ns < 0 ? 0 : at_ns};
    program->deaths[1] = (tutti_sim_death){
        .rank = heir, .at_ns = moment->returned_ns[heir] + 1 + (int64_t)sim_draw(random, (uint64_t)each_ns)};
    program->death_count = 2;
}

/* ---- Other faults ------------------------------------------------------------------------------------------------------ */

static void add(struct program *program, tutti_sim_fault fault)
{
    if (program->fault_count < FAULTS_MOST) program->faults[program->fault_count++] = fault;
}

static void make_unsure(struct program *program, int64_t from_ns)
{
    if (from_ns < program->unsure_ns) program->unsure_ns = from_ns;
}

static uint64_t ranks_of(const struct program *program, uint64_t hosts)
{
    uint64_t ranks = 0;
    for (int rank = 0; rank < program->size; rank++)
        if ((hosts >> (rank / (program->size / program->hosts)) & 1) != 0) ranks |= UINT64_C(1) << rank;
    return ranks;
}

static void note_larger(struct program *program, uint64_t side)
{
    uint64_t ranks = ranks_of(program, side), all = (UINT64_C(1) << program->size) - 1;
    int count = 2 * __builtin_popcountll(ranks);
    bool larger = count > program->size || (count == program->size && (ranks & 1) != 0);
    program->larger = larger ? ranks : all & ~ranks;
}

/* Cuts links: two sides do not hear each other, or only one of them hears; now and then a third side hears both. Short
 * cuts do no harm; after long ones all ranks of the two sides lose each other, after others some do. */
static void choose_cut(uint64_t *random, int64_t time_ns, struct program *program, const tutti_sim_setup *setup)
{
    uint64_t all = (UINT64_C(1) << program->hosts) - 1, one = 1 + sim_draw(random, all - 1), other = all & ~one;
    bool sees_all = sim_draw(random, 4) != 0;
    if (!sees_all) other &= sim_draw(random, all) | (other & -other);
    const int64_t heartbeat = program->heartbeat_ns;
    const int64_t lengths[] = {heartbeat * 9 / 10, heartbeat * 9 / 10, heartbeat * 5 / 2,
                               heartbeat * 5 / 2,  heartbeat * 6,      heartbeat * 50};
    uint64_t length = sim_draw(random, 6);
    tutti_sim_fault cut = {.kind = TUTTI_SIM_CUT, .from = one, .to = other};
    cut.at_ns = choose_time(program, random, time_ns, setup);
    cut.for_ns = length < 4 ? 1 + (int64_t)sim_draw(random, (uint64_t)lengths[length]) : lengths[length];
    bool both = sim_draw(random, 3) != 0; /* if only one side hears, its messages may get all others excluded */
    bool lasts = both && length >= 4 && other == (all & ~one) && program->fault_count == 0;
    if (cut.for_ns > heartbeat * 9 / 10) make_unsure(program, cut.at_ns + heartbeat);
    add(program, cut);
    if (both) {
        cut.from = other;
        cut.to = one;
        add(program, cut);
    }
    program->larger = 0;
    if (lasts) note_larger(program, one);
}

/* Cuts off the coordinator's host while it has all values, or after all have acknowledged its proposal, so that no
 * other host hears more. */
static void choose_isolation(uint64_t *random, struct program *program, const tutti_sim_setup *setup)
{
    const struct moment *moment = choose_moment(program, random);
    uint64_t all = (UINT64_C(1) << program->hosts) - 1, one = 1;
    tutti_sim_fault cut = {.kind = TUTTI_SIM_CUT, .from = one, .to = all & ~one};
    int64_t before_ns = 3 * setup->link_latency_ns + 2 * setup->overhead_ns * program->size;
    cut.at_ns = moment->returned_ns[0] - (int64_t)sim_draw(random, (uint64_t)before_ns + 1);
    if (cut.at_ns < 0) cut.at_ns = 0;
    cut.for_ns = program->heartbeat_ns * (int64_t)(1 + sim_draw(random, 6));
    make_unsure(program, cut.at_ns + program->heartbeat_ns);
    add(program, cut);
    cut.from = cut.to;
    cut.to = one;
    add(program, cut);
}

/* Breaks connections between ranks of several hosts, more often those of rank 0. */
static void choose_breaks(uint64_t *random, int64_t time_ns, struct program *program, const tutti_sim_setup *setup)
{
    int count = 1 + (int)sim_draw(random, 4), each = program->size / program->hosts;
    int64_t at_ns = choose_time(program, random, time_ns, setup);
    program->larger = 0;
    for (int i = 0; i < count; i++) {
        int from = sim_draw(random, 2) == 0 ? 0 : (int)sim_draw(random, (uint64_t)program->size);
        int to = (int)sim_draw(random, (uint64_t)program->size);
        if (from / each == to / each) continue;
        if (sim_draw(random, 2) == 0) at_ns = choose_time(program, random, time_ns, setup);
        tutti_sim_fault fault = {.kind = TUTTI_SIM_BREAK, .from = (uint64_t)from, .to = (uint64_t)to, .at_ns = at_ns};
        make_unsure(program, at_ns);
        add(program, fault);
        if (sim_draw(random, 2) == 0) continue;
        fault.from = (uint64_t)to; /* both ends at once: nothing that was on its way arrives */
        fault.to = (uint64_t)from;
        add(program, fault);
    }
}

/* Clocks of hosts differ by hours; they jump, and ranks stop, for less than any deadline notices. */
static void choose_clocks(uint64_t *random, int64_t time_ns, struct program *program, const tutti_sim_setup *setup)
{
    uint64_t hosts = (UINT64_C(1) << program->hosts) - 1;
    add(program, (tutti_sim_fault){.kind = TUTTI_SIM_JUMP, .from = hosts, .for_ns = DEADLINE_NS});
    for (int i = 0; i < 2; i++)
        add(program, (tutti_sim_fault){.kind = TUTTI_SIM_JUMP,
                                       .from = sim_draw(random, hosts + 1),
                                       .for_ns = (int64_t)sim_draw(random, 36000 * (uint64_t)NS_PER_S)});
    for (int i = (int)sim_draw(random, 3); i > 0; i--) {
        int64_t by_ns = (int64_t)sim_draw(random, (uint64_t)DEADLINE_NS / 10);
        int64_t at_ns = choose_time(program, random, time_ns, setup);
        bool jumps = sim_draw(random, 2) == 0;
        tutti_sim_fault fault = {.kind = jumps ? TUTTI_SIM_JUMP : TUTTI_SIM_STOP, .at_ns = at_ns, .for_ns = by_ns};
        fault.from = jumps ? sim_draw(random, hosts + 1) : sim_draw(random, (uint64_t)program->size);
        if (jumps && sim_draw(random, 3) == 0) fault.for_ns = -by_ns;
        add(program, fault);
    }
}

/* A clock jumps by more than a deadline, or a rank stops for so long. */
static void choose_late(uint64_t *random, int64_t time_ns, struct program *program, const tutti_sim_setup *setup)
{
    bool jumps = sim_draw(random, 2) == 0;
    tutti_sim_fault fault = {.kind = jumps ? TUTTI_SIM_JUMP : TUTTI_SIM_STOP};
    fault.at_ns = choose_time(program, random, time_ns, setup);
    fault.for_ns = DEADLINE_NS / 2 + (int64_t)sim_draw(random, 3 * (uint64_t)DEADLINE_NS);
    fault.from = jumps ? 1 + sim_draw(random, (UINT64_C(1) << program->hosts) - 1)
                       : sim_draw(random, (uint64_t)program->size);
    add(program, fault);
    make_unsure(program, fault.at_ns);
    program->late_ns = fault.at_ns;
    program->larger = 0;
}

/* Chooses the faults. Half of the programs have deaths alone. */
void sim_program_disturb(struct program *program, uint64_t *random, int64_t time_ns, tutti_sim_setup *setup)
{
    uint64_t kind = sim_draw(random, 11);
    bool connects = program->hosts > 1, rehearsed = program->moment_count > 0;
    if (connects && (kind == 0 || kind == 1)) choose_cut(random, time_ns, program, setup);
    if (connects && kind == 2) choose_breaks(random, time_ns, program, setup);
    if (kind == 3) choose_late(random, time_ns, program, setup);
    if (connects && kind == 10 && rehearsed) choose_isolation(random, program, setup);
    if (kind == 4 || sim_draw(random, 5) == 0) choose_clocks(random, time_ns, program, setup);
    bool more = connects && kind < 5 && sim_draw(random, 6) == 0;
    if (more) choose_cut(random, time_ns, program, setup);
    bool dies = program->fault_count == 0 || (kind >= 4 && kind < 10) || sim_draw(random, 3) == 0;
    if (dies && rehearsed && sim_draw(random, 5) == 0)
        choose_heirs(random, program, setup);
    else if (dies)
        choose_deaths(random, time_ns, program, setup);
    if (dies || (more && kind < 4)) program->larger = 0;
    setup->deaths = program->deaths;
    setup->death_count = (size_t)program->death_count;
    setup->faults = program->faults;
    setup->fault_count = (size_t)program->fault_count;
}

/* ---- In words ---------------------------------------------------------------------------------------------------------- */

static void describe_fault(const tutti_sim_fault *fault, char *text, size_t bytes)
{
    unsigned long long from = fault->from, to = fault->to;
    long long at = fault->at_ns, by = fault->for_ns;
    switch (fault->kind) {
    case TUTTI_SIM_CUT:
        (void)snprintf(text, bytes, ", hosts %llx do not hear %llx at %lld ns for %lld ns", to, from, at, by);
        break;
    case TUTTI_SIM_BREAK:
        (void)snprintf(text, bytes, ", rank %llu loses its connection to %llu at %lld ns", from, to, at);
        break;
    case TUTTI_SIM_STOP: (void)snprintf(text, bytes, ", rank %llu stops at %lld ns for %lld ns", from, at, by); break;
    case TUTTI_SIM_JUMP:
        (void)snprintf(text, bytes, ", clocks of hosts %llx jump at %lld ns by %lld ns", from, at, by);
        break;
    }
}

void sim_program_describe(const struct program *program, struct faults_finding *finding)
{
    size_t room = sizeof finding->setup;
    size_t at = (size_t)snprintf(finding->setup, room, "%d ranks on %d host%s", program->size, program->hosts,
                                 program->hosts == 1 ? "" : "s");
    for (int i = 0; i < program->death_count && at < room; i++)
        at += (size_t)snprintf(finding->setup + at, room - at, ", rank %d ends at %lld ns", program->deaths[i].rank,
                               (long long)program->deaths[i].at_ns);
    for (int i = 0; i < program->fault_count && at < room; i++) {
        char text[160];
        describe_fault(&program->faults[i], text, sizeof text);
        at += (size_t)snprintf(finding->setup + at, room - at, "%s", text);
    }
}
