/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=600 labels=asan
 *
 * The same bits everywhere: floats of very different exponents, where any other order of additions would show, reduced
 * by every path, on every kind of rank and memory, around every switch-over and with every set of kernels (also with
 * different sets on different ranks), must give the bits of the serial reference.
 */
#include "collective/reduce/reduce.h"
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct variant {
    enum world_ranks ranks;
    int direct, attach;
};

static const struct variant variants[] = {
    {WORLD_THREADS, 1, 1}, {WORLD_PROCESSES, 1, 1}, {WORLD_PROCESSES, 1, 0},
    {WORLD_THREADS, 0, 0}, {WORLD_JOINED, 1, 1},
};
enum { VARIANTS = sizeof variants / sizeof *variants };

static const char *const kernels[] = {"portable", "avx2", "avx512"};
enum { KERNELS = 3, MIXED_KERNELS = KERNELS, KERNEL_CHOICES };

static int usable[KERNELS], usable_count, choice;

/* Ranks that are threads share their kernels; so the mixture is one of processes. */
static void run_with_kernels(tutti_comm *comm, void *list)
{
    int one = choice == MIXED_KERNELS ? usable[tutti_rank(comm) % usable_count] : choice;
    CHECK_THAT(tti_kernels_force(kernels[one]), "no kernels %s", kernels[one]);
    conf_list_run(comm, list);
}

static void add_counts(struct conf_list *list, enum tti_kind kind, tutti_type type, enum conf_tuning tuning,
                       uint64_t seed)
{
    static const int columns[] = {TUTTI_SUM, TUTTI_SUM, TUTTI_AVG, CONF_SCALED, TUTTI_MIN, TUTTI_MAX};
    size_t counts[CONF_COUNTS_MOST];
    size_t most = tuning == CONF_DEFAULT && seed % 32 == 0 ? 300000 : 20000;
    size_t used = conf_counts(tuning, type, kind, list->size, most, counts);
    for (int i = 0; i < (SANITIZED ? 1 : 3); i++) {
        uint64_t hash = conf_hash(seed, (uint64_t)i);
        struct conf_case one = {.kind = kind, .type = type, .tuning = tuning, .seed = hash};
        one.column = columns[hash % 6];
        one.count = counts[(hash >> 8) % used];
        one.root = (int)((hash >> 32) % (uint64_t)list->size);
        one.place = (enum conf_place)((hash >> 40) % CONF_PLACES);
        one.memory = (enum conf_memory)((hash >> 48) % CONF_MEMORIES);
        conf_list_add(list, one);
    }
}

static void fill_list(struct conf_list *list, uint64_t seed)
{
    static const enum tti_kind kinds[] = {TTI_ALL_REDUCE,       TTI_REDUCE, TTI_REDUCE_SCATTER,
                                          TTI_REDUCE_SCATTER_V, TTI_SCAN,   TTI_EXSCAN};
    static const tutti_type types[] = {TUTTI_F64, TUTTI_F32, TUTTI_F16, TUTTI_BF16, TUTTI_F8E4M3, TUTTI_F8E5M2};
    for (int tuning = 0; tuning < CONF_TUNINGS; tuning++)
        for (size_t kind = 0; kind < sizeof kinds / sizeof *kinds; kind++)
            for (size_t type = 0; type < sizeof types / sizeof *types; type++)
                add_counts(list, kinds[kind], types[type], (enum conf_tuning)tuning, seed++);
}

static void run(const struct conf_list *list, const struct variant *variant, int kernel)
{
    struct conf_list copy = *list;
    char label[96];
    choice = kernel;
    snprintf(label, sizeof label, "%s direct=%d attach=%d, kernels %s", world_ranks_name(variant->ranks),
             variant->direct, variant->attach, kernel == MIXED_KERNELS ? "mixed" : kernels[kernel]);
    copy.label = label;
    struct conf_world world = {.ranks = variant->ranks,
                               .size = list->size,
                               .direct = variant->direct,
                               .attach = variant->attach,
                               .body = run_with_kernels,
                               .context = &copy};
    conf_world_run(&world);
}

static void run_size(int size, uint64_t seed)
{
    struct conf_list list = {.size = size, .batch = 3};
    fill_list(&list, seed);
    conf_list_prepare(&list, seed, true);
    for (int i = 0; i < VARIANTS; i++) {
        bool mixed = (size + i) % 4 == 0 && variants[i].ranks == WORLD_PROCESSES;
        run(&list, &variants[i], mixed ? MIXED_KERNELS : usable[(size + i) % usable_count]);
    }
    for (int i = 0; i < usable_count && size <= 5; i++) run(&list, &variants[0], usable[i]);
    conf_list_free(&list);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    conf_begin();
    conf_reference_prepare();
    for (int i = 0; i < KERNELS; i++)
        if (tti_kernels_force(kernels[i])) usable[usable_count++] = i;
    tti_kernels_force(NULL);
    for (int size = 1; size <= CONF_RANKS_MOST; size += SANITIZED ? 4 : 1) run_size(size, seed + (uint64_t)size * 5000);
    return check_end();
}
