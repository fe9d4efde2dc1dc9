/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds the elements of a trainer's arrays on this rank.
 *
 * Invariant: every element of every tensor is on one rank, or on several that differ only along dimensions of the mesh
 * over which it is replicated; of these the one with the coordinates of the asking rank gives it.
 */
#define TUTTI_NO_CALL_SITES
#include "train/trainer_arrays.h"

#include "base/alloc.h"
#include "base/status.h"
#include "nn/width.h"
#include "train/ddp.h"
#include "train/trainer.h"
#include <string.h>

/* ---- The list -------------------------------------------------------------------------------------------------- */

static void find_arrays(struct tti_arrays *arrays)
{
    const struct tutti_trainer *t = arrays->trainer;
    const bool passing = tti_trainer_passing_values(t);
    arrays->owned[0] = passing && t->options.zero > 0;
    arrays->values[0] = passing ? tti_ddp_owned_values(t->ddp) : t->values;
    arrays->values[TTI_ARRAY_STATE] = t->model->state;
    arrays->count = 1;
    while (arrays->count < TTI_ARRAYS && tti_optimizer_state_name(t->options.optimizer, arrays->count - 1) != NULL) {
        if (t->server != NULL) arrays->values[arrays->count] = t->server->states[arrays->count - 1];
        if (t->optimizer != NULL) /* it is not only planned */
            (void)tutti_optimizer_state(t->optimizer, arrays->count - 1, &arrays->values[arrays->count]);
        arrays->owned[arrays->count++] = t->options.zero > 0;
    }
}

static const tutti_tensor *tensor_of(const struct tti_arrays *arrays, struct tti_array_place place)
{
    const tutti_model *model = arrays->trainer->model;
    return place.array == TTI_ARRAY_STATE ? &model->states[place.index] : &model->tensors[place.index];
}

static void add_tensor(struct tti_arrays *arrays, int array, int index)
{
    const bool optimizers = array > 0 && array != TTI_ARRAY_STATE;
    const char *state = optimizers ? tti_optimizer_state_name(arrays->trainer->options.optimizer, array - 1) : "";
    char *name = arrays->names[arrays->list_count];
    arrays->places[arrays->list_count] = (struct tti_array_place){array, index};
    const tutti_tensor *tensor = tensor_of(arrays, arrays->places[arrays->list_count]);
    (void)snprintf(name, sizeof *arrays->names, "%s%s%s", state, optimizers ? "." : "", tensor->name);
    tutti_checkpoint_tensor *made = &arrays->list[arrays->list_count++];
    *made = (tutti_checkpoint_tensor){
        .group = optimizers ? "optimizer" : "model", .name = name, .dimensions = tensor->dimensions};
    memcpy(made->shape, tensor->shape, sizeof made->shape);
}

static void add_array(struct tti_arrays *arrays, int array)
{
    const tutti_model *model = arrays->trainer->model;
    const int tensors = array == TTI_ARRAY_STATE ? model->state_count : model->tensor_count;
    for (int i = 0; i < tensors; i++) add_tensor(arrays, array, i);
}

tutti_status tti_arrays_make(const struct tutti_trainer *t, struct tti_arrays *arrays, tutti_error *error)
{
    const tutti_parameter *owned;
    const size_t parts = tutti_ddp_owned(t->ddp, &owned);
    *arrays = (struct tti_arrays){.trainer = t};
    find_arrays(arrays);
    const size_t all = (size_t)(arrays->count * t->model->tensor_count + t->model->state_count);
    arrays->list = tti_calloc(all + 1, sizeof *arrays->list);
    arrays->places = tti_calloc(all + 1, sizeof *arrays->places);
    arrays->names = tti_calloc(all + 1, sizeof *arrays->names);
    arrays->owned_at = tti_calloc(parts + 1, sizeof *arrays->owned_at);
    if (arrays->list == NULL || arrays->places == NULL || arrays->names == NULL || arrays->owned_at == NULL)
        return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a list of %zu tensors", all);
    add_array(arrays, 0);
    add_array(arrays, TTI_ARRAY_STATE);
    for (int a = 1; a < arrays->count; a++) add_array(arrays, a);
    for (size_t p = 0; p < parts; p++) arrays->owned_at[p + 1] = arrays->owned_at[p] + owned[p].count;
    return TUTTI_OK;
}

void tti_arrays_free(struct tti_arrays *arrays)
{
    tti_free(arrays->list);
    tti_free(arrays->places);
    tti_free(arrays->names);
    tti_free(arrays->owned_at);
}

/* ---- Runs ------------------------------------------------------------------------------------------------------ */

struct walk {
    const struct tti_arrays *arrays;
    int array;
    size_t offset; /* the tensor's offset, in this rank's allocation */
    tti_array_run *run;
    void *context;
};

/* Returns the first owned part that ends behind an element of the allocation. */
static size_t find_part(const tutti_ddp *ddp, const tutti_parameter *owned, size_t count, size_t at)
{
    size_t lo = 0, hi = count;
    while (lo < hi) {
        const size_t middle = lo + (hi - lo) / 2;
        if (tutti_ddp_owned_first(ddp, middle) + owned[middle].count > at)
            hi = middle;
        else
            lo = middle + 1;
    }
    return lo;
}

/* Calls `run` for the owned ones of `count` elements from `at` of the allocation on. */
static void owned_runs(const struct walk *walk, size_t at, size_t global, size_t count)
{
    const struct tti_arrays *arrays = walk->arrays;
    const tutti_ddp *ddp = arrays->trainer->ddp;
    const tutti_parameter *owned;
    const size_t parts = tutti_ddp_owned(ddp, &owned);
    for (size_t p = find_part(ddp, owned, parts, at); p < parts; p++) {
        const size_t first = tutti_ddp_owned_first(ddp, p), end = first + owned[p].count;
        if (first >= at + count) return;
        const size_t lo = first > at ? first : at, hi = end < at + count ? end : at + count;
        walk->run(walk->context, global + (lo - at), hi - lo,
                  arrays->values[walk->array] + arrays->owned_at[p] + (lo - first));
    }
}

static void local_run(void *context, size_t local, size_t global, size_t count)
{
    const struct walk *walk = context;
    const size_t at = walk->offset + local;
    if (walk->arrays->owned[walk->array])
        owned_runs(walk, at, global, count);
    else
        walk->run(walk->context, global, count, walk->arrays->values[walk->array] + at);
}

static void all_runs(const void *of, size_t tensor, struct tti_span within, tti_array_run *run, void *context)
{
    const struct tti_arrays *arrays = of;
    const tutti_model *model = arrays->trainer->model;
    const struct tti_array_place place = arrays->places[tensor];
    const tutti_tensor *here = tensor_of(arrays, place);
    const bool state = place.array == TTI_ARRAY_STATE;
    if (state ? here->offset == TTI_ELSEWHERE : !tti_tensor_is_own(model, place.index)) return;
    struct walk walk = {arrays, place.array, here->offset, run, context};
    for (int g = 0; g < tti_piece_count(model, here); g++)
        tti_piece_runs_within(model, here, g, within, local_run, &walk);
}

/* ---- Who gives ------------------------------------------------------------------------------------------------- */

static bool gives(const void *of, size_t tensor, int to)
{
    const struct tti_arrays *arrays = of;
    const struct tutti_trainer *t = arrays->trainer;
    const struct tti_trainer_mesh *mesh = &t->mesh;
    const struct tti_array_place place = arrays->places[tensor];
    const int batch = tti_trainer_mesh_batch_rank(mesh, to);
    const int group = arrays->owned[place.array] ? t->size / t->ddp->zero.replicas : 1;
    if (batch / group != t->rank / group) return false;
    return tti_tensor_is_cut(tensor_of(arrays, place)) ||
           mesh->at[TTI_MESH_TENSOR] == tti_trainer_mesh_at(mesh, to, TTI_MESH_TENSOR);
}

/* Returns true if each rank has all of every tensor. */
static bool is_whole(const struct tti_arrays *arrays)
{
    const struct tti_trainer_mesh *mesh = &arrays->trainer->mesh;
    if (mesh->sizes[TTI_MESH_PIPE] > 1 || mesh->sizes[TTI_MESH_TENSOR] > 1) return false;
    for (int a = 0; a < arrays->count; a++)
        if (arrays->owned[a]) return false;
    return true;
}

struct tti_piece_source tti_arrays_source(const struct tti_arrays *arrays, tutti_error *error)
{
    const struct tutti_trainer *t = arrays->trainer;
    return (struct tti_piece_source){.comm = t->comm,
                                     .here = t->here,
                                     .whole = is_whole(arrays),
                                     .list = arrays->list,
                                     .count = arrays->list_count,
                                     .gives = gives,
                                     .runs = all_runs,
                                     .context = arrays,
                                     .error = error};
}
