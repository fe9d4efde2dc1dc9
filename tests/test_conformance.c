/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=600 labels=asan,tsan processors=2
 *
 * Conformance, the covering set: every operation on every kind of rank, memory and path, with the other dimensions
 * (type, reduction, count, root, place) drawn from a seed. The whole product is in test_conformance_full.c.
 */
#include "collective/plan.h"
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

struct variant {
    enum conf_ranks ranks;
    int direct, attach;
};

static const struct variant variants[] = {
    {CONF_THREADS, 1, 1},   {CONF_PROCESSES, 1, 1}, {CONF_PROCESSES, 1, 0}, {CONF_JOINED, 1, 1}, {CONF_THREADS, 0, 0},
    {CONF_PROCESSES, 0, 0}, {CONF_PROCESSES, 0, 1}, {CONF_THREADS, 0, 1},   {CONF_JOINED, 1, 0}, {CONF_JOINED, 0, 0},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static void run(const struct conf_list *list, const struct variant *variant)
{
    struct conf_world world = {.ranks = variant->ranks,
                               .size = list->size,
                               .direct = variant->direct,
                               .attach = variant->attach,
                               .body = conf_list_run};
    struct conf_list copy = *list;
    char label[64];
    snprintf(label, sizeof label, "%s direct=%d attach=%d", conf_ranks_name(variant->ranks), variant->direct,
             variant->attach);
    copy.label = label;
    world.context = &copy;
    conf_world_run(&world);
}

/* Cases in order of tuning and kind, each verified before the next. */
static void run_ordered(int size, int first_variant, int variant_count, int per_kind, uint64_t seed)
{
    struct conf_list list = {.size = size, .batch = 1};
    for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
        for (size_t kind = 0; kind < conf_kind_count; kind++)
            for (int i = 0; i < (tuning == CONF_DEFAULT ? 1 : per_kind); i++)
                conf_list_add_random(&list, conf_kinds[kind], (enum conf_tuning)tuning, seed++,
                                     tuning == CONF_DEFAULT ? 300000 : 40000);
    conf_list_prepare(&list, seed, false);
    for (int i = 0; i < variant_count; i++) run(&list, &variants[(first_variant + i) % VARIANTS]);
    conf_list_free(&list);
}

/* Operations of all kinds back to back: ranks run ahead of each other, and paths follow on each other. */
static void run_mixed(int size, int variant_count, size_t count, uint64_t seed)
{
    struct conf_list list = {.size = size, .batch = 8};
    enum conf_tuning tuning = CONF_SMALL;
    for (size_t i = 0; i < count; i++) {
        uint64_t hash = conf_hash(seed, i);
        if (hash % 16 == 0) tuning = (enum conf_tuning)(hash / 16 % CONF_TUNINGS);
        enum tti_kind kind = conf_kinds[hash / 256 % conf_kind_count];
        conf_list_add_random(&list, kind, tuning, seed + i, hash >> 60 == 0 ? 20000 : hash >> 62 == 1 ? 5000 : 600);
    }
    conf_list_prepare(&list, seed, false);
    for (int i = 0; i < variant_count; i++) run(&list, &variants[i]);
    conf_list_free(&list);
}

static void check_paths(void)
{
    static const char *const names[] = {"staged", "direct", "attach", "bounce", "tree"};
    for (size_t i = 0; i < conf_kind_count; i++) {
        enum tti_kind kind = conf_kinds[i];
        if (kind >= TTI_TUNING) continue;
        for (int path = 0; path < 5; path++) {
            bool stages = kind != TTI_GATHER_V && kind != TTI_SCATTER_V && kind != TTI_ALL_TO_ALL_V;
            bool attaches = kind != TTI_SCAN && kind != TTI_EXSCAN;
            if (kind == TTI_BARRIER && path != TTI_STAGED) continue;
            if (path == TTI_STAGED && !stages) continue;
            if (path == TTI_ATTACH && !attaches) continue;
            if (path == 4 && kind != TTI_BROADCAST) continue;
            conf_check(atomic_load(&conf_totals->paths[kind][path]) > 0, "no %s went by the path %s",
                       tti_kind_name(kind), names[path]);
        }
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    conf_begin();
    conf_reference_prepare();
    static const int sizes[] = {2, 3, 5, 1, 4, 8, 7, 9, 16, 17, 6};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        run_ordered(sizes[i], (int)i * 3, sizes[i] <= 5 ? VARIANTS : 4, CONF_SANITIZED ? 1 : 4, seed + i * 10000);
    for (int size = 2; size <= 8; size++)
        run_mixed(size, CONF_SANITIZED ? 4 : VARIANTS, CONF_SANITIZED ? 60 : 300,
                  seed + 500000 + (uint64_t)size * 1000);
    check_paths();
    return conf_end();
}
