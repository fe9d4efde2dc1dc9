/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a trainer as a mesh of four dimensions, the last one varying fastest. Ranks that differ in data or shard
 * have different samples of the batch; those that differ in pipe, different layers; in tensor, different parts of each
 * layer.
 */
#ifndef TTI_TRAIN_TRAINER_MESH_H
#define TTI_TRAIN_TRAINER_MESH_H

#include <tutti/train.h>

enum tti_mesh_dimension { TTI_MESH_DATA, TTI_MESH_SHARD, TTI_MESH_PIPE, TTI_MESH_TENSOR, TTI_MESH_DIMENSIONS };

struct tti_trainer_mesh {
    int sizes[TTI_MESH_DIMENSIONS];
    int at[TTI_MESH_DIMENSIONS]; /* this rank's coordinates */
    tutti_mesh *mesh;  /* NULL: no mesh was asked for. Then `data` has all ranks, and the comms are NULL, except: */
    tutti_comm *batch; /* ranks with the same part of the model, which share the batch: along data and shard */
    tutti_comm *model; /* ranks with the same samples, which share the model: along pipe and tensor */
    tutti_comm *along[TTI_MESH_DIMENSIONS]; /* ranks that differ from this one in one dimension only */
};

/* Reads "data=2,pipe=2,tensor=2": sizes that are not given are 1, except data, which has the ranks that are left. "":
 * all ranks are along data. The error for sizes that do not fit `ranks` says which would. */
tutti_status tti_trainer_mesh_read(const char *text, int ranks, struct tti_trainer_mesh *mesh, tutti_error *error);
/* Sets the coordinates of this rank of the trainer's comm. */
void tti_trainer_mesh_place(struct tti_trainer_mesh *mesh, int rank);
/* Collective over `comm`, after reading on all ranks: makes all comms, in one order. */
tutti_status tti_trainer_mesh_make(tutti_comm *comm, const char *text, struct tti_trainer_mesh *mesh,
                                   tutti_error *error);
/* Copies the error of the first comm that has one into `error`; if none has, it stays. */
void tti_trainer_mesh_error(const tutti_comm *comm, const struct tti_trainer_mesh *mesh, tutti_error *error);
void tti_trainer_mesh_free(struct tti_trainer_mesh *mesh);

/* Returns the coordinate of any rank of the trainer's comm, or its rank in `batch`. In `model` its rank is pipe × size
 * of tensor + tensor. */
int tti_trainer_mesh_at(const struct tti_trainer_mesh *mesh, int rank, enum tti_mesh_dimension dimension);
int tti_trainer_mesh_batch_rank(const struct tti_trainer_mesh *mesh, int rank);

#endif
