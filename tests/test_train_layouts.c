/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Layouts and what is estimated of them, by arithmetic alone: the list against a search through all numbers there could be; the
 * estimates against times that are worked out here, and against each other.
 */
#include "check.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

enum { MOST = 20000 };

static tutti_train_layout listed[MOST];

static tutti_train_options small_gpt(void)
{
    tutti_train_options options;
    tutti_train_options_init(&options);
    options.layers = 4;
    options.heads = 4;
    options.width = 32;
    options.vocabulary = 64;
    options.context = 8;
    options.batch = options.grains = 16;
    return options;
}

/* ---- The list ---------------------------------------------------------------------------------------------------- */

/* What is said of the numbers of one layout, not how they are come by. */
static bool is_layout(const tutti_train_layout *l, int ranks, int grains)
{
    const int sharing = l->data * l->shard, each = (grains + sharing - 1) / sharing;
    if (sharing * l->pipe * l->tensor != ranks) return false;
    if (l->shard > 1 && (l->data == 1 || l->zero == 0)) return false;
    if (l->zero > 0 && sharing == 1) return false;
    if (l->sequence && l->tensor == 1) return false;
    if (l->pipe == 1)
        return l->pipeline == NULL && l->micro == 0 && (l->accumulate & (l->accumulate - 1)) == 0 &&
               (l->accumulate <= each || l->accumulate == 1);
    if (l->pipeline == NULL || l->accumulate != 1 || l->micro < 1 || l->micro > each) return false;
    const bool times = l->micro == l->pipe || l->micro == 2 * l->pipe || l->micro == 4 * l->pipe;
    if (strcmp(l->pipeline, "interleaved") == 0) return l->micro % l->pipe == 0 && (times || l->micro + l->pipe > each);
    return times || l->micro == each;
}

static bool same_layout(const tutti_train_layout *a, const tutti_train_layout *b)
{
    return a->data == b->data && a->shard == b->shard && a->pipe == b->pipe && a->tensor == b->tensor &&
           a->zero == b->zero && a->micro == b->micro && a->accumulate == b->accumulate &&
           a->recompute == b->recompute && a->sequence == b->sequence &&
           (a->pipeline == b->pipeline ||
            (a->pipeline != NULL && b->pipeline != NULL && strcmp(a->pipeline, b->pipeline) == 0));
}

static int count_of(const tutti_train_layout *wanted, size_t count)
{
    int found = 0;
    for (size_t i = 0; i < count; i++) found += same_layout(wanted, &listed[i]);
    return found;
}

/* All tables, micro-batches and passes of one mesh and zero. */
static size_t search_mesh(tutti_train_layout l, int ranks, int grains, size_t count)
{
    static const char *const tables[] = {NULL, "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    size_t found = 0;
    for (int table = 0; table < 6; table++)
        for (l.micro = 0; l.micro <= grains; l.micro++)
            for (int k = 0; k < 4 * grains; k++) {
                l.accumulate = 1 + k / 4;
                l.pipeline = tables[table];
                l.recompute = k % 2 != 0;
                l.sequence = k / 2 % 2 != 0;
                if (!is_layout(&l, ranks, grains)) continue;
                found++;
                CHECK_THAT(
                    count_of(&l, count) == 1,
                    "%d ranks: data=%d,shard=%d,pipe=%d,tensor=%d zero %d %s micro %d accumulate %d: listed %d times",
                    ranks, l.data, l.shard, l.pipe, l.tensor, l.zero, l.pipeline == NULL ? "" : l.pipeline, l.micro,
                    l.accumulate, count_of(&l, count));
            }
    return found;
}

static void test_list(int ranks, int grains)
{
    tutti_train_options options = small_gpt();
    tutti_train_layout l;
    options.batch = options.grains = grains;
    size_t count = tutti_train_layouts(&options, ranks, listed, MOST), found = 0;
    for (l.data = 1; l.data <= ranks; l.data++)
        for (l.shard = 1; l.shard <= ranks / l.data; l.shard++)
            for (l.pipe = 1; l.pipe <= ranks / (l.data * l.shard); l.pipe++)
                for (l.tensor = 1; l.tensor <= ranks / (l.data * l.shard * l.pipe); l.tensor++)
                    for (l.zero = 0; l.zero <= 3; l.zero++)
                        if (l.data * l.shard * l.pipe * l.tensor == ranks)
                            found += search_mesh(l, ranks, grains, count);
    CHECK_THAT(found == count && count <= MOST, "%d ranks, %d grains: %zu layouts are listed, %zu were found", ranks,
               grains, count, found);
    CHECK_THAT(tutti_train_layouts(&options, ranks, NULL, 0) == count, "counted alone");
}

/* ---- Estimates --------------------------------------------------------------------------------------------------- */

static double no_time(void *context, const tutti_train_transfer *transfer)
{
    (void)context, (void)transfer;
    return 0;
}

static double by_bytes(void *context, const tutti_train_transfer *transfer)
{
    return *(double *)context * (double)transfer->bytes;
}

/* Units that take 1, 2 and 3 per grain. */
static tutti_train_costs costs_of(tutti_pipeline_times *units, size_t count)
{
    for (size_t i = 0; i < count; i++) units[i] = (tutti_pipeline_times){1, 2, 3};
    return (tutti_train_costs){
        .struct_size = sizeof(tutti_train_costs), .units = units, .unit_count = count, .link = no_time};
}

static tutti_status estimate(tutti_train_options options, const tutti_train_layout *layout,
                             const tutti_train_costs *costs, tutti_train_estimate *made, tutti_error *error)
{
    char mesh[TUTTI_TRAIN_MESH_BYTES];
    tutti_train_layout_set(layout, mesh, &options);
    return tutti_train_estimate_layout(&options, layout->data * layout->shard * layout->pipe * layout->tensor, costs,
                                       made, error);
}

enum { UNITS = 11 }; /* embeddings, two for each of 4 blocks, ln_f, loss: the units of the model above */

static void test_times(void)
{
    tutti_pipeline_times units[UNITS];
    tutti_train_costs costs = costs_of(units, UNITS);
    tutti_train_estimate one, other;
    tutti_error error;
    const tutti_train_layout alone = {1, 1, 1, 1, 0, NULL, 0, 1, false, false},
                             two = {2, 1, 1, 1, 0, NULL, 0, 1, false, false},
                             zero = {2, 1, 1, 1, 3, NULL, 0, 1, false, false},
                             odd = {3, 1, 1, 1, 0, NULL, 0, 1, false, false},
                             pipe = {1, 1, 2, 1, 0, "1f1b", 8, 1, false, false};
    const double grain = UNITS * 6;
    if (!CHECK_THAT(estimate(small_gpt(), &alone, &costs, &one, &error) == TUTTI_OK, "%s", error.text)) return;
    CHECK_THAT(fabs(one.seconds - 16 * grain) < 1e-6 && one.operations == 0 && one.sent_bytes == 0 && one.idle < 1e-9,
               "one rank: %g s, not %g; %zu ops", one.seconds, 16 * grain, one.operations);
    CHECK_THAT(estimate(small_gpt(), &two, &costs, &other, &error) == TUTTI_OK &&
                   fabs(other.seconds - 8 * grain) < 1e-6,
               "two ranks: %g s", other.seconds);
    CHECK_THAT(estimate(small_gpt(), &odd, &costs, &other, &error) == TUTTI_OK &&
                   fabs(other.seconds - 6 * grain) < 1e-6 && fabs(other.idle - (1 - 16.0 / 18)) < 1e-9,
               "three ranks, 6, 5 and 5 grains: %g s, idle %g", other.seconds, other.idle);
    CHECK_THAT(estimate(small_gpt(), &zero, &costs, &other, &error) == TUTTI_OK && other.bytes < one.bytes &&
                   other.memory.optimizer_bytes < one.memory.optimizer_bytes * 6 / 10 && other.operations > 0,
               "zero 3: %zu bytes, not fewer than %zu", other.bytes, one.bytes);
    CHECK_THAT(estimate(small_gpt(), &pipe, &costs, &other, &error) == TUTTI_OK && other.stages[0] != '\0' &&
                   other.idle > 0 && other.seconds > 8 * grain && other.seconds < 11 * grain,
               "a pipe: %g s, idle %g, stages %s", other.seconds, other.idle, other.stages);
    costs.cores = 1;
    CHECK_THAT(estimate(small_gpt(), &two, &costs, &other, &error) == TUTTI_OK &&
                   fabs(other.seconds - 16 * grain) < 1e-6,
               "two ranks on one core: %g s", other.seconds);
}

/* Further grains of a pass take more, steps of a pipeline something each, and with zero 2 only owners add up passes. */
static void test_calibrated(void)
{
    tutti_pipeline_times units[UNITS];
    tutti_train_costs costs = costs_of(units, UNITS);
    tutti_train_estimate before = {0}, made = {0};
    tutti_error error;
    const tutti_train_layout two = {2, 1, 1, 1, 0, NULL, 0, 1, false, false},
                             cut = {2, 1, 1, 1, 0, NULL, 0, 8, false, false},
                             owners = {2, 1, 1, 1, 2, NULL, 0, 2, false, false},
                             pipe = {1, 1, 2, 1, 0, "1f1b", 8, 1, false, false};
    costs.further = (tutti_pipeline_times){0.1, 0.2, 0.3};
    CHECK_THAT(estimate(small_gpt(), &two, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(fabs(made.seconds - UNITS * (8 * 6 + 7 * (0.1 + 0.4 + 0.9))) < 1e-6, "8 grains in one pass: %g s",
               made.seconds);
    CHECK_THAT(estimate(small_gpt(), &cut, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(fabs(made.seconds - UNITS * 8 * 6) < 1e-6, "8 grains in 8 passes: %g s", made.seconds);
    costs = costs_of(units, UNITS);
    CHECK_THAT(estimate(small_gpt(), &pipe, &costs, &before, &error) == TUTTI_OK, "%s", error.text);
    costs.step = 0.25;
    CHECK_THAT(estimate(small_gpt(), &pipe, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
    CHECK_THAT(fabs(made.seconds - before.seconds - 2 * (8 + 2 - 1) * 0.25) < 0.6,
               "18 steps one after the other add %g s", made.seconds - before.seconds);
    costs = costs_of(units, UNITS);
    costs.add = 1;
    CHECK_THAT(estimate(small_gpt(), &owners, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
    const double half = (double)made.memory.parameters / 2;
    CHECK_THAT(made.update_seconds > 0.95 * half && made.update_seconds < 1.2 * half, "%g of %g elements are added",
               made.update_seconds, half);
}

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

static const char *const unit_names[UNITS] = {"wte",      "h.0.ln_1", "h.0.ln_2", "h.1.ln_1", "h.1.ln_2", "h.2.ln_1",
                                              "h.2.ln_2", "h.3.ln_1", "h.3.ln_2", "ln_f",     "lm_head"};

/* The least that the longest of so many stages can take of the units from `first` on: all cuts there are. */
static double least_longest(const tutti_pipeline_times *units, int first, int stages)
{
    double least = INFINITY, sum = 0;
    if (stages == 1) {
        for (int i = first; i < UNITS; i++) sum += units[i].forward;
        return sum;
    }
    for (int end = first + 1; end <= UNITS - (stages - 1); end++) {
        sum += units[end - 1].forward;
        least = fmin(least, fmax(sum, least_longest(units, end, stages - 1)));
    }
    return least;
}

/* What the longest stage takes, of those that begin with the layers named: "h.1.ln_1,ln_f"; negative: one is no unit's first. */
static double longest(const tutti_pipeline_times *units, const char *stages)
{
    double most = 0, sum = 0;
    for (int i = 0; i < UNITS; i++) {
        const size_t length = strcspn(stages, ",");
        if (strlen(unit_names[i]) == length && strncmp(unit_names[i], stages, length) == 0) {
            stages += length + (stages[length] == ',');
            sum = 0;
        }
        sum += units[i].forward;
        most = fmax(most, sum);
    }
    return *stages == '\0' ? most : -1;
}

/* The stage that takes longest takes as little as it can, whatever units take. */
static void test_balanced(void)
{
    tutti_pipeline_times units[UNITS];
    tutti_train_costs costs = costs_of(units, UNITS);
    uint32_t state = 1;
    for (int trial = 0; trial < 60; trial++)
        for (int pipe = 2; pipe <= 8; pipe++) {
            const tutti_train_layout layout = {1, 1, pipe, 1, 0, "1f1b", pipe, 1, false, false};
            tutti_train_estimate made = {0};
            tutti_error error;
            for (int i = 0; i < UNITS; i++) {
                state = state * 1664525u + 1013904223u;
                units[i] = (tutti_pipeline_times){.forward = trial % 3 == 0 ? 1 + (state >> 16) % 3
                                                                            : (state >> 16) + 1};
            }
            CHECK_THAT(estimate(small_gpt(), &layout, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
            const double least = least_longest(units, 0, pipe), has = longest(units, made.stages);
            CHECK_THAT(fabs(has / least - 1) < 1e-6, "%d stages, %s: the longest takes %g, not %g", pipe, made.stages,
                       has, least);
        }
}

/* Ranks that share the width meet 4 times per block, with sequence 8 times, and twice more where it is computed again; and for
 * the ends (test_tensor counts how often they do). */
static void test_meetings(void)
{
    tutti_pipeline_times units[UNITS];
    const tutti_train_costs costs = costs_of(units, UNITS);
    for (int i = 0; i < 4; i++) {
        const tutti_train_layout layout = {1, 1, 1, 2, 0, NULL, 0, 1, i / 2 == 1, i % 2 == 1};
        const size_t blocks = 4, each = layout.sequence ? (layout.recompute ? 10 : 8) : 4;
        tutti_train_estimate made;
        tutti_error error;
        CHECK_THAT(estimate(small_gpt(), &layout, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
        CHECK_THAT(made.operations == each * blocks + (layout.sequence ? 5 : 3), "recompute %d, sequence %d: %zu ops",
                   layout.recompute, layout.sequence, made.operations);
    }
}

/* What all ranks do in the passes of a layout, and what of it recomputation adds. */
static double more_work(tutti_train_layout layout, const tutti_train_costs *costs)
{
    tutti_train_estimate made;
    tutti_error error;
    double busy[2] = {0, 0};
    for (int again = 0; again < 2; again++) {
        layout.recompute = again != 0;
        CHECK_THAT(estimate(small_gpt(), &layout, costs, &made, &error) == TUTTI_OK, "%s", error.text);
        busy[again] = made.compute_seconds * (1 - made.idle) * layout.data * layout.pipe;
    }
    return busy[1] - busy[0];
}

/* Of 8 branches of 1 s forward, 3 of the 4 products of 4 (c_attn), and 4 of 8 (c_fc) are made again: for each part of backward. */
static void test_recompute(void)
{
    tutti_pipeline_times units[UNITS];
    const tutti_train_costs costs = costs_of(units, UNITS);
    const double once = 16 * (4 * 0.75 + 4 * 0.5);
    static const struct {
        tutti_train_layout layout;
        double times;
    } rows[] = {{{1, 1, 1, 1, 0, NULL, 0, 1, false, false}, 1},    {{2, 1, 1, 1, 2, NULL, 0, 1, false, false}, 1},
                {{1, 1, 2, 1, 0, "1f1b", 8, 1, false, false}, 1},  {{1, 1, 2, 1, 0, "gpipe", 8, 1, false, false}, 1},
                {{1, 1, 2, 1, 0, "zb-h1", 8, 1, false, false}, 2}, {{1, 1, 2, 1, 0, "zb-v", 8, 1, false, false}, 2}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const double more = more_work(rows[i].layout, &costs), expected = rows[i].times * once;
        CHECK_THAT(fabs(more - expected) < 0.02 * expected, "pipe=%d %s: recomputation adds %g s, not %g",
                   rows[i].layout.pipe, rows[i].layout.pipeline, more, expected);
    }
}

/* ---- Hosts ------------------------------------------------------------------------------------------------------- */

/* What goes between hosts, of one op: the hosts, and how many share a link. 0: none does; negative: not all alike. */
struct between {
    tutti_train_op op;
    int hosts, sharing, count;
};

static double note_between(void *context, const tutti_train_transfer *transfer)
{
    struct between *between = context;
    if (transfer->hosts == 1) return CHECK_THAT(transfer->sharing == 1, "%d share nothing", transfer->sharing) ? 0 : 1;
    if (transfer->op != between->op) return 0;
    const bool same = between->count == 0 ||
                      (between->hosts == transfer->hosts && between->sharing == transfer->sharing);
    between->hosts = same ? transfer->hosts : -1;
    between->sharing = same ? transfer->sharing : -1;
    between->count++;
    return 0;
}

static void test_hosts(void)
{
    static const struct {
        tutti_train_layout layout;
        int per_host;
        tutti_train_op op;
        int hosts, sharing;
    } rows[] = {
        {{8, 1, 1, 1, 0, NULL, 0, 1, false, false}, 0, TUTTI_TRAIN_ALL_REDUCE, 0, 0},
        {{8, 1, 1, 1, 0, NULL, 0, 1, false, false}, 8, TUTTI_TRAIN_ALL_REDUCE, 0, 0},
        {{8, 1, 1, 1, 0, NULL, 0, 1, false, false}, 4, TUTTI_TRAIN_ALL_REDUCE, 2, 1},
        {{8, 1, 1, 1, 0, NULL, 0, 1, false, false}, 1, TUTTI_TRAIN_ALL_REDUCE, 8, 1},
        {{2, 1, 1, 4, 0, NULL, 0, 1, false, false},
         4,
         TUTTI_TRAIN_ALL_REDUCE,
         2,
         4}, /* gradients; the width stays inside */
        {{2, 4, 1, 1, 1, NULL, 0, 1, false, false},
         4,
         TUTTI_TRAIN_REDUCE_SCATTER,
         0,
         0},                                                                          /* replicas have a host each, */
        {{2, 4, 1, 1, 2, NULL, 0, 1, false, false}, 4, TUTTI_TRAIN_ALL_REDUCE, 2, 4}, /* and meet between hosts */
        {{4, 2, 1, 1, 1, NULL, 0, 1, false, false}, 1, TUTTI_TRAIN_ALL_GATHER, 2, 1},
        {{4, 1, 2, 1, 0, "1f1b", 4, 1, false, false}, 4, TUTTI_TRAIN_SEND, 0, 0}, /* pipes inside hosts */
        {{1, 1, 4, 2, 0, "1f1b", 4, 1, false, false},
         4,
         TUTTI_TRAIN_SEND,
         2,
         2}, /* the middle one crosses, and the tied weight */
        {{2, 1, 4, 1, 0, "1f1b", 4, 1, false, false}, 1, TUTTI_TRAIN_SEND, 2, 1},
        {{1, 1, 2, 4, 0, "1f1b", 4, 1, false, false}, 2, TUTTI_TRAIN_SEND, 2, 2},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tutti_pipeline_times units[UNITS];
        struct between between = {.op = rows[i].op};
        tutti_train_costs costs = costs_of(units, UNITS);
        tutti_train_estimate made;
        tutti_error error;
        costs.link = note_between;
        costs.context = &between;
        costs.ranks_per_host = rows[i].per_host;
        CHECK_THAT(estimate(small_gpt(), &rows[i].layout, &costs, &made, &error) == TUTTI_OK, "%s", error.text);
        CHECK_THAT(between.hosts == rows[i].hosts && between.sharing == rows[i].sharing,
                   "row %zu: %d go between %d hosts, %d at a time; not %d and %d", i, between.count, between.hosts,
                   between.sharing, rows[i].hosts, rows[i].sharing);
    }
}

/* Slower layers, links and updates never make a layout faster; 16 bytes per parameter are there on one rank. */
static void test_monotone(int ranks)
{
    static tutti_pipeline_times units[UNITS], slower[UNITS];
    double rate = 1e-6, double_rate = 2e-6;
    tutti_train_costs base = costs_of(units, UNITS), more = costs_of(slower, UNITS);
    const tutti_train_options options = small_gpt();
    size_t count = tutti_train_layouts(&options, ranks, listed, MOST), taken = 0;
    base.link = more.link = by_bytes;
    base.context = &rate;
    more.context = &double_rate;
    base.update = 1e-6;
    more.update = 2e-6;
    for (int i = 0; i < UNITS; i++) slower[i].forward = 1.5;
    for (size_t i = 0; i < count; i++) {
        tutti_train_estimate a, b;
        tutti_error error;
        tutti_status status = estimate(options, &listed[i], &base, &a, &error);
        if (status != TUTTI_OK) continue;
        CHECK_THAT(estimate(options, &listed[i], &more, &b, &error) == TUTTI_OK && b.seconds > a.seconds,
                   "layout %zu of %d ranks: %g, then %g", i, ranks, a.seconds, b.seconds);
        CHECK_THAT(a.idle >= -1e-9 && a.idle < 1 && a.rank < ranks && (ranks == 1 || a.operations > 0),
                   "layout %zu of %d ranks: idle %g, rank %d, %zu operations", i, ranks, a.idle, a.rank, a.operations);
        taken++;
    }
    CHECK_THAT(taken >= 4, "%d ranks: %zu layouts work", ranks, taken);
}

static void test_refused(void)
{
    tutti_pipeline_times units[UNITS];
    const tutti_train_costs costs = costs_of(units, UNITS);
    tutti_train_costs short_costs = costs;
    const tutti_train_options options = small_gpt();
    const tutti_train_layout two = {2, 1, 1, 1, 0, NULL, 0, 1, false, false},
                             many = {64, 1, 1, 1, 0, NULL, 0, 1, false, false};
    tutti_train_estimate made;
    tutti_error error;
    tutti_train_costs measured;
    short_costs.unit_count = 3;
    CHECK_THAT(estimate(options, &two, &short_costs, &made, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "costs of 3 units") != NULL,
               "%s", error.text);
    CHECK_THAT(estimate(options, &many, &costs, &made, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "64 ranks are more than 16 grains") != NULL,
               "%s", error.text);
    CHECK_THAT(tutti_train_estimate_layout(&options, 0, &costs, &made, &error) == TUTTI_ERR_ARGUMENT, "0 ranks");
    CHECK_THAT(tutti_train_estimate_layout(&options, 1, NULL, &made, NULL) == TUTTI_ERR_ARGUMENT, "no costs");
    CHECK_THAT(tutti_train_layouts(&options, 0, NULL, 0) == 0 && tutti_train_layouts(NULL, 2, NULL, 0) == 0,
               "no layouts");
    CHECK_THAT(tutti_train_measure(&options, 0, units, UNITS, &measured, &error) == 0 &&
                   error.status == TUTTI_ERR_ARGUMENT,
               "tensor 0");
    CHECK_THAT(tutti_train_measure(&options, 3, units, UNITS, &measured, &error) == 0 &&
                   strstr(error.text, "heads") != NULL,
               "4 heads for 3 ranks: %s", error.text);
}

static void test_measured(void)
{
    tutti_pipeline_times units[UNITS + 4];
    const tutti_train_options options = small_gpt();
    tutti_train_costs costs = {0};
    tutti_error error;
    for (int tensor = 1; tensor <= 2; tensor++) {
        const size_t count = tutti_train_measure(&options, tensor, units, UNITS + 4, &costs, &error);
        CHECK_THAT(count == UNITS, "%zu units: %s", count, error.text);
        for (size_t i = 0; i < count; i++)
            CHECK_THAT(units[i].forward > 0 && units[i].input >= 0 && units[i].forward < 1, "unit %zu: %g", i,
                       units[i].forward);
        CHECK_THAT(costs.update > 0 && costs.add > 0 && costs.update < 1e-3, "%g, %g", costs.update, costs.add);
        CHECK_THAT(costs.further.forward > -1 && costs.further.input > -1 && costs.further.weights > -1, "%g, %g, %g",
                   costs.further.forward, costs.further.input, costs.further.weights);
    }
}

/* Width grains are the model's as long as they go to the ranks along tensor. */
static void test_width(void)
{
    static const struct {
        int64_t given;
        int tensor;
        int64_t set;
    } rows[] = {{0, 1, 0}, {0, 2, 0}, {0, 4, 0}, {0, 8, 8}, {0, 3, 3}, {6, 3, 6}, {6, 2, 2}, {1, 4, 4}, {8, 1, 8}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        tutti_train_options options = small_gpt();
        char mesh[TUTTI_TRAIN_MESH_BYTES];
        options.heads = 24;
        options.width = 192; /* 4 grains of 48 columns */
        options.width_grains = rows[i].given;
        tutti_train_layout_set(&(tutti_train_layout){1, 1, 1, rows[i].tensor, 0, NULL, 0, 1, false, false}, mesh,
                               &options);
        CHECK_THAT(options.width_grains == rows[i].set, "%lld width grains on %d ranks: %lld, not %lld",
                   (long long)rows[i].given, rows[i].tensor, (long long)options.width_grains, (long long)rows[i].set);
    }
}

int main(void)
{
    for (int ranks = 1; ranks <= 16; ranks++) test_list(ranks, ranks % 3 == 0 ? 5 : 16);
    test_times();
    test_calibrated();
    test_balanced();
    test_meetings();
    test_recompute();
    test_hosts();
    for (int ranks = 1; ranks <= 8; ranks += ranks < 4 ? 1 : 4) test_monotone(ranks);
    test_refused();
    test_measured();
    test_width();
    return check_end();
}
