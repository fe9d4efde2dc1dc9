/* SPDX-License-Identifier: Apache-2.0 */
#include "pipeline_brute.h"

#include <stdlib.h>
#include <string.h>

/* One stage and micro-batch. */
struct cell {
    int forwards, backwards, inputs, weights; /* steps done */
    bool held;                                /* it has a slot: both its receives are posted */
    bool ended;                               /* its last step is done; what it has sent may still lie there */
    bool input_came, gradient_came;
};

struct brute {
    const tutti_pipeline *pipeline;
    tutti_pipeline_about about;
    struct cell *cells; /* (stages, micros) */
    int *slots;         /* (ranks, chunks) */
    size_t *next;       /* [ranks] */
    size_t *receives;   /* (ranks, chunks): steps up to here have been looked at for a forward to post */
};

static struct cell *cell_of(struct brute *brute, int stage, int micro)
{
    return &brute->cells[stage * brute->about.micros + micro];
}

/* As many as are live at once by the list of steps, and one at least. */
static int count_slots(const struct brute *brute, int rank, int chunk)
{
    size_t count;
    const tutti_pipeline_step *steps = tutti_pipeline_steps(brute->pipeline, rank, &count);
    int live = 0, most = 1;
    for (size_t i = 0; i < count; i++) {
        if (steps[i].chunk != chunk) continue;
        live += steps[i].part == TUTTI_PIPELINE_FORWARD;
        if (live > most) most = live;
        live -= steps[i].part == TUTTI_PIPELINE_BACKWARD || steps[i].part == TUTTI_PIPELINE_WEIGHTS;
    }
    return most;
}

static int count_held(struct brute *brute, int stage)
{
    int held = 0;
    for (int micro = 0; micro < brute->about.micros; micro++) held += cell_of(brute, stage, micro)->held;
    return held;
}

/* Posts what there are slots for, in the order of the forward steps. */
static bool post(struct brute *brute, int rank, int chunk)
{
    size_t count, *at = &brute->receives[rank * brute->about.chunks + chunk];
    const tutti_pipeline_step *steps = tutti_pipeline_steps(brute->pipeline, rank, &count);
    int stage = tutti_pipeline_stage(brute->pipeline, rank, chunk);
    bool moved = false;
    for (; *at < count; ++*at) {
        if (steps[*at].chunk != chunk || steps[*at].part != TUTTI_PIPELINE_FORWARD) continue;
        if (count_held(brute, stage) >= brute->slots[rank * brute->about.chunks + chunk]) break;
        cell_of(brute, stage, steps[*at].micro)->held = true;
        moved = true;
    }
    return moved;
}

/* Messages of this stage and micro-batch that can go over, and the slot, once all has gone that lies there. */
static bool exchange(struct brute *brute, int stage, int micro)
{
    struct cell *own = cell_of(brute, stage, micro), before = *own;
    bool first = stage == 0, last = stage == brute->about.stages - 1;
    struct cell *previous = first ? NULL : cell_of(brute, stage - 1, micro);
    struct cell *next = last ? NULL : cell_of(brute, stage + 1, micro);
    if (own->held && (first || previous->forwards > 0)) own->input_came = true;
    if (own->held && !last && (next->backwards > 0 || next->inputs > 0)) own->gradient_came = true;
    if (own->ended && (last || next->input_came) && (first || previous->gradient_came)) own->held = false;
    return memcmp(&before, own, sizeof before) != 0;
}

static bool step(struct brute *brute, int rank)
{
    size_t count;
    const tutti_pipeline_step *steps = tutti_pipeline_steps(brute->pipeline, rank, &count);
    if (brute->next[rank] == count) return false;
    tutti_pipeline_step now = steps[brute->next[rank]];
    int stage = tutti_pipeline_stage(brute->pipeline, rank, now.chunk);
    struct cell *own = cell_of(brute, stage, now.micro);
    bool last = stage == brute->about.stages - 1;
    bool backward = own->forwards > 0 && (last || own->gradient_came);
    if (now.part == TUTTI_PIPELINE_FORWARD && !(own->held && own->input_came)) return false;
    if (now.part == TUTTI_PIPELINE_BACKWARD && !backward) return false;
    if (now.part == TUTTI_PIPELINE_INPUT && !backward) return false;
    if (now.part == TUTTI_PIPELINE_WEIGHTS && own->inputs == 0) return false;
    own->forwards += now.part == TUTTI_PIPELINE_FORWARD;
    own->backwards += now.part == TUTTI_PIPELINE_BACKWARD;
    own->inputs += now.part == TUTTI_PIPELINE_INPUT;
    own->weights += now.part == TUTTI_PIPELINE_WEIGHTS;
    if (now.part == TUTTI_PIPELINE_BACKWARD || now.part == TUTTI_PIPELINE_WEIGHTS) own->ended = true;
    brute->next[rank]++;
    return true;
}

static bool turn(struct brute *brute, int rank)
{
    bool moved = false;
    for (int chunk = 0; chunk < brute->about.chunks; chunk++) moved = post(brute, rank, chunk) || moved;
    for (int stage = 0; stage < brute->about.stages; stage++)
        for (int micro = 0; tutti_pipeline_rank(brute->pipeline, stage, NULL) == rank && micro < brute->about.micros;
             micro++)
            moved = exchange(brute, stage, micro) || moved;
    return step(brute, rank) || moved;
}

static bool is_complete(struct brute *brute)
{
    for (int rank = 0; rank < brute->about.ranks; rank++) {
        size_t count;
        (void)tutti_pipeline_steps(brute->pipeline, rank, &count);
        if (brute->next[rank] < count) return false;
    }
    for (int stage = 0; stage < brute->about.stages; stage++) {
        for (int micro = 0; micro < brute->about.micros; micro++) {
            const struct cell *cell = cell_of(brute, stage, micro);
            bool whole = cell->backwards == 1 && cell->inputs == 0 && cell->weights == 0;
            bool parts = cell->backwards == 0 && cell->inputs == 1 && cell->weights == 1;
            if (cell->forwards != 1 || (!whole && !parts)) return false;
        }
    }
    return true;
}

bool pipeline_brute_ends(const tutti_pipeline *pipeline, unsigned seed)
{
    struct brute brute = {.pipeline = pipeline, .about = {.struct_size = sizeof brute.about}};
    tutti_pipeline_describe(pipeline, &brute.about);
    int ranks = brute.about.ranks, chunks = brute.about.chunks, silent = 0;
    brute.cells = calloc((size_t)brute.about.stages * (size_t)brute.about.micros, sizeof *brute.cells);
    brute.slots = calloc((size_t)brute.about.stages, sizeof *brute.slots);
    brute.next = calloc((size_t)ranks, sizeof *brute.next);
    brute.receives = calloc((size_t)brute.about.stages, sizeof *brute.receives);
    for (int i = 0; i < ranks * chunks; i++) brute.slots[i] = count_slots(&brute, i / chunks, i % chunks);
    for (int rank = 0; silent < ranks; rank = (rank + 1 + (rand_r(&seed) % 4 == 0)) % ranks) {
        if (turn(&brute, rank)) {
            silent = 0;
        } else { /* nothing more moves when none of them, in order, can */
            for (silent = 1; silent < ranks && !turn(&brute, (rank + silent) % ranks);) silent++;
            silent = silent < ranks ? 0 : silent;
        }
    }
    bool complete = is_complete(&brute);
    free(brute.cells);
    free(brute.slots);
    free(brute.next);
    free(brute.receives);
    return complete;
}

/* ---- Times ------------------------------------------------------------------------------------------------------- */

enum { ENDS = TUTTI_PIPELINE_PARTS };

static double duration(const tutti_pipeline_times *times, tutti_pipeline_part part)
{
    const double lengths[] = {times->forward, times->input + times->weights, times->input, times->weights};
    return lengths[part];
}

/* The end of the step's own and its neighbour's: 0 where it waits for none. */
static double latest(const double *ends, const tutti_pipeline_about *about, int stage, tutti_pipeline_step step)
{
    const double *own = ends + ENDS * (stage * about->micros + step.micro);
    const double *previous = own - ENDS * about->micros, *next = own + ENDS * about->micros;
    if (step.part == TUTTI_PIPELINE_FORWARD) return stage == 0 ? 0 : previous[TUTTI_PIPELINE_FORWARD];
    if (step.part == TUTTI_PIPELINE_WEIGHTS) return own[TUTTI_PIPELINE_INPUT];
    double at = own[TUTTI_PIPELINE_FORWARD];
    if (stage == about->stages - 1) return at;
    for (tutti_pipeline_part part = TUTTI_PIPELINE_BACKWARD; part <= TUTTI_PIPELINE_INPUT; part++)
        if (next[part] > at) at = next[part];
    return at;
}

double pipeline_brute_makespan(const tutti_pipeline *pipeline, const tutti_pipeline_times *times)
{
    tutti_pipeline_about about = {.struct_size = sizeof about};
    tutti_pipeline_describe(pipeline, &about);
    double *ends = calloc((size_t)(about.stages * about.micros * ENDS), sizeof *ends), makespan = 0;
    for (bool changed = true; changed;) {
        changed = false;
        for (int rank = 0; rank < about.ranks; rank++) {
            size_t count;
            const tutti_pipeline_step *steps = tutti_pipeline_steps(pipeline, rank, &count);
            double now = 0;
            for (size_t i = 0; i < count; i++) {
                int stage = tutti_pipeline_stage(pipeline, rank, steps[i].chunk);
                double start = latest(ends, &about, stage, steps[i]);
                double *end = &ends[ENDS * (stage * about.micros + steps[i].micro) + (int)steps[i].part];
                now = (start > now ? start : now) + duration(times, steps[i].part);
                changed = changed || *end != now;
                *end = now;
                if (now > makespan) makespan = now;
            }
        }
    }
    free(ends);
    return makespan;
}
