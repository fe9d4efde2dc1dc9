/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Running pipelines with stages of one's own, in integers: every micro-batch passes all stages, forward and back, on threads
 * and processes, over memory and tcp, by every table; what is told when a stage fails, a rank is cancelled, is late or dies.
 */
#include "fault.h"

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <tutti/pipeline.h>
#include <unistd.h>

enum { RANKS_MOST = 4, CHUNKS_MOST = 3, STAGES_MOST = RANKS_MOST * CHUNKS_MOST, MICROS_MOST = 16 };

/* What a case does; set before the ranks begin. */
static struct plan {
    const char *table;
    int ranks, chunks, micros;
    size_t count;    /* elements of the first boundary; the others have a few more or less */
    bool only_parts; /* backward steps are done by the functions of both parts */
    int64_t deadline_ms;
    int odd_rank, odd_micro; /* where something happens; -1: nowhere */
    enum { FAILS, CANCELS, SLEEPS, DIES } odd;
} the;

/* ---- Stages ------------------------------------------------------------------------------------------------------ */

static size_t count_behind(int stage)
{
    return the.count + (size_t)(stage % 3);
}

/* Element j of what a stage gives for a micro-batch, of its gradient, and what it adds to its weights' gradient. */
static uint64_t forward_of(const uint64_t *in, size_t count, int stage, int micro, size_t j)
{
    uint64_t x = in == NULL ? (uint64_t)micro * 1000 + j : in[j % count];
    return 3 * x + (uint64_t)stage + 1 + j;
}

static uint64_t backward_of(const uint64_t *gradient, size_t count, uint64_t in, int micro, size_t j)
{
    uint64_t g = gradient == NULL ? (uint64_t)micro + 7 : gradient[j % count];
    return 5 * g + in + j;
}

/* One rank's model. */
struct model {
    int rank, chunks;
    tutti_pipeline_runner *runner;
    uint64_t *kept[CHUNKS_MOST];   /* (slots, count): a copy of what came, as a stage keeps its activations */
    size_t kept_count;             /* elements of each */
    uint64_t weights[CHUNKS_MOST]; /* sums over micro-batches, depending on their order */
    int forwards, backwards, wrong;
    bool armed; /* the odd thing is still to happen */
};

static uint64_t *kept_of(struct model *model, const tutti_pipeline_call *call)
{
    return model->kept[call->chunk] + (size_t)call->slot * model->kept_count;
}

/* What came, or made up for the first stage. */
static uint64_t input_at(const tutti_pipeline_call *call, size_t j)
{
    return call->in == NULL ? (uint64_t)call->micro * 1000 + j : ((const uint64_t *)call->in)[j];
}

static size_t in_count(const tutti_pipeline_call *call)
{
    return call->in == NULL ? the.count : count_behind(call->stage - 1);
}

static tutti_status odd(struct model *model, const tutti_pipeline_call *call)
{
    if (!model->armed || model->rank != the.odd_rank || call->micro != the.odd_micro) return TUTTI_OK;
    model->armed = false;
    switch (the.odd) {
    case FAILS: (void)snprintf(call->reason, TUTTI_PIPELINE_REASON_BYTES, "no such token"); return TUTTI_ERR_DIVERGED;
    case CANCELS: tutti_pipeline_cancel(model->runner); return TUTTI_OK;
    case SLEEPS: fault_sleep_ms(3000); return TUTTI_OK;
    default: kill(getpid(), SIGKILL);
    }
    return TUTTI_OK;
}

static tutti_status forward(void *context, const tutti_pipeline_call *call)
{
    struct model *model = context;
    uint64_t *kept = kept_of(model, call);
    size_t count = in_count(call);
    model->wrong += call->part != TUTTI_PIPELINE_FORWARD || (call->in == NULL) != (call->stage == 0);
    model->forwards++;
    for (size_t j = 0; j < count; j++) kept[j] = input_at(call, j);
    for (size_t j = 0; call->out != NULL && j < count_behind(call->stage); j++)
        ((uint64_t *)call->out)[j] = forward_of(kept, count, call->stage, call->micro, j);
    return odd(model, call);
}

static tutti_status input(void *context, const tutti_pipeline_call *call)
{
    struct model *model = context;
    const uint64_t *kept = kept_of(model, call);
    model->wrong += call->part != TUTTI_PIPELINE_INPUT && call->part != TUTTI_PIPELINE_BACKWARD;
    for (size_t j = 0; call->in_gradient != NULL && j < in_count(call); j++)
        ((uint64_t *)call->in_gradient)[j] = backward_of(call->out_gradient, count_behind(call->stage), kept[j],
                                                         call->micro, j);
    return TUTTI_OK;
}

/* Everything that the micro-batch had is still there. */
static tutti_status weights(void *context, const tutti_pipeline_call *call)
{
    struct model *model = context;
    const uint64_t *kept = kept_of(model, call);
    model->backwards++;
    for (size_t j = 0; j < in_count(call); j++) {
        model->wrong += kept[j] != input_at(call, j);
        uint64_t g = backward_of(call->out_gradient, count_behind(call->stage), kept[j], call->micro, j);
        model->weights[call->chunk] = model->weights[call->chunk] * 31 + g * kept[j];
    }
    return TUTTI_OK;
}

static tutti_status backward(void *context, const tutti_pipeline_call *call)
{
    struct model *model = context;
    model->wrong += call->part != TUTTI_PIPELINE_BACKWARD;
    (void)input(context, call);
    return weights(context, call);
}

/* All stages one after the other, micro-batch by micro-batch. */
static void reference(int stages, uint64_t *sums)
{
    size_t room = the.count + 3;
    uint64_t *x = calloc((size_t)stages * room, sizeof *x), *g = calloc(2 * room, sizeof *g);
    memset(sums, 0, (size_t)stages * sizeof *sums);
    for (int micro = 0; micro < the.micros; micro++) {
        for (size_t j = 0; j < the.count; j++) x[j] = (uint64_t)micro * 1000 + j;
        for (int s = 0; s < stages - 1; s++)
            for (size_t j = 0; j < count_behind(s); j++)
                x[(size_t)(s + 1) * room + j] = forward_of(x + (size_t)s * room,
                                                           s == 0 ? the.count : count_behind(s - 1), s, micro, j);
        for (int s = stages - 1; s >= 0; s--) {
            const uint64_t *in = x + (size_t)s * room,
                           *above = s == stages - 1 ? NULL : g + (size_t)((s + 1) % 2) * room;
            for (size_t j = 0; j < (s == 0 ? the.count : count_behind(s - 1)); j++) {
                g[(size_t)(s % 2) * room + j] = backward_of(above, count_behind(s), in[j], micro, j);
                sums[s] = sums[s] * 31 + g[(size_t)(s % 2) * room + j] * in[j];
            }
        }
    }
    free(x);
    free(g);
}

/* ---- Ranks ------------------------------------------------------------------------------------------------------- */

static tutti_pipeline *make_table(void)
{
    tutti_pipeline *table = NULL;
    tutti_error error = {.text = ""};
    CHECK_THAT(tutti_pipeline_build(the.table, the.ranks, the.chunks, the.micros, &table, &error) == TUTTI_OK, "%s",
               error.text);
    return table;
}

static bool make_runner(tutti_comm *comm, const tutti_pipeline *table, struct model *model)
{
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_describe(table, &about);
    size_t bytes[STAGES_MOST];
    for (int s = 0; s < about.stages; s++) bytes[s] = count_behind(s) * sizeof(uint64_t);
    tutti_pipeline_settings settings = {.struct_size = sizeof settings,
                                        .forward = forward,
                                        .backward = the.only_parts ? NULL : backward,
                                        .input = input,
                                        .weights = weights,
                                        .context = model,
                                        .bytes = bytes,
                                        .deadline_ms = the.deadline_ms};
    tutti_error error = {.text = ""};
    *model = (struct model){.rank = tutti_rank(comm), .chunks = about.chunks, .kept_count = the.count + 3};
    tutti_status status = tutti_pipeline_runner_create(comm, table, &settings, &model->runner, &error);
    if (!CHECK_THAT(status == TUTTI_OK, "%s", error.text)) return false;
    for (int c = 0; c < about.chunks; c++)
        model->kept[c] = calloc((size_t)tutti_pipeline_slots(model->runner, c) * model->kept_count, sizeof(uint64_t));
    return true;
}

static void free_model(struct model *model)
{
    tutti_pipeline_runner_free(model->runner);
    for (int c = 0; c < model->chunks; c++) free(model->kept[c]);
}

static void check_run(struct model *model, const tutti_pipeline *table)
{
    uint64_t sums[STAGES_MOST];
    tutti_error error = {.text = ""};
    tutti_pipeline_report report = {.struct_size = sizeof report};
    memset(model->weights, 0, sizeof model->weights);
    model->forwards = model->backwards = 0;
    CHECK_THAT(tutti_pipeline_run(model->runner, &report, &error) == TUTTI_OK, "%s", error.text);
    reference(the.ranks * model->chunks, sums);
    CHECK(model->wrong == 0 && model->forwards == the.micros * model->chunks);
    CHECK(model->backwards == the.micros * model->chunks);
    for (int c = 0; c < model->chunks; c++)
        CHECK_THAT(model->weights[c] == sums[tutti_pipeline_stage(table, model->rank, c)], "chunk %d of rank %d", c,
                   model->rank);
    CHECK(report.seconds > 0 && report.predicted_seconds > 0 && report.predicted_seconds <= report.seconds * 1.5);
    CHECK(report.rank_idle[0] >= 0 && report.rank_idle[the.ranks - 1] < 1);
}

/* Steps of the timeline do not overlap, and a forward step begins when the one before it has ended. */
static void check_timeline(struct model *model, const tutti_pipeline *table)
{
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_describe(table, &about);
    tutti_pipeline_span *spans = calloc(about.steps, sizeof *spans);
    tutti_error error = {.text = ""};
    CHECK_THAT(tutti_pipeline_timeline(model->runner, spans, &error) == TUTTI_OK, "%s", error.text);
    size_t at = 0;
    for (int rank = 0; rank < the.ranks; rank++) {
        size_t count;
        (void)tutti_pipeline_steps(table, rank, &count);
        for (size_t i = 0; i < count; i++, at++)
            CHECK(spans[at].start >= 0 && spans[at].end >= spans[at].start &&
                  (i == 0 || spans[at].start >= spans[at - 1].end));
    }
    free(spans);
}

static void run_whole(tutti_comm *comm, struct fault_rank *self)
{
    struct model model;
    (void)self;
    tutti_pipeline *table = make_table();
    if (make_runner(comm, table, &model)) {
        for (int round = 0; round < 2; round++) check_run(&model, table);
        check_timeline(&model, table);
        free_model(&model);
    }
    tutti_pipeline_free(table);
}

/* Something happens in one rank's stage; then, where the comm is still good, all is as if nothing had. */
static void run_odd(tutti_comm *comm, struct fault_rank *self)
{
    struct model model;
    tutti_error error = {.text = ""};
    tutti_pipeline *table = make_table();
    if (make_runner(comm, table, &model)) {
        model.armed = true;
        self->steps[0].status = tutti_pipeline_run(model.runner, NULL, &error);
        self->steps[0].error = error;
        self->steps[0].done = true;
        /* messages were empty: no stage has worked on what never came */
        CHECK(the.odd != FAILS || model.backwards < the.micros * model.chunks);
        if (the.odd == FAILS || the.odd == CANCELS) check_run(&model, table);
        free_model(&model);
    }
    tutti_pipeline_free(table);
}

/* ---- What is demanded -------------------------------------------------------------------------------------------- */

static bool over_tcp;

static void run_data(bool processes)
{
    static const struct {
        const char *name;
        int chunks;
    } tables[] = {{"gpipe", 1}, {"1f1b", 1}, {"interleaved", 2}, {"interleaved", 3}, {"zb-h1", 1}, {"zb-v", 2}};
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++) {
        for (int ranks = 1; ranks <= RANKS_MOST; ranks += 1 + (SANITIZED != 0)) {
            if (ranks == 3 && t % 2 == 0) continue;
            the = (struct plan){.table = tables[t].name,
                                .chunks = tables[t].chunks,
                                .ranks = ranks,
                                .micros = 2 * ranks,
                                .count = t % 2 == 0 ? 3 : 9000,
                                .only_parts = t % 2 == 0,
                                .odd_rank = -1};
            char title[64];
            snprintf(title, sizeof title, "%s of %d ranks", the.table, ranks);
            fault_run_body(title, run_whole, ranks, processes, over_tcp);
        }
    }
}

static void expect_odd(const char *what, tutti_status status, const char *words, int first, int last)
{
    for (int rank = first; rank <= last; rank++) {
        const struct fault_step *step = &fault_shared->ranks[rank].steps[0];
        if (rank == the.odd_rank && (the.odd == DIES || the.odd == SLEEPS)) continue;
        CHECK_THAT(step->done && step->status == status, "%s: rank %d has %d: %s", what, rank, (int)step->status,
                   step->error.text);
        CHECK_THAT(strstr(step->error.text, words) != NULL, "%s: rank %d: \"%s\" has no \"%s\"", what, rank,
                   step->error.text, words);
        CHECK_THAT(step->error.peer == the.odd_rank || the.odd == SLEEPS, "%s: rank %d: about %d", what, rank,
                   step->error.peer);
    }
}

static void expect_death(struct fault_world *world)
{
    (void)world;
    fault_expect_end(the.odd_rank);
}

static void run_odd_world(const char *title, bool processes)
{
    struct fault_world world = {.size = the.ranks,
                                .processes = processes,
                                .body = run_odd,
                                .meanwhile = the.odd == DIES ? expect_death : NULL,
                                .settings = {over_tcp ? "TUTTI_TRANSPORT=tcp" : "TUTTI_ATTACH=1"}};
    check_title("%s, %s, %s%s", title, the.table, processes ? "processes" : "threads", over_tcp ? " over tcp" : "");
    fault_run(&world);
}

static void run_odds(bool processes)
{
    static const char *const tables[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    for (int t = 0; t < 5; t++) {
        the = (struct plan){.table = tables[t],
                            .ranks = 4,
                            .micros = 8,
                            .count = t % 2 == 0 ? 5 : 9000,
                            .odd_rank = t % 4,
                            .odd_micro = t + 1};
        the.odd = FAILS;
        run_odd_world("a stage fails", processes);
        char words[100];
        snprintf(words, sizeof words, "on rank %d failed in step F%d%s: no such token", the.odd_rank, the.odd_micro,
                 t == 2 || t == 4 ? ".0" : "");
        expect_odd("a stage fails", TUTTI_ERR_DIVERGED, words, 0, 3);
        the.odd = CANCELS;
        run_odd_world("cancelled", processes);
        snprintf(words, sizeof words, "pipeline: cancelled on rank %d before its step ", the.odd_rank);
        expect_odd("cancelled", TUTTI_ERR_CANCELLED, words, 0, 3);
        if (t % 2 == 0 || SANITIZED) continue;
        the.odd = SLEEPS;
        the.deadline_ms = 400;
        run_odd_world("late", processes);
        snprintf(words, sizeof words, "for rank %d", the.odd_rank);
        expect_odd("late", TUTTI_ERR_TIMEOUT, words, 0, 3);
    }
}

static void run_deaths(bool processes)
{
    static const char *const tables[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    for (int t = 0; processes && t < 5; t++) {
        the = (struct plan){.table = tables[t],
                            .ranks = 4,
                            .micros = 8,
                            .count = t % 2 == 0 ? 5 : 9000,
                            .odd = DIES,
                            .odd_rank = (t + 1) % 4,
                            .odd_micro = 7 - t};
        run_odd_world("a rank dies", processes);
        char words[32];
        snprintf(words, sizeof words, "rank %d", the.odd_rank);
        expect_odd("a rank dies", TUTTI_ERR_PEER_LOST, words, 0, 3);
    }
}

/* ---- Runners that are refused ------------------------------------------------------------------------------------ */

#define UNSET "set struct_size to sizeof(tutti_pipeline_settings)"

static void refused(tutti_comm *comm, const tutti_pipeline *table, tutti_pipeline_settings settings, int about,
                    tutti_status expected, const char *words)
{
    tutti_pipeline_runner *runner = NULL;
    tutti_error error = {.text = ""};
    settings.struct_size = strcmp(words, UNSET) == 0 ? 0 : sizeof settings;
    tutti_status status = tutti_pipeline_runner_create(comm, table, &settings, &runner, &error);
    CHECK_THAT(status == expected && runner == NULL, "%s: %d, %s", words, (int)status, error.text);
    CHECK_THAT(strstr(error.text, words) != NULL && (about < 0 || error.rank == about || error.peer == about),
               "\"%s\" has no \"%s\"", error.text, words);
    CHECK(tutti_barrier(comm) == TUTTI_OK);
}

static void run_refusals(tutti_comm *comm, struct fault_rank *self)
{
    int rank = tutti_rank(comm);
    size_t bytes[3] = {8, 8, 8}, empty[3] = {8, 0, 8}, other[3] = {8, 16, 8};
    tutti_pipeline *table = NULL, *small = NULL, *parts = NULL, *stuck = NULL, *changed = NULL;
    (void)self;
    CHECK(tutti_pipeline_build("1f1b", 3, 1, 4, &table, NULL) == TUTTI_OK);
    CHECK(tutti_pipeline_build("1f1b", 2, 1, 4, &small, NULL) == TUTTI_OK);
    CHECK(tutti_pipeline_build("zb-h1", 3, 1, 4, &parts, NULL) == TUTTI_OK);
    CHECK(tutti_pipeline_build("gpipe", 3, 1, 4, &changed, NULL) == TUTTI_OK);
    CHECK(tutti_pipeline_create(3, 1, 1, NULL, &stuck, NULL) == TUTTI_OK);
    tutti_pipeline_settings whole = {.forward = forward, .backward = backward, .bytes = bytes};
    tutti_pipeline_settings none = {.forward = forward, .bytes = bytes};
    tutti_pipeline_settings short_one = whole, long_one = whole, late = whole;
    short_one.bytes = empty;
    if (rank == 2) long_one.bytes = other;
    late.deadline_ms = -1;
    refused(comm, small, whole, -1, TUTTI_ERR_ARGUMENT, "the table has 2 ranks, and the comm 3");
    refused(comm, parts, whole, 0, TUTTI_ERR_ARGUMENT, "step I0 of rank 0 needs a function: input is NULL");
    refused(comm, table, rank == 1 ? none : whole, 1, TUTTI_ERR_ARGUMENT,
            "step B0 of rank 1 needs a function: backward");
    refused(comm, table, short_one, -1, TUTTI_ERR_COUNT, "the boundary behind stage 1 has no bytes");
    refused(comm, table, long_one, 2, TUTTI_ERR_MISMATCH, "rank 2 has another table, or other sizes");
    refused(comm, rank == 1 ? changed : table, whole, 1, TUTTI_ERR_MISMATCH, "rank 1 has another table");
    refused(comm, stuck, whole, 0, TUTTI_ERR_ARGUMENT, "rank 0 has no step F0");
    refused(comm, table, whole, -1, TUTTI_ERR_ARGUMENT, UNSET);
    refused(comm, table, late, -1, TUTTI_ERR_ARGUMENT, "a deadline of -1 ms");
    CHECK(tutti_pipeline_runner_create(NULL, table, &whole, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    CHECK(tutti_pipeline_run(NULL, NULL, NULL) == TUTTI_ERR_ARGUMENT);
    tutti_pipeline_free(table);
    tutti_pipeline_free(small);
    tutti_pipeline_free(parts);
    tutti_pipeline_free(stuck);
    tutti_pipeline_free(changed);
}

static void run_refused(bool processes)
{
    fault_run_body("runners that are refused", run_refusals, 3, processes, over_tcp);
}

int main(void)
{
    fault_begin(110);
    fault_everywhere(run_refused, &over_tcp);
    fault_everywhere(run_data, &over_tcp);
    fault_everywhere(run_odds, &over_tcp);
    fault_everywhere(run_deaths, &over_tcp);
    return fault_end();
}
