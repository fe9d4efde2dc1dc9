/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=400 labels=asan,tsan
 *
 * Conformance of collectives on streams of a device, by every provider: the list of cases of the other conformance tests, with
 * buffers in the device's memory. `test_conformance_streams cuda:0 4` runs it on a GPU, four times as many cases;
 * `test_conformance_streams cuda 1 3` on GPUs of which each rank has its own, with up to 3 ranks, and
 * `test_conformance_streams cuda 1 3 nccl` there by NCCL, with values whose sums are exact in any order. With `nccl-one` 1, 2, 4…
 * ranks are on one GPU, as processes that NCCL takes for hosts of their own (NCCL_SOCKET_IFNAME=lo); a rank alone is a thread, too.
 */
#include "collective/plan/plan.h"
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *device = "host";

struct variant {
    enum world_ranks ranks;
    const char *provider;
    const char *only;
};

static const struct variant variants[] =
    {
        {WORLD_THREADS, "cuda", "cuda"}, {WORLD_PROCESSES, "cuda", "cuda"}, {WORLD_PAIRS, "cuda", "cuda"},
        {WORLD_THREADS, "staged", NULL}, {WORLD_PAIRS, "staged", NULL},     {WORLD_PROCESSES, "staged", NULL},
        {WORLD_THREADS, "auto", NULL},   {WORLD_PROCESSES, "auto", NULL},
},
                            by_nccl[] = {
                                {WORLD_THREADS, "nccl", "nccl"},
                                {WORLD_PROCESSES, "nccl", "nccl"},
                                {WORLD_PAIRS, "nccl", "nccl"},
};
static bool nccl, one_gpu;

static void run(struct conf_list *list, const struct variant *variant)
{
    struct conf_world world = {.ranks = variant->ranks,
                               .size = list->size,
                               .direct = 1,
                               .attach = 1,
                               .provider = variant->provider,
                               .own_hosts = one_gpu,
                               .leaks = strcmp(device, "host") != 0, /* a GPU's driver keeps descriptors open */
                               .body = conf_list_run,
                               .context = list};
    char label[64];
    snprintf(label, sizeof label, "%s, %s, %s", device, world_ranks_name(variant->ranks), variant->provider);
    list->label = label;
    list->device = device;
    conf_world_run(&world);
}

/* Every kind, with other types, reductions, counts, roots and places for each variant. */
static void run_size(int size, int cases, size_t batch, uint64_t seed)
{
    const struct variant *all = nccl ? by_nccl : variants;
    size_t count = nccl ? sizeof by_nccl / sizeof *by_nccl : sizeof variants / sizeof *variants;
    for (size_t i = 0; i < count; i++) {
        if (one_gpu && size > 1 && all[i].ranks != WORLD_PROCESSES) continue;
        struct conf_list list = {.size = size, .batch = batch, .only = all[i].only};
        for (size_t kind = 0; kind < conf_kind_count; kind++)
            for (int k = 0; k < cases && conf_kinds[kind] < TTI_TUNING; k++)
                conf_list_add_random(&list, conf_kinds[kind], CONF_DEFAULT, seed++, k == 0 ? 300000 : 20000);
        conf_list_prepare(&list, seed, false);
        run(&list, &all[i]);
        conf_list_free(&list);
    }
}

int main(int argc, char **argv)
{
    int times = argc > 2 ? atoi(argv[2]) : 1, most = SANITIZED ? 4 : 8;
    if (argc > 1) device = argv[1];
    if (argc > 3) most = atoi(argv[3]);
    one_gpu = argc > 4 && strcmp(argv[4], "nccl-one") == 0;
    nccl = one_gpu || (argc > 4 && strcmp(argv[4], "nccl") == 0);
    conf_begin();
    conf_reference_prepare();
    for (int size = 1; size <= most; size += one_gpu ? size : 1)
        run_size(size, (SANITIZED ? 2 : 4) * times, size % 2 == 0 ? 1 : 8, (uint64_t)size * 100000);
    if (!SANITIZED && argc <= 3) run_size(17, times, 4, 7);
    return check_end();
}
