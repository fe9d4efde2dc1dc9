/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=600 labels=asan processors=1
 *
 * The plans over messages of every operation and number of ranks, checked without running them (message_check.h).
 */
#include "message_check.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NEVER = 1 << 30 };

static int passed, failed;

static void check(bool condition, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void check(bool condition, const char *format, ...)
{
    if (condition) {
        passed++;
        return;
    }
    if (failed++ >= 40) return;
    va_list arguments;
    va_start(arguments, format);
    printf("FAILED: ");
    vprintf(format, arguments);
    printf("\n");
    va_end(arguments);
}

/* ---- Every plan ------------------------------------------------------------------------------------------------ */

/* Bytes of an element and of an accumulator, as types and reductions have them. */
static const size_t formats[][2] = {{4, 4}, {2, 4}, {8, 8}, {1, 8}, {1, 4}, {1, 1}};

static struct plan_check_op *make(enum tti_kind kind, int size, int root, size_t count, uint64_t seed)
{
    struct plan_check_op *op = calloc(1, sizeof *op);
    uint64_t hash = conf_hash(seed, 3);
    const size_t *format = formats[hash / 8 % (sizeof formats / sizeof *formats)];
    op->one = (struct conf_case){.kind = kind, .count = count, .seed = seed, .root = root};
    op->one.place = (enum conf_place)(hash / 64 % CONF_PLACES);
    op->path = TTI_MESSAGES;
    op->size = size;
    op->element = format[0];
    op->accumulator = format[1];
    op->scaled = hash >> 16 & 1;
    bool small = hash >> 17 & 1;
    op->tuning = (tutti_tuning){.message_flat = hash >> 18 & 1 ? 1 : 4,
                                .message_tree = small ? NEVER : 0,
                                .message_doubling = small ? NEVER : 0,
                                .message_bruck = small ? NEVER : 0,
                                .message_chunk = hash >> 19 & 1 ? 64 : 192};
    if (plan_check_build(op)) return op;
    plan_check_free(op);
    free(op);
    return NULL;
}

static void drop(struct plan_check_op *op)
{
    plan_check_free(op);
    free(op);
}

static void describe(const struct plan_check_op *op, char *text, size_t bytes)
{
    snprintf(text, bytes,
             "%s, %d ranks, %zu elements of %zu bytes (%zu)%s, root %d, place %d, tree %lld, flat %lld, seed %llu",
             tti_kind_name(op->one.kind), op->size, op->one.count, op->element, op->accumulator,
             op->scaled ? ", scaled" : "", op->one.root, (int)op->one.place, (long long)op->tuning.message_tree,
             (long long)op->tuning.message_flat, (unsigned long long)op->one.seed);
}

static void check_plan(enum tti_kind kind, int size, int root, size_t count, uint64_t seed)
{
    struct plan_check_op *op = make(kind, size, root, count, seed);
    check(op != NULL, "no plan of %s", tti_kind_name(kind));
    if (op == NULL) return;
    char text[300];
    describe(op, text, sizeof text);
    const char *problem = message_check_run(op, seed);
    check(problem == NULL, "%s: %s", text, problem);
    drop(op);
}

static bool has_root(enum tti_kind kind)
{
    switch (kind) {
    case TTI_REDUCE:
    case TTI_BROADCAST:
    case TTI_GATHER:
    case TTI_SCATTER:
    case TTI_GATHER_V:
    case TTI_SCATTER_V: return true;
    default: return false;
    }
}

static void check_counts(enum tti_kind kind, int size, uint64_t seed)
{
    size_t n = (size_t)size;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 2 * n + 3, 63, 64, 65, 97, 64 * n + 1, 400};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        int root = (int)(conf_hash(seed, i) % (uint64_t)size);
        for (uint64_t again = 0; again < (CONF_SANITIZED ? 1 : 4); again++)
            check_plan(kind, size, root, counts[i], seed * 1000 + i * 4 + again);
    }
    for (int root = 0; root < size && has_root(kind); root++)
        for (uint64_t again = 0; again < 4; again++)
            check_plan(kind, size, root, 70, seed * 1000 + 500 + (uint64_t)root * 4 + again);
}

static void check_all_plans(uint64_t seed)
{
    for (int size = 1; size <= CONF_RANKS_MOST; size++)
        for (size_t i = 0; i < conf_kind_count; i++)
            if (conf_kinds[i] < TTI_TUNING) check_counts(conf_kinds[i], size, seed++);
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    check_all_plans(seed);
    printf("%d passed, %d failed\n", passed, failed);
    return failed != 0;
}
