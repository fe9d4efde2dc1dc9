/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Faults of simulated worlds other than deaths: cuts between hosts, connections that end, ranks that stand still, clocks that jump.
 */
#include "ranks.h"
#include "sim_setup.h"
#include <string.h>

#define S (1000 * MS)
enum { HEARTBEAT_MS = 2000 };

struct world {
    int64_t pause_ns; /* before the first barrier */
    tutti_status first[4], shrunk[4];
    int left[4];
    int64_t ended_ns[4], clock_ns[4];
};

/* Two barriers; where one fails a shrink, and another one among those that are left. */
static int meet(tutti_comm *comm, void *context)
{
    struct world *world = context;
    int rank = tutti_rank(comm);
    tutti_comm *made = NULL;
    int64_t clock_ns = tutti_clock_ns(), began_ns = tutti_sim_time_ns();
    tutti_spend_ns(world->pause_ns);
    world->first[rank] = tutti_barrier(comm);
    if (world->first[rank] == TUTTI_OK) world->first[rank] = tutti_barrier(comm);
    world->ended_ns[rank] = tutti_sim_time_ns() - began_ns;
    world->clock_ns[rank] = tutti_clock_ns() - clock_ns;
    world->shrunk[rank] = world->first[rank] == TUTTI_OK ? TUTTI_OK : tutti_comm_shrink(comm, &made);
    world->left[rank] = made == NULL ? 0 : tutti_size(made);
    if (made == NULL) return 0;
    bool good = tutti_barrier(made) == TUTTI_OK;
    return tutti_comm_free(made) != TUTTI_OK || !good;
}

/* The same run twice. */
static void run(int hosts, const tutti_sim_fault *faults, size_t count, struct world *world)
{
    tutti_options options;
    tutti_sim_report report = {.struct_size = sizeof report, .result = -1},
                     again = {.struct_size = sizeof again, .result = -2};
    tutti_sim_setup setup = sim_setup(hosts == 1 ? 2 : 1, 3);
    struct world before = *world;
    tutti_options_init(&options, NULL);
    options.heartbeat_ms = HEARTBEAT_MS;
    options.deadline_ms = 20000;
    setup.hosts = hosts;
    setup.options = &options;
    setup.faults = faults;
    setup.fault_count = count;
    CHECK(tutti_sim_run(&setup, meet, world, &report, NULL) == TUTTI_OK && report.result == 0);
    *world = before;
    CHECK(tutti_sim_run(&setup, meet, world, &again, NULL) == TUTTI_OK && again.trace == report.trace);
}

/* What was sent through a short cut comes when it is over, whichever way it was cut. */
static void test_short_cut(uint64_t from, uint64_t to)
{
    const tutti_sim_fault cut = {.kind = TUTTI_SIM_CUT, .from = from, .to = to, .at_ns = 0, .for_ns = 1500 * MS};
    struct world world = {.pause_ns = MS};
    run(3, &cut, 1, &world);
    for (int rank = 0; rank < 3; rank++) CHECK(world.first[rank] == TUTTI_OK && world.ended_ns[rank] < 1501 * MS);
    CHECK(world.ended_ns[0] >= 1500 * MS || world.ended_ns[1] >= 1500 * MS || world.ended_ns[2] >= 1500 * MS);
}

/* In a long one the two sides lose each other, and the larger one goes on, also when the cut is over. */
static void test_long_cut(int64_t for_ns)
{
    const tutti_sim_fault cuts[] = {{.kind = TUTTI_SIM_CUT, .from = 3, .to = 4, .at_ns = MS, .for_ns = for_ns},
                                    {.kind = TUTTI_SIM_CUT, .from = 4, .to = 3, .at_ns = MS, .for_ns = for_ns}};
    struct world world = {.pause_ns = 2 * MS};
    run(3, cuts, 2, &world);
    for (int rank = 0; rank < 3; rank++) {
        CHECK(world.first[rank] == TUTTI_ERR_PEER_LOST);
        CHECK(world.ended_ns[rank] >= HEARTBEAT_MS * MS && world.ended_ns[rank] < HEARTBEAT_MS * 3 / 2 * MS + 20 * MS);
        CHECK(world.shrunk[rank] == (rank < 2 ? TUTTI_OK : TUTTI_ERR_EXCLUDED));
        CHECK(world.left[rank] == (rank < 2 ? 2 : 0));
    }
}

/* Two ranks that live have lost each other: the third goes on with one of them, or alone with an error. */
static void test_break(void)
{
    const tutti_sim_fault breaks = {.kind = TUTTI_SIM_BREAK, .from = 1, .to = 2, .at_ns = MS};
    struct world world = {.pause_ns = 2 * MS};
    run(3, &breaks, 1, &world);
    int went_on = 0;
    for (int rank = 0; rank < 3; rank++) {
        CHECK(world.first[rank] == TUTTI_ERR_PEER_LOST && world.ended_ns[rank] < 100 * MS);
        CHECK(world.shrunk[rank] == (world.left[rank] == 2 ? TUTTI_OK : TUTTI_ERR_EXCLUDED));
        went_on += world.left[rank] == 2;
    }
    CHECK(went_on == 2 || went_on == 0);
}

static void test_stop(int hosts)
{
    const tutti_sim_fault stop = {.kind = TUTTI_SIM_STOP, .from = 1, .at_ns = MS, .for_ns = 3 * S};
    struct world world = {.pause_ns = 2 * MS};
    run(hosts, &stop, 1, &world);
    for (int rank = 0; rank < (hosts == 1 ? 2 : hosts); rank++)
        CHECK(world.first[rank] == TUTTI_OK && world.ended_ns[rank] >= 3 * S && world.ended_ns[rank] < 3 * S + 10 * MS);
}

/* A clock that jumps by less than the deadline does no harm; by more, it ends the ops of its host's ranks. */
static void test_jump(int64_t by_ns, bool ends)
{
    const tutti_sim_fault faults[] = {{.kind = TUTTI_SIM_JUMP, .from = 7, .for_ns = 100 * S},
                                      {.kind = TUTTI_SIM_JUMP, .from = 2, .at_ns = 50 * MS, .for_ns = by_ns},
                                      {.kind = TUTTI_SIM_STOP, .from = 0, .at_ns = MS, .for_ns = 100 * MS}};
    struct world world = {.pause_ns = 2 * MS};
    run(3, faults, 3, &world);
    CHECK(world.first[1] == (ends ? TUTTI_ERR_TIMEOUT : TUTTI_OK));
    CHECK(world.ended_ns[1] < 1 * S && world.clock_ns[1] == world.ended_ns[1] + by_ns);
    CHECK(world.clock_ns[2] == world.ended_ns[2]);
}

static int no_work(tutti_comm *world, void *context)
{
    (void)world, (void)context;
    return 0;
}

static void test_refusals(void)
{
    static const struct {
        const char *words;
        tutti_status status;
        int hosts;
        tutti_sim_fault fault;
    } cases[] = {
        {"kind 9", TUTTI_ERR_ARGUMENT, 2, {.kind = (tutti_sim_fault_kind)9}},
        {"only one", TUTTI_ERR_ARGUMENT, 1, {.kind = TUTTI_SIM_CUT, .from = 1, .to = 2}},
        {"ranks 1 and 1", TUTTI_ERR_RANK, 2, {.kind = TUTTI_SIM_BREAK, .from = 1, .to = 1}},
        {"ranks 0 and 2", TUTTI_ERR_RANK, 2, {.kind = TUTTI_SIM_BREAK, .from = 0, .to = 2}},
        {"ranks 2 and 0", TUTTI_ERR_RANK, 2, {.kind = TUTTI_SIM_STOP, .from = 2}},
        {"at_ns", TUTTI_ERR_ARGUMENT, 2, {.kind = TUTTI_SIM_STOP, .at_ns = -1}},
        {"for_ns", TUTTI_ERR_ARGUMENT, 2, {.kind = TUTTI_SIM_CUT, .for_ns = -1}},
        {"for_ns", TUTTI_ERR_ARGUMENT, 2, {.kind = TUTTI_SIM_JUMP, .for_ns = INT64_MIN}},
    };
    tutti_error error = {0};
    tutti_sim_setup setup = sim_setup(1, 1);
    setup.fault_count = 1;
    CHECK(tutti_sim_run(&setup, no_work, NULL, NULL, &error) == TUTTI_ERR_ARGUMENT);
    CHECK(strstr(error.text, "`faults` is NULL") != NULL);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        setup.hosts = cases[i].hosts;
        setup.faults = &cases[i].fault;
        CHECK(tutti_sim_run(&setup, no_work, NULL, NULL, &error) == cases[i].status);
        CHECK_THAT(strstr(error.text, cases[i].words) != NULL, "%s", error.text);
    }
}

int main(void)
{
    test_short_cut(1, 6);
    test_short_cut(4, 3);
    test_short_cut(2, 5);
    test_long_cut(4 * S);
    test_long_cut(1000 * S);
    test_break();
    test_stop(1);
    test_stop(3);
    test_jump(10 * S, false);
    test_jump(-S, false);
    test_jump(30 * S, true);
    test_refusals();
    return check_end();
}
