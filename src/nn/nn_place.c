/* SPDX-License-Identifier: Apache-2.0
 *
 * Cuts a model into width grains, and gives each rank its own.
 *
 * Between a layer that can give cut rows and the next one that can take them, rows are cut if all layers in between can
 * work on cut rows, and no residual begins or ends there: c_attn, attention and c_proj; c_fc and c_proj; an output layer
 * and its cross-entropy. An embedding is cut by classes if all layers that share it can be, too. Everything else works on whole rows, on every rank.
 */
#define TUTTI_NO_CALL_SITES
#include "base/sized.h"
#include "nn/sequence.h"

#include <string.h>

enum { USUAL_GRAINS = 4, LEAST_COLUMNS = 32 };

static bool can(const tutti_layer *layer, unsigned cut)
{
    return (layer->ops->cuts & cut) != 0;
}

/* Returns true if each of the layers that use this one's tensors can be cut in that way. */
static bool sharers_can(const tutti_model *model, const tutti_layer *owner, unsigned cut)
{
    for (int i = owner->index + 1; owner->shared && i < model->layer_count; i++)
        if (model->layers[i]->shared_with == owner->index && !can(model->layers[i], cut)) return false;
    return true;
}

/* Returns the layer that takes the cut rows which layer `from` could give; -1: there is none. */
static int taker_of(const tutti_model *model, int from)
{
    const tutti_layer *giver = model->layers[from];
    if (!can(giver, TUTTI_CUT_OUTPUTS) || !sharers_can(model, giver, 0) || giver->add_from >= 0) return -1;
    for (int i = from + 1; i < model->layer_count; i++) {
        const tutti_layer *layer = model->layers[i];
        if (layer->add_to >= 0 || !sharers_can(model, layer, 0)) return -1;
        if (can(layer, TUTTI_CUT_INPUTS)) return i;
        if (!can(layer, TUTTI_CUT_ALIKE) || layer->add_from >= 0) return -1;
    }
    return -1;
}

/* ---- How many grains ------------------------------------------------------------------------------------------- */

/* Returns the first layer whose units so many grains cannot share; NULL: there is none. */
static const tutti_layer *indivisible(const tutti_model *model, int grains)
{
    for (int from = 0; from < model->layer_count; from++) {
        const int to = taker_of(model, from);
        for (int i = from; i < to; i++)
            if (model->layers[i]->units % grains != 0) return model->layers[i];
    }
    return NULL;
}

/* Finds the numbers of grains nearest to `grains`, below and above, into which all units can be cut; 0: there is
 * none. */
static void nearest_grains(const tutti_model *model, int grains, int *below, int *above)
{
    *below = grains - 1;
    while (*below > 1 && indivisible(model, *below) != NULL) --*below;
    *above = grains + 1;
    while (*above <= TTI_WIDTH_GRAINS_MOST && indivisible(model, *above) != NULL) ++*above;
    if (*above > TTI_WIDTH_GRAINS_MOST) *above = 0;
}

/* Returns the fewest columns of a section of cut rows; 0: there are none. Classes count where there is nothing else:
 * they may be fewer than grains. */
static int64_t fewest_columns(const tutti_model *model, bool classes)
{
    int64_t fewest = 0;
    for (int from = 0; from < model->layer_count; from++) {
        const int to = taker_of(model, from);
        if (to >= 0 && (model->layers[to]->outputs == 0) != classes) continue;
        for (int i = from + 1; i <= to; i++) {
            const tutti_layer *layer = model->layers[i];
            const int64_t columns = layer->inputs / (layer->sections > 1 ? layer->sections : 1);
            if (fewest == 0 || columns < fewest) fewest = columns;
        }
    }
    return fewest;
}

int tti_model_usual_grains(const tutti_model *model)
{
    int grains = USUAL_GRAINS;
    int64_t fewest = fewest_columns(model, false);
    if (fewest == 0) fewest = fewest_columns(model, true);
    while (grains > 1 && (fewest / grains < LEAST_COLUMNS || indivisible(model, grains) != NULL)) grains /= 2;
    return grains;
}

/* A rank's grains must be a subtree, and the tree over ranks the top of the tree over all grains. */
bool tti_width_fits(int grains, int ranks)
{
    const int each = grains / ranks;
    return ranks == 1 || (grains % ranks == 0 && (each & (each - 1)) == 0);
}

/* Writes "1, 2 or 4": the numbers of ranks that can share so many grains. */
static void list_ranks(int grains, char *text, size_t bytes)
{
    int fitting[32], count = 0;
    for (int ranks = 1; ranks <= grains && count < 32; ranks++)
        if (tti_width_fits(grains, ranks)) fitting[count++] = ranks;
    size_t used = 0;
    for (int i = 0; i < count && used < bytes; i++)
        used += (size_t)snprintf(text + used, bytes - used, "%s%d",
                                 i == 0          ? ""
                                 : i + 1 < count ? ", "
                                                 : " or ",
                                 fitting[i]);
}

static tutti_status check_ranks(tutti_model *model, int grains, int ranks)
{
    char fitting[160], more[80] = "";
    if (tti_width_fits(grains, ranks)) return TUTTI_OK;
    list_ranks(grains, fitting, sizeof fitting);
    const tutti_layer *odd = indivisible(model, ranks);
    if (odd == NULL) snprintf(more, sizeof more, "; --width-grains %d allows it", ranks);
    if (odd != NULL) snprintf(more, sizeof more, "; %d heads cannot be shared by %d ranks", odd->units, ranks);
    return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "tensor=%d: %d width grain%s to %s rank%s%s", ranks,
                            grains, grains == 1 ? " goes" : "s go", fitting, grains == 1 ? "" : "s", more);
}

static tutti_status refuse_units(tutti_model *model, const tutti_layer *odd, int grains)
{
    int below, above;
    char more[32] = "";
    nearest_grains(model, grains, &below, &above);
    if (above > 0) snprintf(more, sizeof more, " or %d", above);
    return tti_model_refuse(model, odd, TUTTI_ERR_ARGUMENT,
                            "its %d heads cannot be cut into %d width grains; --width-grains %d%s can be", odd->units,
                            grains, below, more);
}

static tutti_status check_grains(tutti_model *model, int grains, int ranks)
{
    if (grains < 1 || grains > TTI_WIDTH_GRAINS_MOST)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "%d width grains; give 1 to %d", grains,
                                TTI_WIDTH_GRAINS_MOST);
    const tutti_layer *odd = indivisible(model, grains);
    if (odd != NULL) return refuse_units(model, odd, grains);
    tutti_status status = check_ranks(model, grains, ranks);
    for (int i = 0; ranks > 1 && status == TUTTI_OK && i < model->layer_count; i++)
        if (model->layers[i]->ops->cuts == 0)
            return tti_model_refuse(model, model->layers[i], TUTTI_ERR_UNSUPPORTED,
                                    "tensor=%d: it does not say how it may be cut; set cuts in its ops, "
                                    "TUTTI_CUT_WHOLE where every rank is to do all of it",
                                    ranks);
    if (status == TUTTI_OK && ranks > 1 && fewest_columns(model, false) == 0 && fewest_columns(model, true) == 0)
        return tti_model_refuse(model, NULL, TUTTI_ERR_UNSUPPORTED, "tensor=%d: no layers of this model can be cut",
                                ranks);
    return status;
}

/* ---- Cutting --------------------------------------------------------------------------------------------------- */

/* Returns how many of `whole` floats of a cut row are on this rank. */
static int64_t here(const tutti_model *model, int64_t whole, int sections)
{
    return tti_grains_length(model, whole, sections, model->width.first, model->width.first + model->width.here);
}

/* Sets the sections of cut rows: the layer that reads them asks for sections, which begin where rows are first cut. */
static void set_sections(tutti_model *model, int from, int to)
{
    int sections = 1;
    for (int i = to - 1; i > from; i--) {
        if (model->layers[i]->sections > 1) sections = model->layers[i]->sections;
        model->layers[i]->sections = sections;
    }
    model->layers[from]->sections = sections;
    model->layers[to]->sections = 1;
}

static void cut_between(tutti_model *model, int from, int to)
{
    set_sections(model, from, to);
    for (int i = from; i <= to; i++) {
        tutti_layer *layer = model->layers[i];
        layer->cut = i == from ? TUTTI_CUT_OUTPUTS : i == to ? TUTTI_CUT_INPUTS : TUTTI_CUT_ALIKE;
        if (i > from) layer->inputs = here(model, layer->whole_inputs, layer->sections);
        const bool same = i == from || layer->whole_inputs == layer->whole_outputs;
        if (i < to) layer->outputs = here(model, layer->whole_outputs, same ? layer->sections : 1);
    }
    model->layers[from]->meets_back = model->layers[to]->meets = model->width.ranks > 1;
}

static void cut_classes(tutti_model *model, tutti_layer *layer)
{
    const bool together = model->width.ranks > 1, loss = layer->outputs == 0;
    layer->cut = TUTTI_CUT_CLASSES;
    layer->meets = together;
    layer->meets_back = together && loss;
}

static tutti_status cut_layers(tutti_model *model)
{
    for (int i = 0; i < model->layer_count; i++) {
        tutti_layer *layer = model->layers[i];
        const tutti_layer *owner = layer->shared_with >= 0 ? model->layers[layer->shared_with] : layer;
        const int to = layer->cut == TUTTI_CUT_WHOLE ? taker_of(model, i) : -1;
        if (to >= 0) cut_between(model, i, to);
        if (can(owner, TUTTI_CUT_CLASSES) && sharers_can(model, owner, TUTTI_CUT_CLASSES)) cut_classes(model, layer);
    }
    for (int i = 0; i < model->layer_count; i++) {
        tutti_layer *layer = model->layers[i];
        if (layer->cut == TUTTI_CUT_WHOLE || layer->ops->place == NULL) continue;
        tutti_status status = layer->ops->place(model, layer);
        if (status != TUTTI_OK) return status;
    }
    return TUTTI_OK;
}

tutti_status tutti_layer_cut(tutti_model *model, tutti_layer *layer, int n, int dimension, int sections)
{
    tutti_tensor *tensor = tti_layer_part(model, layer, n);
    if (tensor == NULL || dimension < 0 || dimension >= tensor->dimensions || sections < 1 ||
        tensor->shape[dimension] % sections != 0)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "tensor %d cannot be cut along dimension %d in %d sections", n, dimension, sections);
    tensor->placement = TUTTI_SHARDED;
    tensor->placement_dimension = dimension;
    tensor->sections = sections;
    return TUTTI_OK;
}

/* ---- Placing --------------------------------------------------------------------------------------------------- */

tutti_status tti_model_place(tutti_model *model, int width_grains, const struct tti_width *who)
{
    const int grains = width_grains == 0 ? tti_model_usual_grains(model) : width_grains;
    tutti_status status = check_grains(model, grains, who->ranks);
    if (status != TUTTI_OK) return status;
    model->width = *who;
    model->width.grains = grains;
    model->width.here = grains / who->ranks;
    model->width.first = who->rank * model->width.here;
    if (grains > 1) status = cut_layers(model);
    if (grains > 1 && status == TUTTI_OK) status = tti_model_slice(model);
    if (status != TUTTI_OK) return status;
    model->placed = true;
    tti_model_lay_out(model);
    return TUTTI_OK;
}

/* Finds the ranks along `tensor`; without a mesh, or such a dimension, there is one. */
static tutti_status find_ranks(tutti_model *model, tutti_mesh *mesh, struct tti_width *who)
{
    const int along = mesh == NULL ? 1 : tutti_mesh_size(mesh, "tensor");
    who->ranks = along < 1 ? 1 : along;
    if (who->ranks == 1) return TUTTI_OK;
    who->rank = tutti_mesh_coordinate(mesh, "tensor");
    tutti_status status = tutti_mesh_comm(mesh, "tensor", &who->comm);
    if (status != TUTTI_OK)
        return tti_model_refuse(model, NULL, status, "ranks that share the width cannot be brought together: %s",
                                tutti_status_name(status));
    return TUTTI_OK;
}

tutti_status tutti_model_place(tutti_model *model, const tutti_model_placing *placing)
{
    if (model == NULL) return TUTTI_ERR_ARGUMENT;
    if (model->error.status != TUTTI_OK) return model->error.status;
    tutti_model_placing known = {0};
    if (placing == NULL || !model->sealed || model->values != NULL || model->placed)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "a model is placed once, after sealing and before it gets memory, and is told how");
    if (!tti_sized_take(&known, sizeof known, placing))
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "model_place: set struct_size to sizeof(tutti_model_placing); nothing of it is read");
    struct tti_width who = {.sequence = known.sequence};
    tutti_status status = find_ranks(model, known.mesh, &who);
    return status == TUTTI_OK ? tti_model_place(model, known.width_grains, &who) : status;
}

int tutti_model_width_grains(const tutti_model *model)
{
    return model->width.grains;
}
