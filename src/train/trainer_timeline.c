/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows as a picture when each rank did what in the last step. With a pipe its runner knows when its ranks did what.
 * Without one, each rank notes when its passes went forward and backward. All ranks know the moment at which all knew
 * the losses, and times of ranks and of pipes are compared by that.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/pipeline_run.h"
#include "train/pipeline_table.h"
#include "train/trainer.h"
#include <math.h>
#include <string.h>

/* ---- Noting ---------------------------------------------------------------------------------------------------- */

tutti_status tti_timeline_make(struct tutti_trainer *t, tutti_error *error)
{
    struct tti_timeline *timeline = &t->timeline;
    int passes = t->passes > t->micros.count ? t->passes : t->micros.count;
    if (passes < t->options.accumulate) passes = (int)t->options.accumulate;
    timeline->room = 2 * passes;
    if (tti_trainer_is_planned(t) || t->pipeline != NULL) return TUTTI_OK;
    timeline->spans = tti_calloc((size_t)timeline->room, sizeof *timeline->spans);
    if (timeline->spans != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for the times of %d passes", passes);
}

void tti_timeline_begin(struct tutti_trainer *t)
{
    t->timeline.count = 0;
    t->timeline.began_ns = tti_now_ns();
}

void tti_timeline_add(struct tutti_trainer *t, int64_t began_ns)
{
    struct tti_timeline *timeline = &t->timeline;
    if (timeline->spans == NULL || timeline->count == timeline->room) return;
    timeline->spans[timeline->count++] = (tutti_pipeline_span){(double)(began_ns - timeline->began_ns) * 1e-9,
                                                               (double)(tti_now_ns() - timeline->began_ns) * 1e-9};
}

void tti_timeline_end(struct tutti_trainer *t)
{
    t->timeline.seconds = (double)(tti_now_ns() - t->timeline.began_ns) * 1e-9;
}

/* ---- Without a pipe -------------------------------------------------------------------------------------------- */

/* Moves spans so that the first begins at 0. A pass that a rank did not make takes no time. */
static void align(tutti_pipeline_span *spans, size_t count)
{
    double first = INFINITY;
    for (size_t i = 0; i < count; i++)
        if (spans[i].end > spans[i].start && spans[i].start < first) first = spans[i].start;
    for (size_t i = 0; i < count; i++) {
        const bool made = spans[i].end > spans[i].start;
        spans[i].start = made ? spans[i].start - first : 0;
        spans[i].end = made ? spans[i].end - first : 0;
    }
}

static tutti_status draw_rows(struct tutti_trainer *t, const tutti_pipeline_span *spans, const char *title,
                              FILE *stream)
{
    const int passes = t->timeline.room / 2;
    tutti_pipeline *rows = NULL;
    tutti_status status = tutti_pipeline_create(t->world_size, 1, passes, NULL, &rows, &t->error);
    for (int i = 0; status == TUTTI_OK && i < t->world_size * t->timeline.room; i++) {
        const tutti_pipeline_step step = {i % 2 == 0 ? TUTTI_PIPELINE_FORWARD : TUTTI_PIPELINE_BACKWARD, 0,
                                          i % t->timeline.room / 2};
        status = tutti_pipeline_add(rows, i / t->timeline.room, step, &t->error);
    }
    char about[TTI_PIPELINE_ABOUT];
    (void)snprintf(about, sizeof about, "%d rank%s, %d pass%s", t->world_size, t->world_size == 1 ? "" : "s", passes,
                   passes == 1 ? "" : "es");
    if (status == TUTTI_OK) tti_pipeline_picture(rows, spans, title, about, stream);
    tutti_pipeline_free(rows);
    return status;
}

/* Gathers the spans of all ranks, counted from the moment that all know. */
static tutti_status gather_spans(struct tutti_trainer *t, tutti_pipeline_span *mine, tutti_pipeline_span *all)
{
    const struct tti_timeline *timeline = &t->timeline;
    for (int i = 0; i < timeline->count; i++)
        mine[i] = (tutti_pipeline_span){timeline->spans[i].start - timeline->seconds,
                                        timeline->spans[i].end - timeline->seconds};
    return tti_trainer_comm_failed(t, tutti_all_gather(tti_inside(tti_trainer_comm(t), "trainer", "timeline"), mine,
                                                       all, 2 * (size_t)timeline->room, TUTTI_F64));
}

static tutti_status draw_passes(struct tutti_trainer *t, const char *title, FILE *stream)
{
    const size_t room = (size_t)t->timeline.room, count = room * (size_t)t->world_size;
    if (t->timeline.seconds <= 0) return tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "timeline: no step was taken");
    tutti_pipeline_span *spans = tti_calloc(count + room, sizeof *spans);
    tutti_status status = spans != NULL
                              ? TUTTI_OK
                              : tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0,
                                              "timeline: no memory for the passes of %d ranks", t->world_size);
    status = tti_agree(tti_trainer_comm(t), status, &t->error);
    if (status == TUTTI_OK) status = gather_spans(t, spans + count, spans);
    if (status == TUTTI_OK && t->world_rank == 0 && stream != NULL) {
        align(spans, count);
        status = draw_rows(t, spans, title, stream);
    }
    tti_free(spans);
    return status;
}

/* ---- With one -------------------------------------------------------------------------------------------------- */

void tti_timeline_run(struct tutti_trainer *t, int64_t began_ns)
{
    t->timeline.run_began = (double)(began_ns - t->timeline.began_ns) * 1e-9;
}

static int pipe_rank(const struct tutti_trainer *t, int rank)
{
    struct tti_trainer_mesh mesh = t->mesh;
    tti_trainer_mesh_place(&mesh, rank);
    return mesh.at[TTI_MESH_PIPE];
}

/* What every rank tells: when its pipe's run began, from the moment that all know, and times of its own steps from that. */
struct tti_told_spans {
    size_t *counts, *firsts; /* [ranks]: doubles of each, and of those before it */
    double *all;             /* those of all ranks */
    tutti_pipeline_span *spans;
};

static void free_told(struct tti_told_spans *told)
{
    tti_free(told->counts);
    tti_free(told->firsts);
    tti_free(told->all);
    tti_free(told->spans);
}

static tutti_status make_told(struct tutti_trainer *t, struct tti_told_spans *told)
{
    const size_t ranks = (size_t)t->world_size;
    size_t doubles = 0;
    *told = (struct tti_told_spans){.counts = tti_calloc(ranks, sizeof *told->counts),
                                    .firsts = tti_calloc(ranks, sizeof *told->firsts)};
    for (size_t r = 0; told->counts != NULL && told->firsts != NULL && r < ranks; r++) {
        size_t steps;
        (void)tutti_pipeline_steps(t->pipeline->table, pipe_rank(t, (int)r), &steps);
        told->counts[r] = 2 * steps + 1;
        told->firsts[r] = doubles;
        doubles += told->counts[r];
    }
    told->all = tti_calloc(doubles + 1, sizeof *told->all);
    told->spans = tti_calloc(doubles / 2 + t->pipeline->about.steps, sizeof *told->spans);
    if (told->counts != NULL && told->firsts != NULL && told->all != NULL && told->spans != NULL) return TUTTI_OK;
    return tti_error_set(&t->error, TUTTI_ERR_MEMORY, 0, "timeline: no memory for the steps of %d ranks",
                         t->world_size);
}

/* Gathers the spans of all ranks: those of a pipe by its runner, and pipes by the moment that all know. */
static tutti_status gather_told(struct tutti_trainer *t, struct tti_told_spans *told)
{
    const struct tti_trainer_pipeline *p = t->pipeline;
    size_t first = 0, steps = 0;
    TTI_TRY(tutti_pipeline_timeline(tutti_pipeline_at(p->runner, t->here.file, t->here.line), told->spans, &t->error));
    for (int rank = 0; rank <= t->mesh.at[TTI_MESH_PIPE]; rank++) {
        first += steps;
        (void)tutti_pipeline_steps(p->table, rank, &steps);
    }
    double *mine = told->all + told->firsts[t->world_rank];
    memcpy(mine + 1, told->spans + first, steps * sizeof *told->spans);
    const double delay = steps == 0 ? 0 : mine[1] - (double)p->runner->spans[0] * 1e-9;
    mine[0] = t->timeline.run_began - delay - t->timeline.seconds;
    return tti_trainer_comm_failed(t, tutti_all_gather_v(tti_inside(tti_trainer_comm(t), "trainer", "timeline"), mine,
                                                         told->all, told->counts, NULL, TUTTI_F64));
}

/* Makes a table whose rows are all ranks, with the steps of the ranks' own table. */
static tutti_status make_rows(struct tutti_trainer *t, tutti_pipeline **rows)
{
    const struct tti_trainer_pipeline *p = t->pipeline;
    TTI_TRY(tutti_pipeline_create(t->world_size, p->about.chunks, p->about.micros, NULL, rows, &t->error));
    for (int rank = 0; rank < t->world_size; rank++) {
        size_t count;
        const tutti_pipeline_step *steps = tutti_pipeline_steps(p->table, pipe_rank(t, rank), &count);
        for (size_t i = 0; i < count; i++) TTI_TRY(tutti_pipeline_add(*rows, rank, steps[i], &t->error));
    }
    return TUTTI_OK;
}

static void draw_told(struct tutti_trainer *t, struct tti_told_spans *told, const tutti_pipeline *rows,
                      const char *title, FILE *stream)
{
    const int pipe = t->mesh.sizes[TTI_MESH_PIPE], pipes = t->world_size / pipe;
    size_t count = 0;
    char ranks[80], about[TTI_PIPELINE_ABOUT];
    for (int rank = 0; rank < t->world_size; rank++) {
        const int head = rank - pipe_rank(t, rank) * t->mesh.sizes[TTI_MESH_TENSOR]; /* of its pipe */
        const double began = told->all[told->firsts[head]];
        const double *of = told->all + told->firsts[rank] + 1;
        for (size_t i = 0; i + 1 < told->counts[rank]; i += 2)
            told->spans[count++] = (tutti_pipeline_span){began + of[i], began + of[i + 1]};
    }
    align(told->spans, count);
    if (pipes == 1)
        (void)snprintf(ranks, sizeof ranks, "%d ranks", pipe);
    else
        (void)snprintf(ranks, sizeof ranks, "%d pipes of %d ranks", pipes, pipe);
    tti_pipeline_picture(rows, told->spans, title, tti_pipeline_about(t->pipeline->table, ranks, about), stream);
}

static tutti_status draw_table(struct tutti_trainer *t, const char *title, FILE *stream)
{
    struct tti_told_spans told;
    tutti_pipeline *rows = NULL;
    if (t->pipeline->report.seconds <= 0)
        return tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "timeline: no step was taken");
    tutti_status status = tti_agree(tti_trainer_comm(t), make_told(t, &told), &t->error);
    if (status == TUTTI_OK) status = gather_told(t, &told);
    if (status == TUTTI_OK && t->world_rank == 0 && stream != NULL) {
        status = make_rows(t, &rows);
        if (status == TUTTI_OK) draw_told(t, &told, rows, title, stream);
        tutti_pipeline_free(rows);
    }
    free_told(&told);
    return status;
}

tutti_status tutti_trainer_timeline(tutti_trainer *t, const char *title, FILE *stream)
{
    TTI_TRY(tti_trainer_usable(t));
    tti_trainer_begin(t);
    if (t->server != NULL) {
        tutti_status none = tti_error_set(&t->error, TUTTI_ERR_UNSUPPORTED, 0,
                                          "server %lld does not go with timeline: workers do not take steps together",
                                          (long long)t->options.server);
        return tti_trainer_end(t, "timeline", none);
    }
    return tti_trainer_end(t, "timeline",
                           t->pipeline != NULL ? draw_table(t, title, stream) : draw_passes(t, title, stream));
}
