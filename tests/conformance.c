/* SPDX-License-Identifier: Apache-2.0
 *
 * Making lists of cases. Running them is in conformance_run.c.
 */
#include "conformance.h"
#include "conformance_layout.h"

#include <stdlib.h>
#include <string.h>

const enum tti_kind conf_kinds[] = {
    TTI_BARRIER,          TTI_ALL_REDUCE,     TTI_REDUCE,     TTI_BROADCAST,    TTI_ALL_GATHER, TTI_GATHER,
    TTI_SCATTER,          TTI_REDUCE_SCATTER, TTI_ALL_TO_ALL, TTI_ALL_GATHER_V, TTI_GATHER_V,   TTI_SCATTER_V,
    TTI_REDUCE_SCATTER_V, TTI_ALL_TO_ALL_V,   TTI_SCAN,       TTI_EXSCAN,       TTI_SEND,       TTI_SENDRECV,
};
const size_t conf_kind_count = sizeof conf_kinds / sizeof *conf_kinds;

enum { PAYLOAD_BYTES = 56, NEVER = 1 << 30 };

static const tutti_tuning tunings[CONF_TUNINGS] = {
    [CONF_DEFAULT] = {.struct_size = sizeof(tutti_tuning),
#define INITIAL(name, kind, initial, low, high, help) .name = (initial),
                      TUTTI_TUNING_LIST(INITIAL)
#undef INITIAL
    },
    [CONF_SMALL] = {.struct_size = sizeof(tutti_tuning),
                    .one_shot = 384,
                    .staged = 1024,
                    .one_shot_crowded = 2048,
                    .staged_crowded = 2048,
                    .stream = 16384,
                    .chunk = 4096,
                    .attach = 9000,
                    .tree = 6000,
                    .eager = 200,
                    .dissemination = 4,
                    .message_flat = 2,
                    .message_paired = 3000,
                    .message_tree = 700,
                    .message_doubling = 1200,
                    .message_bruck = 900,
                    .message_halving = 5,
                    .message_chunk = 1024},
    [CONF_BOUNCED] = {.struct_size = sizeof(tutti_tuning),
                      .chunk = 4160,
                      .attach = NEVER,
                      .tree = NEVER,
                      .dissemination = 65536,
                      .message_flat = 1,
                      .message_halving = 2,
                      .message_chunk = 4160},
    [CONF_ATTACHED] = {.struct_size = sizeof(tutti_tuning),
                       .stream = 4096,
                       .chunk = 4096,
                       .tree = NEVER,
                       .eager = 64,
                       .dissemination = 3,
                       .message_flat = 65536,
                       .message_tree = NEVER,
                       .message_doubling = NEVER,
                       .message_bruck = NEVER,
                       .message_halving = 65536,
                       .message_chunk = 4096},
    [CONF_TREE] = {.struct_size = sizeof(tutti_tuning),
                   .stream = NEVER,
                   .chunk = 4096,
                   .attach = NEVER,
                   .eager = 4096,
                   .dissemination = 2,
                   .message_flat = 1,
                   .message_paired = 100,
                   .message_tree = NEVER,
                   .message_doubling = NEVER,
                   .message_bruck = NEVER,
                   .message_halving = 65536,
                   .message_chunk = 192},
};

tutti_tuning conf_tuning_of(enum conf_tuning tuning)
{
    return tunings[tuning];
}

bool conf_kind_reduces(enum tti_kind kind)
{
    switch (kind) {
    case TTI_ALL_REDUCE:
    case TTI_REDUCE:
    case TTI_REDUCE_SCATTER:
    case TTI_REDUCE_SCATTER_V:
    case TTI_SCAN:
    case TTI_EXSCAN: return true;
    default: return false;
    }
}

bool conf_kind_has_blocks(enum tti_kind kind)
{
    switch (kind) {
    case TTI_ALL_REDUCE:
    case TTI_REDUCE:
    case TTI_BROADCAST:
    case TTI_SCAN:
    case TTI_EXSCAN:
    case TTI_SEND:
    case TTI_SENDRECV: return false;
    default: return true;
    }
}

/* ---- Counts ---------------------------------------------------------------------------------------------------- */

static size_t add_count(size_t *counts, size_t used, size_t count)
{
    for (size_t i = 0; i < used; i++)
        if (counts[i] == count) return used;
    if (used < CONF_COUNTS_MOST) counts[used++] = count;
    return used;
}

static size_t add_around(size_t *counts, size_t used, size_t count)
{
    for (size_t i = count == 0 ? 1 : 0; i < 3; i++) used = add_count(counts, used, count + i - 1);
    return used;
}

size_t conf_counts(enum conf_tuning tuning, tutti_type type, enum tti_kind kind, int size, size_t most_bytes,
                   size_t *counts)
{
    const tutti_tuning *table = &tunings[tuning];
    size_t element = tutti_type_bytes(type), blocks = conf_kind_has_blocks(kind) ? (size_t)size : 1;
    size_t used = add_around(counts, 0, 0);
    /* stream is compared with the buffers of all ranks, one_shot with those of 8 as well */
    const int64_t switches[] = {PAYLOAD_BYTES,
                                table->one_shot,
                                table->one_shot * 8 / size,
                                table->staged,
                                table->one_shot_crowded,
                                table->one_shot_crowded * 8 / size,
                                table->staged_crowded,
                                table->stream / 2,
                                table->stream / 2 / size,
                                table->stream / (size + 1),
                                table->chunk,
                                table->chunk * 2,
                                table->chunk * 5,
                                table->attach,
                                table->tree,
                                table->eager,
                                table->eager * 4,
                                table->eager * 16};
    used = add_around(counts, used, (size_t)size);
    for (size_t i = 0; i < sizeof switches / sizeof *switches; i++) {
        size_t bytes = (size_t)switches[i];
        if (bytes > most_bytes) continue;
        used = add_around(counts, used, bytes / element / blocks);
    }
    return used;
}

/* ---- Lists ----------------------------------------------------------------------------------------------------- */

void conf_list_add(struct conf_list *list, struct conf_case one)
{
    if (list->count == list->capacity) {
        list->capacity = list->capacity * 2 + 64;
        list->cases = realloc(list->cases, list->capacity * sizeof *list->cases);
    }
    list->cases[list->count++] = one;
}

static void choose_column(struct conf_case *one, uint64_t hash)
{
    one->column = (int)(hash % CONF_COLUMNS);
    while (!conf_defined(one->type, one->column)) one->column = (one->column + 1) % CONF_COLUMNS;
}

static bool is_by_nccl(const struct conf_list *list)
{
    return list->only != NULL && strcmp(list->only, "nccl") == 0;
}

/* Makes it a reduction that NCCL has, and whose result is exact with CONF_WHOLE: NCCL has averages and factors of floats only,
 * and averages multiply by 1/size. */
static void fit_reduction(int size, struct conf_case *one)
{
    while (one->type == TUTTI_I16 || one->type == TUTTI_U16 || one->type == TUTTI_BOOL)
        one->type = (tutti_type)((one->type + 1) % TUTTI_TYPE_COUNT);
    bool whole = one->type >= TUTTI_I8, tiny = one->type == TUTTI_F8E4M3 || one->type == TUTTI_F8E5M2;
    bool average = one->column == TUTTI_AVG && !whole && (size & (size - 1)) == 0;
    bool scaled = one->column == CONF_SCALED && !whole && !tiny;
    if (!average && !scaled) one->column %= TUTTI_AVG;
}

/* Makes it one that the provider has; false: it has none of this kind. */
static bool fit(const struct conf_list *list, struct conf_case *one)
{
    bool folds = conf_kind_reduces(one->kind), nccl = is_by_nccl(list);
    one->memory = CONF_SHARED;
    if (!nccl && one->column == CONF_USER) one->column = TUTTI_SUM;
    if (!nccl) return true;
    if (folds) fit_reduction(list->size, one);
    if (one->kind == TTI_ALL_TO_ALL) one->place = CONF_OUT_OF_PLACE;
    return one->kind != TTI_SCAN && one->kind != TTI_EXSCAN;
}

void conf_list_add_random(struct conf_list *list, enum tti_kind kind, enum conf_tuning tuning, uint64_t seed,
                          size_t most_bytes)
{
    size_t counts[CONF_COUNTS_MOST];
    uint64_t hash = conf_hash(seed, 1), more = conf_hash(seed, 2);
    struct conf_case one = {.kind = kind, .tuning = tuning, .seed = seed};
    one.type = (tutti_type)(hash % TUTTI_TYPE_COUNT);
    one.root = (int)(hash >> 8 & 0xffff) % list->size;
    one.place = (enum conf_place)((hash >> 24 & 0xff) % CONF_PLACES);
    one.memory = (enum conf_memory)((hash >> 32 & 0xff) % CONF_MEMORIES);
    choose_column(&one, hash >> 40);
    if (list->only != NULL && !fit(list, &one)) return;
    size_t used = conf_counts(tuning, one.type, kind, list->size, most_bytes, counts);
    one.count = counts[more % used];
    if ((more >> 32) % 3 == 0) one.count = (size_t)((more >> 8) % (counts[used - 1] + 2));
    conf_list_add(list, one);
}

static void need_tables(struct conf_list *list, const struct conf_case *one, size_t *spans)
{
    struct conf_layout layout;
    for (int rank = 0; rank < list->size; rank++) {
        conf_layout_of(one, list->size, rank, &layout);
        size_t span = layout.in_count > layout.out_count ? layout.in_count : layout.out_count;
        size_t bytes = span * tutti_type_bytes(one->type);
        if (layout.in_count > spans[one->type]) spans[one->type] = layout.in_count;
        if (bytes > list->most_bytes) list->most_bytes = bytes;
    }
}

static void need_reductions(struct conf_list *list, const struct conf_case *one)
{
    if (!conf_kind_reduces(one->kind)) return;
    bool prefixes = one->kind == TTI_SCAN || one->kind == TTI_EXSCAN;
    for (int last = prefixes ? 0 : list->size - 1; last < list->size; last++)
        conf_table_reduce(&list->tables[one->type], one->column, last);
}

void conf_list_prepare(struct conf_list *list, uint64_t seed, bool wide)
{
    enum conf_values values = is_by_nccl(list) ? CONF_WHOLE : wide ? CONF_WIDE : CONF_NEAR;
    size_t spans[TUTTI_TYPE_COUNT] = {0};
    for (size_t i = 0; i < list->count; i++) need_tables(list, &list->cases[i], spans);
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        struct conf_table *table = &list->tables[type];
        if (table->size == list->size && table->count >= spans[type]) continue; /* of an earlier list */
        size_t span = table->size == 0 ? spans[type] : spans[type] + spans[type] / 2;
        conf_table_free(table);
        conf_table_fill(table, (tutti_type)type, list->size, span, seed, values);
    }
    for (size_t i = 0; i < list->count; i++) need_reductions(list, &list->cases[i]);
}

void conf_list_clear(struct conf_list *list)
{
    list->count = 0;
    list->most_bytes = 0;
}

void conf_list_free(struct conf_list *list)
{
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) conf_table_free(&list->tables[type]);
    free(list->cases);
    memset(list, 0, sizeof *list);
}
