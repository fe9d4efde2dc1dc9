/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=300 labels=asan,tsan
 *
 * Conformance over several hosts: the list of test_conformance.c among ranks that share memory within a host and are
 * connected by tcp, with as many ranks on each host or not, as processes, as threads, and as threads of processes. The
 * hosts are this machine: see the option host_processes.
 */
#include "collective/peers/posts.h"
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

struct variant {
    enum world_ranks ranks;
    int size;
    const char *host_processes;
    int attach;
    bool aware;
};

/* 2+2, 3+1, 2+2+1 processes; 2+2+2 threads; 4+2 threads of processes; without attach, and of one host. */
static const struct variant variants[] = {
    {WORLD_PROCESSES, 4, "2", 1, true},  {WORLD_PROCESSES, 4, "3", 1, true}, {WORLD_PROCESSES, 5, "2", 1, true},
    {WORLD_PAIRS, 6, "1", 0, true},      {WORLD_PAIRS, 6, "2", 1, true},     {WORLD_PROCESSES, 3, "2", 0, false},
    {WORLD_PROCESSES, 2, "2", 1, false},
};

static bool aware; /* of hosts: what is expected of the world that runs */

static void run_list(tutti_comm *comm, void *list)
{
    CHECK_THAT(tti_posts_cover(comm, TTI_ALL_REDUCE) == aware, "rank %d: %s", tutti_rank(comm),
               aware ? "by messages alone" : "not by messages alone");
    conf_list_run(comm, list);
}

static void run(const struct variant *variant, size_t batch, uint64_t seed)
{
    struct conf_list list = {.size = variant->size, .batch = batch};
    char label[80];
    for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
        for (size_t kind = 0; kind < conf_kind_count; kind++)
            for (int again = 0; again < (SANITIZED ? 1 : 2); again++)
                conf_list_add_random(&list, conf_kinds[kind], (enum conf_tuning)tuning, seed++,
                                     tuning == CONF_DEFAULT ? 300000 : 20000);
    conf_list_prepare(&list, seed, false);
    snprintf(label, sizeof label, "hosts of %s processes, %s", variant->host_processes,
             world_ranks_name(variant->ranks));
    list.label = label;
    aware = variant->aware;
    setenv("TUTTI_HOST_PROCESSES", variant->host_processes, 1);
    struct conf_world world = {.ranks = variant->ranks,
                               .size = variant->size,
                               .direct = 1,
                               .attach = variant->attach,
                               .body = run_list,
                               .context = &list};
    conf_world_run(&world);
    conf_list_free(&list);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    conf_begin();
    conf_reference_prepare();
    for (size_t i = 0; i < sizeof variants / sizeof *variants; i++) run(&variants[i], i % 2 == 0 ? 8 : 1, seed += 1000);
    return check_end();
}
