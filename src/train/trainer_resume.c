/* SPDX-License-Identifier: Apache-2.0
 *
 * Resumes. Rank 0 finds the newest complete checkpoint; then each rank reads its part of it, whatever the ranks of the
 * run that saved it.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/log.h"
#include "base/status.h"
#include "nn/sequence.h"
#include "train/train_options.h"
#include "train/trainer.h"
#include "train/trainer_arrays.h"
#include <stdlib.h>
#include <string.h>

/* ---- Is it of this run ----------------------------------------------------------------------------------------- */

/* Options that determine the model must be those of the checkpoint. Others may change; a change that affects the run's
 * results is logged. */
static tutti_status compare_options(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint,
                                    tutti_error *error)
{
    static const char model[] = " model layers heads width context loss batch_norm optimizer ";
    static const char local[] =
        " save save_every save_async keep copy_every resume steps val_every val_samples check_every "
        "threads accumulate zero mesh pipeline "
        "micro stages width_grains sequence recompute server ";
    for (size_t i = 0; i < tti_train_row_count; i++) {
        const struct tti_train_row *row = &tti_train_rows[i];
        char here[TTI_TRAIN_TEXT], word[64];
        const char *there = tutti_checkpoint_note(checkpoint, row->row.name);
        const char *value = tti_train_text(&t->options, row, here);
        if (there == NULL || tti_note_is(there, value)) continue;
        (void)snprintf(word, sizeof word, " %s ", row->row.name);
        if (strstr(model, word) != NULL)
            return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                                 "%.240s is of another model: %s is %.64s there, %.64s here",
                                 tutti_checkpoint_path(checkpoint), row->row.name, there, value);
        if (strstr(local, word) == NULL)
            tti_log(TUTTI_WARN, "resuming with another %s: %s, the checkpoint has %s", row->row.name, value, there);
    }
    return TUTTI_OK;
}

/* Another CPU type or matrix library rounds in another way: the run goes on, but its bits may differ. */
static void compare_machine(const tutti_checkpoint *checkpoint)
{
    const struct {
        const char *name, *here;
    } rows[] = {{"machine.cpu", tutti_cpu()},
                {"machine.blas", tutti_blas_name()},
                {"machine.kernels", tutti_nn_kernels_name()}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const char *there = tutti_checkpoint_note(checkpoint, rows[i].name);
        if (there != NULL && strcmp(there, rows[i].here) != 0)
            tti_log(TUTTI_WARN,
                    "resuming on another machine, which may round otherwise: %s is %s, the checkpoint has %s",
                    rows[i].name, rows[i].here, there);
    }
}

/* Returns true if the model's loss takes cut rows. */
static bool has_cut_loss(const tutti_model *model)
{
    const tutti_layer *last = model->layers[model->layer_count - 1];
    return last->outputs == 0 && last->cut == TUTTI_CUT_INPUTS;
}

/* Warns of another order of sums. For models without a tied weight and with one width grain, and for --fast, it has
 * never changed. */
static void compare_sums(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint)
{
    const char *note = tutti_checkpoint_note(checkpoint, "layout.sums");
    const int there = note == NULL ? 0 : atoi(note);
    const bool other_tie = t->tie.elements > 0 && there < TTI_SUMS_TIED;
    const bool other_blocks = tti_model_has_blocks(t->model) && !t->options.fast && there < TTI_SUMS_BLOCKS;
    const bool other_loss = has_cut_loss(t->model) && there < TTI_SUMS_CLASSES;
    if (other_tie || other_blocks || other_loss)
        tti_log(TUTTI_WARN,
                "resuming with another order of sums than the checkpoint was made with: last bits may differ "
                "from those of a run that was never stopped");
}

/* Checkpoints without this note are of models that were not cut. */
static void compare_width(const struct tutti_trainer *t, const tutti_checkpoint *checkpoint)
{
    const char *note = tutti_checkpoint_note(checkpoint, "layout.width_grains");
    const int here = tutti_model_width_grains(t->model), there = note == NULL ? 1 : atoi(note);
    if (here != there)
        tti_log(TUTTI_WARN,
                "resuming with %d width grains, the checkpoint has %d: last bits may differ from those of a run that "
                "was never stopped; --width-grains %d keeps them",
                here, there, there);
}

/* ---- Reading --------------------------------------------------------------------------------------------------- */

static tutti_status read_arrays(struct tutti_trainer *t, const tutti_checkpoint *checkpoint, tutti_error *error)
{
    struct tti_arrays arrays;
    tutti_status status = tti_arrays_make(t, &arrays, error);
    const struct tti_piece_source source = tti_arrays_source(&arrays, error);
    if (status == TUTTI_OK) status = tti_pieces_read(&source, checkpoint, error);
    tti_arrays_free(&arrays);
    return status;
}

/* Returns the updates. With parameter servers and staleness every worker's step is an update; otherwise there are as
 * many as steps. */
static uint64_t updates_of(const tutti_checkpoint *checkpoint)
{
    const char *note = tutti_checkpoint_note(checkpoint, "layout.updates");
    return note == NULL ? tutti_checkpoint_step(checkpoint) : strtoull(note, NULL, 10);
}

static tutti_status read_checkpoint(struct tutti_trainer *t, uint64_t *updates, tutti_error *error)
{
    tutti_checkpoint *checkpoint = NULL;
    TTI_TRY(tutti_checkpoint_open(t->resumed_from, false, &checkpoint, error));
    t->step = tutti_checkpoint_step(checkpoint);
    *updates = updates_of(checkpoint);
    if (t->optimizer != NULL) tutti_optimizer_set_steps(t->optimizer, *updates);
    tutti_status status = read_arrays(t, checkpoint, error);
    tutti_checkpoint_free(checkpoint);
    return status;
}

/* Opens the newest checkpoint that is complete, and checks every byte of it. */
static tutti_status find_checkpoint(struct tutti_trainer *t, tutti_error *error)
{
    tutti_checkpoint *checkpoint = NULL;
    if (t->options.save[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "resume: say where the checkpoints are with save");
    TTI_TRY(tutti_checkpoint_open(t->options.save, true, &checkpoint, error));
    (void)snprintf(t->resumed_from, sizeof t->resumed_from, "%s", tutti_checkpoint_path(checkpoint));
    tutti_status status = compare_options(t, checkpoint, error);
    if (status == TUTTI_OK) {
        compare_machine(checkpoint);
        compare_sums(t, checkpoint);
        compare_width(t, checkpoint);
    }
    tutti_checkpoint_free(checkpoint);
    return status;
}

tutti_status tti_trainer_read_newest(struct tutti_trainer *t, uint64_t *updates, tutti_error *error)
{
    TTI_TRY(find_checkpoint(t, error));
    return read_checkpoint(t, updates, error);
}

static tutti_status meet(struct tutti_trainer *t, tutti_status status, tutti_error *error)
{
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    return status;
}

tutti_status tti_trainer_resume(struct tutti_trainer *t, tutti_error *error)
{
    tutti_status status = tutti_rank(t->comm) == 0 ? find_checkpoint(t, error) : TUTTI_OK;
    TTI_TRY(tti_agree(tti_trainer_comm(t), status, error));
    TTI_TRY(meet(t,
                 tutti_broadcast(tti_inside(tti_trainer_comm(t), "checkpoint", "resume"), t->resumed_from,
                                 t->resumed_from, sizeof t->resumed_from, TUTTI_U8, 0),
                 error));
    uint64_t updates;
    TTI_TRY(tti_agree(tti_trainer_comm(t), read_checkpoint(t, &updates, error), error));
    return meet(t, tti_tie_spread(&t->tie, t->ddp), error);
}
