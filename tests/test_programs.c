/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan,tsan
 *
 * Random programs: each seed makes one, which runs in every kind of world and gives the same bits in all of them.
 *     test_programs [FROM:COUNT] [WORLD]       TUTTI_TEST_SEEDS=FROM:COUNT does the same
 */
#include "check_program.h"
#include "sanitized.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SEEDS = SANITIZED ? 4 : 20 };

static char folder[] = "/tmp/tutti-programs-XXXXXX", trace[64];

/* The thread sanitizer does not see what other processes do. Memory that one of them was told about, gave back and took anew looks to
 * it as if two threads of this process used it at a time. */
static bool suits(const struct program_place *place)
{
    return !SANITIZED_THREADS || place->ranks != WORLD_PAIRS;
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
        program->test = "test_programs";
        program->withdraws = every;
        for (int i = 0; i < PROGRAM_PLACES; i++) {
            const struct program_place *place = &program_places[i];
            if (!suits(place) || (only != NULL && strcmp(only, place->name) != 0)) continue;
            if (!every && place->turn != 0 && place->turn != 1 + (int)(seed % 2)) continue;
            program_run_at(program, place, trace);
        }
    }
    free(program);
    unlink(trace);
    rmdir(folder);
    return check_end();
}
