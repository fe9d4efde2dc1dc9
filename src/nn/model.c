/* SPDX-License-Identifier: Apache-2.0
 *
 * Building a model. The first error stays in the model and ends building; nothing is placed before the model is sealed.
 */
#include "nn/model.h"

#include "base/alloc.h"
#include "base/memory.h"
#include "base/status.h"
#include "nn/blas.h"
#include "nn/width.h"
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 16 }; /* in floats: a cache line */

tutti_status tti_model_refuse(tutti_model *model, const tutti_layer *layer, tutti_status status, const char *format,
                              ...)
{
    char sentence[320];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    if (layer == NULL) return tti_error_set(&model->error, status, 0, "%s", sentence);
    return tti_error_set(&model->error, status, 0, "layer '%s' (%s): %s", layer->name, layer->ops->kind, sentence);
}

tutti_status tutti_model_refuse(tutti_model *model, tutti_status status, const char *sentence)
{
    return tti_model_refuse(model, model->layer_count > 0 ? model->layers[model->layer_count - 1] : NULL, status, "%s",
                            sentence);
}

const tutti_error *tutti_model_error(const tutti_model *model)
{
    return model == NULL || model->error.status == TUTTI_OK ? NULL : &model->error;
}

int tutti_model_explain(const tutti_model *model, FILE *stream)
{
    if (model == NULL) fprintf(stream, "tutti: no memory for a model\n");
    if (model == NULL) return 1;
    if (model->error.status == TUTTI_OK) return 0;
    fprintf(stream, "tutti: %s: %s\n", tutti_status_name(model->error.status), model->error.text);
    return 1;
}

tutti_status tutti_model_create(const tutti_model_shape *shape, tutti_model **out)
{
    if (out == NULL) return TUTTI_ERR_ARGUMENT;
    tutti_model *model = tti_calloc(1, sizeof *model);
    *out = model;
    if (model == NULL) return TUTTI_ERR_MEMORY;
    model->error.rank = model->error.peer = -1;
    model->width = (struct tti_width){.grains = 1, .here = 1, .ranks = 1};
    if (shape == NULL) return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "what the model is to be is NULL");
    model->shape = *shape;
    if (shape->rows < 1 || shape->inputs < 0)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "a model needs at least one row per sample and no negative inputs, not %lld and %lld",
                                (long long)shape->rows, (long long)shape->inputs);
    return tti_blas_load(&model->error);
}

void tutti_model_free(tutti_model *model)
{
    if (model == NULL) return;
    for (int i = 0; i < model->layer_count; i++) {
        free((void *)(uintptr_t)model->layers[i]->config);
        tti_free(model->layers[i]);
    }
    if (model->owns_values) tti_free(model->values);
    if (model->owns_gradients) tti_free(model->gradients);
    tti_free(model->state);
    free(model->states);
    free(model->layers);
    free(model->tensors);
    tti_free(model->rooms);
    tti_free(model);
}

/* ---- Layers ---------------------------------------------------------------------------------------------------- */

/* Makes room for one more element in an array. */
static bool grow(void **array, int count, int *room, size_t bytes)
{
    if (count < *room) return true;
    int larger = *room == 0 ? 16 : 2 * *room;
    void *moved = tti_alloc_allowed() ? realloc(*array, (size_t)larger * bytes) : NULL;
    if (moved == NULL) return false;
    *array = moved;
    *room = larger;
    return true;
}

static tutti_status no_memory(tutti_model *model)
{
    return tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for the model's description");
}

static bool name_fits(const char *name)
{
    return name != NULL && name[0] != '\0' && strlen(name) < TUTTI_NAME_BYTES;
}

static tutti_layer *append(tutti_model *model, const char *name, const void *config, size_t config_bytes)
{
    if (!grow((void **)&model->layers, model->layer_count, &model->layer_room, sizeof(tutti_layer *))) return NULL;
    tutti_layer *layer = tti_calloc(1, sizeof *layer);
    if (layer == NULL) return NULL;
    void *copy = config_bytes > 0 ? tti_calloc(1, config_bytes) : NULL;
    if (config_bytes > 0 && copy == NULL) {
        tti_free(layer);
        return NULL;
    }
    if (copy != NULL) memcpy(copy, config, config_bytes);
    strcpy(layer->name, name);
    layer->config = copy;
    layer->index = model->layer_count;
    layer->shared_with = layer->add_from = layer->add_to = -1;
    layer->cut = TUTTI_CUT_WHOLE;
    model->layers[model->layer_count++] = layer;
    return layer;
}

/* Checks a layer that collects. In backward it collects from the gradient that backward_input will see. */
static bool collects_well(const tutti_layer *layer)
{
    const tutti_layer_ops *ops = layer->ops;
    if (ops->collect == NULL) return ops->collect_back == NULL;
    return ops->merge != NULL && layer->outputs > 0 && !(ops->cuts & TUTTI_CUT_ROWS) && !layer->changes_gradient;
}

tutti_status tutti_model_add(tutti_model *model, const char *name, const tutti_layer_ops *ops, const void *config,
                             size_t config_bytes)
{
    if (model == NULL) return TUTTI_ERR_ARGUMENT;
    if (model->error.status != TUTTI_OK) return model->error.status;
    if (model->sealed || model->has_loss)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "a layer after the loss or after sealing");
    if (!name_fits(name) || ops == NULL || ops->setup == NULL || ops->forward == NULL || ops->backward_input == NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "a layer needs a name of 1 to 63 bytes, and ops with setup, forward, backward_input");
    if (config == NULL && config_bytes > 0)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "layer '%s' (%s): what it is to be is NULL", name,
                                ops->kind);
    if (model->layer_count == 0 && model->shape.inputs == 0 && !(ops->reads & TUTTI_READS_TOKENS))
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "layer '%s' (%s) reads no tokens; a model without inputs begins with one that does, "
                                "such as an embedding",
                                name, ops->kind);
    tutti_layer *layer = append(model, name, config, config_bytes);
    if (layer == NULL) return no_memory(model);
    layer->ops = ops;
    layer->inputs = layer->index == 0 ? model->shape.inputs : model->layers[layer->index - 1]->outputs;
    layer->outputs = layer->inputs;
    layer->whole_inputs = layer->inputs;
    tutti_status status = ops->setup(model, layer);
    layer->whole_outputs = layer->outputs;
    if (status == TUTTI_OK && !collects_well(layer))
        return tti_model_refuse(
            model, layer, TUTTI_ERR_ARGUMENT,
            "a layer that collects needs merge and outputs, works on all rows of an item, and leaves "
            "the gradient of its output as it is");
    if (status == TUTTI_OK && layer->outputs == 0) model->has_loss = true;
    if (status != TUTTI_OK && model->error.status == TUTTI_OK)
        tti_model_refuse(model, layer, status, "its setup failed");
    return status;
}

static bool tensor_place(tutti_tensor *tensor, int dimensions, const int64_t *shape)
{
    tensor->count = 1;
    tensor->dimensions = dimensions;
    for (int i = 0; i < dimensions; i++) {
        if (shape[i] < 1 || (size_t)shape[i] > (SIZE_MAX >> 8) / tensor->count) return false;
        tensor->shape[i] = shape[i];
        tensor->count *= (size_t)shape[i];
    }
    return true;
}

static bool has_name(const tutti_model *model, const char *name)
{
    for (int i = 0; i < model->state_count; i++)
        if (strcmp(model->states[i].name, name) == 0) return true;
    return tutti_model_find(model, name) != NULL;
}

static tutti_status describe_tensor(tutti_model *model, const tutti_layer *layer, const char *suffix, int dimensions,
                                    const int64_t *shape, tutti_tensor *tensor)
{
    int length = snprintf(tensor->name, sizeof tensor->name, "%s.%s", layer->name, suffix);
    if (length >= TUTTI_NAME_BYTES || layer->tensor_count == TUTTI_LAYER_TENSORS || layer->shared_with >= 0 ||
        layer->state_count == TUTTI_LAYER_TENSORS || dimensions < 1 || dimensions > TUTTI_DIMENSIONS_MAX ||
        !tensor_place(tensor, dimensions, shape))
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "tensor '%s' has too long a name, a bad shape, or is one too many", suffix);
    if (has_name(model, tensor->name))
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "a tensor '%s' is there already", tensor->name);
    return TUTTI_OK;
}

tutti_status tutti_layer_tensor(tutti_model *model, tutti_layer *layer, const char *suffix, int dimensions,
                                const int64_t *shape, tutti_init init, double init_scale)
{
    if (!grow((void **)&model->tensors, model->tensor_count, &model->tensor_room, sizeof(tutti_tensor)))
        return no_memory(model);
    tutti_tensor *tensor = &model->tensors[model->tensor_count];
    *tensor = (tutti_tensor){.type = TUTTI_F32, .init = init, .init_scale = init_scale, .layer = layer->index};
    tutti_status status = describe_tensor(model, layer, suffix, dimensions, shape, tensor);
    if (status == TUTTI_OK) layer->tensors[layer->tensor_count++] = model->tensor_count++;
    return status;
}

tutti_status tutti_layer_state(tutti_model *model, tutti_layer *layer, const char *suffix, int dimensions,
                               const int64_t *shape, tutti_init init)
{
    if (!grow((void **)&model->states, model->state_count, &model->state_room, sizeof(tutti_tensor)))
        return no_memory(model);
    tutti_tensor *state = &model->states[model->state_count];
    *state = (tutti_tensor){.type = TUTTI_F32, .init = init, .layer = layer->index};
    tutti_status status = describe_tensor(model, layer, suffix, dimensions, shape, state);
    if (status == TUTTI_OK) layer->states[layer->state_count++] = model->state_count++;
    return status;
}

tutti_status tutti_layer_share(tutti_model *model, tutti_layer *layer, const char *tensor_name)
{
    const tutti_tensor *tensor = tutti_model_find(model, tensor_name);
    if (tensor == NULL)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT, "there is no tensor '%s' to share", tensor_name);
    const tutti_layer *owner = model->layers[tensor->layer];
    int index = (int)(tensor - model->tensors);
    if (layer->tensor_count > 0 || owner->tensors[0] != index)
        return tti_model_refuse(model, layer, TUTTI_ERR_ARGUMENT,
                                "only the first tensor of a layer can be shared, by a layer without own tensors");
    layer->tensors[layer->tensor_count++] = index;
    layer->shared_with = owner->index;
    model->layers[owner->index]->shared = true;
    return TUTTI_OK;
}

/* ---- Residuals ------------------------------------------------------------------------------------------------- */

tutti_status tutti_residual_begin(tutti_model *model)
{
    if (model == NULL) return TUTTI_ERR_ARGUMENT;
    if (model->error.status != TUTTI_OK) return model->error.status;
    if (model->residual_count == TTI_RESIDUALS_MAX || model->layer_count == 0)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "a residual needs a layer before it, and at most %d are open at once",
                                TTI_RESIDUALS_MAX);
    model->residuals[model->residual_count++] = model->layer_count;
    return TUTTI_OK;
}

tutti_status tutti_residual_end(tutti_model *model)
{
    if (model == NULL) return TUTTI_ERR_ARGUMENT;
    if (model->error.status != TUTTI_OK) return model->error.status;
    int begin = model->residual_count > 0 ? model->residuals[--model->residual_count] : model->layer_count;
    if (begin == model->layer_count)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "the end of a residual that was not begun, or is empty");
    tutti_layer *first = model->layers[begin], *last = model->layers[model->layer_count - 1];
    if (first->inputs != last->outputs || first->add_to >= 0 || last->add_from >= 0)
        return tti_model_refuse(model, last, TUTTI_ERR_ARGUMENT,
                                "its output of %lld floats cannot be added to the residual's %lld",
                                (long long)last->outputs, (long long)first->inputs);
    last->add_from = begin;
    first->add_to = last->index;
    return TUTTI_OK;
}

/* ---- Tensors --------------------------------------------------------------------------------------------------- */

/* Counts the elements of a tensor that are on this rank. */
static void count_tensor(const tutti_model *model, tutti_tensor *tensor)
{
    const struct tti_width *width = &model->width;
    const int cut = tensor->placement_dimension;
    tensor->count = 0;
    for (int g = 0; g < tti_piece_count(model, tensor); g++) tensor->count += tti_piece_elements(model, tensor, g);
    memcpy(tensor->local, tensor->shape, sizeof tensor->local);
    if (tti_tensor_is_cut(tensor))
        tensor->local[cut] = tti_grains_length(model, tensor->shape[cut], tensor->sections, width->first,
                                               width->first + width->here);
}

static size_t lay_out_tensors(const tutti_model *model, tutti_tensor *tensors, int count)
{
    size_t used = 0;
    for (int i = 0; i < count; i++) {
        tutti_tensor *tensor = &tensors[i];
        const int last = tti_piece_count(model, tensor) - 1;
        count_tensor(model, tensor);
        tensor->offset = used;
        used += tti_piece_offset(model, tensor, last) + tti_piece_room(model, tensor, last);
    }
    return used;
}

void tti_model_lay_out(tutti_model *model)
{
    model->elements = lay_out_tensors(model, model->tensors, model->tensor_count);
    model->value_elements = model->elements;
    model->state_elements = lay_out_tensors(model, model->states, model->state_count);
}

tutti_status tutti_model_seal(tutti_model *model)
{
    if (model == NULL) return TUTTI_ERR_ARGUMENT;
    if (model->error.status != TUTTI_OK) return model->error.status;
    if (!model->has_loss || model->residual_count > 0)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "a model ends with a loss, and with no residual open");
    model->sealed = true;
    tti_model_lay_out(model);
    return TUTTI_OK;
}

size_t tti_layer_offset(const tutti_model *model, const tutti_layer *layer)
{
    return model->tensors[layer->tensors[0]].offset;
}

size_t tti_layer_elements(const tutti_model *model, const tutti_layer *layer)
{
    int last = layer->tensors[layer->tensor_count - 1];
    return model->tensors[last].offset + tti_tensor_room(model, last) - tti_layer_offset(model, layer);
}

const float *tutti_layer_values(const tutti_call *call, int n)
{
    const tutti_tensor *part = tti_layer_part(call->model, call->layer, n);
    if (part == NULL) return NULL;
    return n < call->layer->tensor_count ? call->values[n] : call->model->state + part->offset;
}

int tutti_model_tensors(const tutti_model *model)
{
    return model->tensor_count;
}

const tutti_tensor *tutti_model_tensor(const tutti_model *model, int index)
{
    return index < 0 || index >= model->tensor_count ? NULL : &model->tensors[index];
}

const tutti_tensor *tutti_model_find(const tutti_model *model, const char *name)
{
    for (int i = 0; i < model->tensor_count; i++)
        if (strcmp(model->tensors[i].name, name) == 0) return &model->tensors[i];
    return NULL;
}

int tutti_model_layers(const tutti_model *model)
{
    return model->layer_count;
}

const tutti_layer *tutti_model_layer(const tutti_model *model, int index)
{
    return index < 0 || index >= model->layer_count ? NULL : model->layers[index];
}

int64_t tutti_model_rows(const tutti_model *model)
{
    return model->shape.rows;
}

size_t tutti_model_parameters(const tutti_model *model)
{
    size_t count = 0;
    for (int i = 0; i < model->tensor_count; i++) {
        size_t elements = 1;
        for (int d = 0; d < model->tensors[i].dimensions; d++) elements *= (size_t)model->tensors[i].shape[d];
        count += elements;
    }
    return count;
}

size_t tutti_model_elements(const tutti_model *model)
{
    return model->elements;
}

double tutti_model_flops_per_row(const tutti_model *model)
{
    return 6.0 * (double)tutti_model_parameters(model);
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

static float *floats_alloc(tutti_model *model, const char *purpose)
{
    tutti_error why = {.status = TUTTI_OK};
    bool fits = tti_memory_check(model->value_elements * sizeof(float), NULL, &why) == TUTTI_OK;
    float *floats = fits ? tti_calloc_aligned(model->value_elements * sizeof *floats) : NULL;
    if (!fits) tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "%s: %s", purpose, why.text);
    if (fits && floats == NULL)
        tti_model_refuse(model, NULL, TUTTI_ERR_MEMORY, "no memory for %s: %zu MiB are needed", purpose,
                         model->elements * sizeof *floats >> 20);
    return floats;
}

tutti_status tutti_model_bind(tutti_model *model, float *values, float *gradients)
{
    if (model == NULL) return TUTTI_ERR_ARGUMENT;
    if (model->error.status != TUTTI_OK) return model->error.status;
    if (!model->sealed || model->values != NULL)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT, "memory is given once, after sealing");
    model->owns_values = values == NULL;
    model->values = values != NULL ? values : floats_alloc(model, "parameters");
    model->gradients = gradients;
    return model->error.status;
}

float *tutti_model_values(const tutti_model *model)
{
    return model->values;
}

float *tutti_model_gradients(tutti_model *model)
{
    if (model->gradients == NULL && model->sealed) {
        model->gradients = floats_alloc(model, "gradients");
        model->owns_gradients = true;
    }
    return model->gradients;
}

void tutti_part_range(int64_t count, int part, int parts, int64_t *from, int64_t *to)
{
    int64_t units = (count + ALIGNMENT - 1) / ALIGNMENT;
    *from = units * part / parts * ALIGNMENT;
    *to = units * (part + 1) / parts * ALIGNMENT;
    if (*to > count) *to = count;
    if (*from > count) *from = count;
}
