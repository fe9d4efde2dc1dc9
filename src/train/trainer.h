/* SPDX-License-Identifier: Apache-2.0
 *
 * The trainer: data, model, optimizer and ddp, and one rank's part of a step.
 *
 * The batch is cut into cells: its grains, or in fast mode one per rank. A rank has a run of cells; the results for a
 * grain do not depend on the rank that has it, losses of cells are gathered and summed in the tree over all cells, and
 * so everything that steers the run (loss, norm, rate) is the same on every rank, and with grains on every layout.
 */
#ifndef TTI_TRAIN_TRAINER_H
#define TTI_TRAIN_TRAINER_H

#include "collective/api/inside.h"
#include "train/micro.h"
#include "train/tie.h"
#include "train/train_agree.h"
#include "train/trainer_mesh.h"
#include "train/trainer_pipeline.h"
#include "train/trainer_server.h"
#include "train/trainer_width.h"
#include "train/tree.h"

#include <limits.h>
#include <stdatomic.h>
#include <tutti/train.h>

/* The times at which the passes of a step without a pipe went forward and backward, in turn. */
struct tti_timeline {
    tutti_pipeline_span *spans; /* [room], in seconds from the step's begin on */
    int count, room;
    int64_t began_ns;
    double run_began; /* with a pipe: when its last run began */
    double seconds;   /* until all ranks knew the losses; 0: no step was made */
};

struct tutti_trainer {
    tutti_comm *comm; /* all ranks; NULL: it is only planned, and has no memory for numbers (trainer_plan.c) */
    int world_rank, world_size;
    int host_ranks;       /* ranks of comm that share this host's memory */
    struct tti_here here; /* the call that is being made */
    struct tti_trainer_mesh mesh;
    int rank, size; /* among those that share the batch: in mesh.batch */
    tutti_train_options options;
    tutti_train_model own; /* the user's model; make NULL: options.model */
    tutti_schedule schedule;
    tutti_error error;
    /* the failure of this rank's part of the step, such as lost data. The rank still takes part, and then all learn of
     * it */
    tutti_status failed;

    tutti_data *data;
    tutti_data_about about;
    bool table; /* the data are rows of numbers, not tokens */

    tutti_model *model;
    float *values, *gradients;
    tutti_parameter *list; /* [tutti_model_tensors] */
    size_t list_count, elements;
    tutti_optimizer *optimizer;
    tutti_ddp *ddp;
    tutti_pass *pass;
    size_t pass_bytes; /* bytes of all passes */
    size_t optimizer_bytes;

    size_t cells;         /* cells of the batch */
    struct tti_span mine; /* this rank's cells, except with zero 2 or 3 */
    int passes; /* passes of a step in which all ranks take part; 1 below zero 2, however often a rank accumulates */
    int *pass_bounds;         /* [passes + 1], with grains: the cells of each pass */
    int pass_grains;          /* with `pass_bounds`: the most cells of a rank in one pass */
    struct tti_micros micros; /* with grains and below zero 2: the micro-batches of this rank */
    size_t piece;             /* the most cells of one pass */
    int64_t room;             /* samples of one pass */
    float *scratch[32];       /* gradients of subtrees that wait to be added, by depth: this rank's, then the tie's */
    size_t scratch_bytes;
    struct tti_tie tie;
    const double *unit_costs;              /* the costs by which stages are balanced; NULL: they are measured */
    const tutti_data_about *told;          /* describes the data; NULL: they are opened */
    struct tti_trainer_pipeline *pipeline; /* NULL: the model is in one piece */

    /* The samples of one pass. */
    int32_t *tokens, *targets;
    float *inputs, *target_values, *weights;
    int64_t *bounds; /* [piece + 1]: where each grain begins */
    size_t batch_bytes;

    tutti_loss *losses; /* [cells]: losses of this rank's cells */
    double *gathered;   /* [2 cells + ranks] */
    size_t *counts;     /* [ranks] */

    struct tti_timeline timeline;

    uint64_t step; /* steps taken */
    atomic_int stop;
    double seconds; /* in communication, without the ddp's */
    char resumed_from[PATH_MAX];
    float *state_before;               /* [the model's states]: their values before the step */
    tutti_status gone;                 /* why values or gradients did not come, in the present pass */
    tutti_status ready_status;         /* the first failure of tutti_ddp_ready_run in this step */
    struct tti_trainer_server *server; /* set if some ranks are parameter servers (trainer_server.h) */
    struct tti_background *background; /* saves while training goes on; NULL: each save is waited for */
    bool locked;                       /* the folder of checkpoints is locked, by `lock` */
    int lock;

    bool heals;                    /* lost ranks are started again */
    struct tti_copies *copies;     /* NULL: nothing is copied */
    struct tti_rank_place *places; /* [world_size]: the host and process of each rank; NULL: not known */
    size_t planned_copies;         /* bytes of images, for a planned trainer */
    struct tti_held *held;         /* kept from before a loss, until the trainer is restored; NULL: nothing */
    bool unmade;                   /* restoring has begun, and has not succeeded */
    tutti_train_step taken;        /* the last step; struct_size 0: there is none */
    char restored_from[PATH_MAX];
    double *known_costs; /* the costs by which the pipeline was balanced; NULL: not known */
    int teacher;         /* the rank whose costs all ranks use */
    tutti_train_watch *watch;
    void *watch_context;
};

static inline void tti_trainer_watched(const struct tutti_trainer *trainer, tutti_train_phase phase, uint64_t step)
{
    if (trainer->watch != NULL) trainer->watch(trainer->watch_context, phase, step);
}

/* Returns the samples of the batch that a cell has, or a run of cells. */
struct tti_span tti_cell_samples(const struct tutti_trainer *trainer, size_t cell);
struct tti_span tti_cells_samples(const struct tutti_trainer *trainer, struct tti_span cells);
/* Reads these samples, and sets the batch to them. A failure is in the trainer's error, and in `failed`. */
tutti_status tti_fill_batch(struct tutti_trainer *trainer, struct tti_span samples, bool held_out, uint64_t first_index,
                            tutti_batch *batch);
/* The two halves of it: the first reads samples into the places from `first` on; the second sets the batch to the
 * samples from the first place on. */
tutti_status tti_fill_samples(struct tutti_trainer *trainer, struct tti_span samples, size_t first, bool held_out,
                              uint64_t first_index);
void tti_describe_batch(const struct tutti_trainer *trainer, struct tti_span samples, bool held_out,
                        tutti_batch *batch);
/* Returns true if other ranks count on this rank in every pass: if its samples cannot be read it goes on with others in
 * their place, and tells all at the step's end. */
bool tti_trainer_goes_on(const struct tutti_trainer *trainer);
/* Sets the bounds of a batch's grains to these. */
void tti_set_grains(struct tutti_trainer *trainer, struct tti_span grains, tutti_batch *batch);

/* Both return `status`. comm_failed: a failure of a comm becomes the trainer's error. own_failed: a failure of this
 * rank alone (data, the model) is noted in `failed`: the rank still makes the step's collective calls, and then all
 * learn of it. */
tutti_status tti_trainer_comm_failed(struct tutti_trainer *trainer, tutti_status status);
tutti_status tti_trainer_own_failed(struct tutti_trainer *trainer, tutti_status status);

/* Notes for a picture of the step (trainer_timeline.c): its begin, a pass that began at some time and ends now, and the
 * moment at which all know the losses. */
tutti_status tti_timeline_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_timeline_begin(struct tutti_trainer *trainer);
void tti_timeline_add(struct tutti_trainer *trainer, int64_t began_ns);
void tti_timeline_end(struct tutti_trainer *trainer);
void tti_timeline_run(struct tutti_trainer *trainer, int64_t began_ns); /* a run of the pipe began then */

/* Does forward and backward of this rank's part of the batch (trainer_passes.c). */
tutti_status tti_trainer_backward(struct tutti_trainer *trainer);
/* Does forward of its part of one batch of held-out samples. */
tutti_status tti_trainer_evaluate(struct tutti_trainer *trainer, uint64_t first_index);
/* Returns the end of the samples: of the held-out ones, or of all. */
uint64_t tti_trainer_last_index(const struct tutti_trainer *trainer, bool held_out);

/* Where backward puts the gradients of a micro-batch. `shares`: those of the layer that shares a tensor, too. */
struct tti_targets {
    int bounds[TUTTI_SUBTREES_MAX + 1];
    float *gradients[TUTTI_SUBTREES_MAX], *tied[TUTTI_SUBTREES_MAX];
};
void tti_micro_targets(const struct tutti_trainer *trainer, int micro, bool shares, struct tti_targets *targets,
                       tutti_backward *how);
/* Called after it: adds up the gradients that are complete now, over these elements. */
void tti_micro_add(const struct tutti_trainer *trainer, int micro, struct tti_span elements, bool shares);
tutti_status tti_trainer_make_scratch(struct tutti_trainer *trainer, tutti_error *error);

/* Returns the cells that a rank of those that share the batch has in one pass. */
struct tti_span tti_pass_cells(const struct tutti_trainer *trainer, int pass, int rank);

/* Makes the options' model, or the user's, as a whole (trainer_model.c). What lies in *model is the caller's to free. */
tutti_status tti_trainer_model(const struct tutti_trainer *trainer, tutti_model **model, tutti_error *error);
/* Checks the options, and reads the mesh, for this number of ranks (trainer_options.c). */
tutti_status tti_trainer_read_options(struct tutti_trainer *trainer, tutti_error *error);
/* Returns true if weights have 16 bits (trainer_type.c). check_type: ERR_OPTION if there is no such type. */
bool tti_trainer_is_bf16(const struct tutti_trainer *trainer);
tutti_status tti_trainer_check_type(const struct tutti_trainer *trainer, tutti_error *error);
/* Called after masters were set; collective: gives all ranks the bf16 values. */
tutti_status tti_trainer_round(struct tutti_trainer *trainer, tutti_error *error);

/* Returns true if gradients, or values, only exist while they are used: with zero 2 and 3; with zero 3 and bf16. */
static inline bool tti_trainer_passing_gradients(const struct tutti_trainer *trainer)
{
    return trainer->options.zero >= 2;
}

static inline bool tti_trainer_passing_values(const struct tutti_trainer *trainer)
{
    return trainer->options.zero >= 3 || tti_trainer_is_bf16(trainer);
}

/* With zero 2 and 3 (trainer_zero.c): plans the passes of a step; sets where values come from and gradients go; sets
 * the initial values that this rank owns. */
tutti_status tti_trainer_plan_passes(struct tutti_trainer *trainer, tutti_error *error);
int tti_trainer_passes_most(
    const struct tutti_trainer *trainer); /* as the options say; in a pipeline, the most micro-batches */
tutti_value_source tti_trainer_source(struct tutti_trainer *trainer);
tutti_gradient_place tti_trainer_place;
/* Called by backward when gradients are ready; failures are in `ready_status`. */
tutti_gradient_ready tti_trainer_on_ready;
void tti_trainer_on_tied_ready(void *trainer);
void tti_trainer_init_owned(struct tutti_trainer *trainer);
/* Returns the memory of parameters and gradients on this rank. */
struct tti_ledger tti_trainer_ledger(const struct tutti_trainer *trainer);
/* Finds a value or gradient of this rank's own that is not finite. */
bool tti_trainer_owned_fault(const struct tutti_trainer *trainer, tutti_fault *fault);

/* Layers that depend on the whole batch (trainer_state.c): returns true if the model has some; the others refuse
 * options, and then passes, that do not go with them, and set the options of a pass. */
bool tti_trainer_collects(const struct tutti_trainer *trainer);
tutti_status tti_trainer_check_batch_norm(const tutti_train_options *options, tutti_error *error);
tutti_status tti_trainer_check_passes(const struct tutti_trainer *trainer, tutti_error *error);
void tti_trainer_share_batch(const struct tutti_trainer *trainer, tutti_pass_options *options);
/* Returns true if ranks that share the batch could not meet in such a layer. */
bool tti_trainer_batch_lost(const struct tutti_trainer *trainer);
/* States: makes and takes a copy before the step, which is restored if no step is made; a hash, which depends on states
 * as the hash of weights does on weights: 0 if there are none. */
tutti_status tti_trainer_make_state(struct tutti_trainer *trainer, tutti_error *error);
void tti_trainer_keep_state(const struct tutti_trainer *trainer);
void tti_trainer_restore_state(const struct tutti_trainer *trainer);
uint64_t tti_trainer_state_hash(const struct tutti_trainer *trainer, bool uncut);

/* Return the comm of all ranks, or of those that share the batch, for a collective that is a part of the call. */
static inline tutti_comm *tti_trainer_comm(const struct tutti_trainer *trainer)
{
    return tutti_at(trainer->comm, trainer->here.file, trainer->here.line);
}

static inline tutti_comm *tti_trainer_batch_comm(const struct tutti_trainer *trainer)
{
    return tutti_at(trainer->mesh.batch, trainer->here.file, trainer->here.line);
}

/* Returns the comm on which the trainer was made: with parameter servers another one than its own. */
tutti_comm *tti_trainer_all(const struct tutti_trainer *trainer);
/* Sets the optimizer's settings from the options. */
tutti_status tti_trainer_optimizer_settings(const struct tutti_trainer *trainer, tutti_optimizer_settings *settings,
                                            tutti_error *error);
/* Computes tutti_trainer_hash over the values on this rank. */
uint64_t tti_trainer_hash(const struct tutti_trainer *trainer);

/* Begins a call of the trainer: it has no error yet. */
void tti_trainer_begin(struct tutti_trainer *trainer);
/* Ends a call: returns `status`; if that is a failure that is in the trainer's error, that becomes this rank's latest
 * one, for tutti_explain. */
tutti_status tti_trainer_end(struct tutti_trainer *trainer, const char *call, tutti_status status);

/* Called before the first step, rather than after many: take_folder lets rank 0 make the folder of checkpoints and lock
 * it, so that no other run saves there until this one has ended; share_folder, which is collective, checks that all
 * ranks see the same folder. */
tutti_status tti_trainer_take_folder(struct tutti_trainer *trainer, tutti_error *error);
tutti_status tti_trainer_share_folder(struct tutti_trainer *trainer, tutti_error *error);
/* The order of sums, which checkpoints note. 1: the two gradients of a tied weight are summed over grains separately.
 * 2: with several width grains, gradients of norms are summed over blocks of rows, too. 3: so is, over classes, the
 * input gradient of an output layer without a partner. */
enum { TTI_SUMS_TIED = 1, TTI_SUMS_BLOCKS, TTI_SUMS_CLASSES, TTI_TRAINER_SUMS = TTI_SUMS_CLASSES };
tutti_status tti_trainer_resume(struct tutti_trainer *trainer, tutti_error *error);
/* Reads the newest checkpoint, on this rank alone; `updates`: steps of the optimizer. */
tutti_status tti_trainer_read_newest(struct tutti_trainer *trainer, uint64_t *updates, tutti_error *error);

/* Makes all parts of a trainer, on its comm; in a world that was rebuilt, with the state from before. Collective. */
tutti_status tti_trainer_assemble(struct tutti_trainer *trainer, tutti_error *error);
/* Frees everything that depends on the comm, and all results; the options, the data and held images stay. */
void tti_trainer_release(struct tutti_trainer *trainer);
/* In a world that was rebuilt (trainer_restore.c). find_teacher, before the trainer is made: finds a rank that knows
 * the costs by which the pipeline was balanced. recover, after that: restores the newest complete state. Collective. */
tutti_status tti_trainer_find_teacher(struct tutti_trainer *trainer, tutti_error *error);
tutti_status tti_trainer_recover(struct tutti_trainer *trainer, tutti_error *error);
/* Returns true if the folder of checkpoints has any, on this rank alone. */
bool tti_trainer_has_checkpoint(const struct tutti_trainer *trainer);
/* Returns OK, or ERR_ARGUMENT: restoring has failed, and the trainer cannot be used. */
tutti_status tti_trainer_usable(struct tutti_trainer *trainer);
/* Sends new values to the ranks that have none. */
tutti_status tti_trainer_spread(struct tutti_trainer *trainer);

/* Returns true for a trainer without a comm, which may be planned for any rank. */
static inline bool tti_trainer_is_planned(const struct tutti_trainer *trainer)
{
    return trainer->comm == NULL;
}

/* Makes a pass; for a planned trainer only its memory is added to pass_bytes. */
tutti_status tti_trainer_make_pass(struct tutti_trainer *trainer, const tutti_pass_options *options, tutti_pass **pass,
                                   tutti_error *error);
/* Makes a planned trainer; unit_costs may be NULL. Freed with tutti_trainer_free, after a failure, too. */
tutti_status tti_trainer_plan(const tutti_train_options *options, int ranks, int rank, const double *unit_costs,
                              struct tutti_trainer **trainer, tutti_error *error);
/* Computes a rank's memory, with the copies that it has if lost ranks are started again. */
tutti_status tti_trainer_plan_healing(const tutti_train_options *options, int ranks, int rank, const double *unit_costs,
                                      tutti_train_about *about, tutti_error *error);
/* Computes the memory of this rank of a trainer with these options in place of its own. */
tutti_status tti_trainer_plan_like(const struct tutti_trainer *trainer, const tutti_train_options *options,
                                   tutti_train_about *about, tutti_error *error);
/* Returns the bytes of all purposes together. */
size_t tti_about_bytes(const tutti_train_about *about);
/* Makes all of it, except what a checkpoint brings. */
tutti_status tti_trainer_make(struct tutti_trainer *trainer, tutti_error *error);

/* Returns the grains of the options' batch. */
size_t tti_train_grains(const tutti_train_options *options);

/* Makes a model of the options' kind and sizes. */
tutti_status tti_model_make(const tutti_train_options *options, size_t vocabulary, size_t features, tutti_model **model,
                            tutti_error *error);

/* Collective: returns ERR_MEMORY if the ranks of a host need more memory than it has left; the sentence says which rank
 * needs how much, and what would help. Returns other errors that the trainer would report later. */
tutti_status tti_trainer_check_memory(struct tutti_trainer *trainer, tutti_error *error);
/* Returns ERR_MEMORY if the model is larger than the memory that is left; the sentence says which sizes would fit. */
tutti_status tti_trainer_fits(const struct tutti_trainer *trainer, tutti_error *error);

#endif
