/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Values of 16 bits with a list of parameters of one's own, with every stage of ZeRO, in replicas too, on any number of
 * ranks: masters take every step as if they were the values of one rank, everyone gets what they round to, and what a rank
 * keeps and lists is as much as it should be.
 */
#include "conformance_world.h"
#include "train/shuffle.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/train.h>

enum { PARAMETERS = 6, ELEMENTS = 5 + 9000 + 4096 + 1 + 20001 + 4097, STEPS = 3 };
static const size_t sizes[PARAMETERS] = {5, 9000, 4096, 1, 20001, 4097};
static const char *const names[PARAMETERS] = {"a", "b", "c", "d", "e", "f"};

struct trial {
    int zero, replicas;
    bool brings; /* parameters have values of their own; else those that are owned are set */
};

static bool worked(tutti_comm *comm, tutti_status status, const char *what)
{
    const tutti_error *error = tutti_comm_error(comm);
    return CHECK_THAT(status == TUTTI_OK, "rank %d: %s: %s %s", tutti_rank(comm), what, tutti_status_name(status),
                      error == NULL ? "" : error->text);
}

/* ---- What must come of it, written apart ----------------------------------------------------------------------- */

/* The nearest number whose last 16 bits are 0; of two that are as near, the one whose 17th bit is 0 too. */
static float nearest(float value)
{
    uint32_t bits, down;
    memcpy(&bits, &value, sizeof bits);
    if (isnan(value)) return NAN;
    down = bits & 0xffff0000u;
    const uint32_t rest = bits - down;
    if (rest > 0x8000u || (rest == 0x8000u && (down & 0x10000u) != 0)) down += 0x10000u;
    memcpy(&value, &down, sizeof value);
    return value;
}

/* First values, among them those that lie in the middle, infinities, and zeros of both signs. */
static float first_value(size_t element)
{
    const uint32_t odd[] = {0x3f808000u, 0x3f818000u, 0xbf808001u, 0x7f800000u, 0x80000000u, 0x00000001u, 0x7f7fffffu};
    uint32_t bits = (uint32_t)tti_draw(7, element);
    float value;
    if (element % 10 == 3) bits = odd[element / 10 % 7];
    if ((bits & 0x7f800000u) == 0x7f800000u && element % 10 != 3) bits &= 0xbfffffffu;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static float gradient_of(size_t element, int step)
{
    return (float)(tti_draw((uint64_t)step + 100, element) % 33) - 16; /* whole: exact whoever sums */
}

/* ---- The list -------------------------------------------------------------------------------------------------- */

struct list {
    tutti_parameter parameters[PARAMETERS];
    float *values, *gradients;
};

static struct list list_make(tutti_comm *comm, const struct trial *trial)
{
    struct list list = {.gradients = tutti_alloc(comm, ELEMENTS * sizeof(float)),
                        .values = tutti_alloc(comm, ELEMENTS * sizeof(float))};
    for (size_t i = 0, at = 0; i < PARAMETERS; at += sizes[i++])
        list.parameters[i] = (tutti_parameter){names[i], trial->brings ? list.values + at : NULL,
                                               trial->zero < 2 ? list.gradients + at : NULL, sizes[i], false};
    for (size_t e = 0; e < ELEMENTS; e++) list.values[e] = first_value(e);
    return list;
}

static void set_owned(tutti_ddp *ddp)
{
    const tutti_parameter *owned;
    const size_t count = tutti_ddp_owned(ddp, &owned);
    for (size_t p = 0; p < count; p++)
        for (size_t k = 0; k < owned[p].count; k++) owned[p].value[k] = first_value(tutti_ddp_owned_first(ddp, p) + k);
}

/* As an optimizer would: what is owned only. */
static void take_step(tutti_ddp *ddp)
{
    const tutti_parameter *owned;
    const size_t count = tutti_ddp_owned(ddp, &owned);
    for (size_t p = 0; p < count; p++)
        for (size_t k = 0; k < owned[p].count; k++) owned[p].value[k] -= 0.001F * owned[p].gradient[k];
}

static bool make_gradients(tutti_comm *comm, tutti_ddp *ddp, int step)
{
    bool good = worked(comm, tutti_ddp_begin(ddp, true), "begin");
    size_t at = ELEMENTS;
    for (size_t i = PARAMETERS; good && i-- > 0;) {
        float *gradient = NULL;
        at -= sizes[i];
        good = worked(comm, tutti_ddp_gradient(ddp, i, &gradient), "gradient");
        for (size_t k = 0; good && k < sizes[i]; k++) gradient[k] = gradient_of(at + k, step);
        good = good && worked(comm, tutti_ddp_ready(ddp, i), "ready");
    }
    return good && worked(comm, tutti_ddp_end(ddp, 1, NULL), "end");
}

static bool same(float a, float b)
{
    return memcmp(&a, &b, sizeof a) == 0 || (isnan(a) && isnan(b));
}

/* Forward and back again, as a model does. */
static void check_values(tutti_comm *comm, tutti_ddp *ddp, const float *expected, const struct trial *trial)
{
    for (int turn = 0; turn < 2 * PARAMETERS; turn++) {
        const size_t i = (size_t)(turn < PARAMETERS ? turn : 2 * PARAMETERS - 1 - turn);
        const float *values = NULL;
        size_t at = 0, wrong = 0;
        for (size_t k = 0; k < i; k++) at += sizes[k];
        if (!worked(comm, tutti_ddp_need(ddp, i, &values), "need")) return;
        for (size_t k = 0; k < sizes[i]; k++) wrong += !same(values[k], nearest(expected[at + k]));
        CHECK_THAT(wrong == 0, "rank %d of %d, zero %d: %zu of %zu values of %s are not what the masters round to",
                   tutti_rank(comm), tutti_size(comm), trial->zero, wrong, sizes[i], names[i]);
        tutti_ddp_done(ddp, i);
    }
}

static void run_trial(tutti_comm *comm, void *context)
{
    const struct trial *trial = context;
    struct list list = list_make(comm, trial);
    tutti_ddp_options options = {.struct_size = sizeof options,
                                 .bucket_bytes = 30000,
                                 .first_bucket_bytes = 1000,
                                 .zero = trial->zero,
                                 .replicas = trial->replicas,
                                 .bf16 = true};
    tutti_ddp *ddp = NULL;
    tutti_error error = {0};
    float *expected = malloc(ELEMENTS * sizeof *expected);
    for (size_t e = 0; e < ELEMENTS; e++) expected[e] = first_value(e);
    tutti_status made = tutti_ddp_create(comm, list.parameters, PARAMETERS, &options, &ddp, &error);
    bool good = CHECK_THAT(made == TUTTI_OK, "%s", error.text);
    if (good && !trial->brings) {
        set_owned(ddp);
        good = worked(comm, tutti_ddp_spread(ddp), "spread");
    }
    if (good) check_values(comm, ddp, expected, trial);
    for (int step = 0; good && step < STEPS; step++) {
        good = make_gradients(comm, ddp, step);
        if (good) take_step(ddp);
        good = good && worked(comm, tutti_ddp_spread(ddp), "spread");
        for (size_t e = 0; e < ELEMENTS; e++) expected[e] -= 0.001F * ((float)tutti_size(comm) * gradient_of(e, step));
        if (good) check_values(comm, ddp, expected, trial);
    }
    free(expected);
    tutti_ddp_free(ddp);
    (void)tutti_free(comm, list.values);
    (void)tutti_free(comm, list.gradients);
}

int main(void)
{
    static const int ranks[] = {1, 2, 3, 8};
    conf_begin();
    for (int zero = 0; zero <= 3; zero++)
        for (int i = 0; i < 4; i++) {
            struct trial trial = {.zero = zero, .brings = i % 2 == 0};
            struct conf_world world = {.ranks = i == 2 ? WORLD_PROCESSES : WORLD_THREADS,
                                       .size = ranks[i],
                                       .direct = 1,
                                       .attach = 1,
                                       .body = run_trial,
                                       .context = &trial};
            conf_world_run(&world);
            trial.replicas = 2;
            if (zero > 0 && i == 3) conf_world_run(&world);
        }
    return check_end();
}
