/* SPDX-License-Identifier: Apache-2.0
 *
 * Makes a pass: chooses the slot of each gradient, and makes one allocation for everything.
 */
#include "nn/pass.h"

#include "base/alloc.h"
#include "base/memory.h"
#include "base/sized.h"
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

/* Returns the bit of a slot that is reused. */
static uint32_t bit_of(int slot)
{
    return slot >= 0 && slot < TTI_SLOTS_MAX ? UINT32_C(1) << slot : 0;
}

/* A residual's gradient goes two ways from the branch's last layer: that layer must not change it for the other way. A
 * gathered gradient is a copy already. */
static bool needs_copy(const tutti_layer *layer)
{
    return layer->add_from >= 0 && layer->changes_gradient && !tti_layer_scatters_out(layer);
}

/* Returns true if the layer's output gradient must stay until the weights part. For slices only sums stay. */
static bool must_stay(const struct tutti_pass *pass, int layer)
{
    return pass->options.split && pass->model->layers[layer]->tensor_count > 0 &&
           pass->model->layers[layer]->outputs > 0 && !pass->model->layers[layer]->sliced;
}

/* Returns true if the output gradient may stay over the layer's saved values or, over_out, over its output: neither is
 * read after the input part. */
static bool over_saved(const struct tutti_pass *pass, int index)
{
    const tutti_layer *layer = pass->model->layers[index];
    return must_stay(pass, index) && pass->places[index].block < 0 && layer->ops->weights_read_in &&
           layer->saved >= layer->outputs;
}

static bool over_out(const struct tutti_pass *pass, int index)
{
    const tutti_layer *const *layers = (const tutti_layer *const *)pass->model->layers;
    return must_stay(pass, index) && pass->places[index].block < 0 && layers[index]->ops->weights_read_in &&
           index + 1 < pass->layers.hi && layers[index + 1]->tensor_count == 0 && !layers[index]->sliced_out &&
           pass->places[index + 1].block < 0; /* otherwise it is made again from this output */
}

static bool has_own_slot(const struct tutti_pass *pass, int index)
{
    return must_stay(pass, index) && !over_saved(pass, index) && !over_out(pass, index);
}

/* Returns the slot for layer `index`'s output gradient; others have the slots in `taken`. */
static int slot_for(struct tutti_pass *pass, int index, uint32_t taken)
{
    const tutti_layer *layer = pass->model->layers[index];
    const bool own = has_own_slot(pass, index) && !needs_copy(layer) && !tti_layer_scatters_out(layer);
    return own ? TTI_SLOT_KEPT + index : free_slot(pass, taken);
}

/* Returns true if the layer may write its input gradient over that of the residual which it begins. */
static bool adds_in_place(const struct tutti_pass *pass, const tutti_layer *layer, int add_slot)
{
    if (!tti_layer_adds_back(pass->model, layer) || add_slot < 0 || layer->add_to == layer->index) return false;
    const bool stays = has_own_slot(pass, layer->index - 1) &&
                       !tti_layer_scatters_out(pass->model->layers[layer->index - 1]);
    return !pass->options.split || (bit_of(add_slot) != 0 && !stays);
}

/* Decides in backward order where layer i's input gradient goes, which is slot[i - 1]. */
static void plan_slots(struct tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    struct tti_layer_place *places = pass->places;
    uint32_t held = 0;
    if (pass->layers.hi < model->layer_count) places[pass->layers.hi - 1].slot = TTI_SLOT_OUT;
    for (int i = pass->layers.hi - 1; i >= pass->layers.lo; i--) {
        const tutti_layer *layer = model->layers[i];
        if (layer->add_from >= 0) held |= bit_of(places[i].slot);
        if (needs_copy(layer)) {
            places[i].held_slot = places[i].slot;
            places[i].slot = has_own_slot(pass, i) ? TTI_SLOT_KEPT + i : free_slot(pass, held);
        }
        int add_slot = layer->add_to >= 0 ? tti_layer_place_slot(&places[layer->add_to]) : -1;
        places[i].add_slot = add_slot;
        if (i > 0 && i == pass->layers.lo) places[i - 1].slot = TTI_SLOT_IN;
        if (i == pass->layers.lo) break;
        bool in_place = adds_in_place(pass, layer, add_slot);
        places[i - 1].slot = in_place ? add_slot : slot_for(pass, i - 1, held | bit_of(places[i].slot));
        held &= ~bit_of(add_slot);
    }
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

float *tti_pass_take(float *memory, size_t *used, size_t count)
{
    float *taken = memory == NULL ? NULL : memory + *used;
    *used += (count + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return taken;
}

static size_t widest(const struct tutti_pass *pass, int64_t (*of)(const tutti_layer *layer))
{
    int64_t most = 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++)
        if (of(pass->model->layers[i]) > most) most = of(pass->model->layers[i]);
    return (size_t)most;
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

static size_t largest_layer(const struct tutti_pass *pass)
{
    size_t most = 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const tutti_layer *layer = pass->model->layers[i];
        if (layer->tensor_count == 0) continue;
        if (tti_layer_elements(pass->model, layer) > most) most = tti_layer_elements(pass->model, layer);
    }
    return most;
}

/* Places the gathered output gradient of a layer that has all rows, but only slices of gradients. */
static float *lay_out_gradient(struct tutti_pass *pass, int index, float *memory, size_t *used)
{
    const tutti_layer *layer = pass->model->layers[index];
    if (!tti_layer_scatters_out(layer)) return NULL;
    if (!has_own_slot(pass, index)) return pass->aside;
    return tti_pass_take(memory, used, pass->rows_most * (size_t)layer->outputs);
}

/* Places the gathered input if the boundary that comes in holds slices. */
static void lay_out_entry(struct tutti_pass *pass, float *memory, size_t *used)
{
    const tutti_layer *first = pass->model->layers[pass->layers.lo];
    if (!tti_layer_gathers_in(pass->model, first)) return;
    pass->entered = tti_pass_take(memory, used, pass->rows_most * (size_t)first->inputs);
}

/* Places the memory of one live batch; the last output of some layers is the boundary's. Returns the floats needed. */
static size_t lay_out_live(struct tutti_pass *pass, float *memory)
{
    const tutti_model *model = pass->model;
    size_t used = 0;
    lay_out_entry(pass, memory, &used);
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        struct tti_layer_place *place = &pass->places[i];
        const tutti_layer *layer = model->layers[i];
        const size_t saved = (layer->sliced ? pass->sliced_most : pass->rows_most) * (size_t)layer->saved;
        const bool here = i + 1 < pass->layers.hi || i + 1 == model->layer_count;
        if (here && !tti_pass_out_is_remade(pass, i))
            place->out = tti_pass_take(memory, &used, tti_pass_room(pass, i) * (size_t)layer->outputs);
        place->collected = (double *)(void *)tti_pass_take(memory, &used, 2 * (size_t)layer->collects);
        if (place->block < 0) place->saved = tti_pass_take(memory, &used, saved);
        if (has_own_slot(pass, i) && place->slot == TTI_SLOT_KEPT + i)
            pass->slots[place->slot] = tti_pass_take(memory, &used, pass->rows_most * (size_t)layer->outputs);
        place->gradient = lay_out_gradient(pass, i, memory, &used);
        if (place->has_sums)
            place->sums = tti_pass_take(memory, &used,
                                        (size_t)tti_pass_items_most(pass) * tti_layer_elements(model, layer));
        place->stays = over_saved(pass, i) ? place->saved : over_out(pass, i) ? place->out : NULL;
    }
    return used;
}

/* Returns the floats of a gradient in a slot that is reused. */
static size_t slot_floats(const struct tutti_pass *pass)
{
    size_t most = 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const tutti_layer *layer = pass->model->layers[i];
        const size_t floats = (layer->sliced_out ? pass->sliced_most : pass->rows_most) * (size_t)layer->outputs;
        if (floats > most) most = floats;
    }
    return most;
}

/* Places the memory that all live batches use in turn. */
static size_t lay_out_shared(struct tutti_pass *pass, float *memory)
{
    size_t used = 0;
    pass->scratch_each = (widest(pass, scratch_of) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    pass->scratch = tti_pass_take(memory, &used, pass->scratch_each * (size_t)pass->options.threads);
    used += tti_pass_lay_out_blocks(pass, memory == NULL ? NULL : memory + used);
    pass->gathered = tti_pass_take(memory, &used,
                                   pass->rows_most * widest(pass, gathers_of) * (size_t)pass->model->width.ranks);
    used += tti_pass_lay_out_slices(pass, memory == NULL ? NULL : memory + used);
    tti_pass_lay_out_collects(pass, memory, &used);
    if (pass->options.evaluate) return used;
    for (int i = 0; i < pass->slot_count; i++) pass->slots[i] = tti_pass_take(memory, &used, slot_floats(pass));
    for (int i = 0; i < tree_depth(pass->options.grains); i++)
        pass->tree[i] = tti_pass_take(memory, &used, largest_layer(pass));
    return used;
}

/* Sets the boundaries to the batch's. */
static void set_boundaries(struct tutti_pass *pass)
{
    const tutti_boundary *boundary = &pass->batch.boundary;
    if (pass->layers.lo > 0) pass->places[pass->layers.lo - 1].out = (float *)(uintptr_t)boundary->in;
    if (pass->layers.hi < pass->model->layer_count) pass->places[pass->layers.hi - 1].out = boundary->out;
    pass->slots[TTI_SLOT_OUT] = boundary->out_gradient;
    pass->slots[TTI_SLOT_IN] = boundary->in_gradient;
}

tutti_status tti_pass_load(struct tutti_pass *pass, int slot)
{
    if (slot < 0 || slot >= pass->options.slots)
        return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT, "slot %d of a pass that has %d", slot,
                                pass->options.slots);
    struct tti_live *from = &pass->lives[pass->loaded], *to = &pass->lives[slot];
    if (from != to) {
        *from = (struct tti_live){pass->items, pass->item_count, pass->batch, pass->ready};
        pass->items = to->items;
        pass->item_count = to->item_count;
        pass->batch = to->batch;
        pass->ready = to->ready;
        pass->loaded = slot;
        (void)lay_out_live(pass, pass->memory + (size_t)slot * pass->live_floats);
    }
    set_boundaries(pass);
    return TUTTI_OK;
}

static bool make_lists(struct tutti_pass *pass)
{
    size_t layers = (size_t)pass->model->layer_count, slots = (size_t)pass->options.slots;
    int threads = pass->options.threads * ITEMS_PER_THREAD;
    pass->item_room = pass->options.grains > threads ? pass->options.grains : threads;
    pass->places = tti_calloc(layers, sizeof *pass->places);
    pass->slots = tti_calloc(layers + TTI_SLOT_KEPT, sizeof *pass->slots);
    pass->lives = tti_calloc(slots, sizeof *pass->lives);
    for (size_t i = 0; pass->lives != NULL && i < slots; i++)
        pass->lives[i].items = tti_calloc((size_t)pass->item_room, sizeof *pass->items);
    bool made = pass->places != NULL && pass->slots != NULL && pass->lives != NULL;
    for (size_t i = 0; made && i < slots; i++) made = pass->lives[i].items != NULL;
    if (made) pass->items = pass->lives[0].items;
    for (size_t i = 0; made && i < layers; i++)
        pass->places[i].slot = pass->places[i].held_slot = pass->places[i].block = -1;
    return made;
}

/* Takes memory that ranks sharing the width can read, since they read each other's rows. */
static float *take_memory(const tutti_model *model, size_t bytes)
{
    if (model->width.comm == NULL) return tti_calloc_aligned(bytes);
    float *memory = tutti_alloc(model->width.comm, bytes);
    if (memory != NULL) memset(memory, 0, bytes);
    return memory;
}

/* Computes the memory that the pass needs, before it is allocated. */
static tutti_status lay_out(struct tutti_pass *pass)
{
    if (!make_lists(pass)) return tti_model_refuse(pass->model, NULL, TUTTI_ERR_MEMORY, "no memory for a pass");
    pass->rows_most = (size_t)(pass->options.samples * pass->model->shape.rows);
    pass->sliced_most = tti_rank_rows_most(pass->model, pass->options.samples, tti_pass_items_most(pass));
    for (int i = pass->layers.lo; i < pass->layers.hi; i++)
        pass->places[i].has_sums = !pass->options.evaluate && pass->model->layers[i]->sliced &&
                                   pass->model->layers[i]->by_blocks;
    if (pass->options.recompute && tti_pass_find_blocks(pass) != TUTTI_OK) return pass->model->error.status;
    if (tti_pass_find_cells(pass) != TUTTI_OK) return pass->model->error.status;
    plan_slots(pass);
    pass->live_floats = lay_out_live(pass, NULL);
    const size_t lives = pass->live_floats * (size_t)pass->options.slots;
    pass->memory_bytes = (lives + lay_out_shared(pass, NULL)) * sizeof(float);
    return TUTTI_OK;
}

static tutti_status allocate(struct tutti_pass *pass)
{
    tutti_model *model = pass->model;
    const size_t lives = pass->live_floats * (size_t)pass->options.slots;
    if (tti_memory_check(pass->memory_bytes, NULL, &model->error) != TUTTI_OK) return model->error.status;
    pass->memory = take_memory(model, pass->memory_bytes);
    if (pass->memory == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY,
                                "no memory for the activations of %lld samples: %zu MiB are needed; use fewer samples",
                                (long long)pass->options.samples, pass->memory_bytes >> 20);
    (void)lay_out_shared(pass, pass->memory + lives);
    (void)lay_out_live(pass, pass->memory);
    return TUTTI_OK;
}

/* Sets the layers of the pass. */
static tutti_status set_layers(struct tutti_pass *pass)
{
    const tutti_pass_options *options = &pass->options;
    tutti_model *model = pass->model;
    pass->layers = (struct tti_layers){options->first_layer, options->end_layer};
    if (options->first_layer == 0 && options->end_layer == 0) pass->layers.hi = model->layer_count;
    struct tti_layers range = pass->layers;
    if (range.lo >= 0 && range.lo < range.hi && range.hi <= model->layer_count &&
        (range.lo == 0 || tutti_model_cut(model, range.lo)) &&
        (range.hi == model->layer_count || tutti_model_cut(model, range.hi)))
        return TUTTI_OK;
    return tti_model_refuse(
        model, NULL, TUTTI_ERR_ARGUMENT,
        "a pass over layers %d to %d of %d: it begins or ends where a residual is open, or has none", range.lo,
        range.hi - 1, model->layer_count);
}

static tutti_status describe(struct tutti_pass *pass, tutti_model *model, const tutti_pass_options *options)
{
    pass->model = model;
    pass->options = *options;
    if (options->source != NULL) pass->source = *options->source;
    if (pass->options.threads == 0) pass->options.threads = 1;
    if (pass->options.slots == 0) pass->options.slots = 1;
    tutti_status status = set_layers(pass);
    return status == TUTTI_OK ? lay_out(pass) : status;
}

tutti_status tti_pass_plan(tutti_model *model, const tutti_pass_options *options, size_t *bytes)
{
    struct tutti_pass *pass = tti_calloc(1, sizeof *pass);
    if (pass == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a pass");
    tutti_status status = describe(pass, model, options);
    *bytes = pass->memory_bytes;
    tutti_pass_free(pass);
    return status;
}

tutti_status tutti_pass_create(tutti_model *model, const tutti_pass_options *given, tutti_pass **out)
{
    if (model == NULL || out == NULL) return TUTTI_ERR_ARGUMENT;
    *out = NULL;
    tutti_pass_options known = {0};
    const tutti_pass_options *options = given == NULL ? NULL : &known;
    if (given != NULL && !tti_sized_take(&known, sizeof known, given))
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "a pass's options need struct_size, sizeof(tutti_pass_options)");
    const bool has_values = options != NULL && (options->source != NULL || model->values != NULL);
    if (!has_values || !model->sealed || options->samples < 0 || options->grains < 0 || options->threads < 0 ||
        options->slots < 0)
        return tti_model_refuse(
            model, NULL, TUTTI_ERR_ARGUMENT,
            "a pass needs options, a sealed model with memory, and no negative samples, grains, threads or slots");
    struct tutti_pass *pass = tti_calloc(1, sizeof *pass);
    if (pass == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for a pass");
    tutti_status status = describe(pass, model, options);
    if (status == TUTTI_OK) status = allocate(pass);
    if (status == TUTTI_OK) status = tti_model_make_state(model);
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
    for (int i = 0; pass->lives != NULL && i < pass->options.slots; i++) tti_free(pass->lives[i].items);
    tti_free(pass->lives);
    tti_free(pass->collects.counts);
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
    if (!pass->ready || model->layer_count - pass->layers.lo < 2 || pass->layers.hi < model->layer_count ||
        model->layers[model->layer_count - 1]->shared_with >= 0)
        return NULL;
    return pass->places[model->layer_count - 2].out;
}
