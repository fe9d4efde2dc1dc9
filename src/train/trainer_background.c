/* SPDX-License-Identifier: Apache-2.0
 *
 * Saves while training goes on. Ranks put the pieces together as usual, but in memory; then a task of each rank writes
 * its copy, and the tasks end the save among themselves, on a comm of their own. There is one save at a time.
 *
 * Invariant: only the task touches `save`, `status` and `error` between its start and its join.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "base/task.h"
#include "train/trainer.h"
#include "train/trainer_save.h"

struct tti_background {
    tutti_comm *comm; /* of all ranks; NULL: the trainer is only planned */
    int rank, size, keep;
    uint64_t step;
    char *bytes; /* the copy: this rank's pieces, one behind the other */
    size_t room;
    struct tti_save save;
    struct tti_task task;
    bool running;      /* the task was started and not joined */
    atomic_bool ended; /* the task has nothing left to do */
    bool untold;       /* `status` is a failure that was not reported */
    tutti_status status;
    tutti_error error;
};

/* ---- Making ---------------------------------------------------------------------------------------------------- */

/* Returns the bytes of all pieces that this rank writes. */
static size_t copied_bytes(const struct tti_range_plan *plan, int rank, int size)
{
    size_t bytes = 0;
    for (size_t i = 0; i < tti_range_rounds(plan, size) * TTI_PART_PIECES; i++) {
        const struct tti_range_piece piece = tti_range_piece(plan, rank, size, i / TTI_PART_PIECES,
                                                             i % TTI_PART_PIECES);
        bytes += piece.file == NULL ? 0 : (size_t)(piece.to - piece.from);
    }
    return bytes;
}

static tutti_status plan_copy(const struct tutti_trainer *t, struct tti_background *background, tutti_error *error)
{
    struct tti_arrays arrays;
    struct tti_range_plan *plan = tti_calloc(1, sizeof *plan);
    tutti_status status = tti_arrays_make(t, &arrays, error);
    const struct tti_checkpoint_content content = {.tensors = arrays.list, .tensor_count = arrays.list_count};
    if (status == TUTTI_OK && plan == NULL)
        status = tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to plan checkpoints");
    if (status == TUTTI_OK) status = tti_range_plan_make(&content, plan, error);
    if (status == TUTTI_OK) background->room = copied_bytes(plan, background->rank, background->size);
    if (status == TUTTI_OK) tti_range_plan_free(plan);
    tti_free(plan);
    tti_arrays_free(&arrays);
    return status;
}

static tutti_status make_copy(struct tutti_trainer *t, struct tti_background *background, tutti_error *error)
{
    if (background == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to save in the background");
    background->rank = t->world_rank;
    background->size = t->world_size;
    background->keep = (int)t->options.keep;
    TTI_TRY(plan_copy(t, background, error));
    if (tti_trainer_is_planned(t)) return TUTTI_OK;
    background->bytes = tti_calloc(background->room + 1, 1);
    if (background->bytes != NULL) return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                         "save_async: no memory for a copy of the %zu bytes that this rank writes of a checkpoint",
                         background->room);
}

tutti_status tti_background_make(struct tutti_trainer *t, tutti_error *error)
{
    if (!t->options.save_async || t->options.save[0] == '\0') return TUTTI_OK;
    t->background = tti_calloc(1, sizeof *t->background);
    tutti_status status = make_copy(t, t->background, error);
    if (tti_trainer_is_planned(t)) return status;
    TTI_TRY(tti_agree(tti_trainer_comm(t), status, error));
    status = tutti_comm_duplicate(tti_inside(tti_trainer_comm(t), "checkpoint", "background"), &t->background->comm);
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    return status;
}

size_t tti_background_bytes(const struct tutti_trainer *t)
{
    return t->background == NULL ? 0 : t->background->room;
}

/* ---- Writing --------------------------------------------------------------------------------------------------- */

static tutti_status write_copy(struct tti_background *background, tutti_error *error)
{
    const struct tti_saving *saving = &background->save.saving;
    struct tti_range_writer writer = {.folder = saving->working, .hashes = background->save.hashes};
    const char *bytes = background->bytes;
    const size_t rounds = tti_range_rounds(saving->plan, background->size);
    tutti_status status = TUTTI_OK;
    for (size_t i = 0; status == TUTTI_OK && i < rounds * TTI_PART_PIECES; i++) {
        const struct tti_range_piece piece = tti_range_piece(saving->plan, background->rank, background->size,
                                                             i / TTI_PART_PIECES, i % TTI_PART_PIECES);
        if (piece.file == NULL) continue;
        status = tti_range_put(&writer, &piece, bytes, error);
        bytes += piece.to - piece.from;
    }
    tutti_error unused;
    tutti_status closed = tti_range_close(&writer, status == TUTTI_OK ? error : &unused);
    return status == TUTTI_OK ? closed : status;
}

/* Ends the save. If the status is a failure nothing is written, and the others are told. */
static void end_save(struct tti_background *background, tutti_status status)
{
    if (status == TUTTI_OK) status = write_copy(background, &background->error);
    background->status = tti_save_end(&background->save, background->comm, background->keep, status,
                                      &background->error);
    tti_save_free(&background->save);
    atomic_store_explicit(&background->ended, true, memory_order_release);
}

static void *work(void *argument)
{
    end_save(argument, TUTTI_OK);
    return NULL;
}

static tutti_status copy_pieces(struct tutti_trainer *t, struct tti_background *background)
{
    const struct tti_range_plan *plan = background->save.saving.plan;
    const struct tti_piece_source source = tti_arrays_source(&background->save.arrays, &t->error);
    struct tti_pieces pieces;
    size_t used = 0;
    tutti_status status = tti_agree(tti_trainer_comm(t), tti_pieces_make(&source, plan, &pieces, &t->error), &t->error);
    for (size_t i = 0; status == TUTTI_OK && i < tti_range_rounds(plan, pieces.size) * TTI_PART_PIECES; i++) {
        struct tti_range_piece mine;
        status = tti_pieces_bring(&pieces, i / TTI_PART_PIECES, i % TTI_PART_PIECES, &mine, background->bytes + used);
        used += mine.file == NULL ? 0 : (size_t)(mine.to - mine.from);
    }
    if (status == TUTTI_OK) status = pieces.status;
    tti_pieces_free(&pieces);
    return tti_agree(tti_trainer_comm(t), status, &t->error);
}

/* Starts the task. A rank without a task ends the save itself, as one that has failed. */
static void start(struct tti_background *background)
{
    atomic_store_explicit(&background->ended, false, memory_order_relaxed);
    tutti_status status = tti_task_start(&background->task, work, background, &background->error);
    background->running = status == TUTTI_OK;
    if (status != TUTTI_OK) end_save(background, status);
    if (status != TUTTI_OK) background->untold = true;
}

tutti_status tti_background_save(struct tutti_trainer *t)
{
    struct tti_background *background = t->background;
    if (tti_background_failed(t, true)) tti_log(TUTTI_WARN, "%s", t->error.text);
    background->step = t->step;
    background->error = (tutti_error){.rank = background->rank, .peer = -1};
    tutti_status status = tti_save_begin(t, &background->save);
    if (status == TUTTI_OK) status = copy_pieces(t, background);
    if (status == TUTTI_OK)
        start(background);
    else
        tti_save_free(&background->save);
    return status;
}

/* ---- The end --------------------------------------------------------------------------------------------------- */

static void join(struct tti_background *background)
{
    tti_task_join(&background->task);
    background->running = false;
    background->untold = background->status != TUTTI_OK;
}

bool tti_background_failed(struct tutti_trainer *t, bool wait)
{
    struct tti_background *background = t->background;
    if (background == NULL) return false;
    if (background->running && (wait || atomic_load_explicit(&background->ended, memory_order_acquire)))
        join(background);
    if (!background->untold) return false;
    background->untold = false;
    t->error = background->error;
    (void)snprintf(t->error.text, sizeof t->error.text, "no checkpoint of step %llu was saved: %.400s",
                   (unsigned long long)background->step, background->error.text);
    return true;
}

void tti_background_free(struct tutti_trainer *t)
{
    struct tti_background *background = t->background;
    if (background == NULL) return;
    if (tti_background_failed(t, true)) tti_log(TUTTI_WARN, "%s", t->error.text);
    (void)tutti_comm_free(background->comm);
    tti_free(background->bytes);
    tti_free(background);
}
