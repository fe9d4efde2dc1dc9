/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan
 *
 * tti_fold over leaves and partials, however ranks are cut into subtrees, gives the bits of tti_reduce over all leaves:
 * every type and reduction, 1 to 17 ranks, every instruction set of this machine.
 */
#include "check.h"
#include "collective/reduce/reduce.h"
#include "conformance_reference.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT_MOST = 700, ALIGNED = 64, CUTS = 6 };

static uint64_t seed = 1;

static uint64_t pick(uint64_t below)
{
    return conf_hash(seed++, 77) % below;
}

/* One case: a type and a reduction, and every rank's contribution. */
struct subject {
    tutti_type type;
    int column, size;
    size_t count, element, accumulator;
    const struct conf_table *table;
    struct tti_reducer reducers[CONF_RANKS_MOST]; /* of each rank: factors differ */
};

static int split(int first, int last)
{
    int half = 1;
    while (half * 2 < last - first) half *= 2;
    return first + half;
}

static unsigned char *memory(size_t bytes)
{
    return aligned_alloc(ALIGNED, (bytes + ALIGNED) / ALIGNED * ALIGNED);
}

static void fold(const struct subject *subject, int first, int last, int divisor, unsigned char *out);

/* Cuts [first, last) into subtrees at random and adds them as sources. `whole`: it may stay one. */
static void cut(const struct subject *subject, int first, int last, bool whole, struct tti_fold_source *sources,
                int *used)
{
    if (last - first > 1 && (!whole || pick(3) > 0)) {
        int middle = split(first, last);
        cut(subject, first, middle, true, sources, used);
        cut(subject, middle, last, true, sources, used);
        return;
    }
    bool leaf = last - first == 1 && pick(3) > 0;
    unsigned char *data = memory(subject->count * subject->accumulator);
    if (leaf)
        memcpy(data, subject->table->in[first], subject->count * subject->element);
    else
        fold(subject, first, last, 0, data);
    sources[(*used)++] = (struct tti_fold_source){data, first, last - first, !leaf, subject->reducers[first].factor};
}

static void fold(const struct subject *subject, int first, int last, int divisor, unsigned char *out)
{
    struct tti_fold_source sources[CONF_RANKS_MOST];
    int used = 0;
    const struct tti_reducer *reducer = &subject->reducers[first];
    if (last - first == 1) {
        sources[0] = (struct tti_fold_source){subject->table->in[first], first, 1, false, reducer->factor};
        tti_fold(reducer, sources, 1, divisor, out, subject->count);
        return;
    }
    cut(subject, first, last, false, sources, &used);
    bool inside = divisor == 0 && sources[0].partial && pick(2) == 0; /* into one of its sources */
    void *target = inside ? (void *)(uintptr_t)sources[0].data : out;
    tti_fold(reducer, sources, used, divisor, target, subject->count);
    if (inside) memcpy(out, target, subject->count * subject->accumulator);
    for (int i = 0; i < used; i++) free((void *)(uintptr_t)sources[i].data);
}

static void check_cuts(const struct subject *subject, const char *kernels)
{
    size_t bytes = subject->count * subject->element;
    unsigned char *wanted = memory(bytes), *got = memory(bytes);
    const void *sources[CONF_RANKS_MOST];
    double factors[CONF_RANKS_MOST];
    for (int rank = 0; rank < subject->size; rank++) {
        sources[rank] = subject->table->in[rank];
        factors[rank] = subject->reducers[rank].factor;
    }
    void *target = wanted;
    tti_reduce(&subject->reducers[0], sources, factors, subject->size, &target, 1, subject->count, false);
    for (int i = 0; i < CUTS; i++) {
        memset(got, 0xa5, bytes);
        fold(subject, 0, subject->size, subject->size, got);
        CHECK_THAT(memcmp(got, wanted, bytes) == 0, "%s of %s, %d ranks, %zu elements, %s",
                   conf_column_name(subject->column), tutti_type_name(subject->type), subject->size, subject->count,
                   kernels);
    }
    free(wanted);
    free(got);
}

static void check_pair(const struct conf_table *table, int column, const char *kernels)
{
    struct subject subject = {
        .type = table->type, .column = column, .element = tutti_type_bytes(table->type), .table = table};
    for (int rank = 0; rank < CONF_RANKS_MOST; rank++)
        if (tti_reducer_init(&subject.reducers[rank], table->type, conf_reduction(column, rank), NULL, 0) != TUTTI_OK)
            exit(2);
    subject.accumulator = tti_accumulator_bytes(&subject.reducers[0]);
    for (subject.size = 1; subject.size <= CONF_RANKS_MOST; subject.size++) {
        subject.count = subject.size % 4 == 0 ? COUNT_MOST - pick(64) : 1 + pick(40);
        check_cuts(&subject, kernels);
    }
}

int main(void)
{
    static const char *const kernels[] = {"portable", "avx2", "avx512"};
    conf_reference_prepare();
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        struct conf_table table;
        conf_table_fill(&table, (tutti_type)type, CONF_RANKS_MOST, COUNT_MOST, 5 + (uint64_t)type, CONF_WIDE);
        for (size_t k = 0; k < sizeof kernels / sizeof *kernels; k++)
            for (int column = 0; column < CONF_COLUMNS && tti_kernels_force(kernels[k]); column++)
                if (conf_defined((tutti_type)type, column)) check_pair(&table, column, kernels[k]);
        conf_table_free(&table);
    }
    return check_end();
}
