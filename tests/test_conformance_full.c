/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=3600 labels=full
 *
 * Conformance, the product: every operation x tuning x count x place x memory on 1 to 17 ranks and every kind of world,
 * with types, reductions and roots taking turns; then every operation x type x reduction x root.
 *
 *     test_conformance_full [SHARE [RANKS [FIRST]]]
 *
 * SHARE says how much of the first product is run: 1 all of it, 6 (the default) every sixth case, another sixth in every
 * world. RANKS: worlds of as many ranks only; 0, the default: of 1 to 17. FIRST, from 0 to SHARE - 1: which of the shares.
 * So several of them at once do the whole product, on a machine with many cores.
 */
#include "conformance.h"

#include <stdio.h>
#include <stdlib.h>

struct variant {
    enum world_ranks ranks;
    int direct, attach;
};

static const struct variant variants[] = {
    {WORLD_THREADS, 1, 1}, {WORLD_PROCESSES, 1, 1}, {WORLD_PROCESSES, 1, 0}, {WORLD_JOINED, 1, 1},
    {WORLD_THREADS, 0, 0}, {WORLD_PROCESSES, 0, 0}, {WORLD_PROCESSES, 0, 1}, {WORLD_THREADS, 0, 1},
    {WORLD_JOINED, 1, 0},  {WORLD_JOINED, 0, 0},
};
enum {
    VARIANTS = sizeof variants / sizeof *variants,
    MOST_BYTES = 40000,
    MOST_BYTES_DEFAULT = 280000,
    MOST_BYTES_FEW = 1100000
};

/* How much is run: every share-th case, counted from another one. */
struct part {
    uint64_t share, first;
};

static uint64_t turn; /* of types, reductions and roots */

static void take_turns(struct conf_case *one, int size)
{
    uint64_t now = turn++;
    one->seed = now;
    one->type = (tutti_type)(now % TUTTI_TYPE_COUNT);
    one->column = (int)(now / TUTTI_TYPE_COUNT % CONF_COLUMNS);
    one->root = (int)(conf_hash(now, 4) % (uint64_t)size);
    /* large buffers: few types and reductions, since the serial reference takes its time */
    static const tutti_type types[] = {TUTTI_F32, TUTTI_BF16, TUTTI_I32, TUTTI_F64};
    static const int columns[] = {TUTTI_SUM, TUTTI_MAX};
    if (one->tuning == CONF_DEFAULT) {
        one->type = types[now % 4];
        one->column = columns[now / 4 % 2];
    }
    while (!conf_defined(one->type, one->column)) one->column = (one->column + 1) % CONF_COLUMNS;
}

/* Every share-th case of kind x count x place x memory. */
static void add_product(struct conf_list *list, enum conf_tuning tuning, uint64_t share, uint64_t phase)
{
    size_t counts[CONF_COUNTS_MOST], most = MOST_BYTES;
    if (tuning == CONF_DEFAULT) most = list->size <= 4 ? MOST_BYTES_FEW : MOST_BYTES_DEFAULT;
    uint64_t number = phase;
    for (size_t kind = 0; kind < conf_kind_count; kind++)
        for (int place = 0; place < CONF_PLACES; place++)
            for (int memory = 0; memory < CONF_MEMORIES; memory++)
                for (size_t i = 0; i < CONF_COUNTS_MOST; i++) {
                    struct conf_case one = {.kind = conf_kinds[kind], .tuning = tuning};
                    one.place = (enum conf_place)place;
                    one.memory = (enum conf_memory)memory;
                    if (number++ % share != 0) continue;
                    take_turns(&one, list->size);
                    if (i >= conf_counts(tuning, one.type, one.kind, list->size, most, counts)) continue;
                    one.count = counts[i];
                    conf_list_add(list, one);
                }
}

/* Every type, reduction and root, with few counts. */
static void add_types(struct conf_list *list)
{
    for (size_t kind = 0; kind < conf_kind_count; kind++)
        for (int type = 0; type < TUTTI_TYPE_COUNT; type++)
            for (int column = 0; column < CONF_COLUMNS; column++) {
                bool needed = conf_kind_reduces(conf_kinds[kind]) ? conf_defined((tutti_type)type, column)
                                                                  : column == 0;
                for (int i = 0; i < 4 && needed; i++) {
                    struct conf_case one = {.kind = conf_kinds[kind], .type = (tutti_type)type, .column = column};
                    one.seed = turn++;
                    one.root = (int)(turn % (uint64_t)list->size);
                    one.count = (size_t)(conf_hash(turn, 1) % 400);
                    one.tuning = (enum conf_tuning)(1 + conf_hash(turn, 2) % 4);
                    one.place = (enum conf_place)(conf_hash(turn, 3) % CONF_PLACES);
                    one.memory = (enum conf_memory)(conf_hash(turn, 4) % CONF_MEMORIES);
                    conf_list_add(list, one);
                }
            }
}

static void run(struct conf_list *list, const struct variant *variant)
{
    char label[64];
    snprintf(label, sizeof label, "%s direct=%d attach=%d", world_ranks_name(variant->ranks), variant->direct,
             variant->attach);
    list->label = label;
    struct conf_world world = {.ranks = variant->ranks,
                               .size = list->size,
                               .direct = variant->direct,
                               .attach = variant->attach,
                               .limit_s = 1200,
                               .body = conf_list_run,
                               .context = list};
    conf_world_run(&world);
}

static void run_product(struct conf_list *list, enum conf_tuning tuning, struct part part)
{
    for (int i = 0; i < VARIANTS; i++) {
        conf_list_clear(list);
        add_product(list, tuning, part.share, part.first + (uint64_t)(i + list->size));
        conf_list_prepare(list, (uint64_t)list->size, false);
        run(list, &variants[i]);
    }
}

static void run_size(int size, struct part part)
{
    struct conf_list list = {.size = size, .batch = 4}, large = {.size = size, .batch = 1};
    add_types(&list);
    conf_list_prepare(&list, (uint64_t)size, false);
    run(&list, &variants[size % VARIANTS]);
    for (int tuning = CONF_DEFAULT + 1; tuning < CONF_TUNINGS; tuning++)
        run_product(&list, (enum conf_tuning)tuning, part);
    conf_list_free(&list);
    part.share = part.share * 12 + 1; /* its sizes are large: few cases in every world */
    run_product(&large, CONF_DEFAULT, part);
    conf_list_free(&large);
}

static uint64_t argument(int argc, char **argv, int place, uint64_t otherwise)
{
    return argc > place ? strtoull(argv[place], NULL, 10) : otherwise;
}

int main(int argc, char **argv)
{
    struct part part = {.share = argument(argc, argv, 1, 6), .first = argument(argc, argv, 3, 0)};
    uint64_t ranks = argument(argc, argv, 2, 0);
    if (part.share == 0 || part.first >= part.share || ranks > CONF_RANKS_MOST) {
        fprintf(stderr, "usage: test_conformance_full [SHARE [RANKS [FIRST]]]: RANKS up to %d, FIRST below SHARE\n",
                CONF_RANKS_MOST);
        return 2;
    }
    conf_begin();
    conf_reference_prepare();
    for (int size = 1; size <= CONF_RANKS_MOST; size++) {
        if (ranks != 0 && (uint64_t)size != ranks) continue;
        run_size(size, part);
        printf("%d ranks: %ld failed so far\n", size, check_failed());
    }
    return check_end();
}
