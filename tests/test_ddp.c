/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=180 labels=asan,tsan
 *
 * Data parallel: sums over ranks with parameters anywhere in memory, unused ones, ranks without samples and accumulated
 * passes; and with grains the bits of the serial tree, on any number of ranks of any kind.
 */
#include "base/clock.h"
#include "conformance_world.h"
#include "train/shuffle.h"
#include "train/tree.h"

#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

enum { PARAMETERS = 6 };
static const size_t sizes[PARAMETERS] = {5, 1000, 3, 700, 1, 2000};

/* ---- Lists of parameters --------------------------------------------------------------------------------------- */

struct list {
    tutti_parameter parameters[PARAMETERS];
    float *memory;
    size_t elements;
};

/* With `gap` elements between the gradients; 0: they touch each other. */
static struct list list_make(tutti_comm *comm, size_t gap)
{
    static const char *const names[PARAMETERS] = {"a", "b", "c", "d", "e", "f"};
    struct list list = {0};
    for (int i = 0; i < PARAMETERS; i++) list.elements += sizes[i];
    size_t room = list.elements + PARAMETERS * gap;
    list.memory = gap == 0 ? tutti_alloc(comm, 2 * room * sizeof(float)) : calloc(2 * room, sizeof(float));
    size_t at = 0;
    for (int i = 0; i < PARAMETERS; i++) {
        list.parameters[i] = (tutti_parameter){names[i], list.memory + room + at, list.memory + at, sizes[i], true};
        for (size_t j = 0; j < sizes[i]; j++) list.parameters[i].value[j] = (float)(tutti_rank(comm) * 100 + i);
        at += sizes[i] + gap;
    }
    return list;
}

static void list_free(tutti_comm *comm, struct list *list, size_t gap)
{
    if (gap == 0)
        tutti_free(comm, list->memory);
    else
        free(list->memory);
}

/* There is memory for the buffers of some ranks only: all of them learn of it, and none waits for another. */
static void run_no_memory(tutti_comm *comm, void *context)
{
    enum { MANY = 1500000 };
    tutti_ddp_options options = {.struct_size = sizeof options, .zero = *(const int *)context};
    tutti_ddp *ddp = NULL;
    tutti_error error = {0};
    float *values = calloc(MANY, sizeof *values), *gradients = calloc(MANY, sizeof *gradients);
    const int64_t began = tti_now_ns();
    const tutti_parameter list = {"a", values, gradients, MANY, false};
    const tutti_status status = tutti_ddp_create(comm, &list, 1, &options, &ddp, &error);
    CHECK_THAT(status == TUTTI_ERR_MEMORY && ddp == NULL && tti_now_ns() - began < INT64_C(20000000000),
               "rank %d, zero %d: %s: %s", tutti_rank(comm), options.zero, tutti_status_name(status), error.text);
    CHECK_THAT(tutti_barrier(comm) == TUTTI_OK, "rank %d: the comm is still good", tutti_rank(comm));
    free(values);
    free(gradients);
}

static bool worked(tutti_comm *comm, tutti_status status, const char *what)
{
    const tutti_error *error = tutti_comm_error(comm);
    return CHECK_THAT(status == TUTTI_OK, "rank %d: %s: %s %s", tutti_rank(comm), what, tutti_status_name(status),
                      error == NULL ? "" : error->text);
}

/* ---- Plain sums ------------------------------------------------------------------------------------------------ */

/* A whole number, so that sums are exact. */
static float integer(int rank, int pass, int parameter, size_t element)
{
    return (float)(int)(tti_draw((uint64_t)(rank * 100 + pass), (uint64_t)parameter * 10000 + element) % 200) - 100;
}

struct plain {
    size_t gap;
    int passes;
    int idle;           /* this rank has no samples; -1: none */
    int unused;         /* nobody uses this parameter; -1: none */
    int private_unused; /* rank 0 alone does not use this one */
};

static bool uses(const struct plain *plain, int rank, int parameter)
{
    return rank != plain->idle && parameter != plain->unused && !(rank == 0 && parameter == plain->private_unused);
}

static float expected(const struct plain *plain, int size, int parameter, size_t element)
{
    float sum = 0;
    for (int r = 0; r < size; r++)
        for (int p = 0; p < plain->passes && uses(plain, r, parameter); p++) sum += integer(r, p, parameter, element);
    return sum;
}

static void add_pass(const struct plain *plain, struct list *list, tutti_ddp *ddp, int rank, int pass)
{
    for (int step = 0; step < PARAMETERS; step++) {
        int i = (PARAMETERS - 1 - step + rank) % PARAMETERS; /* not in the order of buckets */
        if (!uses(plain, rank, i)) continue;
        float *gradient = list->parameters[i].gradient;
        for (size_t j = 0; j < sizes[i]; j++) gradient[j] = (pass == 0 ? 0 : gradient[j]) + integer(rank, pass, i, j);
        CHECK_THAT(tutti_ddp_ready(ddp, (size_t)i) == TUTTI_OK, "ready");
    }
}

static void run_plain(tutti_comm *comm, void *context)
{
    const struct plain *plain = context;
    int rank = tutti_rank(comm), size = tutti_size(comm);
    struct list list = list_make(comm, plain->gap);
    tutti_ddp_options options = {.struct_size = sizeof options,
                                 .bucket_bytes = 3000,
                                 .first_bucket_bytes = 100,
                                 .allow_unused = plain->unused >= 0};
    tutti_ddp *ddp = NULL;
    tutti_error error;
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error), "create")) return;
    for (int i = 0; i < PARAMETERS; i++)
        CHECK_THAT(list.parameters[i].value[0] == (float)i, "rank %d does not have rank 0's values", rank);
    for (int step = 0; step < 3; step++) {
        double total = 0;
        for (int i = 0; i < PARAMETERS; i++) memset(list.parameters[i].gradient, 0x7f, sizes[i] * sizeof(float));
        for (int pass = 0; pass < plain->passes; pass++) {
            CHECK_THAT(tutti_ddp_begin(ddp, pass == plain->passes - 1) == TUTTI_OK, "begin");
            add_pass(plain, &list, ddp, rank, pass);
        }
        if (!worked(comm, tutti_ddp_end(ddp, rank == plain->idle ? 0 : rank + 1, &total), "end")) return;
        CHECK_THAT(total == size * (size + 1) / 2.0 - (plain->idle < 0 ? 0 : plain->idle + 1), "total %g", total);
        size_t wrong = 0;
        for (int i = 0; i < PARAMETERS; i++)
            for (size_t j = 0; j < sizes[i]; j++)
                wrong += list.parameters[i].gradient[j] != expected(plain, size, i, j);
        CHECK_THAT(wrong == 0, "rank %d of %d, gap %zu, passes %d: %zu elements are wrong", rank, size, plain->gap,
                   plain->passes, wrong);
        const char *unused = tutti_ddp_unused(ddp, 0);
        const char *name = rank == plain->idle ? "a" : rank == 0 && plain->private_unused == 1 ? "b" : "d";
        CHECK_THAT(plain->unused == 3 ? unused != NULL && strcmp(unused, name) == 0 : unused == NULL, "unused: %s",
                   unused == NULL ? "none" : unused);
    }
    CHECK_THAT(tutti_ddp_end(ddp, 0, NULL) == TUTTI_ERR_ARGUMENT, "an end without a begin");
    tutti_ddp_free(ddp);
    list_free(comm, &list, plain->gap);
}

/* ---- Grains ---------------------------------------------------------------------------------------------------- */

/* Of very different sizes, so that any other order of additions would show. */
static float leaf(int grain, size_t element)
{
    uint64_t bits = tti_draw((uint64_t)grain, element);
    float scale = (float)(1ULL << (bits % 40));
    return (float)(int32_t)(bits >> 32) / scale;
}

static float tree(int lo, int hi, size_t element)
{
    if (hi - lo == 1) return leaf(lo, element);
    int half = lo + (int)tti_tree_half((size_t)(hi - lo));
    return tree(lo, half, element) + tree(half, hi, element);
}

static void run_grains(tutti_comm *comm, void *context)
{
    int grains = *(const int *)context, first = 0, count = 0;
    struct list list = list_make(comm, 0);
    tutti_ddp_options options = {
        .struct_size = sizeof options, .bucket_bytes = 3000, .first_bucket_bytes = 100, .grains = grains};
    tutti_ddp *ddp = NULL;
    tutti_error error = {0};
    tutti_status status = tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error);
    if (grains < tutti_size(comm)) {
        CHECK_THAT(status == TUTTI_ERR_ARGUMENT && strstr(error.text, "every rank needs a grain") != NULL,
                   "more ranks than grains: %s", error.text);
        return;
    }
    if (!worked(comm, status, "create")) return;
    tutti_ddp_grains(ddp, &first, &count);
    const int *bounds;
    float *const *gradients;
    int partials = tutti_ddp_partials(ddp, &bounds, &gradients);
    CHECK_THAT(bounds[partials] == count, "subtrees end at %d of %d", bounds[partials], count);
    for (int step = 0; step < 2; step++) {
        CHECK_THAT(tutti_ddp_begin(ddp, true) == TUTTI_OK, "begin");
        for (int k = 0; k < partials; k++)
            for (size_t j = 0; j < list.elements; j++)
                gradients[k][j] = tree(first + bounds[k], first + bounds[k + 1], j);
        CHECK_THAT(tutti_ddp_ready_run(ddp, list.elements, 1) == TUTTI_ERR_ARGUMENT, "ready past the end");
        CHECK_THAT(tutti_ddp_ready_run(ddp, SIZE_MAX, 2) == TUTTI_ERR_ARGUMENT, "ready far past the end");
        for (size_t at = list.elements; at > 0; at -= at < 500 ? at : 500) /* runs that are no parameters */
            CHECK_THAT(tutti_ddp_ready_run(ddp, at < 500 ? 0 : at - 500, at < 500 ? at : 500) == TUTTI_OK, "ready");
        if (!worked(comm, tutti_ddp_end(ddp, 1, NULL), "end")) return;
        size_t wrong = 0;
        for (size_t j = 0; j < list.elements; j++) {
            float right = tree(0, grains, j);
            wrong += memcmp(&right, &list.parameters[0].gradient[j], sizeof right) != 0;
        }
        CHECK_THAT(wrong == 0, "rank %d of %d, %d grains: %zu elements have other bits", tutti_rank(comm),
                   tutti_size(comm), grains, wrong);
    }
    tutti_ddp_free(ddp);
    list_free(comm, &list, 0);
}

/* ---- Forgotten ------------------------------------------------------------------------------------------------- */

/* The last rank makes one parameter ready in part, and another not at all: all ranks are told. A caller who knows less of the
 * options has not allowed it. */
static void run_forgotten(tutti_comm *comm, void *context)
{
    int rank = tutti_rank(comm), last = tutti_size(comm) - 1;
    size_t known = *(const size_t *)context;
    struct list list = list_make(comm, 0);
    tutti_ddp_options options = {.struct_size = known, .bucket_bytes = 3000, .allow_unused = true};
    tutti_ddp *ddp = NULL;
    tutti_error error;
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error), "create")) return;
    tutti_status status =
        TUTTI_OK; /* the first step is as it should be; but others may still be in it when the last rank fails */
    for (int step = 0; step < 2 && status == TUTTI_OK; step++) {
        bool forgets = rank == last && step == 1;
        CHECK_THAT(tutti_ddp_begin(ddp, false) == TUTTI_OK, "begin");
        CHECK_THAT(tutti_ddp_begin(ddp, true) == TUTTI_OK, "begin");
        for (size_t i = 0; i < PARAMETERS; i++)
            if (!forgets || (i != 1 && i != 3)) CHECK_THAT(tutti_ddp_ready(ddp, i) == TUTTI_OK || rank < last, "ready");
        if (forgets)
            CHECK_THAT(tutti_ddp_ready_run(ddp, list.elements - sizes[5] - sizes[4] - 1, 1) == TUTTI_OK, "ready");
        status = tutti_ddp_end(ddp, 1, NULL);
        CHECK_THAT(step == 1 || rank < last || status == TUTTI_OK, "end: %s", tutti_status_name(status));
    }
    const tutti_error *why = tutti_comm_error(comm);
    char words[200];
    snprintf(words, sizeof words, ", and 2 of %d parameters were not ready: \"b\", \"d\" (in part);", PARAMETERS);
    CHECK_THAT(status == TUTTI_ERR_ARGUMENT && why != NULL && why->peer == last && strstr(why->text, words) != NULL &&
                   strstr(why->text, "test_ddp.c:") != NULL && strstr(why->text, "allow_unused") != NULL,
               "rank %d of %d: %s: %s", rank, last + 1, tutti_status_name(status), why == NULL ? "" : why->text);
    tutti_ddp_free(ddp);
    list_free(comm, &list, 0);
}

/* ---- Where the caller is --------------------------------------------------------------------------------------- */

/* Whether the comm's error names this call of the ddp in that line, and no line of the library. */
static bool names_caller(tutti_comm *comm, const char *part, int line)
{
    char quoted[64], place[64];
    snprintf(quoted, sizeof quoted, "\"ddp: %s\" at ", part);
    snprintf(place, sizeof place, "test_ddp.c:%d", line);
    const tutti_error *why = tutti_comm_error(comm);
    bool named = why != NULL && why->status == TUTTI_ERR_MISMATCH && strstr(why->text, quoted) != NULL &&
                 strstr(why->text, place) != NULL && strstr(why->text, "src/") == NULL;
    return CHECK_THAT(named, "%s%s: %s", quoted, place, why == NULL ? "" : why->text);
}

/* Ranks that differ in a ddp: the error names their calls. */
static void run_named(tutti_comm *comm, void *context)
{
    (void)context;
    struct list list = list_make(comm, 0);
    tutti_ddp *ddp = NULL;
    tutti_error error = {0};
    tutti_comm *copy = NULL;
    if (!worked(comm, tutti_comm_duplicate(comm, &copy), "duplicate")) return;
    size_t count = 2 + (size_t)tutti_rank(comm); /* rank 1 has a third broadcast to make */
    const int create_line = __LINE__ + 1;
    tutti_status status = tutti_ddp_create(copy, list.parameters, count, NULL, &ddp, &error);
    if (status == TUTTI_OK) (void)tutti_barrier(copy);
    names_caller(copy, "c", create_line);
    tutti_ddp_free(ddp);
    ddp = NULL;
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, NULL, &ddp, &error), "create")) return;
    (void)tutti_ddp_begin(ddp, true);
    for (size_t i = 0; i < PARAMETERS; i++) (void)tutti_ddp_ready(ddp, i);
    double total;
    const int end_line = __LINE__ + 1;
    (void)(tutti_rank(comm) == 0 ? tutti_barrier(comm) : tutti_ddp_end(ddp, 1, &total));
    names_caller(comm, "count", end_line);
    tutti_ddp_free(ddp);
    tutti_comm_free(copy);
    list_free(comm, &list, 0);
}

/* ---- Beside backward ------------------------------------------------------------------------------------------- */

/* Rank 0 makes its first buckets ready and goes on, while the others have not begun: were anything waited for there, it
 * would wait for ever, since the others wait for rank 0 to have gone on. */
static atomic_bool gone_on;

static void run_beside(tutti_comm *comm, void *context)
{
    int grains = *(const int *)context;
    struct list list = list_make(comm, 0);
    tutti_ddp_options options = {
        .struct_size = sizeof options, .bucket_bytes = 3000, .first_bucket_bytes = 100, .grains = grains};
    tutti_ddp *ddp = NULL;
    tutti_error error = {0};
    if (!worked(comm, tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error), "create")) return;
    const int64_t limit = tti_now_ns() + INT64_C(20000000000);
    while (tutti_rank(comm) > 0 && !atomic_load(&gone_on) && tti_now_ns() < limit) sched_yield();
    CHECK_THAT(tutti_ddp_begin(ddp, true) == TUTTI_OK, "begin");
    CHECK_THAT(tutti_ddp_ready(ddp, PARAMETERS - 1) == TUTTI_OK, "ready"); /* more than the first bucket has */
    if (tutti_rank(comm) == 0) atomic_store(&gone_on, true);
    CHECK_THAT(tti_now_ns() < limit, "%d ranks, %d grains: a bucket that is ready keeps its rank waiting",
               tutti_size(comm), grains);
    for (size_t i = 0; i < PARAMETERS - 1; i++) CHECK_THAT(tutti_ddp_ready(ddp, i) == TUTTI_OK, "ready");
    worked(comm, tutti_ddp_end(ddp, 1, NULL), "end");
    tutti_ddp_free(ddp);
    list_free(comm, &list, 0);
}

/* ---- Norms and hashes over ranks ------------------------------------------------------------------------------- */

static void run_norms(tutti_comm *comm, void *context)
{
    (void)context;
    struct list list = list_make(comm, 0);
    double alone = 0, together = 0;
    int odd = 0;
    for (size_t j = 0; j < list.elements; j++) list.parameters[0].gradient[j] = leaf(3, j);
    CHECK_THAT(tutti_gradient_norm(NULL, list.parameters, PARAMETERS, &alone) == TUTTI_OK, "norm");
    if (!worked(comm, tutti_gradient_norm(comm, list.parameters, PARAMETERS, &together), "norm")) return;
    CHECK_THAT(memcmp(&alone, &together, sizeof alone) == 0, "norms %a and %a", alone, together);
    uint64_t hash = tutti_weights_hash(list.parameters, PARAMETERS);
    bool several = tutti_size(comm) > 1;
    tutti_status status = tutti_weights_compare(comm, hash, &odd); /* ranks begin with different values */
    CHECK_THAT(status == (several ? TUTTI_ERR_MISMATCH : TUTTI_OK) && odd == (several ? 1 : -1), "odd %d", odd);
    CHECK_THAT(tutti_weights_compare(comm, 5, &odd) == TUTTI_OK && odd == -1, "equal hashes");
    list_free(comm, &list, 0);
}

static void run(enum world_ranks ranks, int size, void (*body)(tutti_comm *, void *), void *context)
{
    struct conf_world world = {
        .ranks = ranks, .size = size, .direct = 1, .attach = 1, .body = body, .context = context};
    conf_world_run(&world);
}

int main(void)
{
    static const struct plain plains[] = {
        {.gap = 0, .passes = 1, .idle = -1, .unused = -1, .private_unused = -1},
        {.gap = 7, .passes = 3, .idle = 1, .unused = 3, .private_unused = 1},
        {.gap = 0, .passes = 2, .idle = 0, .unused = 3, .private_unused = -1},
    };
    static const int all_sizes[] = {1, 2, 3, 4, 8}, all_grains[] = {1, 2, 3, 7, 8, 12, 16, 31};
    conf_begin();
    for (int s = 0; s < 5; s++) {
        for (int kind = WORLD_THREADS; kind <= WORLD_PROCESSES; kind++) {
            enum world_ranks ranks = (enum world_ranks)kind;
            for (int p = 0; p < 3; p++) {
                struct plain plain = plains[p];
                if (all_sizes[s] > plain.idle) run(ranks, all_sizes[s], run_plain, &plain);
            }
            for (int g = 0; g < 8; g++) {
                int grains = all_grains[g];
                if (!SANITIZED || g % 3 == 0) run(ranks, all_sizes[s], run_grains, &grains);
            }
            run(ranks, all_sizes[s], run_norms, NULL);
            size_t known = s % 2 == 0 ? 0 : offsetof(tutti_ddp_options, allow_unused);
            run(ranks, all_sizes[s], run_forgotten, &known);
        }
    }
    run(WORLD_THREADS, 2, run_named, NULL);
    run(WORLD_PROCESSES, 2, run_named, NULL);
    for (int zero = 2; zero <= 3; zero++) {
        struct conf_world small = {.ranks = WORLD_THREADS,
                                   .size = 4,
                                   .direct = 1,
                                   .attach = 1,
                                   .body = run_no_memory,
                                   .context = &zero,
                                   .arena_bytes = 16 << 20};
        conf_world_run(&small);
    }
    for (int size = 2; size <= 4; size++) {
        int grains = 8;
        atomic_store(&gone_on, false);
        run(WORLD_THREADS, size, run_beside, &grains);
    }
    return check_end();
}
