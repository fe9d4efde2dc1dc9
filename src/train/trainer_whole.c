/* SPDX-License-Identifier: Apache-2.0
 *
 * Between a model in stages and one in one piece, for checkpoints: rank 0 gets the tensors of all stages, and hands them out.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "train/trainer.h"
#include <string.h>

size_t tti_whole_elements(const struct tutti_trainer *t)
{
    size_t elements = 0;
    for (int i = 0; i < t->model->tensor_count; i++) elements += tti_tensor_room(t->model, i);
    return elements;
}

/* One tensor, between its owner's part and the whole on the first rank of the pipe. */
static tutti_status move(struct tutti_trainer *t, int tensor, float *mine, float *whole, bool to_first)
{
    int owner = t->pipeline->owners[tensor], here = t->mesh.at[TTI_MESH_PIPE];
    size_t count = tti_tensor_room(t->model, tensor);
    float *part = owner == here ? mine + t->model->tensors[tensor].offset : NULL;
    tutti_comm *comm = tti_inside(tutti_at(t->mesh.along[TTI_MESH_PIPE], t->here.file, t->here.line), "checkpoint",
                                  t->model->tensors[tensor].name);
    if (owner == 0 && here == 0)
        memcpy(to_first ? whole : part, to_first ? part : whole, count * sizeof *whole);
    else if (here == 0)
        return to_first ? tutti_recv(comm, whole, count, TUTTI_F32, owner, tensor, NULL)
                        : tutti_send(comm, whole, count, TUTTI_F32, owner, tensor);
    else if (owner == here)
        return to_first ? tutti_send(comm, part, count, TUTTI_F32, 0, tensor)
                        : tutti_recv(comm, part, count, TUTTI_F32, 0, tensor, NULL);
    return TUTTI_OK;
}

static tutti_status move_all(struct tutti_trainer *t, float *mine, float *whole, bool to_first)
{
    size_t at = 0;
    for (int i = 0; i < t->model->tensor_count; i++) {
        TTI_TRY(move(t, i, mine, whole == NULL ? NULL : whole + at, to_first));
        at += tti_tensor_room(t->model, i);
    }
    return TUTTI_OK;
}

tutti_status tti_whole_collect(struct tutti_trainer *t, float *mine, float *whole)
{
    return move_all(t, mine, whole, true);
}

tutti_status tti_whole_hand_out(struct tutti_trainer *t, float *whole, float *mine)
{
    return move_all(t, mine, whole, false);
}
