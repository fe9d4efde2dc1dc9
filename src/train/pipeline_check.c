/* SPDX-License-Identifier: Apache-2.0
 *
 * Checks that a table can be carried out, and computes when each of its steps runs.
 *
 * Invariant: ranks do their steps in order, and a step waits only for earlier steps: of its stage, and of the stage
 * that sends data to it. So whether a table ends does not depend on the ranks' speed, and one walk through it, in any
 * order that these waits allow, proves it: a step that the walk does not reach is never reached.
 *
 * It does not matter that messages are not buffered. A rank has as many slots of a chunk as it has micro-batches live
 * there, a receive is posted as soon as its slot is free, and data that are sent stay in their slot: so no rank waits
 * to send. By the time that a forward step is next, fewer micro-batches are live than there are slots, so its receive
 * was posted. The receive of a gradient is posted with that of the input. And a slot is free again after the backward
 * step of its micro-batch, whose gradient the next stage can only have sent after it had received everything that this
 * one had sent.
 */
#include "train/pipeline_table.h"

#include "base/alloc.h"
#include "base/status.h"
#include <math.h>
#include <string.h>

enum { FORWARD, BACKWARD, WEIGHTS, PLACES }; /* BACKWARD: a backward step or an input part */

struct check {
    const struct tutti_pipeline *pipeline;
    const tutti_pipeline_times *times;
    size_t time_count;
    int32_t *place[PLACES];  /* (stages, micros): the step's number among its rank's steps, from 1; 0: there is none */
    bool *whole;             /* (stages, micros): it is a backward step, not an input part */
    double *end[2];          /* (stages, micros): when FORWARD and BACKWARD have ended; negative: not yet */
    size_t *next;            /* [ranks]: the first of its steps that was not done */
    double *now;             /* [ranks]: when its last step ended */
    int *ready, ready_count; /* ranks that may go on */
    bool *is_ready;          /* [ranks]: it is in `ready` */
    size_t *first_span;      /* [ranks]: its first span */
};

/* ---- Every step once ------------------------------------------------------------------------------------------- */

static int place_of(tutti_pipeline_part part)
{
    return part == TUTTI_PIPELINE_FORWARD ? FORWARD : part == TUTTI_PIPELINE_WEIGHTS ? WEIGHTS : BACKWARD;
}

static tutti_status note_step(struct check *check, int rank, size_t i, tutti_error *error)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    tutti_pipeline_step step = pipeline->of_rank[rank].steps[i];
    size_t cell = tti_pipeline_cell(pipeline, pipeline->rank_stages[rank * pipeline->chunks + step.chunk], step.micro);
    int32_t *place = &check->place[place_of(step.part)][cell];
    bool whole = step.part == TUTTI_PIPELINE_BACKWARD;
    char text[TTI_PIPELINE_STEP_BYTES], other[TTI_PIPELINE_STEP_BYTES];
    error->rank = rank;
    tutti_pipeline_step before = step;
    if (place_of(step.part) == BACKWARD && *place != 0)
        before.part = check->whole[cell] ? TUTTI_PIPELINE_BACKWARD : TUTTI_PIPELINE_INPUT;
    tutti_pipeline_step_text(pipeline, step, text, sizeof text);
    if (*place != 0 && before.part == step.part)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "rank %d does %s twice, as its steps %d and %zu", rank, text,
                             *place, i + 1);
    if (*place != 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "rank %d does %s as its step %d and %s as its step %zu; B is I and W in one", rank,
                             tutti_pipeline_step_text(pipeline, before, other, sizeof other), *place, text, i + 1);
    *place = (int32_t)i + 1;
    if (place_of(step.part) == BACKWARD) check->whole[cell] = whole;
    return TUTTI_OK;
}

static tutti_status missing(const struct check *check, int rank, int chunk, int micro, tutti_pipeline_part part,
                            tutti_error *error)
{
    char text[TTI_PIPELINE_STEP_BYTES], parts[3 * TTI_PIPELINE_STEP_BYTES] = "";
    tutti_pipeline_step step = {part, chunk, micro};
    tutti_pipeline_step_text(check->pipeline, step, text, sizeof text);
    if (part == TUTTI_PIPELINE_BACKWARD) (void)snprintf(parts, sizeof parts, ", nor I%s and W%s", text + 1, text + 1);
    error->rank = rank;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "rank %d has no step %s%s", rank, text, parts);
}

static tutti_status check_cell(const struct check *check, int stage, int micro, tutti_error *error)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    size_t cell = tti_pipeline_cell(pipeline, stage, micro);
    int rank = pipeline->stage_rank[stage], chunk = pipeline->stage_chunk[stage];
    bool weights = check->place[WEIGHTS][cell] != 0;
    if (check->place[FORWARD][cell] == 0) return missing(check, rank, chunk, micro, TUTTI_PIPELINE_FORWARD, error);
    if (check->place[BACKWARD][cell] == 0)
        return missing(check, rank, chunk, micro, weights ? TUTTI_PIPELINE_INPUT : TUTTI_PIPELINE_BACKWARD, error);
    if (check->whole[cell] == !weights) return TUTTI_OK;
    if (!weights) return missing(check, rank, chunk, micro, TUTTI_PIPELINE_WEIGHTS, error);
    char text[TTI_PIPELINE_STEP_BYTES];
    tutti_pipeline_step_text(pipeline, (tutti_pipeline_step){TUTTI_PIPELINE_WEIGHTS, chunk, micro}, text, sizeof text);
    error->rank = rank;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "rank %d does B%s as its step %d and %s as its step %d; B is I and W in one", rank, text + 1,
                         check->place[BACKWARD][cell], text, check->place[WEIGHTS][cell]);
}

static tutti_status check_complete(struct check *check, tutti_error *error)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    for (int rank = 0; rank < pipeline->ranks; rank++)
        for (size_t i = 0; i < pipeline->of_rank[rank].count; i++) TTI_TRY(note_step(check, rank, i, error));
    for (int stage = 0; stage < pipeline->stages; stage++)
        for (int micro = 0; micro < pipeline->micros; micro++) TTI_TRY(check_cell(check, stage, micro, error));
    error->rank = -1;
    return TUTTI_OK;
}

/* ---- What waits for what --------------------------------------------------------------------------------------- */

/* A step for which another one waits: FORWARD or BACKWARD of a stage. */
struct need {
    int what, stage;
};

/* Lists the steps that a step needs, at most two; returns how many. */
static int needs_of(const struct tutti_pipeline *pipeline, tutti_pipeline_part part, int stage, struct need needs[2])
{
    int count = 0;
    if (part == TUTTI_PIPELINE_FORWARD) {
        if (stage > 0) needs[count++] = (struct need){FORWARD, stage - 1};
    } else if (part == TUTTI_PIPELINE_WEIGHTS) {
        needs[count++] = (struct need){BACKWARD, stage};
    } else {
        needs[count++] = (struct need){FORWARD, stage};
        if (stage < pipeline->stages - 1) needs[count++] = (struct need){BACKWARD, stage + 1};
    }
    return count;
}

static void wake(struct check *check, int rank)
{
    if (check->is_ready[rank]) return;
    check->is_ready[rank] = true;
    check->ready[check->ready_count++] = rank;
}

static double duration(const struct check *check, tutti_pipeline_part part, int stage)
{
    static const tutti_pipeline_times ones = {1, 1, 1};
    const tutti_pipeline_times *times = check->time_count == 0   ? &ones
                                        : check->time_count == 1 ? check->times
                                                                 : &check->times[stage];
    if (part == TUTTI_PIPELINE_FORWARD) return times->forward;
    if (part == TUTTI_PIPELINE_INPUT) return times->input;
    return part == TUTTI_PIPELINE_WEIGHTS ? times->weights : times->input + times->weights;
}

/* Does the rank's next step if nothing is missing. */
static bool advance(struct check *check, int rank, tutti_pipeline_span *spans)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    size_t i = check->next[rank];
    if (i == pipeline->of_rank[rank].count) return false;
    tutti_pipeline_step step = pipeline->of_rank[rank].steps[i];
    int stage = pipeline->rank_stages[rank * pipeline->chunks + step.chunk];
    struct need needs[2];
    double start = check->now[rank];
    for (int n = needs_of(pipeline, step.part, stage, needs); n-- > 0;) {
        double end = check->end[needs[n].what][tti_pipeline_cell(pipeline, needs[n].stage, step.micro)];
        if (end < 0) return false;
        start = fmax(start, end);
    }
    double end = start + duration(check, step.part, stage);
    check->now[rank] = end;
    check->next[rank]++;
    if (step.part != TUTTI_PIPELINE_WEIGHTS)
        check->end[place_of(step.part)][tti_pipeline_cell(pipeline, stage, step.micro)] = end;
    if (step.part == TUTTI_PIPELINE_FORWARD && stage < pipeline->stages - 1)
        wake(check, pipeline->stage_rank[stage + 1]);
    if (place_of(step.part) == BACKWARD && stage > 0) wake(check, pipeline->stage_rank[stage - 1]);
    if (spans != NULL) spans[check->first_span[rank] + i] = (tutti_pipeline_span){start, end};
    return true;
}

/* Finds the step for which the rank's next step waits, and returns that step's rank. */
static int waits_for(const struct check *check, int rank, tutti_pipeline_step *step, tutti_pipeline_step *missed)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    struct need needs[2];
    *step = pipeline->of_rank[rank].steps[check->next[rank]];
    int stage = pipeline->rank_stages[rank * pipeline->chunks + step->chunk], found = rank;
    for (int n = needs_of(pipeline, step->part, stage, needs); n-- > 0;) {
        size_t cell = tti_pipeline_cell(pipeline, needs[n].stage, step->micro);
        if (check->end[needs[n].what][cell] >= 0) continue;
        tutti_pipeline_part part = needs[n].what == FORWARD ? TUTTI_PIPELINE_FORWARD
                                   : check->whole[cell]     ? TUTTI_PIPELINE_BACKWARD
                                                            : TUTTI_PIPELINE_INPUT;
        *missed = (tutti_pipeline_step){part, pipeline->stage_chunk[needs[n].stage], step->micro};
        found = pipeline->stage_rank[needs[n].stage];
    }
    return found;
}

/* Writes "rank 1's step 3, F2, waits for F2 of rank 0, its step 5". */
static int describe_wait(const struct check *check, int rank, char *text, size_t bytes)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    tutti_pipeline_step step, missed = {TUTTI_PIPELINE_FORWARD, 0, 0};
    char own[TTI_PIPELINE_STEP_BYTES], others[TTI_PIPELINE_STEP_BYTES];
    int other = waits_for(check, rank, &step, &missed);
    size_t cell = tti_pipeline_cell(pipeline, pipeline->rank_stages[other * pipeline->chunks + missed.chunk],
                                    missed.micro);
    (void)snprintf(text, bytes, "rank %d's step %zu, %s, waits for %s of rank %d, its step %d", rank,
                   check->next[rank] + 1, tutti_pipeline_step_text(pipeline, step, own, sizeof own),
                   tutti_pipeline_step_text(pipeline, missed, others, sizeof others), other,
                   check->place[place_of(missed.part)][cell]);
    return other;
}

/* Describes why some rank is not done. Following the waits from rank to rank ends in a cycle, since all of these ranks
 * wait. */
static tutti_status describe_round(struct check *check, tutti_error *error)
{
    char text[400] = "", one[128];
    int ranks = check->pipeline->ranks, rank = 0, first, count = 0;
    tutti_pipeline_step step, missed;
    while (check->next[rank] == check->pipeline->of_rank[rank].count) rank++;
    /* the rank is in the cycle after this */
    for (int i = 0; i < ranks; i++) rank = waits_for(check, rank, &step, &missed);
    first = rank;
    do {
        size_t length = strlen(text);
        int other = describe_wait(check, rank, one, sizeof one);
        if (length + strlen(one) + 40 < sizeof text) /* leaves room for the number of those that are left out */
            (void)snprintf(text + length, sizeof text - length, "%s%s", length == 0 ? "" : "; ", one);
        else
            count++;
        rank = other;
    } while (rank != first);
    error->rank = first;
    if (count > 0)
        (void)snprintf(text + strlen(text), sizeof text - strlen(text), "; and so on, %d more, back to rank %d", count,
                       first);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "deadlock: %s", text);
}

static tutti_status go_through(struct check *check, tutti_pipeline_span *spans, tutti_error *error)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    for (int rank = pipeline->ranks - 1; rank >= 0; rank--) wake(check, rank);
    while (check->ready_count > 0) {
        int rank = check->ready[--check->ready_count];
        check->is_ready[rank] = false;
        while (advance(check, rank, spans)) continue;
    }
    for (int rank = 0; rank < pipeline->ranks; rank++)
        if (check->next[rank] < pipeline->of_rank[rank].count) return describe_round(check, error);
    return TUTTI_OK;
}

/* ---- The verdict ----------------------------------------------------------------------------------------------- */

static int most_live(const struct tti_pipeline_steps *list)
{
    int live = 0, most = 0;
    for (size_t i = 0; i < list->count; i++) {
        tutti_pipeline_part part = list->steps[i].part;
        if (part == TUTTI_PIPELINE_FORWARD) live++;
        if (live > most) most = live;
        if (part == TUTTI_PIPELINE_BACKWARD || part == TUTTI_PIPELINE_WEIGHTS) live--;
    }
    return most;
}

static bool is_ordered(const struct check *check)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    for (int stage = 0; stage < pipeline->stages; stage++) {
        int32_t last = 0;
        for (int micro = 0; micro < pipeline->micros; micro++) {
            size_t cell = tti_pipeline_cell(pipeline, stage, micro);
            int32_t place = check->place[check->whole[cell] ? BACKWARD : WEIGHTS][cell];
            if (place < last) return false;
            last = place;
        }
    }
    return true;
}

static double busy_time(const struct check *check, int rank)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    double busy = 0;
    for (size_t i = 0; i < pipeline->of_rank[rank].count; i++) {
        tutti_pipeline_step step = pipeline->of_rank[rank].steps[i];
        busy += duration(check, step.part, pipeline->rank_stages[rank * pipeline->chunks + step.chunk]);
    }
    return busy;
}

static void fill_verdict(const struct check *check, tutti_pipeline_verdict *verdict)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    double busy_all = 0;
    verdict->makespan = 0;
    verdict->live = 0;
    for (int rank = 0; rank < pipeline->ranks; rank++) verdict->makespan = fmax(verdict->makespan, check->now[rank]);
    for (int rank = 0; rank < pipeline->ranks; rank++) {
        double busy = busy_time(check, rank);
        int live = most_live(&pipeline->of_rank[rank]);
        double idle = verdict->makespan > 0 ? 1 - busy / verdict->makespan : 0;
        busy_all += busy;
        if (live > verdict->live) verdict->live = live;
        if (verdict->loads != NULL) verdict->loads[rank] = (tutti_pipeline_load){busy, fmax(idle, 0), live};
    }
    double idle = verdict->makespan > 0 ? 1 - busy_all / (pipeline->ranks * verdict->makespan) : 0;
    verdict->idle = fmax(idle, 0); /* rounding can make it negative */
    verdict->ordered = is_ordered(check);
}

/* ---- All of it ------------------------------------------------------------------------------------------------- */

static bool make_arrays(struct check *check)
{
    const struct tutti_pipeline *pipeline = check->pipeline;
    size_t cells = (size_t)pipeline->stages * (size_t)pipeline->micros, ranks = (size_t)pipeline->ranks;
    bool fine = true;
    for (int i = 0; i < PLACES; i++) fine = (check->place[i] = tti_calloc(cells, sizeof(int32_t))) != NULL && fine;
    for (int i = 0; i < 2; i++) fine = (check->end[i] = tti_malloc(cells, sizeof(double))) != NULL && fine;
    fine = (check->whole = tti_calloc(cells, sizeof(bool))) != NULL && fine;
    fine = (check->next = tti_calloc(ranks, sizeof(size_t))) != NULL && fine;
    fine = (check->first_span = tti_calloc(ranks, sizeof(size_t))) != NULL && fine;
    fine = (check->now = tti_calloc(ranks, sizeof(double))) != NULL && fine;
    fine = (check->ready = tti_calloc(ranks, sizeof(int))) != NULL && fine;
    fine = (check->is_ready = tti_calloc(ranks, sizeof(bool))) != NULL && fine;
    if (!fine) return false;
    for (size_t i = 0; i < cells; i++) check->end[FORWARD][i] = check->end[BACKWARD][i] = -1;
    for (size_t rank = 1; rank < ranks; rank++)
        check->first_span[rank] = check->first_span[rank - 1] + pipeline->of_rank[rank - 1].count;
    return true;
}

static void free_arrays(struct check *check)
{
    for (int i = 0; i < PLACES; i++) tti_free(check->place[i]);
    for (int i = 0; i < 2; i++) tti_free(check->end[i]);
    tti_free(check->whole);
    tti_free(check->next);
    tti_free(check->first_span);
    tti_free(check->now);
    tti_free(check->ready);
    tti_free(check->is_ready);
}

static bool is_time(double time)
{
    return isfinite(time) && time >= 0;
}

static tutti_status check_times(const struct tutti_pipeline *pipeline, const tutti_pipeline_times *times, size_t count,
                                tutti_error *error)
{
    if (count > 1 && count != (size_t)pipeline->stages)
        return tti_error_set(error, TUTTI_ERR_COUNT, 0, "times of %zu stages; give 1 for all, or of each of %d", count,
                             pipeline->stages);
    if (count > 0 && times == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "the times are NULL");
    for (size_t i = 0; i < count; i++)
        if (!is_time(times[i].forward) || !is_time(times[i].input) || !is_time(times[i].weights))
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "times %g, %g and %g; give numbers from 0 on",
                                 times[i].forward, times[i].input, times[i].weights);
    return TUTTI_OK;
}

static tutti_status run_check(struct check *check, tutti_pipeline_verdict *verdict, tutti_error *error)
{
    if (!make_arrays(check)) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory to check a table");
    TTI_TRY(check_complete(check, error));
    TTI_TRY(go_through(check, verdict->spans, error));
    fill_verdict(check, verdict);
    return TUTTI_OK;
}

tutti_status tutti_pipeline_check(const tutti_pipeline *pipeline, const tutti_pipeline_times *times, size_t time_count,
                                  tutti_pipeline_verdict *verdict, tutti_error *error)
{
    tutti_error unused;
    tutti_pipeline_verdict known = {0};
    error = tti_pipeline_error(error, &unused, "pipeline_check");
    if (pipeline == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: there is no table");
    TTI_TRY(check_times(pipeline, times, time_count, error));
    size_t bytes = verdict == NULL ? 0 : verdict->struct_size;
    if (bytes > sizeof known) bytes = sizeof known;
    if (bytes > 0) memcpy(&known, verdict, bytes);
    struct check check = {.pipeline = pipeline, .times = times, .time_count = time_count};
    tutti_status status = run_check(&check, &known, error);
    free_arrays(&check);
    if (bytes > 0) memcpy(verdict, &known, bytes);
    return status;
}
