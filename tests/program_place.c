/* SPDX-License-Identifier: Apache-2.0
 *
 * The kinds of worlds that random programs run in.
 */
#include "check_program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LIMIT_S = 150, FAULT_DEADLINE_MS = SANITIZED ? 60000 : 20000 };

/* Between simulated hosts go collectives only. */
const struct program_place program_places[PROGRAM_PLACES] = {
    {"threads", WORLD_THREADS, false, false, true, 0},
    {"processes", WORLD_PROCESSES, false, false, true, 1},
    {"threads of processes", WORLD_PAIRS, false, false, true, 2},
    {"tcp threads", WORLD_THREADS, true, false, true, 1},
    {"tcp processes", WORLD_PROCESSES, true, false, true, 2},
    {"hosts", WORLD_PROCESSES, false, true, true, 1},
    {"hosts of threads", WORLD_PAIRS, false, true, true, 2},
    {"simulated", WORLD_SIMULATED, false, false, true, 0},
    {"simulated hosts", WORLD_SIMULATED, false, true, false, 0},
};

int program_threads(const struct program *program, const struct program_place *place)
{
    return place->ranks == WORLD_PAIRS && program->size % 2 == 0 ? 2 : 1;
}

/* Hosts of so many processes; as simulated ones, all of the same size. */
static int host_processes(const struct program_place *place, const struct program *program, int processes)
{
    int each = 1 + program_pick(program->seed, 31, processes);
    while (place->ranks == WORLD_SIMULATED && processes % each != 0) each--;
    return each;
}

/* Options under which nothing may change. */
static void choose_options(const struct program *program, const char *trace)
{
    static const char *const streams[] = {"0", "1", "2", "3"};
    setenv("TUTTI_STREAMS", streams[program_pick(program->seed, 35, 4)], 1);
    setenv("TUTTI_HOST_AWARE", program_pick(program->seed, 36, 4) != 0 ? "1" : "0", 1);
    setenv("TUTTI_TRACE", program_pick(program->seed, 37, 4) != 0 ? "" : trace, 1);
    setenv("TUTTI_TRACE_EVENTS", "300", 1);
}

/* Processes that do not end by themselves, as bits. */
static unsigned ending(const struct program *program, const struct program_place *place)
{
    const struct program_fault *fault = &program->fault;
    int each = program_threads(program, place);
    unsigned bits = 0;
    bool ends = fault->kind == FAULT_KILL || (fault->kind == FAULT_END && !fault->thread);
    for (int rank = 0; rank < program->size && ends; rank++) bits |= (fault->gone >> rank & 1) << rank / each;
    return bits;
}

bool program_run_at(struct program *program, const struct program_place *place, const char *trace)
{
    char number[16];
    int threads = program_threads(program, place);
    int each = place->hosts ? host_processes(place, program, program->size / threads) : 0;
    struct conf_world world = {.ranks = place->ranks, .size = program->size, .body = program_run, .context = program};
    world.direct = program_pick(program->seed, 32, 4) != 0;
    world.attach = program_pick(program->seed, 33, 4) != 0;
    world.seed = conf_hash(program->seed, 34);
    world.limit_s = LIMIT_S;
    world.ends = ending(program, place);
    world.faulty = program->fault.kind != FAULT_NONE;
    world.leaks = program->fault.kind == FAULT_END && program->fault.thread;
    world.deadline_ms = world.faulty ? FAULT_DEADLINE_MS : 0;
    world.meanwhile = program_fault_meanwhile;
    program->world = place->name;
    program->messages = place->messages;
    program->threads = place->ranks != WORLD_SIMULATED;
    program->per_host = each * threads;
    if (place->hosts && place->ranks == WORLD_SIMULATED) world.hosts = program->size / each;
    snprintf(number, sizeof number, "%d", each);
    choose_options(program, trace);
    setenv("TUTTI_TRANSPORT", place->tcp ? "tcp" : "auto", 1);
    setenv("TUTTI_HOST_PROCESSES", place->ranks == WORLD_SIMULATED ? "0" : number, 1);
    program_reset();
    long failed = check_failed();
    conf_world_run(&world);
    if (check_failed() == failed) return true;
    printf("seed %llu on %s failed: %s %llu:1 \"%s\"\n", (unsigned long long)program->seed, place->name, program->test,
           (unsigned long long)program->seed, place->name);
    return false;
}
