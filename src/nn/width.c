/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/width.h"

#include "nn/nn_kernels.h"
#include <string.h>

enum { ALIGNMENT = 16 };

static int sections_of(int sections)
{
    return sections > 1 ? sections : 1;
}

int64_t tti_grains_length(const tutti_model *model, int64_t length, int sections, int from, int to)
{
    if (from >= to) return 0;
    const int64_t each = length / sections_of(sections);
    const size_t lo = tti_grain_share(model, each, from).lo, hi = tti_grain_share(model, each, to - 1).hi;
    return (int64_t)(hi - lo) * sections_of(sections);
}

/* ---- Pieces of tensors ----------------------------------------------------------------------------------------- */

/* A tensor as (outer, length, inner), where `length` is the dimension that is cut. */
struct cut_view {
    size_t outer, length, inner;
    size_t sections;
};

static struct cut_view view_of(const tutti_tensor *tensor)
{
    const int cut = tti_tensor_is_cut(tensor) ? tensor->placement_dimension : 0;
    struct cut_view view = {1, (size_t)tensor->shape[cut], 1, (size_t)sections_of(tensor->sections)};
    for (int d = 0; d < cut; d++) view.outer *= (size_t)tensor->shape[d];
    for (int d = cut + 1; d < tensor->dimensions; d++) view.inner *= (size_t)tensor->shape[d];
    return view;
}

static int64_t piece_length(const tutti_model *model, const tutti_tensor *tensor, int grain)
{
    const int64_t length = tensor->shape[tensor->placement_dimension];
    const int number = model->width.first + grain;
    return tti_grains_length(model, length, tensor->sections, number, number + 1);
}

int tti_piece_count(const tutti_model *model, const tutti_tensor *tensor)
{
    return tti_tensor_is_cut(tensor) ? model->width.here : 1;
}

size_t tti_piece_elements(const tutti_model *model, const tutti_tensor *tensor, int grain)
{
    const struct cut_view view = view_of(tensor);
    if (!tti_tensor_is_cut(tensor)) return view.outer * view.length * view.inner;
    return view.outer * (size_t)piece_length(model, tensor, grain) * view.inner;
}

size_t tti_piece_room(const tutti_model *model, const tutti_tensor *tensor, int grain)
{
    return (tti_piece_elements(model, tensor, grain) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

size_t tti_piece_offset(const tutti_model *model, const tutti_tensor *tensor, int grain)
{
    size_t offset = 0;
    for (int g = 0; tti_tensor_is_cut(tensor) && g < grain; g++) offset += tti_piece_room(model, tensor, g);
    return offset;
}

int64_t tti_piece_extent(const tutti_model *model, const tutti_tensor *tensor, int grain, int dimension)
{
    const bool cut = tti_tensor_is_cut(tensor) && tensor->placement_dimension == dimension;
    return cut ? piece_length(model, tensor, grain) : tensor->shape[dimension];
}

/* Calls `run` for the part of one run that is in `within`. */
static void clip_run(struct tti_span within, size_t local, struct tti_span global, tti_piece_run *run, void *context)
{
    const size_t lo = global.lo > within.lo ? global.lo : within.lo, hi = global.hi < within.hi ? global.hi : within.hi;
    if (lo < hi) run(context, local + (lo - global.lo), lo, hi - lo);
}

void tti_piece_runs_within(const tutti_model *model, const tutti_tensor *tensor, int grain, struct tti_span within,
                           tti_piece_run *run, void *context)
{
    if (!tti_tensor_is_cut(tensor)) {
        clip_run(within, 0, (struct tti_span){0, tensor->count}, run, context);
        return;
    }
    const struct cut_view view = view_of(tensor);
    const size_t section = view.length / view.sections, row = view.length * view.inner;
    const struct tti_span span = tti_grain_share(model, (int64_t)section, model->width.first + grain);
    const size_t count = (span.hi - span.lo) * view.inner;
    const size_t first = row == 0 ? 0 : within.lo / row;
    size_t local = tti_piece_offset(model, tensor, grain) + first * view.sections * count;
    for (size_t o = first; count > 0 && o < view.outer && o * row < within.hi; o++)
        for (size_t s = 0; s < view.sections; s++, local += count) {
            const size_t global = o * row + (s * section + span.lo) * view.inner;
            clip_run(within, local, (struct tti_span){global, global + count}, run, context);
        }
}

void tti_piece_runs(const tutti_model *model, const tutti_tensor *tensor, int grain, tti_piece_run *run, void *context)
{
    tti_piece_runs_within(model, tensor, grain, (struct tti_span){0, SIZE_MAX}, run, context);
}

struct search {
    size_t local, global;
};

static void search_run(void *context, size_t local, size_t global, size_t count)
{
    struct search *search = context;
    if (search->local >= local && search->local < local + count) search->global = global + (search->local - local);
}

size_t tti_piece_global(const tutti_model *model, const tutti_tensor *tensor, int grain, size_t index)
{
    struct search search = {.local = tti_piece_offset(model, tensor, grain) + index};
    tti_piece_runs(model, tensor, grain, search_run, &search);
    return search.global;
}

struct copy {
    const float *whole_from, *local_from;
    float *whole, *local;
};

static void copy_run(void *context, size_t local, size_t global, size_t count)
{
    const struct copy *copy = context;
    if (copy->local != NULL)
        memcpy(copy->local + local, copy->whole_from + global, count * sizeof(float));
    else
        memcpy(copy->whole + global, copy->local_from + local, count * sizeof(float));
}

static void copy_tensor(const tutti_model *model, int index, struct copy *copy)
{
    const int state = index - model->tensor_count;
    const tutti_tensor *tensor = state < 0 ? &model->tensors[index] : &model->states[state];
    for (int g = 0; g < tti_piece_count(model, tensor); g++) tti_piece_runs(model, tensor, g, copy_run, copy);
}

void tutti_tensor_take(const tutti_model *model, int index, const float *whole, float *local)
{
    copy_tensor(model, index, &(struct copy){.whole_from = whole, .local = local});
}

void tutti_tensor_put(const tutti_model *model, int index, const float *local, float *whole)
{
    copy_tensor(model, index, &(struct copy){.local_from = local, .whole = whole});
}

/* ---- Calls ----------------------------------------------------------------------------------------------------- */

int tutti_call_grains(const tutti_call *call)
{
    return call->layer->cut == TUTTI_CUT_WHOLE ? 1 : call->model->width.here;
}

/* Finds the place of a grain in a row of `whole` floats of which this rank has those of its grains. */
static void row_range(const tutti_call *call, int64_t whole, int sections, int grain, int64_t *from, int64_t *to)
{
    const struct tti_width *width = &call->model->width;
    const int number = width->first + grain;
    *from = tti_grains_length(call->model, whole, sections, width->first, number);
    *to = *from + tti_grains_length(call->model, whole, sections, number, number + 1);
}

void tutti_call_inputs(const tutti_call *call, int grain, int64_t *from, int64_t *to)
{
    const tutti_layer *layer = call->layer;
    *from = 0;
    *to = layer->inputs;
    if (layer->cut == TUTTI_CUT_ALIKE || layer->cut == TUTTI_CUT_INPUTS)
        row_range(call, layer->whole_inputs, layer->sections, grain, from, to);
}

void tutti_call_outputs(const tutti_call *call, int grain, int64_t *from, int64_t *to)
{
    const tutti_layer *layer = call->layer;
    const bool same = layer->outputs == layer->inputs || layer->cut == TUTTI_CUT_OUTPUTS;
    *from = 0;
    *to = layer->outputs;
    if (layer->cut == TUTTI_CUT_ALIKE || layer->cut == TUTTI_CUT_OUTPUTS)
        row_range(call, layer->whole_outputs, same ? layer->sections : 1, grain, from, to);
}

const float *tutti_grain_values(const tutti_call *call, int n, int grain)
{
    const float *values = tutti_layer_values(call, n);
    if (values == NULL) return NULL;
    return values + tti_piece_offset(call->model, tti_layer_part(call->model, call->layer, n), grain);
}

/* ---- Sums over grains ------------------------------------------------------------------------------------------ */

void tti_fill_nothing(float *out, size_t count)
{
    for (size_t i = 0; i < count; i++) out[i] = -0.0f;
}

int64_t tti_width_scratch(const tutti_model *model, int64_t width)
{
    int depth = 0;
    while (model->width.grains > 1 << depth) depth++;
    return depth * TTI_WIDTH_ROWS * width;
}

struct sum {
    tutti_call *call;
    tti_width_leaf *leaf;
    int64_t first, rows, width;
};

/* Sums the grains from `from` to `to` into `out`. */
static void sum_tree(const struct sum *sum, int from, int to, int depth, float *out)
{
    if (to - from == 1) {
        sum->leaf(sum->call, from, sum->first, sum->rows, out);
        return;
    }
    int half = 1;
    while (2 * half < to - from) half *= 2;
    float *right = sum->call->scratch + depth * TTI_WIDTH_ROWS * sum->width;
    sum_tree(sum, from, from + half, depth + 1, out);
    sum_tree(sum, from + half, to, depth + 1, right);
    tti_nn_kernels()->add(out, out, right, (size_t)(sum->rows * sum->width));
}

void tti_width_sum(tutti_call *call, int64_t width, tti_width_leaf *leaf, float *out)
{
    const int64_t most = call->layer->cut == TUTTI_CUT_WHOLE ? call->rows : TTI_WIDTH_ROWS;
    for (int64_t first = 0; first < call->rows; first += most) {
        const int64_t left = call->rows - first, rows = left < most ? left : most;
        struct sum sum = {call, leaf, first, rows, width};
        sum_tree(&sum, 0, tutti_call_grains(call), 0, out + first * width);
    }
}
