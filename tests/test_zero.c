/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * ZeRO 1, 2 and 3 with a list of parameters of one's own, anywhere in memory or nowhere, with grains and without, in one
 * pass and in several, in one group of ranks and in replicas, on any number of ranks: weights, norms and optimizer's states
 * are those of plain data parallel, bit for bit; every element has one owner; states go to rank 0 and back; lists with
 * fewer elements than ranks.
 */
#include "conformance_world.h"
#include "train/blocks.h"
#include "train/shuffle.h"
#include "train/tree.h"

#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

enum { PARAMETERS = 7, STEPS = 3 };
static const size_t sizes[PARAMETERS] = {5, 9000, 0, 4096, 1, 20001, 4097};

struct list {
    tutti_parameter parameters[PARAMETERS];
    float *memory, *values, *gradients;
    size_t elements;
};

/* With `gap` elements between values, and between gradients. */
static struct list list_make(tutti_comm *comm, size_t gap)
{
    static const char *const names[PARAMETERS] = {"a", "b", "c", "d", "e", "f", "g"};
    struct list list = {0};
    for (int i = 0; i < PARAMETERS; i++) list.elements += sizes[i];
    size_t room = list.elements + PARAMETERS * gap, at = 0;
    list.memory = tutti_alloc(comm, 2 * room * sizeof(float));
    for (int i = 0; i < PARAMETERS; i++) {
        list.parameters[i] = (tutti_parameter){names[i], list.memory + room + at, list.memory + at, sizes[i],
                                               i % 2 == 0};
        for (size_t j = 0; j < sizes[i]; j++) list.parameters[i].value[j] = (float)j / 1000 - 3;
        at += sizes[i] + gap;
    }
    return list;
}

static bool worked(tutti_comm *comm, tutti_status status, const char *what)
{
    const tutti_error *error = tutti_comm_error(comm);
    return CHECK_THAT(status == TUTTI_OK, "rank %d: %s: %s %s", tutti_rank(comm), what, tutti_status_name(status),
                      error == NULL ? "" : error->text);
}

/* Of very different sizes, so that another order of additions shows. */
static float leaf(int leaf, size_t element, int step)
{
    uint64_t draw = tti_draw((uint64_t)leaf * 1000 + (uint64_t)step, element);
    return ((float)(draw >> 40) / (float)(1 << 24) - 0.5F) * (float)(1 << draw % 20);
}

static float tree(int lo, int hi, size_t element, int step)
{
    if (hi - lo == 1) return leaf(lo, element, step);
    int half = lo + (int)tti_tree_half((size_t)(hi - lo));
    return tree(lo, half, element, step) + tree(half, hi, element, step);
}

/* ---- One run --------------------------------------------------------------------------------------------------- */

struct trial {
    size_t gap;
    int grains, pass_grains, replicas;
};

/* What came of it. */
struct result {
    float *values, *states[2]; /* of all elements; states on rank 0 */
    double norms[STEPS];
};

/* What this rank adds to the gradient of one parameter. */
static void fill_gradient(tutti_comm *comm, tutti_ddp *ddp, const struct trial *trial, size_t index, int step)
{
    const int *bounds = NULL;
    float *const *unused, *to = NULL;
    int first = 0, count = 0, partials = trial->grains > 0 ? tutti_ddp_partials(ddp, &bounds, &unused) : 0;
    size_t before = 0;
    for (size_t i = 0; i < index; i++) before += sizes[i];
    if (trial->grains > 0) tutti_ddp_grains(ddp, &first, &count);
    for (int k = 0; k < partials; k++) {
        worked(comm, tutti_ddp_gradient_run(ddp, k, before, sizes[index], &to), "gradient_run");
        for (size_t e = 0; e < sizes[index]; e++)
            to[e] = tree(first + bounds[k], first + bounds[k + 1], before + e, step);
    }
    if (trial->grains > 0) return;
    worked(comm, tutti_ddp_gradient(ddp, index, &to), "gradient");
    for (size_t e = 0; e < sizes[index]; e++) to[e] = leaf(tutti_rank(comm), before + e, step);
}

/* Values of all parameters, from the first to the last and back, as forward and backward need them. */
static void read_values(tutti_comm *comm, tutti_ddp *ddp, float *values)
{
    size_t at = 0;
    for (size_t n = 0; n < 2 * PARAMETERS; n++) {
        size_t i = n < PARAMETERS ? n : 2 * PARAMETERS - 1 - n;
        const float *from = NULL;
        if (!worked(comm, tutti_ddp_need(ddp, i, &from), "need")) return;
        if (n >= PARAMETERS) at -= sizes[i];
        if (n < PARAMETERS)
            memcpy(values + at, from == NULL ? values : from, sizes[i] * sizeof(float));
        else
            CHECK_THAT(sizes[i] == 0 || memcmp(values + at, from, sizes[i] * sizeof(float)) == 0,
                       "values on the way back");
        if (n < PARAMETERS) at += sizes[i];
        tutti_ddp_done(ddp, i);
    }
}

static bool take_step(tutti_comm *comm, const struct trial *trial, tutti_ddp *ddp, tutti_optimizer *optimizer, int step,
                      double *norm)
{
    int passes = tutti_ddp_passes(ddp);
    for (int pass = 0; pass < passes; pass++) {
        if (!worked(comm, tutti_ddp_begin(ddp, pass + 1 == passes), "begin")) return false;
        for (size_t i = PARAMETERS; i-- > 0;) {
            fill_gradient(comm, ddp, trial, i, step);
            CHECK_THAT(tutti_ddp_ready(ddp, i) == TUTTI_OK, "ready");
        }
    }
    if (!worked(comm, tutti_ddp_end(ddp, 1, NULL), "end") || !worked(comm, tutti_ddp_norm(ddp, norm), "norm"))
        return false;
    tutti_optimizer_step(optimizer, 0.01, 1e-3);
    return worked(comm, tutti_ddp_spread(ddp), "spread");
}

/* Gathered, handed out and gathered again: the same. */
static void gather_states(tutti_comm *comm, const struct list *list, tutti_ddp *ddp, tutti_optimizer *optimizer,
                          struct result *result)
{
    float *mine = NULL, *again = calloc(list->elements, sizeof(float));
    for (int s = 0; tutti_optimizer_state(optimizer, s, &mine) != NULL; s++) {
        result->states[s] = calloc(list->elements, sizeof(float));
        worked(comm, tutti_ddp_gather_owned(ddp, mine, result->states[s]), "gather");
        memset(mine, 0x55, tutti_optimizer_bytes(optimizer) / 2);
        worked(comm, tutti_ddp_scatter_owned(ddp, result->states[s], mine), "scatter");
        worked(comm, tutti_ddp_gather_owned(ddp, mine, again), "gather");
        CHECK_THAT(tutti_rank(comm) != 0 || memcmp(again, result->states[s], list->elements * sizeof(float)) == 0,
                   "states change on their way");
    }
    free(again);
}

static bool train(tutti_comm *comm, const struct trial *trial, int zero, struct result *result)
{
    struct list list = list_make(comm, trial->gap);
    tutti_ddp_options options = {.struct_size = sizeof options,
                                 .bucket_bytes = 60000,
                                 .first_bucket_bytes = 100,
                                 .grains = trial->grains,
                                 .pass_grains = trial->pass_grains,
                                 .replicas = zero > 0 ? trial->replicas : 0,
                                 .zero = zero};
    tutti_ddp *ddp = NULL;
    tutti_optimizer *optimizer = NULL;
    tutti_optimizer_settings settings;
    tutti_error error = {0};
    const tutti_parameter *owned;
    for (int i = 0; i < PARAMETERS && zero >= 2; i++) list.parameters[i].gradient = NULL;
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error), "create"))
        return false;
    if (zero == 3) memset(list.memory, 0xff, 2 * (list.elements + PARAMETERS * trial->gap) * sizeof(float));
    size_t count = tutti_ddp_owned(ddp, &owned);
    CHECK_THAT(tutti_optimizer_defaults("adamw", &settings, &error) == TUTTI_OK &&
                   tutti_optimizer_create(&settings, owned, count, &optimizer, &error) == TUTTI_OK,
               "optimizer: %s", error.text);
    bool good = true;
    for (int step = 0; step < STEPS && good; step++)
        good = take_step(comm, trial, ddp, optimizer, step, &result->norms[step]);
    if (good) gather_states(comm, &list, ddp, optimizer, result);
    result->values = calloc(list.elements, sizeof(float));
    if (good) read_values(comm, ddp, result->values);
    tutti_optimizer_free(optimizer);
    tutti_ddp_free(ddp);
    tutti_free(comm, list.memory);
    return good;
}

static void result_free(struct result *result)
{
    free(result->values);
    free(result->states[0]);
    free(result->states[1]);
}

static void run_same(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    struct result plain = {0};
    size_t bytes = 0;
    for (int i = 0; i < PARAMETERS; i++) bytes += sizes[i] * sizeof(float);
    if (trial->grains > 0 && trial->grains < tutti_size(comm)) return;
    if (trial->replicas > 1 && tutti_size(comm) % trial->replicas != 0) return;
    if (!train(comm, trial, 0, &plain)) return;
    for (int stage = 1; stage <= 3; stage++) {
        struct result zero = {0};
        if (!train(comm, trial, stage, &zero)) return;
        CHECK_THAT(memcmp(plain.values, zero.values, bytes) == 0,
                   "rank %d of %d, zero %d, gap %zu, %d grains, %d a pass, %d replicas: other weights",
                   tutti_rank(comm), tutti_size(comm), stage, trial->gap, trial->grains, trial->pass_grains,
                   trial->replicas);
        CHECK_THAT(memcmp(plain.norms, zero.norms, sizeof plain.norms) == 0, "zero %d: norms %a and %a", stage,
                   plain.norms[0], zero.norms[0]);
        for (int s = 0; s < 2 && tutti_rank(comm) == 0; s++)
            CHECK_THAT(memcmp(plain.states[s], zero.states[s], bytes) == 0, "zero %d: state %d differs", stage, s);
        result_free(&zero);
    }
    result_free(&plain);
}

/* ---- Owners ---------------------------------------------------------------------------------------------------- */

static void run_owners(tutti_comm *comm, void *context)
{
    (void)context;
    struct list list = list_make(comm, 0);
    float *owners = calloc(list.elements, sizeof *owners);
    tutti_ddp_options options = {.struct_size = sizeof options, .bucket_bytes = 60000, .zero = 1};
    tutti_ddp *ddp = NULL;
    const tutti_parameter *owned = NULL;
    tutti_error error = {0};
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error), "create")) return;
    size_t count = tutti_ddp_owned(ddp, &owned), before = 0, mine = 0;
    for (size_t i = 0; i < count; i++) {
        size_t at = (size_t)(owned[i].value - list.parameters[0].value);
        CHECK_THAT(at >= before && owned[i].gradient == list.memory + at, "what is owned is in order");
        for (size_t j = 0; j < owned[i].count; j++) owners[at + j] += 1;
        before = at + owned[i].count;
        mine += owned[i].count;
    }
    CHECK_THAT(mine < list.elements / (size_t)tutti_size(comm) + 4 * TTI_BLOCK, "rank %d owns %zu of %zu",
               tutti_rank(comm), mine, list.elements);
    worked(comm, tutti_all_reduce(comm, owners, owners, list.elements, TUTTI_F32, TUTTI_SUM), "sum");
    size_t wrong = 0;
    for (size_t e = 0; e < list.elements; e++) wrong += owners[e] != 1;
    CHECK_THAT(wrong == 0, "%zu elements have no owner, or several", wrong);
    double norm;
    CHECK_THAT(tutti_ddp_spread(NULL) == TUTTI_ERR_ARGUMENT && tutti_ddp_norm(ddp, NULL) == TUTTI_ERR_ARGUMENT &&
                   tutti_ddp_gather_owned(ddp, NULL, NULL) == TUTTI_ERR_ARGUMENT && tutti_ddp_owned(NULL, NULL) == 0,
               "NULL");
    CHECK_THAT(tutti_ddp_begin(ddp, true) == TUTTI_OK && tutti_ddp_norm(ddp, &norm) == TUTTI_ERR_ARGUMENT,
               "a norm within a pass");
    tutti_ddp_free(ddp);
    options.zero = 4;
    CHECK_THAT(tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "zero is 4") != NULL,
               "zero 4: %s", error.text);
    free(owners);
    tutti_free(comm, list.memory);
}

/* ---- Few elements, and calls that are wrong -------------------------------------------------------------------- */

static void run_few(tutti_comm *comm, void *context)
{
    const size_t *count = context;
    float start[3] = {1, 2, 3}, *gradient = NULL;
    const float *values = NULL;
    const tutti_parameter *owned = NULL;
    double total = 0;
    for (int zero = 0; zero <= 3; zero++) {
        float memory[6] = {0};
        tutti_parameter one = {"one", memory, memory + 3, *count, true};
        tutti_ddp_options options = {.struct_size = sizeof options, .zero = zero};
        tutti_ddp *ddp = NULL;
        memcpy(memory, start, sizeof start);
        if (!worked(comm, tutti_ddp_create(comm, &one, 1, &options, &ddp, NULL), "create")) return;
        worked(comm, tutti_ddp_begin(ddp, true), "begin");
        worked(comm, tutti_ddp_gradient(ddp, 0, &gradient), "gradient");
        for (size_t i = 0; i < *count; i++) gradient[i] = 1;
        worked(comm, tutti_ddp_ready(ddp, 0), "ready");
        worked(comm, tutti_ddp_end(ddp, 2, &total), "end");
        for (size_t i = 0; i < tutti_ddp_owned(ddp, &owned); i++)
            for (size_t j = 0; j < owned[i].count; j++) owned[i].value[j] -= owned[i].gradient[j];
        worked(comm, tutti_ddp_spread(ddp), "spread");
        worked(comm, tutti_ddp_need(ddp, 0, &values), "need");
        for (size_t i = 0; i < *count; i++)
            CHECK_THAT(values[i] == start[i] - (float)tutti_size(comm), "zero %d: element %zu is %g", zero, i,
                       (double)values[i]);
        tutti_ddp_done(ddp, 0);
        CHECK_THAT(total == 2 * tutti_size(comm), "total %g", total);
        tutti_ddp_free(ddp);
    }
}

static void run_refused(tutti_comm *comm, void *context)
{
    (void)context;
    struct list list = list_make(comm, 0);
    tutti_ddp_options options = {
        .struct_size = sizeof options, .bucket_bytes = 4, .first_bucket_bytes = 4, .zero = 2, .replicas = 7};
    tutti_ddp *ddp = NULL;
    tutti_error error = {0};
    float *gradient;
    CHECK_THAT(tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error) == TUTTI_ERR_ARGUMENT &&
                   strstr(error.text, "7 replicas") != NULL,
               "7 replicas: %s", error.text);
    options.replicas = 0;
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error), "create")) return;
    CHECK_THAT(tutti_ddp_gradient(ddp, 6, &gradient) == TUTTI_ERR_ARGUMENT, "a gradient before the pass");
    worked(comm, tutti_ddp_begin(ddp, true), "begin");
    CHECK_THAT(tutti_ddp_gradient(ddp, 0, &gradient) == TUTTI_ERR_ARGUMENT, "the first gradient before the others");
    CHECK_THAT(tutti_ddp_gradient(ddp, 99, &gradient) == TUTTI_ERR_ARGUMENT, "no such gradient");
    tutti_ddp_free(ddp);
    tutti_free(comm, list.memory);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

int main(void)
{
    static struct trial trials[] = {{0, 0, 0, 0},  {3, 0, 0, 0}, {0, 4, 0, 0},  {0, 7, 0, 0}, {0, 8, 1, 0},
                                    {0, 13, 2, 0}, {0, 8, 0, 2}, {0, 12, 1, 2}, {0, 7, 2, 2}, {0, 12, 1, 3}};
    enum { TRIALS = sizeof trials / sizeof *trials };
    conf_begin();
    for (int i = 0; i < TRIALS; i++) {
        for (int size = 1; size <= (SANITIZED ? 4 : 6); size++) run(WORLD_THREADS, size, run_same, &trials[i]);
        run(WORLD_PROCESSES, 2 + i % 2, run_same, &trials[i]);
    }
    for (size_t count = 0; count <= 3; count++)
        for (int size = 1; size <= 4; size++) run(WORLD_THREADS, size, run_few, &count);
    for (int size = 1; size <= 6; size++) run(WORLD_THREADS, size, run_owners, NULL);
    run(WORLD_THREADS, 2, run_refused, NULL);
    return check_end();
}
