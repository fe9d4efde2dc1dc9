/* SPDX-License-Identifier: Apache-2.0
 *
 * Shows as a picture when each rank did what in the last step. With a pipe its runner knows. Without one, each rank
 * notes when its passes went forward and backward; all ranks know the moment at which all knew the losses, and times
 * are compared by that.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/trainer.h"
#include <math.h>

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
    if (status == TUTTI_OK) tutti_pipeline_picture(rows, spans, title, stream);
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

static tutti_status draw_table(struct tutti_trainer *t, const char *title, FILE *stream)
{
    struct tti_trainer_pipeline *p = t->pipeline;
    if (p->report.seconds <= 0) return tti_error_set(&t->error, TUTTI_ERR_ARGUMENT, 0, "timeline: no step was taken");
    tutti_pipeline_span *spans = tti_calloc(p->about.steps, sizeof *spans);
    tutti_status status = spans == NULL ? TUTTI_ERR_MEMORY : TUTTI_OK;
    if (status != TUTTI_OK)
        (void)tti_error_set(&t->error, status, 0, "timeline: no memory for %zu steps", p->about.steps);
    TTI_TRY(tti_agree(tti_trainer_comm(t), status, &t->error));
    tutti_pipeline_runner *runner = tutti_pipeline_at(p->runner, t->here.file, t->here.line);
    status = tutti_pipeline_timeline(runner, spans, &t->error);
    if (status == TUTTI_OK && tutti_rank(t->comm) == 0 && stream != NULL)
        tutti_pipeline_picture(p->table, spans, title, stream);
    tti_free(spans);
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
