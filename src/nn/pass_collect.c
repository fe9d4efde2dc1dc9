/* SPDX-License-Identifier: Apache-2.0
 *
 * Layers that depend on the whole batch, such as batch norm: here items and ranks meet. Data are collected from each
 * item; the data of all cells, which are the grains of all ranks, come to every rank, which merges them in the
 * canonical tree over cells. So the result depends on the grains and not on the ranks that have them. In fast mode a
 * rank merges its items first, and is one cell.
 *
 * Invariant: a rank that shares the batch brings as many cells as it has in every batch. Cells that it lacks, because
 * it has fewer samples or has failed, are empty, and merging skips them.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/share.h"
#include "collective/api/inside.h"
#include "nn/nn_kernels.h"
#include "nn/pass_backward.h"
#include <string.h>

/* ---- Making ---------------------------------------------------------------------------------------------------- */

static size_t share_of(const struct tti_pass_collects *collects, int rank)
{
    const struct tti_span share = tti_share(collects->cells, (size_t)rank, (size_t)tutti_size(collects->comm));
    return share.hi - share.lo;
}

tutti_status tti_pass_find_cells(struct tutti_pass *pass)
{
    struct tti_pass_collects *collects = &pass->collects;
    if (!tti_model_collects(pass->model)) return TUTTI_OK;
    const int grains = pass->options.batch_grains;
    collects->comm = pass->options.batch;
    collects->cells = grains > 0 ? (size_t)grains : 1;
    if (collects->comm == NULL) return TUTTI_OK;
    const int ranks = tutti_size(collects->comm);
    if (grains == 0) collects->cells = (size_t)ranks;
    collects->counts = tti_calloc((size_t)ranks, sizeof *collects->counts);
    if (collects->counts == NULL) return tti_model_refuse(pass->model, NULL, TUTTI_ERR_MEMORY, "no memory for a pass");
    const size_t mine = share_of(collects, tutti_rank(collects->comm));
    if (grains >= 0 && mine <= (size_t)pass->item_room) return TUTTI_OK;
    return tti_model_refuse(pass->model, NULL, TUTTI_ERR_ARGUMENT,
                            "of %d grains of the whole batch %zu are this rank's, but its pass is made for %d", grains,
                            mine, pass->options.grains);
}

void tti_pass_lay_out_collects(struct tutti_pass *pass, float *memory, size_t *used)
{
    struct tti_pass_collects *collects = &pass->collects;
    size_t most = 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const tutti_layer *layer = pass->model->layers[i];
        if ((size_t)layer->collects > most) most = (size_t)layer->collects;
        if ((size_t)layer->collects_back > most) most = (size_t)layer->collects_back;
    }
    const size_t doubles = sizeof(double) / sizeof(float);
    collects->items = (double *)(void *)tti_pass_take(memory, used, doubles * most * (size_t)pass->item_room);
    collects->all = (double *)(void *)tti_pass_take(memory, used, doubles * most * collects->cells);
    collects->back = (double *)(void *)tti_pass_take(memory, used, doubles * most);
}

/* ---- One layer ------------------------------------------------------------------------------------------------- */

struct collecting {
    struct tutti_pass *pass;
    const tutti_layer *layer;
    bool back;
    size_t each; /* doubles of an item */
};

static void collect_item(const struct collecting *collecting, const struct tti_item *item, double *known, int thread)
{
    const struct tutti_pass *pass = collecting->pass;
    const tutti_layer *layer = collecting->layer;
    tutti_call call = tti_pass_call(pass, layer, item, thread);
    if (!collecting->back) {
        call.collected = known;
        layer->ops->collect(&call);
        return;
    }
    call.collected_back = known;
    tti_pass_set_gradients(pass, item, &call);
    layer->ops->collect_back(&call);
}

static void collect_body(void *context, int thread, int threads)
{
    (void)threads;
    const struct collecting *collecting = context;
    const struct tutti_pass *pass = collecting->pass;
    for (int64_t i; (i = tti_pool_take(pass->pool)) < pass->item_count;)
        if (pass->items[i].samples > 0)
            collect_item(collecting, &pass->items[i], pass->collects.items + (size_t)i * collecting->each, thread);
}

static void merge(const struct collecting *collecting, double *into, const double *from)
{
    if (!collecting->back) collecting->layer->ops->merge(collecting->layer, into, from);
    for (size_t i = 0; collecting->back && i < collecting->each; i++) into[i] += from[i];
}

/* Merges the data of cells `from` to `to` into the first of them. */
static void merge_tree(const struct collecting *collecting, double *cells, size_t from, size_t to)
{
    if (to - from < 2) return;
    size_t half = 1;
    while (2 * half < to - from) half *= 2;
    merge_tree(collecting, cells, from, from + half);
    merge_tree(collecting, cells, from + half, to);
    merge(collecting, cells + from * collecting->each, cells + (from + half) * collecting->each);
}

/* Gathers the cells of all ranks on all ranks. */
static tutti_status gather(const struct collecting *collecting)
{
    struct tutti_pass *pass = collecting->pass;
    struct tti_pass_collects *collects = &pass->collects;
    for (int r = 0; r < tutti_size(collects->comm); r++) collects->counts[r] = share_of(collects, r) * collecting->each;
    const int64_t began_ns = tti_now_ns();
    tutti_comm *comm = tti_inside(collects->comm, "pass", collecting->layer->name);
    return tti_pass_met(pass, comm, began_ns,
                        tutti_all_gather_v(comm, collects->items, collects->all, collects->counts, NULL, TUTTI_F64));
}

/* Collects from this rank's items, then from all cells: *whole gets the data of the whole batch. */
static tutti_status collect(const struct collecting *collecting, double *whole)
{
    struct tutti_pass *pass = collecting->pass;
    const struct tti_pass_collects *collects = &pass->collects;
    const bool fast = pass->batch.grain_bounds == NULL, alone = collects->comm == NULL;
    const size_t bytes = collecting->each * sizeof *whole;
    memset(collects->items, 0, bytes * (size_t)pass->item_room);
    tti_pool_run(pass->pool, collect_body, (void *)(uintptr_t)collecting);
    if (fast || alone) merge_tree(collecting, collects->items, 0, (size_t)pass->item_count);
    tutti_status status = alone ? TUTTI_OK : gather(collecting);
    if (status != TUTTI_OK) return status;
    if (!alone) merge_tree(collecting, collects->all, 0, collects->cells);
    memcpy(whole, alone ? collects->items : collects->all, bytes);
    return TUTTI_OK;
}

tutti_status tti_pass_collect(struct tutti_pass *pass, const tutti_layer *layer)
{
    if (layer->ops->collect == NULL || pass->batch.evaluate || pass->remaking) return TUTTI_OK;
    const struct collecting collecting = {pass, layer, false, (size_t)layer->collects};
    double *whole = pass->places[layer->index].collected;
    tutti_status status = collect(&collecting, whole);
    if (status != TUTTI_OK || layer->ops->merged == NULL) return status;
    return layer->ops->merged(pass->model, layer, whole);
}

tutti_status tti_pass_collect_back(struct tutti_pass *pass, const tutti_layer *layer)
{
    if (layer->ops->collect_back == NULL) return TUTTI_OK;
    const struct collecting collecting = {pass, layer, true, (size_t)layer->collects_back};
    return collect(&collecting, pass->collects.back);
}
