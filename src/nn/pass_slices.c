/* SPDX-License-Identifier: Apache-2.0
 *
 * Rows of a batch that ranks share out: the places of slices, and how they are gathered and scattered. A collective
 * needs the slices of one rank to lie one after the other, and in the whole batch they do only if it is one item:
 * otherwise they go through a staging area.
 */
#include "nn/nn_kernels.h"
#include "nn/pass.h"
#include <string.h>

int tti_pass_items_most(const struct tutti_pass *pass)
{
    return pass->options.grains > pass->options.threads ? pass->options.grains : pass->options.threads;
}

/* ---- Where slices lie ------------------------------------------------------------------------------------------ */

static size_t item_rows(const struct tutti_pass *pass, int item)
{
    return (size_t)(pass->items[item].samples * pass->model->shape.rows);
}

void tti_pass_cut_items(struct tutti_pass *pass)
{
    size_t before = 0;
    for (int i = 0; i < pass->item_count; i++) {
        struct tti_item *item = &pass->items[i];
        item->slice = tti_rank_rows(pass->model, pass->model->width.rank, (int64_t)item_rows(pass, i));
        item->sliced_before = before;
        before += item->slice.hi - item->slice.lo;
    }
}

size_t tti_pass_sliced_rows(const struct tutti_pass *pass, int rank)
{
    size_t rows = 0;
    for (int i = 0; i < pass->item_count; i++) {
        const struct tti_span slice = tti_rank_rows(pass->model, rank, (int64_t)item_rows(pass, i));
        rows += slice.hi - slice.lo;
    }
    return rows;
}

bool tti_pass_has_slices_only(const struct tutti_pass *pass, int layer)
{
    const tutti_model *model = pass->model;
    if (!model->layers[layer]->sliced_out) return false;
    return layer < pass->layers.lo || layer + 1 >= pass->layers.hi ||
           !tti_layer_gathers_in(model, model->layers[layer + 1]);
}

size_t tti_pass_room(const struct tutti_pass *pass, int layer)
{
    return tti_pass_has_slices_only(pass, layer) ? pass->sliced_most : pass->rows_most;
}

float *tti_pass_slice(const struct tutti_pass *pass, int layer, const struct tti_item *item)
{
    const size_t first = (size_t)(item->first * pass->model->shape.rows) + item->slice.lo;
    const size_t row = tti_pass_has_slices_only(pass, layer) ? item->sliced_before : first;
    return pass->places[layer].out + row * (size_t)pass->model->layers[layer]->outputs;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Returns the floats before a gradient that will be scattered. */
static size_t gathered_floats(const struct tutti_pass *pass, const tutti_layer *layer)
{
    return tti_layer_scatters_out(layer) ? pass->rows_most * (size_t)layer->outputs : 0;
}

float *tti_pass_unscattered(const struct tutti_pass *pass, const tutti_layer *layer)
{
    return pass->aside + gathered_floats(pass, layer);
}

static size_t aside_floats(const struct tutti_pass *pass)
{
    size_t most = 0;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++) {
        const tutti_layer *layer = pass->model->layers[i];
        const bool back = tti_layer_gathers_in(pass->model, layer) && !pass->options.evaluate;
        const size_t floats = gathered_floats(pass, layer) + (back ? pass->rows_most * (size_t)layer->inputs : 0);
        if (floats > most) most = floats;
    }
    return most;
}

size_t tti_pass_sum_elements(const struct tutti_pass *pass, int from, int to)
{
    size_t elements = 0;
    for (int i = from; i < to; i++)
        if (pass->places[i].has_sums) elements += tti_layer_elements(pass->model, pass->model->layers[i]);
    return elements;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* Returns the floats of the staging area. In backward's order, each gradient that is gathered takes along the sums that
 * were made since the one before. */
static size_t staged_floats(const struct tutti_pass *pass)
{
    const tutti_model *model = pass->model;
    const size_t copies = (size_t)model->width.ranks * (size_t)tti_pass_items_most(pass);
    size_t most = 0;
    int end = pass->layers.hi;
    for (int i = pass->layers.hi - 1; i >= pass->layers.lo; i--) {
        const tutti_layer *layer = model->layers[i];
        if (tti_layer_gathers_in(model, layer)) most = larger(most, pass->rows_most * (size_t)layer->inputs);
        if (!tti_layer_scatters_out(layer)) continue;
        most = larger(most, pass->rows_most * (size_t)layer->outputs + copies * tti_pass_sum_elements(pass, i, end));
        end = i;
    }
    return larger(most, copies * tti_pass_sum_elements(pass, pass->layers.lo, end));
}

static size_t block_tree_floats(const struct tutti_pass *pass)
{
    size_t most = 0, depth = 0;
    while (pass->model->width.grains > 1 << depth) depth++;
    for (int i = pass->layers.lo; i < pass->layers.hi; i++)
        if (pass->model->layers[i]->by_blocks)
            most = larger(most, tti_layer_elements(pass->model, pass->model->layers[i]));
    return depth * most;
}

size_t tti_pass_lay_out_slices(struct tutti_pass *pass, float *memory)
{
    size_t used = 0;
    pass->aside = tti_pass_take(memory, &used, aside_floats(pass));
    pass->staged = tti_pass_take(memory, &used, staged_floats(pass));
    if (pass->options.evaluate) return used;
    pass->block_tree_each = block_tree_floats(pass);
    pass->block_tree = tti_pass_take(memory, &used, pass->block_tree_each * (size_t)pass->options.threads);
    return used;
}

/* ---- Between the batch and the staging area -------------------------------------------------------------------- */

/* The blocks of ranks, in floats. */
struct blocks {
    int64_t width;
    size_t counts[TTI_WIDTH_GRAINS_MOST], offsets[TTI_WIDTH_GRAINS_MOST];
};

/* Sets the blocks. `more`: floats of each rank behind its slices. */
static void set_blocks(const struct tutti_pass *pass, int64_t width, size_t more, struct blocks *blocks)
{
    size_t at = 0;
    blocks->width = width;
    for (int rank = 0; rank < pass->model->width.ranks; rank++) {
        blocks->counts[rank] = tti_pass_sliced_rows(pass, rank) * (size_t)width + more;
        blocks->offsets[rank] = at;
        at += blocks->counts[rank];
    }
}

struct carry {
    const struct tutti_pass *pass;
    const struct blocks *blocks;
    float *whole;
    bool to_whole;
};

static void carry_rank(const struct carry *carry, int rank)
{
    const struct tutti_pass *pass = carry->pass;
    const size_t width = (size_t)carry->blocks->width;
    float *staged = pass->staged + carry->blocks->offsets[rank];
    for (int i = 0; i < pass->item_count; i++) {
        const struct tti_span slice = tti_rank_rows(pass->model, rank, (int64_t)item_rows(pass, i));
        const size_t count = (slice.hi - slice.lo) * width;
        float *rows = carry->whole + ((size_t)(pass->items[i].first * pass->model->shape.rows) + slice.lo) * width;
        memcpy(carry->to_whole ? rows : staged, carry->to_whole ? staged : rows, count * sizeof *rows);
        staged += count;
    }
}

static void carry_body(void *context, int thread, int threads)
{
    const struct carry *carry = context;
    (void)thread, (void)threads;
    for (int64_t rank; (rank = tti_pool_take(carry->pass->pool)) < carry->pass->model->width.ranks;)
        carry_rank(carry, (int)rank);
}

static bool is_one_item(const struct tutti_pass *pass)
{
    int count = 0;
    for (int i = 0; i < pass->item_count; i++) count += pass->items[i].samples > 0;
    return count == 1;
}

/* ---- Gathering and scattering ---------------------------------------------------------------------------------- */

/* Gathers slices. `slices` NULL: they lie in `whole`. With `more` floats of each rank, which are in the staging area
 * already. */
static tutti_status gather(struct tutti_pass *pass, const tutti_layer *layer, const float *slices, float *whole,
                           int64_t width, size_t more)
{
    const int mine = pass->model->width.rank;
    struct blocks blocks;
    if (tti_pass_rows(pass) == 0 || pass->model->width.comm == NULL) return TUTTI_OK;
    set_blocks(pass, width, more, &blocks);
    if (more == 0 && is_one_item(pass))
        return tti_pass_all_gather(pass, layer, slices != NULL ? slices : whole + blocks.offsets[mine], whole,
                                   blocks.counts, blocks.offsets);
    struct carry carry = {pass, &blocks, whole, false};
    float *own = pass->staged + blocks.offsets[mine];
    if (slices == NULL)
        carry_rank(&carry, mine);
    else
        memcpy(own, slices, tti_pass_sliced_rows(pass, mine) * (size_t)width * sizeof *own);
    tutti_status status = tti_pass_all_gather(pass, layer, own, pass->staged, blocks.counts, blocks.offsets);
    carry.to_whole = true;
    if (status == TUTTI_OK && whole != NULL) tti_pool_run(pass->pool, carry_body, &carry);
    return status;
}

/* Scatters the sums over ranks of `whole`: the rank's slices go to `to` one after the other or, with `back`, to their
 * places in it. */
static tutti_status scatter(struct tutti_pass *pass, const tutti_layer *layer, float *whole, float *to, bool back,
                            int64_t width)
{
    const int mine = pass->model->width.rank;
    struct blocks blocks;
    if (tti_pass_rows(pass) == 0 || pass->model->width.comm == NULL) return TUTTI_OK;
    set_blocks(pass, width, 0, &blocks);
    if (is_one_item(pass))
        return tti_pass_reduce_scatter(pass, layer, whole, back ? to + blocks.offsets[mine] : to, blocks.counts);
    struct carry carry = {pass, &blocks, whole, false};
    tti_pool_run(pass->pool, carry_body, &carry);
    tutti_status status = tti_pass_reduce_scatter(pass, layer, pass->staged,
                                                  back ? pass->staged + blocks.offsets[mine] : to, blocks.counts);
    carry.whole = to;
    carry.to_whole = true;
    if (status == TUTTI_OK && back) carry_rank(&carry, mine);
    return status;
}

tutti_status tti_pass_gather_in(struct tutti_pass *pass, const tutti_layer *layer)
{
    if (!tti_layer_gathers_in(pass->model, layer)) return TUTTI_OK;
    float *out = pass->places[layer->index - 1].out;
    const bool enters = layer->index == pass->layers.lo;
    return gather(pass, layer, enters ? out : NULL, enters ? pass->entered : out, layer->inputs, 0);
}

tutti_status tti_pass_scatter_out(struct tutti_pass *pass, const tutti_layer *layer)
{
    return scatter(pass, layer, pass->aside, pass->places[layer->index].out,
                   !tti_pass_has_slices_only(pass, layer->index), layer->outputs);
}

tutti_status tti_pass_scatter_back(struct tutti_pass *pass, const tutti_layer *layer)
{
    return scatter(pass, layer, tti_pass_unscattered(pass, layer),
                   pass->slots[tti_layer_place_slot(&pass->places[layer->index - 1])], false, layer->inputs);
}

/* ---- Sums of slices -------------------------------------------------------------------------------------------- */

/* Copies sums of layers from..to - 1 between their own place and the staging area. */
static void carry_sums(const struct tutti_pass *pass, int from, int to, float *staged, bool back)
{
    for (int i = from; i < to; i++) {
        if (!pass->places[i].has_sums) continue;
        const size_t count = (size_t)pass->item_count * tti_layer_elements(pass->model, pass->model->layers[i]);
        float *sums = pass->places[i].sums;
        memcpy(back ? sums : staged, back ? staged : sums, count * sizeof *sums);
        staged += count;
    }
}

/* Adds up the sums of ranks `from` to `to` - 1 in the place of those of `from`. */
static void add_ranks(const struct blocks *blocks, float *staged, size_t count, int from, int to)
{
    if (to - from == 1) return;
    int half = 1;
    while (2 * half < to - from) half *= 2;
    add_ranks(blocks, staged, count, from, from + half);
    add_ranks(blocks, staged, count, from + half, to);
    float *left = staged + blocks->offsets[from];
    tti_nn_kernels()->add(left, left, staged + blocks->offsets[from + half], count);
}

/* Gathers `slices`, if any, together with the sums of layers that were not summed over ranks yet. */
static tutti_status gather_with_sums(struct tutti_pass *pass, const tutti_layer *layer, const float *slices,
                                     float *whole, int64_t width)
{
    const int from = layer->index, to = pass->unsummed_end, mine = pass->model->width.rank;
    const size_t more = (size_t)pass->item_count * tti_pass_sum_elements(pass, from, to);
    struct blocks blocks;
    pass->unsummed_end = from;
    if (more == 0 && whole == NULL) return TUTTI_OK;
    set_blocks(pass, width, more, &blocks);
    for (int rank = 0; rank < pass->model->width.ranks; rank++) blocks.offsets[rank] += blocks.counts[rank] - more;
    carry_sums(pass, from, to, pass->staged + blocks.offsets[mine], false);
    tutti_status status = gather(pass, layer, slices, whole, width, more);
    if (status != TUTTI_OK || more == 0) return status;
    add_ranks(&blocks, pass->staged, more, 0, pass->model->width.ranks);
    carry_sums(pass, from, to, pass->staged + blocks.offsets[0], true);
    return TUTTI_OK;
}

tutti_status tti_pass_gather_back(struct tutti_pass *pass, const tutti_layer *layer)
{
    const struct tti_layer_place *place = &pass->places[layer->index];
    return gather_with_sums(pass, layer, pass->slots[place->slot], place->gradient, layer->outputs);
}

tutti_status tti_pass_gather_sums(struct tutti_pass *pass)
{
    return gather_with_sums(pass, pass->model->layers[pass->layers.lo], pass->staged, NULL, 0);
}
