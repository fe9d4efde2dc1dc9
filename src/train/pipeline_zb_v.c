/* SPDX-License-Identifier: Apache-2.0
 *
 * zb-v: two chunks per rank, placed there and back, so that rank 0 has the first stage and the last. With all parts of
 * one length, half of a whole stage's, no table is shorter than 6m+p-1 of them: the last rank cannot begin before p-1.
 *
 * The table is found by letting all ranks go on together, a part at a time. A rank does the first of these that can be
 * done: an input part, of its first chunk before its second; a forward, of its second chunk before its first, while it
 * has fewer than 2p micro-batches live; a weights part, the oldest. Other steps wait for inputs and forwards, but none
 * for weights, so these fill idle time, and make room when memory is full. The result reaches the bound for 2, 3, 4 and
 * 8 ranks, and is at most 3% longer for others, with 2p micro-batches or more.
 */
#include "train/pipeline_table.h"

#include "base/alloc.h"

enum { CHUNKS = 2 };

struct progress { /* of one rank */
    int forwards[CHUNKS], inputs[CHUNKS], weights[CHUNKS];
    int live;
};

/* What all ranks have done so far, and what each does in this part of time. */
struct search {
    struct tutti_pipeline *pipeline;
    struct progress *done;       /* [ranks] */
    int most_live;               /* the most live micro-batches of a rank */
    tutti_pipeline_step *chosen; /* [ranks]; PARTS: the rank is idle */
};

static const struct progress *done_by(const struct search *search, int stage, int *chunk)
{
    *chunk = search->pipeline->stage_chunk[stage];
    return &search->done[search->pipeline->stage_rank[stage]];
}

static bool can_forward(const struct search *search, int rank, int chunk)
{
    const struct tutti_pipeline *pipeline = search->pipeline;
    const struct progress *own = &search->done[rank];
    int stage = pipeline->rank_stages[rank * CHUNKS + chunk], other;
    if (own->forwards[chunk] == pipeline->micros || own->live >= search->most_live) return false;
    return stage == 0 || done_by(search, stage - 1, &other)->forwards[other] > own->forwards[chunk];
}

static bool can_input(const struct search *search, int rank, int chunk)
{
    const struct tutti_pipeline *pipeline = search->pipeline;
    const struct progress *own = &search->done[rank];
    int stage = pipeline->rank_stages[rank * CHUNKS + chunk], other;
    if (own->inputs[chunk] == own->forwards[chunk]) return false;
    return stage == pipeline->stages - 1 || done_by(search, stage + 1, &other)->inputs[other] > own->inputs[chunk];
}

static tutti_pipeline_step choose(const struct search *search, int rank)
{
    const struct progress *own = &search->done[rank];
    for (int chunk = 0; chunk < CHUNKS; chunk++)
        if (can_input(search, rank, chunk))
            return (tutti_pipeline_step){TUTTI_PIPELINE_INPUT, chunk, own->inputs[chunk]};
    for (int chunk = CHUNKS - 1; chunk >= 0; chunk--)
        if (can_forward(search, rank, chunk))
            return (tutti_pipeline_step){TUTTI_PIPELINE_FORWARD, chunk, own->forwards[chunk]};
    bool first = own->weights[0] < own->inputs[0], second = own->weights[1] < own->inputs[1];
    if (!first && !second) return (tutti_pipeline_step){.part = TUTTI_PIPELINE_PARTS};
    int chunk = second && (!first || own->weights[1] <= own->weights[0]) ? 1 : 0;
    return (tutti_pipeline_step){TUTTI_PIPELINE_WEIGHTS, chunk, own->weights[chunk]};
}

/* Does the rank's chosen step; returns how many steps were done: 0 or 1. */
static int take(struct search *search, int rank)
{
    struct tti_pipeline_steps *list = &search->pipeline->of_rank[rank];
    struct progress *own = &search->done[rank];
    tutti_pipeline_step step = search->chosen[rank];
    if (step.part == TUTTI_PIPELINE_PARTS) return 0;
    if (step.part == TUTTI_PIPELINE_FORWARD) own->forwards[step.chunk]++;
    if (step.part == TUTTI_PIPELINE_INPUT) own->inputs[step.chunk]++;
    if (step.part == TUTTI_PIPELINE_WEIGHTS) own->weights[step.chunk]++;
    own->live += (step.part == TUTTI_PIPELINE_FORWARD) - (step.part == TUTTI_PIPELINE_WEIGHTS);
    list->steps[list->count++] = step;
    return 1;
}

bool tti_pipeline_fill_zb_v(struct tutti_pipeline *pipeline)
{
    size_t ranks = (size_t)pipeline->ranks;
    struct search search = {.pipeline = pipeline,
                            .most_live = 2 * pipeline->ranks,
                            .done = tti_calloc(ranks, sizeof(struct progress)),
                            .chosen = tti_calloc(ranks, sizeof(tutti_pipeline_step))};
    bool fine = search.done != NULL && search.chosen != NULL;
    int64_t left = fine ? INT64_C(3) * pipeline->stages * pipeline->micros : 0;
    while (left > 0) {
        int64_t before = left;
        for (int rank = 0; rank < pipeline->ranks; rank++) search.chosen[rank] = choose(&search, rank);
        for (int rank = 0; rank < pipeline->ranks; rank++) left -= take(&search, rank);
        if (left == before) search.most_live++; /* has not been seen to happen; with enough memory some rank goes on */
    }
    tti_free(search.done);
    tti_free(search.chosen);
    return fine;
}
