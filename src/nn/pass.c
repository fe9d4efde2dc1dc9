/* SPDX-License-Identifier: Apache-2.0
 *
 * Making a pass: which slot each gradient uses, and one allocation for everything.
 */
#include "nn/pass.h"

#include "base/alloc.h"
#include "base/memory.h"
#include "nn/blas.h"
#include <string.h>

enum { ALIGNMENT = 16, ITEMS_PER_THREAD = 16 };

/* ---- Slots ----------------------------------------------------------------------------------------------------- */

static int free_slot(struct tutti_pass *pass, uint32_t taken)
{
    int slot = 0;
    while (taken & (UINT32_C(1) << slot)) slot++;
    if (slot >= pass->slot_count) pass->slot_count = slot + 1;
    return slot;
}

/* A residual's gradient goes two ways from its last layer: that one must not change it for the other. */
static bool needs_copy(const tutti_layer *layer)
{
    return layer->add_from >= 0 && layer->changes_gradient;
}

/* Backward order: decides where layer i's input gradient goes, which is slot[i - 1]. */
static void plan_slots(struct tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    struct tti_layer_place *places = pass->places;
    uint32_t held = 0;
    for (int i = model->layer_count - 1; i >= 0; i--) {
        const tutti_layer *layer = model->layers[i];
        if (layer->add_from >= 0) held |= UINT32_C(1) << places[i].slot;
        if (needs_copy(layer)) {
            places[i].held_slot = places[i].slot;
            places[i].slot = free_slot(pass, held);
        }
        places[i].add_slot = layer->add_to >= 0 ? tti_layer_place_slot(&places[layer->add_to]) : -1;
        if (i == 0) break;
        bool in_place = tti_layer_adds_back(layer) && places[i].add_slot >= 0 && layer->add_to != i;
        uint32_t own = places[i].slot >= 0 ? UINT32_C(1) << places[i].slot : 0;
        places[i - 1].slot = in_place ? places[i].add_slot : free_slot(pass, held | own);
        if (places[i].add_slot >= 0) held &= ~(UINT32_C(1) << places[i].add_slot);
    }
}

/* Every gradient stays until the weights part has used it. */
static void plan_split_slots(struct tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    for (int i = 0; i < model->layer_count; i++) {
        struct tti_layer_place *place = &pass->places[i];
        place->slot = needs_copy(model->layers[i]) ? model->layer_count + i : i;
        if (needs_copy(model->layers[i])) place->held_slot = i;
        place->add_slot = model->layers[i]->add_to;
    }
    pass->slot_count = 2 * model->layer_count;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Takes `count` floats from the allocation, or, while it does not exist, only counts. */
static float *take(struct tutti_pass *pass, size_t *used, size_t count)
{
    float *taken = pass->memory == NULL ? NULL : pass->memory + *used;
    *used += (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return taken;
}

static size_t widest(const tutti_model *model, int64_t (*of)(const tutti_layer *layer))
{
    int64_t most = 0;
    for (int i = 0; i < model->layer_count; i++)
        if (of(model->layers[i]) > most) most = of(model->layers[i]);
    return (size_t)most;
}

static int64_t outputs_of(const tutti_layer *layer)
{
    return layer->outputs;
}

static int64_t gathers_of(const tutti_layer *layer)
{
    return layer->gathers;
}

static int64_t scratch_of(const tutti_layer *layer)
{
    return layer->scratch;
}

static int tree_depth(int grains)
{
    int depth = 0;
    while (grains > 1 << depth) depth++;
    return depth;
}

static size_t largest_layer(const tutti_model *model)
{
    size_t most = 0;
    for (int i = 0; i < model->layer_count; i++) {
        const tutti_layer *layer = model->layers[i];
        if (layer->tensor_count == 0 || layer->shared_with >= 0) continue;
        if (tti_layer_elements(model, layer) > most) most = tti_layer_elements(model, layer);
    }
    return most;
}

/* The first half of the slots is for all layers, the second for copies. */
static size_t split_width(const struct tutti_pass *pass, int slot)
{
    const int layers = pass->model->layer_count;
    if (slot >= layers && pass->places[slot - layers].held_slot < 0) return 0;
    return (size_t)pass->model->layers[slot % layers]->outputs;
}

/* Called twice: to count, and to place. Returns the floats needed. */
static size_t lay_out(struct tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    const size_t rows = (size_t)(pass->options.samples * model->shape.rows);
    size_t used = 0;
    for (int i = 0; i < model->layer_count; i++) {
        pass->places[i].out = take(pass, &used, rows * (size_t)model->layers[i]->outputs);
        pass->places[i].saved = take(pass, &used, rows * (size_t)model->layers[i]->saved);
    }
    pass->scratch_each = (widest(model, scratch_of) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pass->scratch = take(pass, &used, pass->scratch_each * (size_t)pass->options.threads);
    pass->gathered = take(pass, &used, rows * widest(model, gathers_of) * (size_t)model->width.ranks);
    if (pass->options.evaluate) return used;
    for (int i = 0; i < pass->slot_count; i++) {
        size_t width = pass->options.split ? split_width(pass, i) : widest(model, outputs_of);
        pass->slots[i] = take(pass, &used, rows * width);
    }
    for (int i = 0; i < tree_depth(pass->options.grains); i++) pass->tree[i] = take(pass, &used, largest_layer(model));
    return used;
}

/* Ranks that share the width read each other's rows. */
static float *take_memory(const tutti_model *model, size_t bytes)
{
    if (model->width.comm == NULL) return tti_calloc_aligned(bytes);
    float *memory = tutti_alloc(model->width.comm, bytes);
    if (memory != NULL) memset(memory, 0, bytes);
    return memory;
}

static tutti_status allocate(struct tutti_pass *pass)
{
    tutti_model *model = pass->model;
    size_t layers = (size_t)model->layer_count;
    pass->item_room = pass->options.grains > pass->options.threads * ITEMS_PER_THREAD
                          ? pass->options.grains
                          : pass->options.threads * ITEMS_PER_THREAD;
    pass->places = tti_calloc(layers, sizeof *pass->places);
    pass->slots = tti_calloc(2 * layers + TTI_SLOTS_MAX, sizeof *pass->slots);
    pass->items = tti_calloc((size_t)pass->item_room, sizeof *pass->items);
    if (pass->places == NULL || pass->slots == NULL || pass->items == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a pass");
    for (size_t i = 0; i < layers; i++) pass->places[i].slot = pass->places[i].held_slot = -1;
    pass->options.split ? plan_split_slots(pass) : plan_slots(pass);
    pass->memory_bytes = lay_out(pass) * sizeof(float);
    if (tti_memory_check(pass->memory_bytes, NULL, &model->error) != TUTTI_OK) return model->error.status;
    pass->memory = take_memory(model, pass->memory_bytes);
    if (pass->memory == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY,
                                "no memory for the activations of %lld samples: %zu MiB are needed; use fewer samples",
                                (long long)pass->options.samples, pass->memory_bytes >> 20);
    lay_out(pass);
    return TUTTI_OK;
}

tutti_status tutti_pass_create(tutti_model *model, const tutti_pass_options *options, tutti_pass **out)
{
    if (model == NULL || out == NULL) return TUTTI_ERR_ARGUMENT;
    *out = NULL;
    const bool has_values = options != NULL && (options->source != NULL || model->values != NULL);
    if (!has_values || !model->sealed || options->samples < 0 || options->grains < 0 || options->threads < 0)
        return tti_model_refuse(
            model, NULL, TUTTI_ERR_ARGUMENT,
            "a pass needs options, a sealed model with memory, and no negative samples, grains or threads");
    struct tutti_pass *pass = tti_calloc(1, sizeof *pass);
    if (pass == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a pass");
    pass->model = model;
    pass->options = *options;
    if (options->source != NULL) pass->source = *options->source;
    if (pass->options.threads == 0) pass->options.threads = 1;
    tutti_status status = allocate(pass);
    if (status == TUTTI_OK) status = tti_pool_create(pass->options.threads, &pass->pool, &model->error);
    if (status == TUTTI_OK) status = tti_blas_reserve(&model->error);
    if (status == TUTTI_OK)
        *out = pass;
    else
        tutti_pass_free(pass);
    return status;
}

void tutti_pass_free(tutti_pass *pass)
{
    if (pass == NULL) return;
    tti_pool_destroy(pass->pool);
    if (pass->model->width.comm != NULL)
        (void)tutti_free(pass->model->width.comm, pass->memory);
    else
        tti_free(pass->memory);
    tti_free(pass->items);
    tti_free(pass->slots);
    tti_free(pass->places);
    tti_free(pass);
}

size_t tutti_pass_bytes(const tutti_pass *pass)
{
    return pass->memory_bytes;
}

const float *tutti_pass_outputs(const tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    if (!pass->ready || model->layer_count < 2 || model->layers[model->layer_count - 1]->shared_with >= 0) return NULL;
    return pass->places[model->layer_count - 2].out;
}
