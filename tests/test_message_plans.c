/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=600 labels=asan
 *
 * The plans over messages of every operation and number of ranks, checked without running them (message_check.h); run on
 * real data of every type and reduction, against the serial reference; and the checker itself, which must find most of
 * the mistakes that are planted in plans.
 */
#include "check.h"
#include "message_check.h"
#include "plan_run.h"

#include <stdlib.h>
#include <string.h>

/* ---- Every plan ------------------------------------------------------------------------------------------------ */

/* Bytes of an element and of an accumulator, as types and reductions have them. */
static const size_t formats[][2] = {{4, 4}, {2, 4}, {8, 8}, {1, 8}, {1, 4}, {1, 1}};

static struct plan_check_op *make_of(enum tti_kind kind, int size, int root, size_t count, uint64_t seed,
                                     size_t element, size_t accumulator, bool scaled)
{
    struct plan_check_op *op = calloc(1, sizeof *op);
    uint64_t hash = conf_hash(seed, 3);
    op->one = (struct conf_case){.kind = kind, .count = count, .seed = seed, .root = root};
    op->one.place = (enum conf_place)(hash / 64 % CONF_PLACES);
    op->path = TTI_MESSAGES;
    op->size = size;
    op->element = element;
    op->accumulator = accumulator;
    op->scaled = scaled;
    op->tuning = plan_check_tuning(hash >> 17, 192);
    if (plan_check_build(op)) return op;
    printf("FAILED: no plan of %s\n", tti_kind_name(kind));
    exit(1);
}

static struct plan_check_op *make(enum tti_kind kind, int size, int root, size_t count, uint64_t seed)
{
    uint64_t hash = conf_hash(seed, 4);
    const size_t *format = formats[hash / 8 % (sizeof formats / sizeof *formats)];
    return make_of(kind, size, root, count, seed, format[0], format[1], hash >> 16 & 1);
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
    char text[300];
    describe(op, text, sizeof text);
    const char *problem = message_check_run(op, seed);
    CHECK_THAT(problem == NULL, "%s: %s", text, problem);
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
        for (uint64_t again = 0; again < (SANITIZED ? 1 : 4); again++)
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

/* ---- Real data ------------------------------------------------------------------------------------------------- */

enum { DATA_COUNT = 5000 };

/* The buffers of one rank, guarded by what they were filled with. */
struct buffers {
    unsigned char *memory, *wanted, *temp;
    size_t bytes;
    struct tti_reducer reducer;
};

static void fill_buffers(const struct plan_check_op *op, const struct conf_table *table, int rank,
                         struct buffers *buffers, struct plan_run_rank *runs)
{
    const struct conf_layout *layout = &op->layouts[rank];
    size_t element = op->element, in = 0, out = op->in_place[rank] ? 0 : layout->in_count + 1;
    if (op->in_place[rank] && layout->inside == CONF_IN_INSIDE) in = layout->own;
    if (op->in_place[rank] && layout->inside == CONF_OUT_INSIDE) out = layout->own;
    buffers->bytes = (layout->in_count + layout->out_count + 1) * element;
    buffers->memory = malloc(buffers->bytes);
    buffers->wanted = malloc(buffers->bytes);
    buffers->temp = aligned_alloc(64, (op->plans[rank].temp_bytes / 64 + 1) * 64);
    memset(buffers->memory, 0x5a, buffers->bytes);
    if (layout->in_used) memcpy(buffers->memory + in * element, table->in[rank], layout->in_count * element);
    memcpy(buffers->wanted, buffers->memory, buffers->bytes);
    for (int i = 0; i < layout->blocks; i++) {
        const struct conf_block *block = &layout->block[i];
        const unsigned char *from = block->from < 0 ? table->reduced[op->one.column][block->last]
                                                    : table->in[block->from];
        memcpy(buffers->wanted + (out + block->target) * element, from + block->source * element,
               block->count * element);
    }
    *runs = (struct plan_run_rank){.plan = &op->plans[rank],
                                   .reducer = &buffers->reducer,
                                   .element = element,
                                   .accumulator = op->accumulator,
                                   .in = buffers->memory + in * element,
                                   .out = buffers->memory + out * element,
                                   .temp = buffers->temp};
}

static void run_plans(const struct plan_check_op *op, struct conf_table *table)
{
    struct buffers buffers[CONF_RANKS_MOST];
    struct plan_run_rank ranks[CONF_RANKS_MOST];
    char text[300];
    describe(op, text, sizeof text);
    for (int last = 0; last < op->size && conf_kind_reduces(op->one.kind); last++)
        conf_table_reduce(table, op->one.column, last);
    for (int rank = 0; rank < op->size; rank++) {
        fill_buffers(op, table, rank, &buffers[rank], &ranks[rank]);
        if (conf_kind_reduces(op->one.kind))
            (void)tti_reducer_init(&buffers[rank].reducer, op->one.type, conf_reduction(op->one.column, rank), NULL, 0);
    }
    CHECK_THAT(plan_run(ranks, op->size, op->one.seed), "%s, %s of %s: waits for ever", text,
               conf_column_name(op->one.column), tutti_type_name(op->one.type));
    for (int rank = 0; rank < op->size; rank++) {
        CHECK_THAT(memcmp(buffers[rank].memory, buffers[rank].wanted, buffers[rank].bytes) == 0,
                   "%s, %s of %s: rank %d", text, conf_column_name(op->one.column), tutti_type_name(op->one.type),
                   rank);
        free(buffers[rank].memory);
        free(buffers[rank].wanted);
        free(buffers[rank].temp);
    }
}

static void check_data(enum tti_kind kind, tutti_type type, int column, struct conf_table *table, uint64_t seed)
{
    uint64_t hash = conf_hash(seed, 9);
    struct tti_reducer reducer = {0};
    int size = 1 + (int)(hash % CONF_RANKS_MOST);
    size_t most = DATA_COUNT / 2 / (conf_kind_has_blocks(kind) ? (size_t)size : 1) / (hash >> 8 & 7 ? 16 : 1);
    if (conf_kind_reduces(kind)) (void)tti_reducer_init(&reducer, type, conf_reduction(column, 0), NULL, 0);
    struct plan_check_op *op = make_of(kind, size, (int)((hash >> 16) % (uint64_t)size), hash / 4096 % (most + 1), seed,
                                       tutti_type_bytes(type),
                                       conf_kind_reduces(kind) ? tti_accumulator_bytes(&reducer) : 1,
                                       conf_kind_reduces(kind) && column == CONF_SCALED);
    op->one.type = type;
    op->one.column = column;
    run_plans(op, table);
    drop(op);
}

static void check_all_data(uint64_t seed)
{
    conf_reference_prepare();
    for (int type = 0; type < TUTTI_TYPE_COUNT; type++) {
        struct conf_table table;
        conf_table_fill(&table, (tutti_type)type, CONF_RANKS_MOST, DATA_COUNT, seed + (uint64_t)type, CONF_WIDE);
        for (size_t i = 0; i < conf_kind_count; i++) {
            enum tti_kind kind = conf_kinds[i];
            int columns = conf_kind_reduces(kind) ? CONF_COLUMNS : 1;
            for (int column = 0; column < columns && kind < TTI_TUNING; column++)
                for (int again = 0; again < (SANITIZED ? 1 : 4) && conf_defined((tutti_type)type, column); again++)
                    check_data(kind, (tutti_type)type, column, &table, seed++);
        }
        conf_table_free(&table);
    }
}

/* ---- What it costs --------------------------------------------------------------------------------------------- */

/* Sums and maxima over ranks of what plans send, with the switch-over sizes as they are. */
struct costs {
    uint64_t messages, bytes, messages_most, bytes_most, temp_most;
};

static const tutti_tuning initial_tuning = {
#define INITIAL(name, kind, initial, low, high, help) .name = (initial),
    TUTTI_TUNING_LIST(INITIAL)
#undef INITIAL
};

static struct costs costs_of(enum tti_kind kind, int size, uint64_t count)
{
    struct costs costs = {0};
    for (int rank = 0; rank < size; rank++) {
        struct tti_plan plan = {0};
        struct tti_shape shape = {.kind = kind,
                                  .path = TTI_MESSAGES,
                                  .rank = rank,
                                  .size = size,
                                  .element = 4,
                                  .accumulator = 4,
                                  .count = count,
                                  .tuning = &initial_tuning};
        CHECK_THAT(tti_plan_build(&plan, &shape) == TUTTI_OK, "no plan of %s", tti_kind_name(kind));
        struct tti_cost cost = tti_plan_cost(&plan, &shape);
        costs.messages += cost.messages;
        costs.bytes += cost.bytes;
        if (cost.messages > costs.messages_most) costs.messages_most = cost.messages;
        if (cost.bytes > costs.bytes_most) costs.bytes_most = cost.bytes;
        if (plan.temp_bytes > costs.temp_most) costs.temp_most = plan.temp_bytes;
        tti_plan_free(&plan);
    }
    return costs;
}

/* `bytes` of one rank's sends at most, up to a cache line per message; `messages` likewise, 0: any number. */
static void check_cost(enum tti_kind kind, int size, uint64_t count, uint64_t messages, uint64_t bytes)
{
    struct costs costs = costs_of(kind, size, count);
    printf("%-15s %2d ranks, %8llu elements: %6llu messages, %9llu bytes, %7llu of temp\n", tti_kind_name(kind), size,
           (unsigned long long)count, (unsigned long long)costs.messages_most, (unsigned long long)costs.bytes_most,
           (unsigned long long)costs.temp_most);
    CHECK_THAT(costs.bytes_most <= bytes + 64 * costs.messages_most &&
                   (messages == 0 || costs.messages_most <= messages),
               "%s of %llu among %d: a rank sends %llu bytes in %llu messages, not %llu in %llu", tti_kind_name(kind),
               (unsigned long long)count, size, (unsigned long long)costs.bytes_most,
               (unsigned long long)costs.messages_most, (unsigned long long)bytes, (unsigned long long)messages);
    CHECK_THAT(costs.temp_most <= 5 << 20, "%s of %llu among %d takes %llu bytes of temp", tti_kind_name(kind),
               (unsigned long long)count, size, (unsigned long long)costs.temp_most);
}

static void check_costs(void)
{
    static const int sizes[] = {2, 4, 8, 16};
    uint64_t large = 16 << 20, bytes = 4 * large;
    for (uint64_t i = 0; i < 4; i++) {
        int size = sizes[i];
        uint64_t n = (uint64_t)size;
        check_cost(TTI_ALL_REDUCE, size, 2, i + 1, 8 * (i + 1));
        check_cost(TTI_ALL_REDUCE, size, large, 0, 2 * bytes / n * (n - 1));
        check_cost(TTI_REDUCE, size, large, 0, size == 2 ? bytes : bytes / n * n);
        check_cost(TTI_REDUCE_SCATTER, size, large / n, 0, bytes / n * (n - 1));
        check_cost(TTI_BROADCAST, size, 2, i + 1 > 3 ? i + 1 : 3, 8 * 4);
        check_cost(TTI_BROADCAST, size, large, 0, bytes);
        check_cost(TTI_ALL_GATHER, size, 2, i + 1, 8 * (n - 1));
        check_cost(TTI_ALL_GATHER, size, large / n, 0, bytes / n * (n - 1));
        check_cost(TTI_ALL_TO_ALL, size, 2, size > 4 ? i + 1 : n - 1, 8 * (size > 4 ? n / 2 * (i + 1) : n - 1));
        check_cost(TTI_ALL_TO_ALL, size, large / n, n - 1, bytes / n * (n - 1));
        check_cost(TTI_BARRIER, size, 0, i + 1, 0);
    }
    CHECK_THAT(costs_of(TTI_BROADCAST, 8, large).bytes == 7 * bytes, "a broadcast sends every byte once to each");
    CHECK_THAT(costs_of(TTI_BROADCAST, 2, large).messages == 1, "a broadcast to one other rank is one message");
}

/* A rank's own block is copied once, from front to back, and a large one in pieces, of which there are never many. */
static void check_own_block(enum tti_kind kind, uint64_t count)
{
    struct tti_plan plan = {0};
    struct tti_shape shape = {.kind = kind,
                              .path = TTI_MESSAGES,
                              .rank = 1,
                              .size = 2,
                              .element = 4,
                              .accumulator = 4,
                              .count = count,
                              .tuning = &initial_tuning};
    uint64_t done = 0, block = 4 * count, first = kind == TTI_ALL_GATHER ? 0 : block;
    int pieces = 0;
    CHECK_THAT(tti_plan_build(&plan, &shape) == TUTTI_OK, "no plan of %s", tti_kind_name(kind));
    for (size_t i = 0; i < plan.count; i++) {
        const struct tti_step *step = &plan.steps[i];
        if (step->kind != TTI_STEP_COPY) continue;
        CHECK_THAT(step->source.offset == first + done && step->target.offset == block + done,
                   "piece %d of %s of %llu is not where the last one ended", pieces, tti_kind_name(kind),
                   (unsigned long long)count);
        done += step->bytes;
        pieces++;
    }
    CHECK_THAT(done == block && pieces <= 1100 && (pieces > 1) == (block >= 4 << 20),
               "%llu of %llu bytes of a rank's own block are copied, in %d pieces", (unsigned long long)done,
               (unsigned long long)block, pieces);
    tti_plan_free(&plan);
}

static void check_own_blocks(void)
{
    const uint64_t large = 1 << 20, counts[] = {1, large - 1, large, large + 1, 5 * large + 3, large << 18 | 1};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        check_own_block(TTI_ALL_GATHER, counts[i]);
        check_own_block(TTI_ALL_TO_ALL, counts[i]);
    }
}

/* Whatever sizes are set to, products of them and of numbers of ranks do not become small ones again. */
static void check_largest_sizes(void)
{
    const int64_t largest = INT64_C(1125899906842624);
    const tutti_tuning tuning = {.message_flat = 1,
                                 .message_tree = largest,
                                 .message_doubling = largest,
                                 .message_halving = 64,
                                 .message_bruck = largest,
                                 .message_chunk = 1 << 20};
    for (int size = 4090; size < 4100; size++) {
        struct tti_plan plan = {0};
        struct tti_shape shape = {.kind = TTI_ALL_GATHER,
                                  .path = TTI_MESSAGES,
                                  .size = size,
                                  .element = 4,
                                  .accumulator = 4,
                                  .count = 1,
                                  .tuning = &tuning};
        CHECK_THAT(tti_plan_build(&plan, &shape) == TUTTI_OK, "no plan of all_gather among %d", size);
        uint64_t messages = tti_plan_cost(&plan, &shape).messages;
        CHECK_THAT(messages <= 13, "all_gather of 4 bytes among %d is not in rounds: %llu messages", size,
                   (unsigned long long)messages);
        tti_plan_free(&plan);
    }
}

/* ---- Planted mistakes ------------------------------------------------------------------------------------------ */

/* Which share must be found, in percent: the others are none. What is awaited or drained may be covered by the next wait,
 * TEMP may not be used again, and a receive may be posted earlier than it is. */
#define MISTAKES(X)                                                                                                    \
    X(NO_AWAIT, "a wait for data left out", 85)                                                                        \
    X(AWAIT_LESS, "a wait for less data", 85)                                                                          \
    X(NO_DRAIN, "a wait for sends left out", 60)                                                                       \
    X(DRAIN_LESS, "a wait for fewer sends", 60)                                                                        \
    X(OTHER_PEER, "a message with another rank", 95)                                                                   \
    X(SHIFTED_SOURCE, "a source shifted", 95)                                                                          \
    X(SHIFTED_TARGET, "a target shifted", 95)                                                                          \
    X(SHORTER, "a step too short", 95)                                                                                 \
    X(LEFT_OUT, "a step left out", 95)                                                                                 \
    X(EARLY, "a receive or a send too early", 50)                                                                      \
    X(PARTS_SWAPPED, "two parts swapped", 95)                                                                          \
    X(PART_LOST, "a part too few", 95)                                                                                 \
    X(OTHER_FORMAT, "a part in the other format", 95)                                                                  \
    X(OTHER_DIVISOR, "another divisor", 95)

enum mistake {
#define NAME(name, text, share) name,
    MISTAKES(NAME)
#undef NAME
        MISTAKE_COUNT
};

static const struct {
    const char *text;
    int share;
} mistakes[] = {
#define ROW(name, words, percent) [name] = {.text = words, .share = percent},
    MISTAKES(ROW)
#undef ROW
};

static void remove_step(struct tti_plan *plan, size_t at)
{
    memmove(&plan->steps[at], &plan->steps[at + 1], (plan->count - at - 1) * sizeof *plan->steps);
    plan->count--;
}

static bool plant_wait(struct tti_plan *plan, size_t at, enum mistake mistake)
{
    struct tti_step *step = &plan->steps[at];
    bool awaits = mistake == NO_AWAIT || mistake == AWAIT_LESS;
    if (step->kind != (awaits ? TTI_STEP_AWAIT : TTI_STEP_DRAIN)) return false;
    if (mistake == NO_AWAIT || mistake == NO_DRAIN)
        remove_step(plan, at);
    else
        step->value--;
    return true;
}

static bool plant_parts(struct tti_plan *plan, struct tti_step *step, enum mistake mistake)
{
    if (step->kind != TTI_STEP_FOLD) return false;
    struct tti_part *parts = plan->parts + step->first;
    if (mistake == OTHER_FORMAT) {
        parts[0].partial = !parts[0].partial;
        return true;
    }
    if (mistake == OTHER_DIVISOR) {
        step->value = step->value == 0 ? 1 : step->value - 1;
        return true;
    }
    if (step->sources < 2) return false;
    struct tti_part held = parts[0];
    if (mistake == PARTS_SWAPPED) parts[0] = parts[1], parts[1] = held;
    if (mistake == PART_LOST) step->sources--;
    return true;
}

/* Makes the mistake at a step, if it can be made there. */
static bool plant(struct tti_plan *plan, size_t at, enum mistake mistake, size_t element, int size)
{
    struct tti_step *step = &plan->steps[at];
    bool posts = step->kind == TTI_STEP_SEND || step->kind == TTI_STEP_RECV;
    bool moves = posts || step->kind == TTI_STEP_COPY || step->kind == TTI_STEP_FOLD;
    if (mistake <= DRAIN_LESS) return plant_wait(plan, at, mistake);
    if (mistake >= PARTS_SWAPPED) return plant_parts(plan, step, mistake);
    if (!moves || (mistake != OTHER_PEER && step->bytes == 0)) return false;
    if (mistake == OTHER_PEER) {
        if (!posts || size < 3) return false;
        step->peer = (step->peer + 1) % size;
    } else if (mistake == SHIFTED_SOURCE) {
        if (step->kind == TTI_STEP_RECV || step->kind == TTI_STEP_FOLD) return false;
        step->source.offset += element;
    } else if (mistake == SHIFTED_TARGET) {
        if (step->kind == TTI_STEP_SEND) return false;
        step->target.offset += element;
    } else if (mistake == SHORTER) {
        step->bytes -= element;
    } else if (mistake == LEFT_OUT) {
        remove_step(plan, at);
    } else {
        if (!posts || at == 0 || step[-1].kind == step->kind) return false;
        struct tti_step held = step[0];
        step[0] = step[-1], step[-1] = held;
    }
    return true;
}

static int planted[MISTAKE_COUNT], found[MISTAKE_COUNT];

static void check_mistake(enum mistake mistake, uint64_t seed)
{
    uint64_t hash = conf_hash(seed, 1);
    int size = 2 + (int)(hash % 7);
    enum tti_kind kind = mistake >= PARTS_SWAPPED ? TTI_ALL_REDUCE : conf_kinds[hash / 512 % conf_kind_count];
    if (kind >= TTI_TUNING || kind == TTI_BARRIER) return;
    struct plan_check_op *op = make(kind, size, 0, 70 + (hash >> 24 & 127), seed);
    struct tti_plan *plan = &op->plans[(hash >> 32) % (uint64_t)size];
    for (uint64_t tries = 0; tries < 32 && plan->count > 0; tries++) {
        size_t at = (size_t)(conf_hash(seed, 50 + tries) % plan->count);
        bool is_end = at + 2 >= plan->count && mistake == NO_AWAIT; /* nothing is found out there but at the end */
        if (is_end || !plant(plan, at, mistake, op->element, size)) continue;
        planted[mistake]++;
        if (message_check_run(op, seed) != NULL) found[mistake]++;
        break;
    }
    drop(op);
}

static void check_mistakes(uint64_t seed)
{
    for (int mistake = 0; mistake < MISTAKE_COUNT; mistake++) {
        for (int i = 0; i < (SANITIZED ? 150 : 600); i++) check_mistake((enum mistake)mistake, seed++);
        printf("%-30s %4d planted, %4d found\n", mistakes[mistake].text, planted[mistake], found[mistake]);
        CHECK_THAT(planted[mistake] > 20 && found[mistake] * 100 >= planted[mistake] * mistakes[mistake].share,
                   "of %d times %s only %d were found", planted[mistake], mistakes[mistake].text, found[mistake]);
    }
}

int main(int argc, char **argv)
{
    uint64_t seed = argc > 1 ? strtoull(argv[1], NULL, 10) * 1000003 : 1;
    check_all_plans(seed);
    check_all_data(seed + 400000);
    check_costs();
    check_own_blocks();
    check_largest_sizes();
    check_mistakes(seed + 900000);
    return check_end();
}
