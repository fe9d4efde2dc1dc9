/* SPDX-License-Identifier: Apache-2.0
 *
 * A trainer's model cut into stages along the mesh's dimension pipe.
 *   trainer_pipeline.c   the table, the stages' functions, a step's runs
 *   trainer_stages.c     cuts the model
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
    struct tti_span elements; /* elements of its own tensors, among this rank's */
    bool shares;              /* its last layer shares a tensor */
    tutti_pass *pass;
};

struct tti_trainer_pipeline {
    tutti_pipeline *table;
    tutti_pipeline_about about;
    tutti_pipeline_runner *runner;
    struct tti_layers *ranges; /* [stages]: the layers of each */
    size_t *bytes;             /* [stages - 1]: bytes of the boundary behind each */
    double *costs;             /* [units]: the costs by which the model was cut; NULL: the options gave the cuts */
    int *owners;               /* [tensors]: the rank along the pipe that trains each */
    struct tti_stage *stages;  /* [chunks] this rank's stages */

    /* for the run: */
    int round;         /* the number of the run in a step */
    tutti_batch batch; /* all samples of this rank; micro-batches are parts of them */
    size_t *places;    /* [micro-batches of a step]: where the samples of each begin in the batch */
    bool broken;       /* it has failed, on all ranks of the pipe */

    tutti_pipeline_report report; /* the report of the last run */
    double idle, predicted_idle;  /* summed over the runs of a step */
};

/* Returns the name, or the file, of the table that the options ask for. */
const char *tti_trainer_table(const struct tutti_trainer *trainer);
/* Refuses what is neither the name of a table nor a file with one. */
tutti_status tti_trainer_pipeline_known(const char *name, tutti_error *error);
/* Makes the options' table, and checks that it fits mesh and grains. */
tutti_status tti_trainer_pipeline_plan(struct tutti_trainer *trainer, tutti_error *error);
/* Collective: cuts the model, and keeps this rank's layers of it. */
tutti_status tti_trainer_pipeline_cut(struct tutti_trainer *trainer, tutti_error *error);
/* Returns true if backward is in two parts on that rank of the pipe. */
bool tti_trainer_pipeline_splits(const struct tti_trainer_pipeline *pipeline, int rank);
/* Returns the number of this rank's samples in a step. */
size_t tti_trainer_pipeline_samples(const struct tutti_trainer *trainer);
/* Collective: makes the runner and the passes of the stages. */
tutti_status tti_trainer_pipeline_make(struct tutti_trainer *trainer, tutti_error *error);
void tti_trainer_pipeline_free(struct tutti_trainer *trainer);

/* Does forward and backward of this rank's part of the batch, as often as the options accumulate; `held_out`: forward
 * only. */
tutti_status tti_trainer_pipeline_run(struct tutti_trainer *trainer, bool held_out, uint64_t first_index);
/* Returns the shares of the last step's runs in which the pipe's ranks were idle, as measured and by the table. */
void tti_trainer_pipeline_idle(const struct tutti_trainer *trainer, double *idle, double *predicted);

/* Units are the parts between two places at which a model may be cut. Returns how many there are; the others return the
 * unit that begins at a layer; and true if no unit before it is of its kind, else `like` is the number of the first one
 * that is. */
int tti_units(const tutti_model *model);
struct tti_layers tti_unit_at(const tutti_model *model, int layer);
bool tti_unit_is_new(const tutti_model *model, int layer, int *like);
/* Measures the time of consecutive units for so many grains in one pass, in seconds, alone on this rank. */
tutti_status tti_layers_measure(const struct tutti_trainer *trainer, struct tti_layers layers, int grains,
                                tutti_pipeline_times *times);

/* Refuses more stages than the model can be cut into. */
tutti_status tti_stages_fit(const struct tutti_trainer *trainer, int pipe, int chunks, tutti_error *error);
/* Cuts the model into so many stages: as `given` says, or so that the slowest stage takes as little time as possible.
 * Collective over the trainer's comm. */
tutti_status tti_stages_cut(struct tutti_trainer *trainer, int stages, struct tti_layers *ranges, tutti_error *error);

#endif
