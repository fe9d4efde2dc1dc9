/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a model that ranks share, by its layers, its width or both, and one in one piece, for checkpoints: rank 0 gets all
 * tensors, and hands them out. A tensor goes from those that share its width to the first of them, and from there to the first
 * rank of the pipe; and back.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/status.h"
#include "nn/width.h"
#include "train/trainer.h"
#include <string.h>

enum { ALIGNMENT = 16 };

/* ---- Where tensors lie ----------------------------------------------------------------------------------------- */

static size_t elements_of(const tutti_tensor *tensor)
{
    size_t elements = 1;
    for (int d = 0; d < tensor->dimensions; d++) elements *= (size_t)tensor->shape[d];
    return elements;
}

size_t tti_whole_room(const tutti_model *model, int tensor)
{
    return (elements_of(&model->tensors[tensor]) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t tti_whole_elements(const tutti_model *model)
{
    size_t elements = 0;
    for (int i = 0; i < tutti_model_tensors(model); i++) elements += tti_whole_room(model, i);
    return elements;
}

size_t tti_whole_pieces(const tutti_model *model)
{
    size_t most = 0;
    for (int i = 0; i < tutti_model_tensors(model); i++)
        if (tti_whole_room(model, i) > most) most = tti_whole_room(model, i);
    return 2 * most;
}

/* ---- Moving them ----------------------------------------------------------------------------------------------- */

static tutti_comm *comm_along(const struct tutti_trainer *t, enum tti_mesh_dimension dimension, const char *tensor)
{
    return tti_inside(tutti_at(t->mesh.along[dimension], t->here.file, t->here.line), "checkpoint", tensor);
}

/* Each rank has its grains in a tensor of zeros: their XOR is the tensor, bit for bit. */
static tutti_status collect_width(struct tutti_trainer *t, int index, const float *mine, float *piece, float *whole)
{
    const tutti_tensor *tensor = &t->model->tensors[index];
    const bool first = t->mesh.at[TTI_MESH_TENSOR] == 0;
    if (!tti_tensor_is_cut(tensor) || !tti_trainer_shares_width(t)) {
        if (first) tutti_tensor_put(t->model, index, mine, whole);
        return TUTTI_OK;
    }
    memset(piece, 0, elements_of(tensor) * sizeof *piece);
    tutti_tensor_put(t->model, index, mine, piece);
    return tutti_reduce(comm_along(t, TTI_MESH_TENSOR, tensor->name), piece, first ? whole : NULL, elements_of(tensor),
                        TUTTI_U32, TUTTI_XOR, 0);
}

static tutti_status hand_out_width(struct tutti_trainer *t, int index, const float *whole, float *piece, float *mine)
{
    const tutti_tensor *tensor = &t->model->tensors[index];
    if (tti_trainer_shares_width(t)) {
        TTI_TRY(tutti_broadcast(comm_along(t, TTI_MESH_TENSOR, tensor->name), whole, piece, elements_of(tensor),
                                TUTTI_F32, 0));
        whole = piece;
    }
    tutti_tensor_take(t->model, index, whole, mine);
    return TUTTI_OK;
}

/* One tensor on its way. On the first rank of the pipe it is in `whole`, on its owner's in `at`. */
struct way {
    int index, owner;
    bool here, first; /* this rank is of the owner's stage; of the pipe's first */
    float *at, *piece;
};

static struct way way_of(const struct tutti_trainer *t, int index, float *pieces, float *whole)
{
    const int pipe = t->mesh.at[TTI_MESH_PIPE];
    struct way way = {.index = index, .owner = t->pipeline == NULL ? 0 : t->pipeline->owners[index]};
    way.here = way.owner == pipe;
    way.first = pipe == 0;
    way.at = way.owner == 0 ? whole : pieces;
    way.piece = pieces == NULL ? NULL : pieces + tti_whole_pieces(t->model) / 2;
    return way;
}

/* Between the first rank of the pipe and the owner's; ranks that have no whole tensors take no part. */
static tutti_status move(struct tutti_trainer *t, const struct way *way, float *whole, bool to_first)
{
    const tutti_tensor *tensor = &t->model->tensors[way->index];
    if (way->owner == 0 || t->mesh.at[TTI_MESH_TENSOR] != 0 || (!way->here && !way->first)) return TUTTI_OK;
    tutti_comm *comm = comm_along(t, TTI_MESH_PIPE, tensor->name);
    if (way->first == to_first)
        return tutti_recv(comm, way->first ? whole : way->at, elements_of(tensor), TUTTI_F32,
                          way->first ? way->owner : 0, way->index, NULL);
    return tutti_send(comm, way->first ? whole : way->at, elements_of(tensor), TUTTI_F32, way->first ? way->owner : 0,
                      way->index);
}

tutti_status tti_whole_collect(struct tutti_trainer *t, const float *mine, float *pieces, float *whole)
{
    for (int i = 0; i < tutti_model_tensors(t->model); i++) {
        const struct way way = way_of(t, i, pieces, whole);
        if (way.here) TTI_TRY(collect_width(t, i, mine + t->model->tensors[i].offset, way.piece, way.at));
        TTI_TRY(move(t, &way, whole, true));
        if (whole != NULL) whole += tti_whole_room(t->model, i);
    }
    return TUTTI_OK;
}

tutti_status tti_whole_hand_out(struct tutti_trainer *t, float *whole, float *pieces, float *mine)
{
    for (int i = 0; i < tutti_model_tensors(t->model); i++) {
        const struct way way = way_of(t, i, pieces, whole);
        TTI_TRY(move(t, &way, whole, false));
        if (way.here) TTI_TRY(hand_out_width(t, i, way.at, way.piece, mine + t->model->tensors[i].offset));
        if (whole != NULL) whole += tti_whole_room(t->model, i);
    }
    return TUTTI_OK;
}
