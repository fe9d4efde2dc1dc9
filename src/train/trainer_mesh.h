/* SPDX-License-Identifier: Apache-2.0
 *
 * The ranks of a trainer as a mesh of four dimensions, the last one varying fastest. Ranks that differ in data or shard
 * have different samples of the batch; those that differ in pipe, different layers; in tensor, different parts of each layer.
 */
#ifndef TTI_TRAIN_TRAINER_MESH_H
#define TTI_TRAIN_TRAINER_MESH_H

#include <tutti/train.h>

enum tti_mesh_dimension { TTI_MESH_DATA, TTI_MESH_SHARD, TTI_MESH_PIPE, TTI_MESH_TENSOR, TTI_MESH_DIMENSIONS };

struct tti_trainer_mesh {
    int sizes[TTI_MESH_DIMENSIONS];
    int at[TTI_MESH_DIMENSIONS]; /* this rank */
    tutti_mesh *mesh;            /* NULL: no mesh was asked for. Then data has all ranks, and the comms are NULL but: */
    tutti_comm *batch;           /* ranks with the same part of the model, which share the batch: data and shard */
    tutti_comm *model;           /* ranks with the same samples, which share the model: pipe and tensor */
    tutti_comm *along[TTI_MESH_DIMENSIONS]; /* ranks that differ from this one in one dimension only */
};

/* "data=2,pipe=2,tensor=2": sizes that are not said are 1, but for data, which has the ranks that are left. "": all ranks are
 * data. What does not fit `ranks` is refused with what would. */
tutti_status tti_trainer_mesh_read(const char *text, int ranks, struct tti_trainer_mesh *mesh, tutti_error *error);
/* Sets the coordinates of this rank of the trainer's comm. */
void tti_trainer_mesh_place(struct tti_trainer_mesh *mesh, int rank);
/* Collective over `comm`, after reading on all ranks: makes all comms, in one order. */
tutti_status tti_trainer_mesh_make(tutti_comm *comm, const char *text, struct tti_trainer_mesh *mesh,
                                   tutti_error *error);
/* The error of the first comm that has one, into `error`; none has: it stays. */
void tti_trainer_mesh_error(const tutti_comm *comm, const struct tti_trainer_mesh *mesh, tutti_error *error);
void tti_trainer_mesh_free(struct tti_trainer_mesh *mesh);

/* The coordinate of any rank of the trainer's comm, and its rank in `batch`. In `model` it is pipe × size of tensor + tensor. */
int tti_trainer_mesh_at(const struct tti_trainer_mesh *mesh, int rank, enum tti_mesh_dimension dimension);
int tti_trainer_mesh_batch_rank(const struct tti_trainer_mesh *mesh, int rank);

#endif
