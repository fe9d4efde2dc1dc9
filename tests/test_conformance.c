/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=600 labels=asan,tsan
 *
 * Conformance, the covering set: every operation on every kind of rank, memory and path, with the other dimensions
 * (type, reduction, count, root, place) drawn from a seed. The whole product is in test_conformance_full.c.
 */
#include "collective/plan/plan.h"
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
    {WORLD_JOINED, 1, 0},  {WORLD_JOINED, 0, 0},    {WORLD_PAIRS, 1, 1},     {WORLD_PAIRS, 1, 0},
    {WORLD_PAIRS, 0, 0},
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
    snprintf(label, sizeof label, "%s direct=%d attach=%d", world_ranks_name(variant->ranks), variant->direct,
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

/* ---- Messages: what the list of cases does not say --------------------------------------------------------------- */

struct letter {
    int tag;
    size_t count;
};

static bool send_letters(tutti_comm *comm, const struct letter *letters, int count, int to)
{
    bool good = true;
    for (int i = 0; i < count && good; i++) {
        int32_t text[8];
        for (int k = 0; k < 8; k++) text[k] = tutti_rank(comm) * 1000 + i * 10 + k;
        good = CHECK_THAT(tutti_send(comm, letters[i].count == 0 ? NULL : text, letters[i].count, TUTTI_I32, to,
                                     letters[i].tag) == TUTTI_OK,
                          "send of letter %d", i);
    }
    return good;
}

static bool recv_letter(tutti_comm *comm, const struct letter *letters, int which, int from)
{
    int32_t text[8] = {-1, -1, -1, -1, -1, -1, -1, -1};
    size_t received = 99;
    tutti_status status = tutti_recv(comm, text, 8, TUTTI_I32, from, letters[which].tag, &received);
    bool good = status == TUTTI_OK && received == letters[which].count;
    for (int k = 0; k < 8; k++)
        good = good && text[k] == (k < (int)letters[which].count ? from * 1000 + which * 10 + k : -1);
    return CHECK_THAT(good, "rank %d, letter %d: %s, %zu elements", tutti_rank(comm), which, tutti_status_name(status),
                      received);
}

/* To the next rank, which may be the rank itself: tags in another order, several messages of one tag, one of no bytes,
 * and small ones that wait while a large one passes. */
static void exchange_letters(tutti_comm *comm, void *context)
{
    static const struct letter letters[] = {{7, 1}, {3, 8}, {5, 0}, {3, 2}, {9, 4}, {3, 5}};
    static const int order[] = {2, 4, 1, 3, 0, 5};
    enum { COUNT = sizeof letters / sizeof *letters, LARGE = 70001 };
    int size = tutti_size(comm), rank = tutti_rank(comm), to = (rank + 1) % size, from = (rank + size - 1) % size;
    int32_t *in = malloc(LARGE * sizeof *in), *out = malloc(LARGE * sizeof *out);
    size_t received = 0;
    (void)context;
    for (int i = 0; i < LARGE; i++) in[i] = rank * LARGE + i;
    for (int round = 0; round < 20; round++) {
        if (!send_letters(comm, letters, COUNT, to)) break;
        tutti_status status = tutti_sendrecv(comm, in, LARGE, to, 100, out, LARGE, from, 100, TUTTI_I32, &received);
        bool good = status == TUTTI_OK && received == LARGE;
        for (int i = 0; i < LARGE && good; i++) good = out[i] == from * LARGE + i;
        if (!CHECK_THAT(good, "rank %d of %d: a large message among small ones: %s", rank, size,
                        tutti_status_name(status)))
            break;
        for (int i = 0; i < COUNT && good; i++) good = recv_letter(comm, letters, order[i], from);
        if (!good) break;
    }
    free(in);
    free(out);
}

static void run_letters(int size)
{
    for (int i = 0; i < VARIANTS; i++) {
        struct conf_world world = {.ranks = variants[i].ranks,
                                   .size = size,
                                   .direct = variants[i].direct,
                                   .attach = variants[i].attach,
                                   .body = exchange_letters};
        conf_world_run(&world);
    }
}

/* ---- All of it --------------------------------------------------------------------------------------------------- */

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
            CHECK_THAT(atomic_load(&conf_totals->paths[kind][path]) > 0, "no %s went by the path %s",
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
        run_ordered(sizes[i], (int)i * 3, sizes[i] <= 5 ? VARIANTS : 4, SANITIZED ? 1 : 4, seed + i * 10000);
    for (int size = 2; size <= 8; size++)
        run_mixed(size, SANITIZED ? 4 : VARIANTS, SANITIZED ? 60 : 300, seed + 500000 + (uint64_t)size * 1000);
    for (int size = 1; size <= 4; size++) run_letters(size);
    check_paths();
    return check_end();
}
