/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's model cut into stages along the mesh's dimension pipe.
 *   trainer_pipeline.c   the table, the stages' functions, a step's runs
 *   trainer_stages.c     where the model is cut
 */
#ifndef TTI_TRAIN_TRAINER_PIPELINE_H
#define TTI_TRAIN_TRAINER_PIPELINE_H

#include "nn/model.h"
#include "train/tree.h"

#include <tutti/pipeline.h>

struct tutti_trainer;

/* One of this rank's stages. */
struct tti_stage {
    struct tti_layers layers;
    struct tti_span elements; /* of its own tensors, among this rank's */
    bool shares;              /* its last layer shares a tensor */
    tutti_pass *pass;
};

struct tti_trainer_pipeline {
    tutti_pipeline *table;
    tutti_pipeline_about about;
    tutti_pipeline_runner *runner;
    struct tti_layers *ranges; /* [stages]: layers of each */
    size_t *bytes;             /* [stages - 1]: of the boundary behind each */
    double *costs;             /* [units]: what the model was cut by; NULL: by the options */
    int *owners;               /* [tensors]: the rank along the pipe that trains each */
    struct tti_stage *stages;  /* [chunks] of this rank */

    /* of the run */
    int round;         /* which of the runs of a step */
    tutti_batch batch; /* all samples of this rank, which micro-batches are parts of */
    size_t *places;    /* [micro-batches of a step]: where the samples of each begin in it */
    bool broken;       /* it has failed, on all ranks of the pipe */

    tutti_pipeline_report report; /* of the last run */
    double idle, predicted_idle;  /* of the runs of a step, added up */
};

/* The options' table, and whether it fits mesh and grains. */
tutti_status tti_trainer_pipeline_plan(struct tutti_trainer *trainer, tutti_error *error);
/* Collective: cuts the model, and keeps this rank's layers of it. */
tutti_status tti_trainer_pipeline_cut(struct tutti_trainer *trainer, tutti_error *error);
/* True if backward is in two parts on that rank of the pipe. */
bool tti_trainer_pipeline_splits(const struct tti_trainer_pipeline *pipeline, int rank);
/* This rank's samples of a step. */
size_t tti_trainer_pipeline_samples(const struct tutti_trainer *trainer);
/* Collective: the runner and the passes of the stages. */
tutti_status tti_trainer_pipeline_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_trainer_pipeline_free(struct tutti_trainer *trainer);

/* Forward and backward of this rank's part of the batch, as often as the options accumulate; `held_out`: forward only. */
tutti_status tti_trainer_pipeline_run(struct tutti_trainer *trainer, bool held_out, uint64_t first_index);
/* The shares of the last step's runs in which the pipe's ranks had nothing to do, as measured and by the table. */
void tti_trainer_pipeline_idle(const struct tutti_trainer *trainer, double *idle, double *predicted);

/* Units: what lies between two places where a model may be cut. How many there are; that which begins at a layer; whether none
 * before it is of its kind, else the number of the first one that is. */
int tti_units(const tutti_model *model);
struct tti_layers tti_unit_at(const tutti_model *model, int layer);
bool tti_unit_is_new(const tutti_model *model, int layer, int *like);
/* What successive units take for so many grains in one pass, in seconds, alone on this rank. */
tutti_status tti_layers_measure(const struct tutti_trainer *trainer, struct tti_layers layers, int grains,
                                tutti_pipeline_times *times);

/* Cuts the model into so many stages: as `given` says, or so that the one that takes longest takes as little as possible.
 * Collective over the trainer's comm. */
tutti_status tti_stages_cut(struct tutti_trainer *trainer, int stages, struct tti_layers *ranges, tutti_error *error);

#endif
