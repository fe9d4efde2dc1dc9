/* SPDX-License-Identifier: Apache-2.0
 *
 * Recomputation: outputs and saved values of a block's layers are made again when backward comes to it. The input of a
 * block stays, and so does its output, since that is the input of the next one; the same calls on the same rows give
 * the same bits.
 */
#include "nn/pass.h"

/* Returns the last layer of the outermost residual branch that begins with this layer; -1: there is none. */
static int branch_end(const tutti_model *model, int first)
{
    return model->layers[first]->add_to;
}

static bool has_branch(const tutti_model *model)
{
    for (int i = 0; i < model->layer_count; i++)
        if (branch_end(model, i) >= 0) return true;
    return false;
}

/* Finds the blocks. Stages of a model may have none; a model without any is refused, since recompute was asked for. */
tutti_status tti_pass_find_blocks(struct tutti_pass *pass)
{
    if (!has_branch(pass->model))
        return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT,
                                "recompute makes residual branches again, and this model has none "
                                "(tutti_residual_begin): leave it out, or use fewer samples in a pass");
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const int end = branch_end(pass->model, i);
        for (int k = i; k <= end; k++) pass->places[k].block = end;
        if (end > i) i = end;
    }
    return TUTTI_OK;
}

bool tti_pass_out_is_remade(const struct tutti_pass *pass, int layer)
{
    return pass->places[layer].block > layer;
}

static size_t lay_out_block(struct tutti_pass *pass, int first, int last, float *memory)
{
    size_t used = 0;
    for (int i = first; i <= last; i++) {
        const tutti_layer *layer = pass->model->layers[i];
        const size_t rows = layer->sliced ? pass->sliced_most : pass->rows_most;
        if (i < last)
            pass->places[i].out = tti_pass_take(memory, &used, tti_pass_room(pass, i) * (size_t)layer->outputs);
        pass->places[i].saved = tti_pass_take(memory, &used, rows * (size_t)layer->saved);
    }
    return used;
}

size_t tti_pass_lay_out_blocks(struct tutti_pass *pass, float *memory)
{
    size_t most = 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const int last = pass->places[i].block;
        if (last < 0) continue;
        const size_t used = lay_out_block(pass, i, last, memory);
        if (used > most) most = used;
        i = last;
    }
    return most;
}

/* The output of the last layer is still there. Layers before it are left out, too, if neither their own backward nor
 * that of the next layer reads their output, such as a product before dropout. */
int tti_pass_remade_end(const tutti_model *model, int first, int last)
{
    tutti_layer *const *layers = model->layers;
    int end = last + 1;
    while (end > first && layers[end - 1]->saved == 0 &&
           (end - 1 == last ||
            ((layers[end]->ops->unread & TUTTI_UNREAD_IN) && (layers[end - 1]->ops->unread & TUTTI_UNREAD_OUT))))
        end--;
    return end;
}

bool tti_pass_remade_is_read(const tutti_model *model, int first, int end, int last)
{
    return end > first && end <= last && !(model->layers[end]->ops->unread & TUTTI_UNREAD_IN);
}

tutti_status tti_pass_remake(struct tutti_pass *pass, int layer)
{
    if (pass->places[layer].block != layer) return TUTTI_OK;
    const int first = pass->model->layers[layer]->add_from;
    const int end = tti_pass_remade_end(pass->model, first, layer);
    pass->remaking = true;
    tutti_status status = tti_pass_forward_layers(pass, first, end);
    pass->remaking = false;
    const bool reads = tti_pass_remade_is_read(pass->model, first, end, layer);
    return status == TUTTI_OK && reads ? tti_pass_gather_in(pass, pass->model->layers[end]) : status;
}
