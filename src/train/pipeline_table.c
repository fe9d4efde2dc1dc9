/* SPDX-License-Identifier: Apache-2.0 */
#include "train/pipeline_table.h"

#include "base/alloc.h"
#include "base/status.h"
#include <string.h>

tutti_error *tti_pipeline_error(tutti_error *error, tutti_error *unused, const char *operation)
{
    if (error == NULL) error = unused;
    *error = (tutti_error){.rank = -1, .peer = -1};
    (void)snprintf(error->operation, sizeof error->operation, "%s", operation);
    return error;
}

static tutti_status check_size(const char *who, const char *what, int number, int most, tutti_error *error)
{
    if (number >= 1 && number <= most) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s: %d %s; 1 to %d can be", who, number, what, most);
}

tutti_status tti_pipeline_check_sizes(const char *who, int ranks, int chunks, int micros, tutti_error *error)
{
    TTI_TRY(check_size(who, "ranks", ranks, TTI_PIPELINE_RANKS_MOST, error));
    TTI_TRY(check_size(who, "chunks per rank", chunks, TTI_PIPELINE_CHUNKS_MOST, error));
    TTI_TRY(check_size(who, "micro-batches", micros, TTI_PIPELINE_MICROS_MOST, error));
    int64_t stages = (int64_t)ranks * chunks, most = TTI_PIPELINE_CELLS_MOST / stages;
    if (micros <= most) return TUTTI_OK;
    if (most == 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "%s: %d ranks with %d chunks each are %lld stages; %d can be, which is %d chunks each",
                             who, ranks, chunks, (long long)stages, TTI_PIPELINE_CELLS_MOST,
                             TTI_PIPELINE_CELLS_MOST / ranks);
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%s: %d micro-batch%s through %lld stages; at most %lld can be",
                         who, micros, micros == 1 ? "" : "es", (long long)stages, (long long)most);
}

/* ---- Making one ------------------------------------------------------------------------------------------------ */

/* Finds the chunk of each stage on its rank, and the stage of each chunk. */
static tutti_status place_stages(struct tutti_pipeline *pipeline, const int *stage_ranks, tutti_error *error)
{
    for (int i = 0; i < pipeline->stages; i++) pipeline->rank_stages[i] = -1;
    for (int stage = 0; stage < pipeline->stages; stage++) {
        int rank = stage_ranks == NULL ? stage % pipeline->ranks : stage_ranks[stage], chunk = 0;
        if (rank < 0 || rank >= pipeline->ranks)
            return tti_error_set(error, TUTTI_ERR_RANK, 0, "pipeline: stage %d is of rank %d; ranks are 0 to %d", stage,
                                 rank, pipeline->ranks - 1);
        int *own = pipeline->rank_stages + (ptrdiff_t)rank * pipeline->chunks;
        while (chunk < pipeline->chunks && own[chunk] >= 0) chunk++;
        if (chunk == pipeline->chunks)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "pipeline: stage %d is one more of rank %d, which has %d already; every rank has %d",
                                 stage, rank, chunk, chunk);
        own[chunk] = stage;
        pipeline->stage_rank[stage] = rank;
        pipeline->stage_chunk[stage] = chunk;
    }
    return TUTTI_OK;
}

tutti_status tutti_pipeline_create(int ranks, int chunks, int micros, const int *stage_ranks, tutti_pipeline **pipeline,
                                   tutti_error *error)
{
    tutti_error unused;
    error = tti_pipeline_error(error, &unused, "pipeline_create");
    if (pipeline == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: a place to go is needed");
    TTI_TRY(tti_pipeline_check_sizes("pipeline", ranks, chunks, micros, error));
    struct tutti_pipeline *made = tti_calloc(1, sizeof *made);
    if (made == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for a table");
    size_t stages = (size_t)ranks * (size_t)chunks;
    *made = (struct tutti_pipeline){.ranks = ranks,
                                    .chunks = chunks,
                                    .micros = micros,
                                    .stages = (int)stages,
                                    .stage_rank = tti_calloc(stages, sizeof(int)),
                                    .stage_chunk = tti_calloc(stages, sizeof(int)),
                                    .rank_stages = tti_calloc(stages, sizeof(int)),
                                    .of_rank = tti_calloc((size_t)ranks, sizeof *made->of_rank)};
    tutti_status status = TUTTI_OK;
    if (made->stage_rank == NULL || made->stage_chunk == NULL || made->rank_stages == NULL || made->of_rank == NULL)
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for %zu stages", stages);
    if (status == TUTTI_OK) status = place_stages(made, stage_ranks, error);
    if (status == TUTTI_OK)
        *pipeline = made;
    else
        tutti_pipeline_free(made);
    return status;
}

void tutti_pipeline_free(tutti_pipeline *pipeline)
{
    if (pipeline == NULL) return;
    for (int rank = 0; pipeline->of_rank != NULL && rank < pipeline->ranks; rank++)
        tti_free(pipeline->of_rank[rank].steps);
    tti_free(pipeline->of_rank);
    tti_free(pipeline->rank_stages);
    tti_free(pipeline->stage_chunk);
    tti_free(pipeline->stage_rank);
    tti_free(pipeline);
}

/* ---- Steps ----------------------------------------------------------------------------------------------------- */

static bool make_room(struct tti_pipeline_steps *list)
{
    if (list->count < list->room) return true;
    size_t room = list->room == 0 ? 16 : 2 * list->room;
    tutti_pipeline_step *steps = tti_malloc(room, sizeof *steps);
    if (steps == NULL) return false;
    if (list->count > 0) memcpy(steps, list->steps, list->count * sizeof *steps);
    tti_free(list->steps);
    list->steps = steps;
    list->room = room;
    return true;
}

tutti_status tutti_pipeline_add(tutti_pipeline *pipeline, int rank, tutti_pipeline_step step, tutti_error *error)
{
    tutti_error unused;
    error = tti_pipeline_error(error, &unused, "pipeline_add");
    if (pipeline == NULL) return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "pipeline: there is no table");
    if (rank < 0 || rank >= pipeline->ranks)
        return tti_error_set(error, TUTTI_ERR_RANK, 0, "there is no rank %d; ranks are 0 to %d", rank,
                             pipeline->ranks - 1);
    if ((int)step.part < 0 || step.part >= TUTTI_PIPELINE_PARTS)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%d is no part of a step", (int)step.part);
    if (step.chunk < 0 || step.chunk >= pipeline->chunks)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "there is no chunk %d; chunks are 0 to %d", step.chunk,
                             pipeline->chunks - 1);
    if (step.micro < 0 || step.micro >= pipeline->micros)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "there is no micro-batch %d; they are 0 to %d", step.micro,
                             pipeline->micros - 1);
    struct tti_pipeline_steps *list = &pipeline->of_rank[rank];
    if (list->count >= (size_t)TTI_PIPELINE_CELLS_MOST * 4)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "%zu steps of rank %d are too many", list->count, rank);
    if (!make_room(list))
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "pipeline: no memory for one more step of rank %d", rank);
    list->steps[list->count++] = step;
    return TUTTI_OK;
}

/* ---- Looking at one -------------------------------------------------------------------------------------------- */

void tutti_pipeline_describe(const tutti_pipeline *pipeline, tutti_pipeline_about *about)
{
    tutti_pipeline_about all = {
        .ranks = pipeline->ranks, .chunks = pipeline->chunks, .stages = pipeline->stages, .micros = pipeline->micros};
    size_t bytes = about->struct_size < sizeof all ? about->struct_size : sizeof all;
    memcpy(all.name, pipeline->name, sizeof all.name);
    for (int rank = 0; rank < pipeline->ranks; rank++) all.steps += pipeline->of_rank[rank].count;
    all.struct_size = about->struct_size;
    memcpy(about, &all, bytes);
}

const tutti_pipeline_step *tutti_pipeline_steps(const tutti_pipeline *pipeline, int rank, size_t *count)
{
    bool is_rank = rank >= 0 && rank < pipeline->ranks;
    *count = is_rank ? pipeline->of_rank[rank].count : 0;
    return is_rank ? pipeline->of_rank[rank].steps : NULL;
}

int tutti_pipeline_stage(const tutti_pipeline *pipeline, int rank, int chunk)
{
    if (rank < 0 || rank >= pipeline->ranks || chunk < 0 || chunk >= pipeline->chunks) return -1;
    return pipeline->rank_stages[rank * pipeline->chunks + chunk];
}

int tutti_pipeline_rank(const tutti_pipeline *pipeline, int stage, int *chunk)
{
    if (stage < 0 || stage >= pipeline->stages) return -1;
    if (chunk != NULL) *chunk = pipeline->stage_chunk[stage];
    return pipeline->stage_rank[stage];
}

char *tutti_pipeline_step_text(const tutti_pipeline *pipeline, tutti_pipeline_step step, char *text, size_t bytes)
{
    char letter = (int)step.part < 0 || step.part >= TUTTI_PIPELINE_PARTS ? '?' : "FBIW"[step.part];
    if (pipeline->chunks == 1)
        (void)snprintf(text, bytes, "%c%d", letter, step.micro);
    else
        (void)snprintf(text, bytes, "%c%d.%d", letter, step.micro, step.chunk);
    return text;
}
