/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer: data, model, optimizer and ddp, and what one rank does of a step.
 *
 * The batch is cut into cells: its grains, or in fast mode one per rank. A rank has a run of cells; what is computed for
 * a grain does not depend on who has it, losses of cells are gathered and summed in the tree over all cells, and so
 * everything that steers the run (loss, norm, rate) is the same on every rank, and with grains on every layout.
 */
#ifndef TTI_TRAIN_TRAINER_H
#define TTI_TRAIN_TRAINER_H

#include "collective/api/inside.h"
#include "train/micro.h"
#include "train/tie.h"
#include "train/trainer_mesh.h"
#include "train/trainer_pipeline.h"
#include "train/trainer_server.h"
#include "train/trainer_width.h"
#include "train/tree.h"

#include <limits.h>
#include <stdatomic.h>
#include <tutti/train.h>

/* When the passes of a step that has no pipe went forward and backward, in turn. */
struct tti_timeline {
    tutti_pipeline_span *spans; /* [room], in seconds from the step's begin */
    int count, room;
    int64_t began_ns;
    double seconds; /* until all ranks knew the losses; 0: no step was taken */
};

struct tutti_trainer {
    tutti_comm *comm; /* of all ranks; NULL: it is only planned, and has no memory for numbers (trainer_plan.c) */
    int world_rank, world_size;
    int host_ranks;       /* of them, those that share this host's memory */
    struct tti_here here; /* the call that is being made */
    struct tti_trainer_mesh mesh;
    int rank, size; /* among those that share the batch: of mesh.batch */
    tutti_train_options options;
    tutti_schedule schedule;
    tutti_error error;
    tutti_status
        failed; /* this rank's part of the step: data that are gone. It still takes part, and then all learn of it */

    tutti_data *data;
    tutti_data_about about;
    bool table; /* rows of numbers, not tokens */

    tutti_model *model;
    float *values, *gradients;
    tutti_parameter *list; /* [tutti_model_tensors] */
    size_t list_count, elements;
    tutti_optimizer *optimizer;
    tutti_ddp *ddp;
    tutti_pass *pass;
    size_t pass_bytes; /* of all passes */
    size_t optimizer_bytes;

    size_t cells;         /* of the batch */
    struct tti_span mine; /* cells of this rank, but with zero 2 or 3: */
    int passes;           /* of a step in which all ranks take part; 1 below zero 2, however often a rank accumulates */
    int *pass_bounds;     /* [passes + 1], with grains: the cells of each */
    int pass_grains;      /* then: the most cells of a rank in one */
    struct tti_micros micros; /* with grains and below zero 2: what a rank does one after the other */
    size_t piece;             /* the most cells of one pass */
    int64_t room;             /* samples of one pass */
    float *scratch[32];       /* gradients of subtrees that wait to be added, by depth: this rank's, then the tie's */
    size_t scratch_bytes;
    struct tti_tie tie;
    const double *unit_costs;              /* what stages are balanced by; NULL: they are measured */
    const tutti_data_about *told;          /* what the data are like; NULL: they are opened */
    struct tti_trainer_pipeline *pipeline; /* NULL: the model is in one piece */

    /* One pass's samples. */
    int32_t *tokens, *targets;
    float *inputs, *target_values, *weights;
    int64_t *bounds; /* [piece + 1]: where each grain begins */
    size_t batch_bytes;

    tutti_loss *losses; /* [cells]: of this rank's cells */
    double *gathered;   /* [2 cells + ranks] */
    size_t *counts;     /* [ranks] */

    struct tti_timeline timeline;

    uint64_t step; /* taken */
    atomic_int stop;
    double seconds; /* in communication, but for the ddp's */
    char resumed_from[PATH_MAX];
    float *state_before;               /* [the model's states]: before the step */
    tutti_status gone;                 /* why values or gradients did not come, in the pass that runs */
    tutti_status ready_status;         /* the first failure of tutti_ddp_ready_run in this step */
    struct tti_trainer_server *server; /* some ranks are parameter servers (trainer_server.h); NULL: none are */
    struct tti_background *background; /* saves while training goes on; NULL: saves are waited for */
    bool locked;                       /* the folder of checkpoints, by `lock` */
    int lock;

    bool heals;                    /* lost ranks are started again */
    struct tti_copies *copies;     /* NULL: nothing is copied */
    struct tti_rank_place *places; /* [world_size]: where ranks are; NULL: not known */
    size_t planned_copies;         /* a planned trainer's bytes of images */
    struct tti_held *held;         /* from before a loss, until the trainer is whole again; NULL: nothing */
    bool unmade;                   /* restoring has begun, and has not succeeded */
    tutti_train_step taken;        /* the last step; struct_size 0: none */
    char restored_from[PATH_MAX];
    double *known_costs; /* what the pipeline was balanced by; NULL: not known */
    int teacher;         /* the rank whose costs all take */
    tutti_train_watch *watch;
    void *watch_context;
};

static inline void tti_trainer_watched(const struct tutti_trainer *trainer, tutti_train_phase phase, uint64_t step)
{
    if (trainer->watch != NULL) trainer->watch(trainer->watch_context, phase, step);
}

/* Samples of the batch that a cell has, and a run of cells. */
struct tti_span tti_cell_samples(const struct tutti_trainer *trainer, size_t cell);
struct tti_span tti_cells_samples(const struct tutti_trainer *trainer, struct tti_span cells);
/* Reads these samples, and sets the batch to them. What fails is in the trainer's error, and in `failed`. */
tutti_status tti_fill_batch(struct tutti_trainer *trainer, struct tti_span samples, bool held_out, uint64_t first_index,
                            tutti_batch *batch);
/* The two halves of it: samples into the places from `first` on; what the batch is, samples at the first place. */
tutti_status tti_fill_samples(struct tutti_trainer *trainer, struct tti_span samples, size_t first, bool held_out,
                              uint64_t first_index);
void tti_describe_batch(const struct tutti_trainer *trainer, struct tti_span samples, bool held_out,
                        tutti_batch *batch);
/* True if others count on this rank in every pass: where its samples cannot be read it goes on with others in their place, and
 * tells everybody at the step's end. */
bool tti_trainer_goes_on(const struct tutti_trainer *trainer);
/* The bounds of a batch's grains, which are these. */
void tti_set_grains(struct tutti_trainer *trainer, struct tti_span grains, tutti_batch *batch);

/* Both return `status`. A failure of a comm becomes the trainer's error. One of this rank alone (data, the model) is noted in
 * `failed`: the rank still makes the step's collective calls, and then all learn of it. */
tutti_status tti_trainer_comm_failed(struct tutti_trainer *trainer, tutti_status status);
tutti_status tti_trainer_own_failed(struct tutti_trainer *trainer, tutti_status status);

/* Notes for a picture of the step (trainer_timeline.c): its begin, what began then and ends now, and that all know the losses. */
tutti_status tti_timeline_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_timeline_begin(struct tutti_trainer *trainer);
void tti_timeline_add(struct tutti_trainer *trainer, int64_t began_ns);
void tti_timeline_end(struct tutti_trainer *trainer);

/* Forward and backward of this rank's part of the batch (trainer_passes.c). */
tutti_status tti_trainer_backward(struct tutti_trainer *trainer);
/* Forward of its part of one batch of held-out samples. */
tutti_status tti_trainer_evaluate(struct tutti_trainer *trainer, uint64_t first_index);
/* The end of the samples, of those that are held out or all. */
uint64_t tti_trainer_last_index(const struct tutti_trainer *trainer, bool held_out);

/* Where backward puts the gradients of a micro-batch. `shares`: those of the layer that shares a tensor, too. */
struct tti_targets {
    int bounds[TUTTI_SUBTREES_MAX + 1];
    float *gradients[TUTTI_SUBTREES_MAX], *tied[TUTTI_SUBTREES_MAX];
};
void tti_micro_targets(const struct tutti_trainer *trainer, int micro, bool shares, struct tti_targets *targets,
                       tutti_backward *how);
/* After it: adds up what is complete now, over these elements. */
void tti_micro_add(const struct tutti_trainer *trainer, int micro, struct tti_span elements, bool shares);
tutti_status tti_trainer_make_scratch(struct tutti_trainer *trainer, tutti_error *error);

/* Cells that a rank of those that share the batch has in one pass. */
struct tti_span tti_pass_cells(const struct tutti_trainer *trainer, int pass, int rank);

/* True if weights are of 16 bits (trainer_type.c); ERR_OPTION: there is no such type. */
bool tti_trainer_is_bf16(const struct tutti_trainer *trainer);
tutti_status tti_trainer_check_type(const struct tutti_trainer *trainer, tutti_error *error);
/* Collective, after masters were set: bf16 of them for all. */
tutti_status tti_trainer_round(struct tutti_trainer *trainer, tutti_error *error);

/* Whether gradients, and values, are only there while they are used: zero 2 and 3; zero 3 and bf16. */
static inline bool tti_trainer_passing_gradients(const struct tutti_trainer *trainer)
{
    return trainer->options.zero >= 2;
}

static inline bool tti_trainer_passing_values(const struct tutti_trainer *trainer)
{
    return trainer->options.zero >= 3 || tti_trainer_is_bf16(trainer);
}

/* With zero 2 and 3 (trainer_zero.c): the passes of a step; where values come from and gradients go; first values of what this
 * rank owns. */
tutti_status tti_trainer_plan_passes(struct tutti_trainer *trainer, tutti_error *error);
int tti_trainer_passes_most(
    const struct tutti_trainer *trainer); /* as the options say; in a pipeline, of micro-batches */
tutti_value_source tti_trainer_source(struct tutti_trainer *trainer);
tutti_gradient_place tti_trainer_place;
/* What backward calls when gradients are there; failures are in `ready_status`. */
tutti_gradient_ready tti_trainer_on_ready;
void tti_trainer_on_tied_ready(void *trainer);
void tti_trainer_init_owned(struct tutti_trainer *trainer);
/* What parameters and gradients take in this rank. */
struct tti_ledger tti_trainer_ledger(const struct tutti_trainer *trainer);
/* A value or gradient of what this rank owns that is not finite. */
bool tti_trainer_owned_fault(const struct tutti_trainer *trainer, tutti_fault *fault);

/* Layers that look at the whole batch (trainer_state.c): whether the model has some; options that do not go with them, then
 * passes that do not; what a pass must be told. */
bool tti_trainer_collects(const struct tutti_trainer *trainer);
tutti_status tti_trainer_check_batch_norm(const tutti_train_options *options, tutti_error *error);
tutti_status tti_trainer_check_passes(const struct tutti_trainer *trainer, tutti_error *error);
void tti_trainer_share_batch(const struct tutti_trainer *trainer, tutti_pass_options *options);
/* True if ranks that share the batch could not meet in such a layer. */
bool tti_trainer_batch_lost(const struct tutti_trainer *trainer);
/* States: a copy from before the step, which comes back where no step was taken; a hash, which depends on them as that of the
 * weights does on these: 0 where there are none. */
tutti_status tti_trainer_make_state(struct tutti_trainer *trainer, tutti_error *error);
void tti_trainer_keep_state(const struct tutti_trainer *trainer);
void tti_trainer_restore_state(const struct tutti_trainer *trainer);
uint64_t tti_trainer_state_hash(const struct tutti_trainer *trainer, bool uncut);

/* The comm of all ranks, and of those that share the batch, for a collective that is a part of the call. */
static inline tutti_comm *tti_trainer_comm(const struct tutti_trainer *trainer)
{
    return tutti_at(trainer->comm, trainer->here.file, trainer->here.line);
}

static inline tutti_comm *tti_trainer_batch_comm(const struct tutti_trainer *trainer)
{
    return tutti_at(trainer->mesh.batch, trainer->here.file, trainer->here.line);
}

/* The comm that the trainer was made on: with parameter servers others than its own. */
tutti_comm *tti_trainer_all(const struct tutti_trainer *trainer);
/* What the options say of the optimizer. */
tutti_status tti_trainer_optimizer_settings(const struct tutti_trainer *trainer, tutti_optimizer_settings *settings,
                                            tutti_error *error);
/* tutti_trainer_hash of the values that are here. */
uint64_t tti_trainer_hash(const struct tutti_trainer *trainer);

/* Every rank gets the error of the lowest rank whose status is not OK. */
tutti_status tti_agree(tutti_comm *comm, tutti_status status, tutti_error *error);

/* Where a call of the trainer begins: it has no error yet. */
void tti_trainer_begin(struct tutti_trainer *trainer);
/* Where it ends: `status`, and if that is a failure which the trainer's error tells, it is the latest of
 * this rank, for tutti_explain. */
tutti_status tti_trainer_end(struct tutti_trainer *trainer, const char *call, tutti_status status);

/* Before the first step rather than after many: rank 0 makes the folder of checkpoints and locks it, so that no other run saves
 * there until this one has ended; then all ranks see whether it is the same folder for all. The second is collective. */
tutti_status tti_trainer_take_folder(struct tutti_trainer *trainer, tutti_error *error);
tutti_status tti_trainer_share_folder(struct tutti_trainer *trainer, tutti_error *error);
/* Which order sums have, for checkpoints to note. 1: the two gradients of a tied weight are summed over grains apart. 2: and,
 * with several width grains, those of norms over blocks of rows. */
enum { TTI_TRAINER_SUMS = 2 };
tutti_status tti_trainer_resume(struct tutti_trainer *trainer, tutti_error *error);
/* The newest checkpoint, by this rank alone; `updates`: steps of the optimizer. */
tutti_status tti_trainer_read_newest(struct tutti_trainer *trainer, uint64_t *updates, tutti_error *error);

/* All that a trainer is made of, on its comm; in a world that was rebuilt, with the state from before. Collective. */
tutti_status tti_trainer_assemble(struct tutti_trainer *trainer, tutti_error *error);
/* Frees all that depends on the comm and what was computed; the options, the data and what is held stay. */
void tti_trainer_release(struct tutti_trainer *trainer);
/* In a world that was rebuilt (trainer_restore.c): before the trainer is made, who knows what the pipeline was balanced by; after it,
 * the newest state that is whole. Collective. */
tutti_status tti_trainer_find_teacher(struct tutti_trainer *trainer, tutti_error *error);
tutti_status tti_trainer_recover(struct tutti_trainer *trainer, tutti_error *error);
/* OK, or ERR_ARGUMENT: restoring has failed, and nothing can be done with the trainer. */
tutti_status tti_trainer_usable(struct tutti_trainer *trainer);
/* New values to whoever has none. */
tutti_status tti_trainer_spread(struct tutti_trainer *trainer);

/* A trainer of any rank without a comm. */
static inline bool tti_trainer_is_planned(const struct tutti_trainer *trainer)
{
    return trainer->comm == NULL;
}

/* A pass, or of a planned trainer what it takes, which is added to pass_bytes. */
tutti_status tti_trainer_make_pass(struct tutti_trainer *trainer, const tutti_pass_options *options, tutti_pass **pass,
                                   tutti_error *error);
/* A planned trainer; unit_costs may be NULL. To be freed with tutti_trainer_free, also after a failure. */
tutti_status tti_trainer_plan(const tutti_train_options *options, int ranks, int rank, const double *unit_costs,
                              struct tutti_trainer **trainer, tutti_error *error);
/* What a rank takes, with the copies that it has where lost ranks are started again. */
tutti_status tti_trainer_plan_healing(const tutti_train_options *options, int ranks, int rank, const double *unit_costs,
                                      tutti_train_about *about, tutti_error *error);
/* What this rank of a trainer takes with these options in place of its own. */
tutti_status tti_trainer_plan_like(const struct tutti_trainer *trainer, const tutti_train_options *options,
                                   tutti_train_about *about, tutti_error *error);
/* Of all purposes together. */
size_t tti_about_bytes(const tutti_train_about *about);
/* Makes all of it but for what a checkpoint brings. */
tutti_status tti_trainer_make(struct tutti_trainer *trainer, tutti_error *error);

/* Grains of the options' batch. */
size_t tti_train_grains(const tutti_train_options *options);

/* A model of the options' kind and sizes. */
tutti_status tti_model_make(const tutti_train_options *options, size_t vocabulary, size_t features, tutti_model **model,
                            tutti_error *error);

/* Collective: ERR_MEMORY if the ranks of a host need more memory than it has left; it says who needs how much, and what would
 * help. ERR_… also for what else the trainer would refuse later. */
tutti_status tti_trainer_check_memory(struct tutti_trainer *trainer, tutti_error *error);
/* ERR_MEMORY if the model is larger than the memory that is left; it says what sizes are not. */
tutti_status tti_trainer_fits(const struct tutti_trainer *trainer, tutti_error *error);

#endif
