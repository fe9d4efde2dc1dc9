/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan,tsan
 *
 * Conformance on simulated ranks: the list of test_conformance.c, each case under several orders of events.
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = CONF_SANITIZED ? 2 : 6 };

static void run(struct conf_list *list, uint64_t seed)
{
    for (int direct = 0; direct < 2; direct++)
        for (uint64_t i = 0; i < SEEDS; i++) {
            char label[64];
            snprintf(label, sizeof label, "simulated, direct=%d, seed %llu", direct, (unsigned long long)(seed + i));
            list->label = label;
            struct conf_world world = {.ranks = CONF_SIMULATED,
                                       .size = list->size,
                                       .direct = direct,
                                       .attach = 1,
                                       .seed = seed + i,
                                       .body = conf_list_run,
                                       .context = list};
            conf_world_run(&world);
        }
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 13, 16};
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    conf_begin();
    conf_reference_prepare();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t batch = 1; batch <= 8; batch *= 8) {
            struct conf_list list = {.size = sizes[i], .batch = batch};
            for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
                for (size_t kind = 0; kind < conf_kind_count; kind++)
                    conf_list_add_random(&list, conf_kinds[kind], (enum conf_tuning)tuning, seed++, 20000);
            conf_list_prepare(&list, seed, false);
            run(&list, seed);
            conf_list_free(&list);
        }
    }
    return conf_end();
}
