/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan,tsan
 *
 * Conformance over tcp: the list of test_conformance.c between ranks that share nothing but loopback, as threads, as
 * processes, and as threads of processes.
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

static const enum world_ranks variants[] = {WORLD_THREADS, WORLD_PROCESSES, WORLD_PAIRS};

static void run(struct conf_list *list)
{
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) {
        char label[64];
        snprintf(label, sizeof label, "tcp, %s", world_ranks_name(variants[i]));
        list->label = label;
        struct conf_world world = {
            .ranks = variants[i], .size = list->size, .direct = 1, .attach = 1, .body = conf_list_run, .context = list};
        conf_world_run(&world);
    }
}

int main(int argc, char **argv)
{
    static const int sizes[] = {1, 2, 3, 4, 5, 8, 13, 17};
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    size_t size_count = SANITIZED ? 5 : sizeof sizes / sizeof *sizes;
    setenv("TUTTI_TRANSPORT", "tcp", 1);
    conf_begin();
    conf_reference_prepare();
    for (size_t i = 0; i < size_count; i++) {
        struct conf_list list = {.size = sizes[i], .batch = i % 2 == 0 ? 8 : 1};
        for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
            for (size_t kind = 0; kind < conf_kind_count; kind++)
                conf_list_add_random(&list, conf_kinds[kind], (enum conf_tuning)tuning, seed++,
                                     tuning == CONF_DEFAULT ? 300000 : 20000);
        conf_list_prepare(&list, seed, false);
        run(&list);
        conf_list_free(&list);
    }
    return check_end();
}
