/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan
 *
 * Conformance on simulated ranks: the list of test_conformance.c, each case under several orders of events.
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

enum { SEEDS = SANITIZED ? 2 : 6 };

static void run(struct conf_list *list, int hosts, int direct, uint64_t seed)
{
    for (uint64_t i = 0; i < SEEDS; i++) {
        char label[80];
        snprintf(label, sizeof label, "simulated, %d hosts, direct=%d, seed %llu", hosts, direct,
                 (unsigned long long)(seed + i));
        list->label = label;
        struct conf_world world = {.ranks = WORLD_SIMULATED,
                                   .size = list->size,
                                   .hosts = hosts,
                                   .direct = direct,
                                   .attach = 1,
                                   .seed = seed + i,
                                   .body = conf_list_run,
                                   .context = list};
        conf_world_run(&world);
    }
}

/* On one host, both ways; or on as many hosts as ranks, and where it can be on hosts of two. */
static void run_all(struct conf_list *list, bool hosts, uint64_t seed)
{
    if (!hosts) {
        run(list, 1, 0, seed);
        run(list, 1, 1, seed);
        return;
    }
    if (list->size > 1) run(list, list->size, 1, seed);
    if (list->size > 2 && list->size % 2 == 0) run(list, list->size / 2, 1, seed);
}

/* Between hosts go collectives only. */
static void run_list(int size, size_t batch, bool hosts, uint64_t seed)
{
    struct conf_list list = {.size = size, .batch = batch};
    for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
        for (size_t i = 0; i < conf_kind_count; i++) {
            enum tti_kind kind = conf_kinds[i];
            if (hosts && (kind == TTI_SEND || kind == TTI_SENDRECV)) continue;
            conf_list_add_random(&list, kind, (enum conf_tuning)tuning, seed++, 20000);
        }
    conf_list_prepare(&list, seed, false);
    run_all(&list, hosts, seed);
    conf_list_free(&list);
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 13, 16};
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    conf_begin();
    conf_reference_prepare();
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        for (size_t batch = 1; batch <= 8; batch *= 8)
            for (int hosts = 0; hosts < 2; hosts++) {
                run_list(sizes[i], batch, hosts != 0, seed);
                seed += 1000;
            }
    return check_end();
}
