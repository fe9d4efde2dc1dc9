/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Who waits for whom: the rule against brute force, and programs of blocking calls in simulated time, every small one and
 * random larger ones. test_waits_full runs more of them.
 *     test_waits [FROM:COUNT]         random programs with these seeds
 */
#include "blocking.h"
#include "collective/comm/waits.h"
#include "ranks.h"
#include "sim_setup.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The rule ---------------------------------------------------------------------------------------------------- */

enum { RANKS = 5, SETS = 50000 };

static struct tti_wait_record records[RANKS];

static void get(const void *context, int rank, struct tti_wait_record *record)
{
    (void)context;
    *record = records[rank];
}

static uint64_t random_state = 1;

static int pick(int count)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)count);
}

/* Most of them wait, and most have looked. */
static void make_records(const struct tti_waits *waits)
{
    for (int rank = 0; rank < waits->size; rank++) {
        struct tti_wait_record *record = &records[rank];
        *record = (struct tti_wait_record){.rank = rank, .number = (uint64_t)pick(3) + 1, .sure = pick(12) != 0};
        record->doing = (uint8_t)(pick(8) == 0 ? TTI_GONE : pick(8) == 0 ? TTI_RUNS : TTI_WAITS);
        record->awaited = pick(4) == 0 ? TTI_ANYONE : (rank + 1 + pick(waits->size - 1)) % waits->size;
        snprintf(record->what, sizeof record->what, "call %d", rank);
    }
    for (int rank = 0; rank < waits->size; rank++) {
        struct tti_wait_record *record = &records[rank];
        record->looked = tti_waits_digest(waits, rank, record->awaited);
        if (pick(12) == 0) record->looked ^= 2;
    }
}

static bool is_edge(int from, int to)
{
    return to != from && records[to].doing != TTI_GONE &&
           (records[from].awaited == to || records[from].awaited == TTI_ANYONE);
}

/* Whether no rank of the set waits for one that is not of it, and all know what those do that they wait for. */
static bool is_closed(const struct tti_waits *waits, unsigned set)
{
    for (int rank = 0; rank < waits->size; rank++) {
        const struct tti_wait_record *record = &records[rank];
        if ((set & 1U << rank) == 0) continue;
        if (record->doing != TTI_WAITS || !record->sure || record->looked == 0) return false;
        if (record->looked != tti_waits_digest(waits, rank, record->awaited)) return false;
        for (int other = 0; other < waits->size; other++)
            if (is_edge(rank, other) && (set & 1U << other) == 0) return false;
    }
    return true;
}

/* Those that a rank waits for, in the end. */
static unsigned reach(int size, int rank)
{
    unsigned set = 0;
    for (int turn = 0; turn < size; turn++)
        for (int from = 0; from < size; from++)
            for (int to = 0; to < size; to++)
                if ((from == rank || (set & 1U << from) != 0) && is_edge(from, to)) set |= 1U << to;
    return set;
}

static bool leads_to_anyone(int size, int rank)
{
    unsigned set = reach(size, rank) | 1U << rank;
    for (int other = 0; other < size; other++)
        if ((set & 1U << other) != 0 && records[other].awaited == TTI_ANYONE) return true;
    return false;
}

static void test_rule(void)
{
    long found = 0;
    for (int i = 0; i < SETS; i++) {
        struct tti_waits waits = {.size = 2 + pick(RANKS - 1), .get = get};
        make_records(&waits);
        for (int rank = 0; rank < waits.size; rank++) {
            bool stuck = false;
            for (unsigned set = 0; set < 1U << waits.size; set++)
                stuck = stuck || ((set & 1U << rank) != 0 && is_closed(&waits, set));
            bool comes_round = (reach(waits.size, rank) & 1U << rank) != 0 || leads_to_anyone(waits.size, rank);
            bool forever = tti_waits_forever(&waits, rank);
            found += forever;
            CHECK(forever == (stuck && comes_round));
        }
    }
    printf("the rule: %d sets of records, %ld waits that never end\n", SETS, found);
}

/* ---- Numbers and words ------------------------------------------------------------------------------------------- */

static void test_own_record(void)
{
    struct tti_own_wait own = {0};
    struct tti_wait_record now = {.rank = 1, .awaited = 2, .doing = TTI_WAITS, .sure = 1, .what = "recv"};
    CHECK(!tti_wait_renew(&own, &now, 7) && own.record.number == 1 && own.record.looked == 0);
    CHECK(tti_wait_renew(&own, &now, 7) && own.record.number == 1);
    tti_wait_poll(&own, 99); /* what is known now may have come after the last poll */
    CHECK(own.record.looked == 0);
    tti_wait_poll(&own, 99);
    CHECK(own.record.looked == 99);
    tti_wait_poll(&own, 98);
    CHECK(own.record.looked == 0);
    tti_wait_poll(&own, 98);
    CHECK(!tti_wait_renew(&own, &now, 8) && own.record.number == 2 && own.record.looked == 0);
    tti_wait_poll(&own, 98);
    CHECK(own.record.looked == 0);
    now.sure = 0;
    CHECK(!tti_wait_renew(&own, &now, 8) && own.record.number == 3);
    now.awaited = 0;
    CHECK(!tti_wait_renew(&own, &now, 8) && own.record.number == 4);
    own.record.doing = TTI_RUNS;
    CHECK(!tti_wait_renew(&own, &now, 8) && own.record.number == 5);
}

static void set_chain(int rank, int awaited, const char *what)
{
    records[rank] = (struct tti_wait_record){.rank = rank, .awaited = awaited, .doing = TTI_WAITS};
    snprintf(records[rank].what, sizeof records[rank].what, "%s", what);
}

static void test_words(void)
{
    struct tti_waits waits = {.size = RANKS, .get = get};
    char text[200];
    set_chain(0, 1, "recv with tag 3");
    set_chain(1, 2, "#7 barrier at a.c:10");
    for (int rank = 2; rank < RANKS; rank++) records[rank] = (struct tti_wait_record){.rank = rank};
    CHECK(tti_waits_blame(&waits, 0, 1) == 2);
    tti_waits_describe(&waits, 0, 1, text, sizeof text);
    CHECK(strcmp(text, "; rank 1 waits in #7 barrier at a.c:10 for rank 2") == 0);
    set_chain(2, TTI_ANYONE, "recv");
    CHECK(tti_waits_blame(&waits, 0, 1) == 2);
    tti_waits_describe(&waits, 0, 1, text, sizeof text);
    CHECK(strstr(text, "for rank 2; rank 2 waits in recv for any rank") != NULL);
    tti_waits_describe_others(&waits, 0, 1, text, sizeof text);
    CHECK(strcmp(text, "") == 0);
    set_chain(4, 0, "#7 all_reduce at b.c:2"); /* which could have sent to rank 2 instead */
    tti_waits_describe_others(&waits, 0, 1, text, sizeof text);
    CHECK(strcmp(text, "; rank 4 waits in #7 all_reduce at b.c:2 for rank 0") == 0);
    tti_waits_describe_others(&waits, 0, 1, text, 20);
    CHECK(strcmp(text, "; rank 4 waits in #") == 0);
    set_chain(2, 0, "send");
    CHECK(tti_waits_blame(&waits, 0, 1) == 1);
    tti_waits_describe_others(&waits, 0, 1, text, sizeof text);
    CHECK(strcmp(text, "") == 0);
    set_chain(2, 1, "send"); /* comes round, but not here */
    CHECK(tti_waits_blame(&waits, 0, 1) == 1);
    tti_waits_describe(&waits, 0, 1, text, 20);
    CHECK(strcmp(text, "; rank 1 waits in #") == 0);
}

/* ---- Worlds ------------------------------------------------------------------------------------------------------ */

static int run_world(int hosts, int ranks_per_host, tutti_sim_work *work)
{
    tutti_sim_setup setup = sim_setup(ranks_per_host, 1);
    tutti_sim_report report = {.struct_size = sizeof report, .result = -1};
    tutti_error error;
    setup.hosts = hosts;
    tutti_status status = tutti_sim_run(&setup, work, NULL, &report, &error);
    if (status != TUTTI_OK) printf("%s\n", error.text);
    return status == TUTTI_OK ? report.result : -1;
}

/* Every rank receives from the next one. */
static int receive_around(tutti_comm *world, void *context)
{
    char x;
    int64_t began = tutti_clock_ns();
    (void)context;
    tutti_status status = tutti_recv(world, &x, 1, TUTTI_U8, (tutti_rank(world) + 1) % tutti_size(world), 0, NULL);
    return status != TUTTI_ERR_MISMATCH || tutti_clock_ns() - began > 2000 * MS;
}

/* Rank 1's service thread waits in a barrier that it has started, until rank 2 comes, while rank 1 itself computes. When the
 * barrier is over rank 1 is the one to blame. */
static int compute_after_wait(tutti_comm *world, void *context)
{
    char x;
    tutti_op op;
    int rank = tutti_rank(world);
    (void)context;
    if (rank == 1 && tutti_barrier_start(world, &op) != TUTTI_OK) return 1;
    if (rank == 2) tutti_spend_ns(200 * MS);
    if (rank != 1 && tutti_barrier(world) != TUTTI_OK) return 1;
    tutti_status status = rank == 0 ? tutti_recv(tutti_within(world, 300), &x, 1, TUTTI_U8, 1, 0, NULL) : TUTTI_OK;
    if (rank == 0 && (status != TUTTI_ERR_TIMEOUT || strstr(tutti_comm_error(world)->text, "rank 1 waits in")))
        return tutti_explain(world, stdout);
    if (rank == 1) tutti_spend_ns(1000 * MS);
    if (rank == 1) tutti_wait(op);
    return 0;
}

static void test_worlds(void)
{
    CHECK(run_world(64, 1, receive_around) == 0);
    CHECK(run_world(1, 64, receive_around) == 0);
    CHECK(run_world(3, 1, compute_after_wait) == 0);
    CHECK(run_world(1, 3, compute_after_wait) == 0);
}

/* ---- Programs ---------------------------------------------------------------------------------------------------- */

/* While rank 1 copies rank 3's message it does not look at rank 0's: rank 0 waits for it, it seems to wait for rank 2, and that one
 * waits for rank 0. */
static const struct blocking_program busy = {
    .ranks = 4,
    .count = {2, 1, 2, 1},
    .calls = {{{.late_ms = 110, .count = 1, .letters = {{true, 1, 0, BLOCKING_LARGE}}},
               {.count = 1, .letters = {{true, 2, 1, BLOCKING_SMALL}}}},
              {{.count = 3, .letters = {{true, 2, 0, BLOCKING_LARGE}, {false, 3, 0, 0}, {false, 0, 0, 0}}}},
              {{.count = 1, .letters = {{false, 0, 1, 0}}}, {.count = 1, .letters = {{false, 1, 0, 0}}}},
              {{.late_ms = 100, .count = 1, .letters = {{true, 1, 0, BLOCKING_LARGE}}}}}};

static void run_chosen(void)
{
    blocking_slowly = true;
    CHECK(blocking_truth(&busy) == BLOCKING_WELL);
    blocking_add(&busy);
    blocking_end("a chosen program");
    blocking_slowly = false;
}

static void run_random(uint64_t from, uint64_t count)
{
    blocking_slowly = true;
    for (uint64_t seed = from; seed < from + count; seed++) {
        struct blocking_program program;
        blocking_random(&program, seed);
        blocking_add(&program);
    }
    blocking_end("random programs");
}

int main(int argc, char **argv)
{
    unsigned long long from = 0, count = SANITIZED ? 200 : 1000;
    tutti_log_set_level(TUTTI_QUIET);
    if (argc > 1) {
        if (sscanf(argv[1], "%llu:%llu", &from, &count) < 1) return 2;
        run_chosen();
        run_random(from, count);
    } else {
        test_rule();
        test_own_record();
        test_words();
        test_worlds();
        run_chosen();
        blocking_every(2, SANITIZED ? 3 : 5);
        blocking_end("programs of two ranks");
        blocking_every(3, SANITIZED ? 2 : 4);
        blocking_end("programs of three ranks");
        run_random(from, count);
    }
    return check_end();
}
