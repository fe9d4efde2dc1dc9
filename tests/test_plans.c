/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=600 labels=asan
 *
 * The plans of every operation, path and number of ranks, checked without running them (plan_check.h); and the checker
 * itself, which must find most of the mistakes that are planted in plans.
 */
#include "check.h"
#include "plan_check.h"

#include <stdlib.h>
#include <string.h>

enum { BOUNCE_BYTES = 4096, CHUNK_BYTES = 192, NEVER = 1 << 30 };

/* ---- Every plan ------------------------------------------------------------------------------------------------ */

static const char *const path_names[] = {"staged", "direct", "attach", "bounce"};

static struct plan_check_op *make(enum tti_kind kind, enum tti_path path, int size, size_t element, size_t count,
                                  uint64_t seed)
{
    struct plan_check_op *op = calloc(1, sizeof *op);
    uint64_t hash = conf_hash(seed, 3);
    op->one = (struct conf_case){.kind = kind, .count = count, .seed = seed};
    op->one.root = (int)(hash % (uint64_t)size);
    op->one.place = (enum conf_place)(hash / 64 % CONF_PLACES);
    op->path = path;
    op->size = size;
    op->element = element;
    op->bounce_bytes = BOUNCE_BYTES;
    op->tuning = (tutti_tuning){.one_shot = TTI_STAGE_ROOM,
                                .staged = TTI_STAGE_ROOM,
                                .stream = NEVER,
                                .chunk = hash >> 16 & 1 ? CHUNK_BYTES : BOUNCE_BYTES,
                                .tree = hash >> 17 & 1 ? 0 : NEVER,
                                .dissemination = hash >> 18 & 1 ? 2 : 65536};
    if (plan_check_build(op)) return op;
    plan_check_free(op);
    free(op);
    return NULL;
}

static void drop(struct plan_check_op *op)
{
    if (op == NULL) return;
    plan_check_free(op);
    free(op);
}

static void describe(const struct plan_check_op *op, char *text, size_t bytes)
{
    snprintf(text, bytes, "%s by %s, %d ranks, %zu elements of %zu bytes, root %d, place %d, seed %llu",
             tti_kind_name(op->one.kind), path_names[op->path], op->size, op->one.count, op->element, op->one.root,
             (int)op->one.place, (unsigned long long)op->one.seed);
}

static int built[32][4];

static void check_plan(enum tti_kind kind, enum tti_path path, int size, size_t element, size_t count, uint64_t seed)
{
    struct plan_check_op *op = make(kind, path, size, element, count, seed);
    if (op == NULL) return;
    char text[200];
    describe(op, text, sizeof text);
    built[kind][path]++;
    enum plan_check_order order = (enum plan_check_order)(seed % PLAN_CHECK_ORDERS);
    const char *problem = plan_check_run(&op, 1, order, seed);
    CHECK_THAT(problem == NULL, "%s: %s", text, problem);
    drop(op);
}

static void check_counts(enum tti_kind kind, enum tti_path path, int size, uint64_t seed)
{
    size_t n = (size_t)size;
    const size_t counts[] = {0, 1, n - 1, n, n + 1, 2 * n + 3, 7 * n + 5, 40, 64, 65, 97};
    static const size_t elements[] = {1, 2, 4, 8, 64};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        size_t element = elements[conf_hash(seed, i) % 5];
        for (uint64_t again = 0; again < (SANITIZED ? 1 : 3); again++)
            check_plan(kind, path, size, element, counts[i], seed * 100 + i * 3 + again);
    }
}

static void check_all_plans(uint64_t seed)
{
    for (int size = 1; size <= CONF_RANKS_MOST; size++)
        for (size_t i = 0; i < conf_kind_count; i++)
            for (int path = TTI_STAGED; path <= TTI_BOUNCE; path++)
                if (conf_kinds[i] < TTI_TUNING) check_counts(conf_kinds[i], (enum tti_path)path, size, seed++);
    for (size_t i = 0; i < conf_kind_count; i++)
        for (int path = TTI_STAGED; path <= TTI_BOUNCE; path++) {
            enum tti_kind kind = conf_kinds[i];
            bool stages = kind != TTI_GATHER_V && kind != TTI_SCATTER_V && kind != TTI_ALL_TO_ALL_V;
            bool attaches = kind != TTI_SCAN && kind != TTI_EXSCAN;
            if (kind >= TTI_TUNING || (kind == TTI_BARRIER && path != TTI_STAGED)) continue;
            if ((path == TTI_STAGED && !stages) || (path == TTI_ATTACH && !attaches)) continue;
            CHECK_THAT(built[kind][path] > 0, "no plan of %s by %s was checked", tti_kind_name(kind), path_names[path]);
        }
}

/* ---- Plans one after the other --------------------------------------------------------------------------------- */

/* Ranks run ahead of each other by the window: what is staged must not be overwritten too early. */
static void check_sequence(int size, size_t element, uint64_t seed)
{
    enum { LENGTH = 12 };
    struct plan_check_op *ops[LENGTH];
    for (int i = 0; i < LENGTH;) {
        uint64_t hash = conf_hash(seed++, 8);
        enum tti_kind kind = conf_kinds[hash % conf_kind_count];
        enum tti_path path = hash >> 20 & 1 ? TTI_STAGED : (enum tti_path)(hash / 4096 % 4);
        if (kind >= TTI_TUNING) continue;
        ops[i] = make(kind, path, size, element, hash >> 40 & 15, seed);
        if (ops[i] != NULL) i++;
    }
    for (int order = 0; order < PLAN_CHECK_ORDERS; order++) {
        const char *problem = plan_check_run(ops, LENGTH, (enum plan_check_order)order, seed);
        CHECK_THAT(problem == NULL, "a sequence of %d ranks, seed %llu: %s", size, (unsigned long long)seed, problem);
    }
    for (int i = 0; i < LENGTH; i++) drop(ops[i]);
}

/* ---- Planted mistakes ------------------------------------------------------------------------------------------ */

enum mistake {
    NO_WAIT,
    EARLY_WAIT,
    OTHER_PEER,
    SHIFTED_SOURCE,
    SHIFTED_TARGET,
    SHORTER,
    EARLY_PUBLISH,
    NO_PUBLISH,
    NO_DATA,
    WRONG_SOURCES,
    MISTAKES
};
static const char *const mistake_names[] = {
    "a wait left out",      "a wait for less",  "a wait for another rank", "a source shifted",
    "a target shifted",     "a step too short", "a publication too early", "a publication left out",
    "a data step left out", "a source too few"};

static bool moves_data(const struct tti_step *step)
{
    return step->kind >= TTI_STEP_COPY && step->kind <= TTI_STEP_EXCHANGE;
}

static bool publishes(const struct tti_step *step)
{
    return step->kind == TTI_STEP_PUBLISH || step->kind == TTI_STEP_LEAVE || step->kind == TTI_STEP_ENTER;
}

static void remove_step(struct tti_plan *plan, size_t at)
{
    memmove(&plan->steps[at], &plan->steps[at + 1], (plan->count - at - 1) * sizeof *plan->steps);
    plan->count--;
}

/* Makes the mistake at a step, if it can be made there. */
static bool plant(struct tti_plan *plan, size_t at, enum mistake mistake, size_t element, int size)
{
    struct tti_step *step = &plan->steps[at];
    bool waits = step->kind == TTI_STEP_WAIT;
    switch (mistake) {
    case NO_WAIT:
        if (waits) remove_step(plan, at);
        return waits;
    case EARLY_WAIT:
        if (!waits || step->value == 0 || step->value == TTI_LEFT) return false;
        step->value--;
        return true;
    case OTHER_PEER:
        if (!waits || step->peer == TTI_ALL || size < 3) return false;
        step->peer = (step->peer + 1) % size;
        return true;
    case SHIFTED_SOURCE:
        if (moves_data(step)) step->source.offset += element;
        return moves_data(step);
    case SHIFTED_TARGET:
        if (moves_data(step)) step->target.offset += element;
        return moves_data(step);
    case SHORTER:
        if (moves_data(step)) step->bytes -= element;
        return moves_data(step);
    case EARLY_PUBLISH: {
        if (!publishes(step) || at == 0 || !moves_data(step - 1)) return false;
        struct tti_step held = step[0];
        step[0] = step[-1];
        step[-1] = held;
        return true;
    }
    case NO_PUBLISH:
        if (publishes(step)) remove_step(plan, at);
        return true;
    case NO_DATA:
        if (moves_data(step)) remove_step(plan, at);
        return moves_data(step);
    default:
        if (step->kind != TTI_STEP_REDUCE || step->sources < 2) return false;
        step->sources--;
        return true;
    }
}

/* Which share must be found, in percent: the others are none. A wait may be for what an earlier one has seen, a
 * publication may be overtaken by the next one, and nobody may want what was published too early. */
static const int shares[MISTAKES] = {
    [NO_WAIT] = 50, [EARLY_WAIT] = 40,    [OTHER_PEER] = 80, [SHIFTED_SOURCE] = 95, [SHIFTED_TARGET] = 95,
    [SHORTER] = 90, [EARLY_PUBLISH] = 60, [NO_PUBLISH] = 60, [NO_DATA] = 90,        [WRONG_SOURCES] = 95};

static int planted[MISTAKES], found[MISTAKES];

static void check_mistake(enum mistake mistake, uint64_t seed)
{
    uint64_t hash = conf_hash(seed, 1);
    int size = 2 + (int)(hash % 6);
    size_t element = hash >> 8 & 1 ? 8 : 64;
    enum tti_kind kind = conf_kinds[hash / 512 % conf_kind_count];
    enum tti_path path = (enum tti_path)(hash >> 20 & 3);
    if (mistake == OTHER_PEER)
        kind = hash >> 40 & 1 ? TTI_BROADCAST : TTI_ALL_REDUCE; /* few others wait for one rank */
    if (mistake == OTHER_PEER) path = kind == TTI_BROADCAST ? TTI_BOUNCE : TTI_ATTACH;
    if (kind >= TTI_TUNING) return;
    struct plan_check_op *op = make(kind, path, size, element, 20 + (hash >> 24 & 63), seed);
    if (op == NULL) return;
    struct tti_plan *plan = &op->plans[hash >> 32 & 7 % (uint64_t)size];
    for (uint64_t tries = 0; tries < 16 && plan->count > 0; tries++) {
        size_t at = (size_t)(conf_hash(seed, 50 + tries) % plan->count);
        bool can = mistake == NO_PUBLISH ? publishes(&plan->steps[at]) : true;
        if (!can || !plant(plan, at, mistake, element, size)) continue;
        planted[mistake]++;
        if (plan_check_run(&op, 1, (enum plan_check_order)(seed % PLAN_CHECK_ORDERS), seed) != NULL) found[mistake]++;
        break;
    }
    drop(op);
}

static void check_mistakes(uint64_t seed)
{
    for (int mistake = 0; mistake < MISTAKES; mistake++) {
        for (int i = 0; i < (SANITIZED ? 400 : 1500); i++) check_mistake((enum mistake)mistake, seed++);
        printf("%-24s %4d planted, %4d found\n", mistake_names[mistake], planted[mistake], found[mistake]);
        CHECK_THAT(planted[mistake] > 20 && found[mistake] * 100 >= planted[mistake] * shares[mistake],
                   "of %d times %s only %d were found", planted[mistake], mistake_names[mistake], found[mistake]);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    check_all_plans(seed);
    for (int size = 1; size <= CONF_RANKS_MOST; size++)
        for (uint64_t i = 0; i < (size < 9 ? 20u : 4u); i++)
            check_sequence(size, i % 2 == 0 ? 8 : 64, seed + 1000 * (uint64_t)size + i * 50);
    check_mistakes(seed + 900000);
    return check_end();
}
