/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan processors=2
 *
 * Random programs: each seed makes one, which runs in every kind of world and gives the same bits in all of them.
 *     test_programs [FROM:COUNT] [WORLD]       TUTTI_TEST_SEEDS=FROM:COUNT does the same
 */
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEDS = SANITIZED ? 4 : 20, LIMIT_S = 150 };

struct place {
    const char *name;
    enum conf_ranks ranks;
    bool tcp, hosts, messages;
    int turn; /* in `make test`, seeds take turns on some of these: 0 is all of them, else those of 1 and of 2 */
};

/* Between simulated hosts go collectives only. */
static const struct place places[] = {
    {"threads", CONF_THREADS, false, false, true, 0},
    {"processes", CONF_PROCESSES, false, false, true, 1},
    {"threads of processes", CONF_PAIRS, false, false, true, 2},
    {"tcp threads", CONF_THREADS, true, false, true, 1},
    {"tcp processes", CONF_PROCESSES, true, false, true, 2},
    {"hosts", CONF_PROCESSES, false, true, true, 1},
    {"hosts of threads", CONF_PAIRS, false, true, true, 2},
    {"simulated", CONF_SIMULATED, false, false, true, 0},
    {"simulated hosts", CONF_SIMULATED, false, true, false, 0},
};

/* Hosts of so many processes; as simulated ones, all of the same size. */
static int host_processes(const struct place *place, const struct program *program, int processes)
{
    int each = 1 + program_pick(program->seed, 31, processes);
    while (place->ranks == CONF_SIMULATED && processes % each != 0) each--;
    return each;
}

static char folder[] = "/tmp/tutti-programs-XXXXXX", trace[64];

/* Options under which nothing may change. */
static void choose_options(const struct program *program)
{
    static const char *const streams[] = {"0", "1", "2", "3"};
    setenv("TUTTI_STREAMS", streams[program_pick(program->seed, 35, 4)], 1);
    setenv("TUTTI_HOST_AWARE", program_pick(program->seed, 36, 4) != 0 ? "1" : "0", 1);
    setenv("TUTTI_TRACE", program_pick(program->seed, 37, 4) != 0 ? "" : trace, 1);
    setenv("TUTTI_TRACE_EVENTS", "300", 1);
}

static void run_place(struct program *program, const struct place *place, bool withdraws)
{
    char number[16];
    int threads = place->ranks == CONF_PAIRS && program->size % 2 == 0 ? 2 : 1;
    int each = place->hosts ? host_processes(place, program, program->size / threads) : 0;
    struct conf_world world = {.ranks = place->ranks, .size = program->size, .body = program_run, .context = program};
    world.direct = program_pick(program->seed, 32, 4) != 0;
    world.attach = program_pick(program->seed, 33, 4) != 0;
    world.seed = conf_hash(program->seed, 34);
    world.limit_s = LIMIT_S;
    program->world = place->name;
    program->messages = place->messages;
    program->withdraws = withdraws;
    program->threads = place->ranks != CONF_SIMULATED;
    program->per_host = each * threads;
    if (place->hosts && place->ranks == CONF_SIMULATED) world.hosts = program->size / each;
    snprintf(number, sizeof number, "%d", each);
    choose_options(program);
    setenv("TUTTI_TRANSPORT", place->tcp ? "tcp" : "auto", 1);
    setenv("TUTTI_HOST_PROCESSES", place->ranks == CONF_SIMULATED ? "0" : number, 1);
    memset((void *)program_arrivals, 0, PROGRAM_ITEMS * sizeof *program_arrivals);
    long failed = atomic_load(&conf_totals->failed);
    conf_world_run(&world);
    if (atomic_load(&conf_totals->failed) != failed)
        printf("seed %llu on %s failed: test_programs %llu:1 \"%s\"\n", (unsigned long long)program->seed, place->name,
               (unsigned long long)program->seed, place->name);
}

int main(int argc, char **argv)
{
    const char *seeds = argc > 1 ? argv[1] : getenv("TUTTI_TEST_SEEDS"), *only = argc > 2 ? argv[2] : NULL;
    unsigned long long from = 0, count = SEEDS;
    bool every = seeds != NULL;
    if (every && sscanf(seeds, "%llu:%llu", &from, &count) < 1) {
        printf("seeds are FROM:COUNT, not %s\n", seeds);
        return 2;
    }
    struct program *program = calloc(1, sizeof *program);
    if (mkdtemp(folder) == NULL) return 1;
    snprintf(trace, sizeof trace, "%s/trace", folder);
    conf_begin();
    conf_reference_prepare();
    program_begin();
    for (uint64_t seed = from; seed < from + count; seed++) {
        program_make(program, seed);
        program_data_prepare(program);
        for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
            if (only != NULL && strcmp(only, places[i].name) != 0) continue;
            if (!every && places[i].turn != 0 && places[i].turn != 1 + (int)(seed % 2)) continue;
            run_place(program, &places[i], every);
        }
    }
    free(program);
    unlink(trace);
    rmdir(folder);
    return conf_end();
}
