/* SPDX-License-Identifier: Apache-2.0
 *
 * Carries out a table.
 *
 * Invariant: every rank goes through all of its steps, unless the comm breaks. A rank whose stage has failed calls no
 * function any more and sends empty messages from then on; a rank that receives one does the same. So every message of
 * the table is sent and received, nothing is left over for the next run, and all ranks meet at the end, where they
 * learn which rank failed and why.
 */
#define TUTTI_NO_CALL_SITES
#include "train/pipeline_run.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/sized.h"
#include "base/status.h"
#include "collective/comm/comm.h"
#include <math.h>
#include <stdatomic.h>
#include <string.h>

/* A rank's record at the end: these fields, then for each chunk the times of its forward steps, inputs and weights. */
enum { RECORD_STATUS, RECORD_HASH, RECORD_BUSY, RECORD_TIMES };

/* ---- Telling all ranks ----------------------------------------------------------------------------------------- */

static int64_t *record_of(const struct tutti_pipeline_runner *runner, int rank)
{
    return runner->records + (size_t)rank * runner->record_count;
}

static tutti_status comm_failed(const struct tutti_pipeline_runner *runner, tutti_status status, tutti_error *error)
{
    const tutti_error *why = tutti_comm_error(runner->comm);
    if (why != NULL) *error = *why;
    return status;
}

/* The lowest rank that failed tells all others what has happened to it. */
static tutti_status share_failure(struct tutti_pipeline_runner *runner, int rank, tutti_error *error)
{
    tutti_error told = rank == runner->rank ? *error : (tutti_error){0};
    tutti_status status = tutti_broadcast(tti_pipeline_inside(runner, "why a rank failed"), told.text, told.text,
                                          sizeof told.text, TUTTI_U8, rank);
    if (status != TUTTI_OK) return comm_failed(runner, status, error);
    status = (tutti_status)record_of(runner, rank)[RECORD_STATUS];
    told.text[sizeof told.text - 1] = '\0';
    (void)tti_error_set(error, status, 0, "%s", told.text);
    error->rank = error->peer = rank;
    return status;
}

/* Exchanges the records. `own`: this rank's status; if it has failed, `error` says why. The result is the same on all
 * ranks. */
static tutti_status meet(struct tutti_pipeline_runner *runner, tutti_status own, tutti_error *error)
{
    int64_t *record = record_of(runner, runner->rank);
    record[RECORD_STATUS] = own;
    tutti_status status = tutti_all_gather(tti_pipeline_inside(runner, "the end"), record, runner->records,
                                           runner->record_count, TUTTI_I64);
    if (status != TUTTI_OK) return comm_failed(runner, status, error);
    for (int rank = 0; rank < tutti_size(runner->comm); rank++)
        if (record_of(runner, rank)[RECORD_STATUS] != TUTTI_OK) return share_failure(runner, rank, error);
    return TUTTI_OK;
}

/* ---- Making one ------------------------------------------------------------------------------------------------ */

static uint64_t hash_of(const struct tutti_pipeline *pipeline, const size_t *bytes)
{
    uint64_t hash = tti_mix(tti_mix((uint64_t)pipeline->ranks, (uint64_t)pipeline->chunks), (uint64_t)pipeline->micros);
    for (int stage = 0; stage < pipeline->stages; stage++) {
        hash = tti_mix(hash, (uint64_t)pipeline->stage_rank[stage]);
        if (stage < pipeline->stages - 1) hash = tti_mix(hash, bytes[stage]);
    }
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        for (size_t i = 0; i < pipeline->of_rank[rank].count; i++) {
            tutti_pipeline_step step = pipeline->of_rank[rank].steps[i];
            hash = tti_mix(tti_mix(tti_mix(hash, (uint64_t)step.part), (uint64_t)step.chunk), (uint64_t)step.micro);
        }
    }
    return tti_stir(hash);
}

static tutti_status check_functions(const struct tutti_pipeline *pipeline, int rank,
                                    const tutti_pipeline_settings *settings, tutti_error *error)
{
    const struct tti_pipeline_steps *list = &pipeline->of_rank[rank];
    bool parts = settings->input != NULL && settings->weights != NULL;
    for (size_t i = 0; i < list->count; i++) {
        tutti_pipeline_part part = list->steps[i].part;
        const char *missing = NULL;
        char text[TTI_PIPELINE_STEP_BYTES];
        if (part == TUTTI_PIPELINE_FORWARD && settings->forward == NULL) missing = "forward";
        if (part == TUTTI_PIPELINE_BACKWARD && settings->backward == NULL && !parts) missing = "backward";
        if (part == TUTTI_PIPELINE_INPUT && settings->input == NULL) missing = "input";
        if (part == TUTTI_PIPELINE_WEIGHTS && settings->weights == NULL) missing = "weights";
        if (missing == NULL) continue;
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: step %s of rank %d needs a function: %s is NULL",
                             tutti_pipeline_step_text(pipeline, list->steps[i], text, sizeof text), rank, missing);
    }
    return TUTTI_OK;
}

static tutti_status check_settings(const tutti_comm *comm, const struct tutti_pipeline *pipeline,
                                   const tutti_pipeline_settings *settings, tutti_error *error)
{
    tutti_error why;
    if (pipeline->ranks != tutti_size(comm))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: the table has %d ranks, and the comm %d",
                             pipeline->ranks, tutti_size(comm));
    if (tutti_pipeline_check(pipeline, NULL, 0, NULL, &why) != TUTTI_OK)
        return tti_error_set(error, why.status, 0, "pipeline: %.460s", why.text);
    if (settings->deadline_ms < 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: a deadline of %lld ms; give 0 or more",
                             (long long)settings->deadline_ms);
    for (int stage = 0; stage < pipeline->stages - 1; stage++)
        if (settings->bytes == NULL || settings->bytes[stage] == 0)
            return tti_error_set(error, TUTTI_ERR_COUNT, 0,
                                 "pipeline: the boundary behind stage %d has no bytes; give 1 or more", stage);
    return check_functions(pipeline, tutti_rank(comm), settings, error);
}

/* Allocates what a run needs besides slots. */
static tutti_status make_lists(struct tutti_pipeline_runner *runner, tutti_error *error)
{
    const struct tutti_pipeline *pipeline = runner->pipeline;
    size_t ranks = (size_t)tutti_size(runner->comm);
    runner->spans = tti_calloc(pipeline->of_rank[runner->rank].count + 1, 2 * sizeof *runner->spans);
    runner->idle = tti_calloc(ranks, sizeof *runner->idle);
    runner->predicted_idle = tti_calloc(ranks, sizeof *runner->predicted_idle);
    if (runner->spans != NULL && runner->idle != NULL && runner->predicted_idle != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for a runner");
}

/* Prepares this rank's part; `meet` reports a failure to all. */
static tutti_status prepare(struct tutti_pipeline_runner *runner, tutti_error *error)
{
    TTI_TRY(check_settings(runner->comm, runner->pipeline, &runner->settings, error));
    TTI_TRY(make_lists(runner, error));
    TTI_TRY(tti_pipeline_make_slots(runner, error));
    record_of(runner, runner->rank)[RECORD_HASH] = (int64_t)hash_of(runner->pipeline, runner->settings.bytes);
    return TUTTI_OK;
}

static tutti_status compare_tables(const struct tutti_pipeline_runner *runner, tutti_error *error)
{
    for (int rank = 1; rank < runner->pipeline->ranks; rank++) {
        if (record_of(runner, rank)[RECORD_HASH] == record_of(runner, 0)[RECORD_HASH]) continue;
        error->peer = rank;
        return tti_error_set(error, TUTTI_ERR_MISMATCH, 0,
                             "pipeline: rank %d has another table, or other sizes of boundaries, than rank 0", rank);
    }
    return TUTTI_OK;
}

static tutti_status create(tutti_comm *comm, const tutti_pipeline *pipeline, const tutti_pipeline_settings *settings,
                           tutti_pipeline_runner **runner, tutti_error *error)
{
    struct tutti_pipeline_runner *made = tti_calloc(1, sizeof *made);
    size_t count = RECORD_TIMES + 3 * (size_t)pipeline->chunks, size = (size_t)tutti_size(comm);
    int64_t *records = tti_calloc(size, count * sizeof *records);
    if (made == NULL || records == NULL) {
        tti_free(made);
        tti_free(records);
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for a runner");
    }
    made->users = comm;
    made->here = tti_here(comm);
    made->pipeline = pipeline;
    made->settings = *settings;
    made->rank = tutti_rank(comm);
    made->records = records;
    made->record_count = RECORD_TIMES; /* set so until it is known that all have the same table */
    made->began_ns = tti_now_ns();
    atomic_init(&made->cancelled, 0);
    tutti_status status = tutti_comm_duplicate(comm, &made->comm);
    if (status != TUTTI_OK) {
        const tutti_error *why = tutti_comm_error(comm);
        if (why != NULL) *error = *why;
    } else {
        status = meet(made, prepare(made, error), error);
        if (status == TUTTI_OK) status = compare_tables(made, error);
        made->record_count = count;
    }
    if (status != TUTTI_OK)
        tutti_pipeline_runner_free(made);
    else
        *runner = made;
    return status;
}

tutti_status tti_pipeline_plan(const tutti_pipeline *pipeline, int rank, const size_t *bytes,
                               tutti_pipeline_runner **runner, tutti_error *error)
{
    struct tutti_pipeline_runner *made = *runner = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for a runner");
    made->pipeline = pipeline;
    made->settings.bytes = bytes;
    made->rank = rank;
    tutti_status status = tti_pipeline_make_slots(made, error);
    if (status == TUTTI_OK) return TUTTI_OK;
    tutti_pipeline_runner_free(made);
    *runner = NULL;
    return status;
}

tutti_status tutti_pipeline_runner_create(tutti_comm *comm, const tutti_pipeline *pipeline,
                                          const tutti_pipeline_settings *settings, tutti_pipeline_runner **runner,
                                          tutti_error *error)
{
    tutti_error unused;
    tutti_pipeline_settings known = {0};
    error = tti_pipeline_error(error, &unused, "pipeline_runner_create");
    if (comm == NULL || pipeline == NULL || settings == NULL || runner == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "pipeline: a comm, a table, settings and a place to go are needed");
    error->rank = tutti_rank(comm);
    *runner = NULL;
    if (!tti_sized_take(&known, sizeof known, settings))
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "pipeline: set struct_size to sizeof(tutti_pipeline_settings)");
    tutti_status status = create(comm, pipeline, &known, runner, error);
    if (status != TUTTI_OK) tti_comm_note(comm, error);
    return status;
}

void tutti_pipeline_runner_free(tutti_pipeline_runner *runner)
{
    if (runner == NULL) return;
    tti_pipeline_free_slots(runner);
    tti_free(runner->spans);
    tti_free(runner->records);
    tti_free(runner->idle);
    tti_free(runner->predicted_idle);
    (void)tutti_comm_free(runner->comm);
    tti_free(runner);
}

int tutti_pipeline_slots(const tutti_pipeline_runner *runner, int chunk)
{
    return chunk < 0 || chunk >= runner->pipeline->chunks ? 0 : runner->chunks[chunk].slot_count;
}

size_t tutti_pipeline_bytes(const tutti_pipeline_runner *runner)
{
    return runner->bytes;
}

tutti_pipeline_runner *tutti_pipeline_at(tutti_pipeline_runner *runner, const char *file, int line)
{
    if (runner != NULL) runner->here = (struct tti_here){file, line};
    return runner;
}

void tutti_pipeline_cancel(tutti_pipeline_runner *runner)
{
    atomic_store_explicit(&runner->cancelled, 1, memory_order_relaxed);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static tutti_status call_stage(struct tutti_pipeline_runner *runner, tutti_pipeline_step step,
                               const tutti_pipeline_call *call)
{
    const tutti_pipeline_settings *settings = &runner->settings;
    if (step.part == TUTTI_PIPELINE_FORWARD) return settings->forward(settings->context, call);
    if (step.part == TUTTI_PIPELINE_INPUT) return settings->input(settings->context, call);
    if (step.part == TUTTI_PIPELINE_WEIGHTS) return settings->weights(settings->context, call);
    if (settings->backward != NULL) return settings->backward(settings->context, call);
    tutti_pipeline_call part = *call;
    part.part = TUTTI_PIPELINE_INPUT;
    TTI_TRY(settings->input(settings->context, &part));
    part.part = TUTTI_PIPELINE_WEIGHTS;
    return settings->weights(settings->context, &part);
}

static void fail_step(struct tutti_pipeline_runner *runner, tutti_pipeline_step step, tutti_status status,
                      const char *reason)
{
    char text[TTI_PIPELINE_STEP_BYTES];
    tutti_pipeline_step_text(runner->pipeline, step, text, sizeof text);
    runner->failed = status < 0 ? status : TUTTI_ERR_ARGUMENT; /* a stage that returns anything else has failed, too */
    (void)tti_error_set(&runner->error, runner->failed, 0, "pipeline: stage %d on rank %d failed in step %s: %s",
                        runner->chunks[step.chunk].stage, runner->rank, text,
                        reason[0] != '\0' ? reason : tutti_status_text(runner->failed));
}

static void add_time(struct tutti_pipeline_runner *runner, tutti_pipeline_step step, int64_t spent_ns)
{
    int64_t *spent = runner->chunks[step.chunk].spent_ns;
    runner->busy_ns += spent_ns;
    if (step.part == TUTTI_PIPELINE_FORWARD) {
        spent[0] += spent_ns;
    } else if (step.part == TUTTI_PIPELINE_BACKWARD) {
        spent[1] += spent_ns / 2;
        spent[2] += spent_ns - spent_ns / 2;
    } else {
        spent[step.part == TUTTI_PIPELINE_INPUT ? 1 : 2] += spent_ns;
    }
}

static void work(struct tutti_pipeline_runner *runner, tutti_pipeline_step step)
{
    const struct tti_pipeline_chunk *chunk = &runner->chunks[step.chunk];
    const struct tti_pipeline_slot *slot = &chunk->slots[chunk->slot_of[step.micro]];
    char reason[TUTTI_PIPELINE_REASON_BYTES] = "";
    tutti_pipeline_call call = {.part = step.part,
                                .stage = chunk->stage,
                                .chunk = step.chunk,
                                .micro = step.micro,
                                .slot = chunk->slot_of[step.micro],
                                .in = slot->in,
                                .out = slot->out,
                                .out_gradient = slot->out_gradient,
                                .in_gradient = chunk->gradients[chunk->gradient_of[step.micro]].to_previous,
                                .reason = reason};
    tutti_status status = call_stage(runner, step, &call);
    reason[sizeof reason - 1] = '\0';
    if (status != TUTTI_OK) fail_step(runner, step, status, reason);
}

static void check_cancelled(struct tutti_pipeline_runner *runner, tutti_pipeline_step step, size_t i)
{
    char text[TTI_PIPELINE_STEP_BYTES];
    if (runner->failed != TUTTI_OK || atomic_load_explicit(&runner->cancelled, memory_order_relaxed) == 0) return;
    runner->failed = tti_error_set(&runner->error, TUTTI_ERR_CANCELLED, 0,
                                   "pipeline: cancelled on rank %d before its step %zu, %s", runner->rank, i + 1,
                                   tutti_pipeline_step_text(runner->pipeline, step, text, sizeof text));
}

/* Does a step. Times are kept for steps that were not done, too, so that a timeline has no holes. */
static void run_step(struct tutti_pipeline_runner *runner, size_t i)
{
    tutti_pipeline_step step = runner->pipeline->of_rank[runner->rank].steps[i];
    tti_pipeline_await_step(runner, step);
    check_cancelled(runner, step, i);
    int64_t began_ns = tti_now_ns();
    if (runner->failed == TUTTI_OK && !runner->follows && runner->broken == TUTTI_OK) work(runner, step);
    int64_t ended_ns = tti_now_ns();
    add_time(runner, step, ended_ns - began_ns);
    if (!runner->unseen) {
        runner->spans[2 * i] = began_ns - runner->began_ns;
        runner->spans[2 * i + 1] = ended_ns - runner->began_ns;
    }
    tti_pipeline_send_step(runner, step);
}

/* ---- A run ----------------------------------------------------------------------------------------------------- */

static void begin(struct tutti_pipeline_runner *runner)
{
    runner->began_ns = tti_now_ns();
    runner->busy_ns = 0;
    runner->failed = runner->broken = TUTTI_OK;
    runner->follows = false;
    runner->error = (tutti_error){.rank = runner->rank, .peer = -1, .operation = "pipeline_run"};
    for (int number = 0; number < runner->pipeline->chunks; number++)
        memset(runner->chunks[number].spent_ns, 0, sizeof runner->chunks[number].spent_ns);
    tti_pipeline_begin_slots(runner);
}

static void fill_record(struct tutti_pipeline_runner *runner)
{
    int64_t *record = record_of(runner, runner->rank);
    record[RECORD_BUSY] = runner->busy_ns;
    for (int number = 0; number < runner->pipeline->chunks; number++)
        memcpy(&record[RECORD_TIMES + 3 * number], runner->chunks[number].spent_ns,
               sizeof runner->chunks[number].spent_ns);
}

/* Tells where this rank was when the comm broke: "step 5, F3". */
static tutti_status tell_broken(const struct tutti_pipeline_runner *runner, size_t at, tutti_status status,
                                const tutti_error *why, tutti_error *error)
{
    const struct tti_pipeline_steps *list = &runner->pipeline->of_rank[runner->rank];
    char text[TTI_PIPELINE_STEP_BYTES], where[80] = "at the end of its run";
    if (at < list->count)
        (void)snprintf(where, sizeof where, "at its step %zu, %s", at + 1,
                       tutti_pipeline_step_text(runner->pipeline, list->steps[at], text, sizeof text));
    tutti_error told = *why;
    *error = told;
    (void)tti_error_set(error, status, told.system_errno, "pipeline: rank %d %s: %.430s", runner->rank, where,
                        told.text);
    return status;
}

static tutti_status run(struct tutti_pipeline_runner *runner, tutti_error *error)
{
    size_t i = 0, count = runner->pipeline->of_rank[runner->rank].count;
    begin(runner);
    for (; i < count && runner->broken == TUTTI_OK; i++) run_step(runner, i);
    if (runner->broken != TUTTI_OK) i--;
    tti_pipeline_end_slots(runner);
    if (runner->broken != TUTTI_OK) return tell_broken(runner, i, runner->broken, &runner->error, error);
    fill_record(runner);
    *error = runner->error;
    tutti_status status = meet(runner, runner->failed, error);
    runner->elapsed_ns = tti_now_ns() - runner->began_ns;
    if (!runner->unseen) runner->drawn_ns = runner->elapsed_ns;
    const tutti_error *why = tutti_comm_error(runner->comm);
    if (status != TUTTI_OK && why != NULL) return tell_broken(runner, count, status, why, error);
    if (runner->failed == TUTTI_ERR_CANCELLED || status == TUTTI_ERR_CANCELLED)
        atomic_store_explicit(&runner->cancelled, 0, memory_order_relaxed);
    return status;
}

/* ---- What it took ---------------------------------------------------------------------------------------------- */

/* Predicts the run: goes through the table with the average times of its steps. */
static void predict(struct tutti_pipeline_runner *runner, tutti_pipeline_report *report)
{
    const struct tutti_pipeline *pipeline = runner->pipeline;
    tutti_pipeline_times *times = tti_calloc((size_t)pipeline->stages, sizeof *times);
    tutti_pipeline_load *loads = tti_calloc((size_t)pipeline->ranks, sizeof *loads);
    tutti_pipeline_verdict verdict = {.struct_size = sizeof verdict, .loads = loads, .makespan = NAN, .idle = NAN};
    for (int stage = 0; times != NULL && stage < pipeline->stages; stage++) {
        const int64_t *spent = record_of(runner, pipeline->stage_rank[stage]) + RECORD_TIMES +
                               (ptrdiff_t)3 * pipeline->stage_chunk[stage];
        double each = 1e-9 / pipeline->micros;
        times[stage] = (tutti_pipeline_times){(double)spent[0] * each, (double)spent[1] * each,
                                              (double)spent[2] * each};
    }
    bool fine = times != NULL && loads != NULL &&
                tutti_pipeline_check(pipeline, times, (size_t)pipeline->stages, &verdict, NULL) == TUTTI_OK;
    for (int rank = 0; rank < pipeline->ranks; rank++) runner->predicted_idle[rank] = fine ? loads[rank].idle : NAN;
    report->predicted_seconds = verdict.makespan;
    report->predicted_idle = verdict.idle;
    tti_free(times);
    tti_free(loads);
}

static void fill_report(struct tutti_pipeline_runner *runner, tutti_pipeline_report *report)
{
    double elapsed = (double)runner->elapsed_ns, busy_all = 0;
    int ranks = runner->pipeline->ranks;
    for (int rank = 0; rank < ranks; rank++) {
        double busy = (double)record_of(runner, rank)[RECORD_BUSY];
        runner->idle[rank] = 1 - busy / elapsed;
        busy_all += busy;
    }
    report->seconds = elapsed * 1e-9;
    report->idle = 1 - busy_all / (ranks * elapsed);
    report->rank_idle = runner->idle;
    report->rank_predicted_idle = runner->predicted_idle;
    predict(runner, report);
}

tutti_status tutti_pipeline_run(tutti_pipeline_runner *runner, tutti_pipeline_report *report, tutti_error *error)
{
    tutti_error unused;
    tutti_pipeline_report all = {0};
    error = tti_pipeline_error(error, &unused, "pipeline_run");
    if (runner == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: there is no runner");
    tutti_status status = run(runner, error);
    if (status != TUTTI_OK) tti_comm_note(runner->users, error);
    if (status != TUTTI_OK || report == NULL) return status;
    fill_report(runner, &all);
    all.struct_size = report->struct_size;
    memcpy(report, &all, all.struct_size < sizeof all ? all.struct_size : sizeof all);
    return TUTTI_OK;
}

/* ---- The timeline ---------------------------------------------------------------------------------------------- */

/* Finds this rank's delay. All ranks saw the end at the same time, so the one that took longest began first. */
static tutti_status find_delay(struct tutti_pipeline_runner *runner, int64_t *delay_ns, tutti_error *error)
{
    int64_t longest_ns = 0;
    tutti_status status = tutti_all_reduce(tti_pipeline_inside(runner, "timeline"), &runner->drawn_ns, &longest_ns, 1,
                                           TUTTI_I64, TUTTI_MAX);
    *delay_ns = longest_ns - runner->drawn_ns;
    return status == TUTTI_OK ? TUTTI_OK : comm_failed(runner, status, error);
}

static tutti_status gather_spans(struct tutti_pipeline_runner *runner, size_t *counts, tutti_pipeline_span *spans,
                                 tutti_error *error)
{
    const struct tutti_pipeline *pipeline = runner->pipeline;
    size_t first = 0;
    int64_t delay_ns;
    TTI_TRY(find_delay(runner, &delay_ns, error));
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        counts[rank] = 2 * pipeline->of_rank[rank].count;
        if (rank < runner->rank) first += pipeline->of_rank[rank].count;
    }
    for (size_t i = 0; i < pipeline->of_rank[runner->rank].count; i++)
        spans[first + i] = (tutti_pipeline_span){(double)(runner->spans[2 * i] + delay_ns) * 1e-9,
                                                 (double)(runner->spans[2 * i + 1] + delay_ns) * 1e-9};
    tutti_status status = tutti_all_gather_v(tti_pipeline_inside(runner, "timeline"), spans + first, spans, counts,
                                             NULL, TUTTI_F64);
    return status == TUTTI_OK ? TUTTI_OK : comm_failed(runner, status, error);
}

tutti_status tutti_pipeline_timeline(tutti_pipeline_runner *runner, tutti_pipeline_span *spans, tutti_error *error)
{
    tutti_error unused;
    error = tti_pipeline_error(error, &unused, "pipeline_timeline");
    if (runner == NULL || spans == NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: a runner and room for its steps are needed");
    size_t *counts = tti_calloc((size_t)runner->pipeline->ranks, sizeof *counts);
    if (counts == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for a timeline");
    runner->began_ns = tti_now_ns(); /* its deadline counts from here */
    tutti_status status = gather_spans(runner, counts, spans, error);
    tti_free(counts);
    return status;
}
