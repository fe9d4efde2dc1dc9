/* SPDX-License-Identifier: Apache-2.0
 *
 * Measures the time of layers, of an update and of a sum on this machine.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/quartile.h"
#include "base/status.h"
#include "nn/nn_kernels.h"
#include "train/trainer.h"
#include <string.h>

/* ---- Elements -------------------------------------------------------------------------------------------------- */

enum { ELEMENTS = 1 << 22, TIMES = 9 };

static double seconds_since(int64_t began_ns)
{
    return (double)(tti_now_ns() - began_ns) * 1e-9;
}

/* Measures an update and an addition in memory that is larger than most caches: values, gradients, and terms that are
 * added to them. */
static tutti_status measure_elements(const tutti_train_options *options, float *memory, double *update, double *add,
                                     tutti_error *error)
{
    tutti_parameter all = {.name = "all", .value = memory, .gradient = memory + ELEMENTS, .count = ELEMENTS};
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    double updates[TIMES], adds[TIMES];
    TTI_TRY(tutti_optimizer_defaults(options->optimizer, &settings, error));
    TTI_TRY(tutti_optimizer_create(&settings, &all, 1, &optimizer, error));
    for (int i = 0; i < TIMES; i++) {
        double norm;
        int64_t began = tti_now_ns();
        (void)tutti_gradient_norm(NULL, &all, 1, &norm);
        tutti_optimizer_step(optimizer, 1e-3, 1);
        updates[i] = seconds_since(began);
        began = tti_now_ns();
        tti_nn_kernels()->add(all.gradient, all.gradient, memory + 2 * ELEMENTS, ELEMENTS);
        adds[i] = seconds_since(began);
    }
    tutti_optimizer_free(optimizer);
    *update = tti_lower_quartile(updates, TIMES) / ELEMENTS;
    *add = tti_lower_quartile(adds, TIMES) / ELEMENTS;
    return TUTTI_OK;
}

/* ---- Units ----------------------------------------------------------------------------------------------------- */

static tutti_status measure_units(const struct tutti_trainer *t, tutti_pipeline_times *units, size_t room)
{
    const tutti_model *model = t->model;
    size_t unit = 0;
    for (int i = 0, like; i < model->layer_count && unit < room; i = tti_unit_at(model, i).hi, unit++) {
        if (tti_unit_is_new(model, i, &like))
            TTI_TRY(tti_layers_measure(t, tti_unit_at(model, i), 1, &units[unit]));
        else
            units[unit] = units[like];
    }
    return TUTTI_OK;
}

/* Returns the first units, up to so many weights, whose times are known. `sum`: their time for one grain. */
static struct tti_layers first_units(const tutti_model *model, const tutti_pipeline_times *units, size_t room,
                                     tutti_pipeline_times *sum)
{
    enum { WEIGHTS = 1 << 26 };
    struct tti_layers all = {0, 0};
    size_t weights = 0;
    *sum = (tutti_pipeline_times){0};
    for (size_t unit = 0; unit < room && all.hi < model->layer_count && (unit == 0 || weights < WEIGHTS); unit++) {
        const int end = tti_unit_at(model, all.hi).hi;
        for (; all.hi < end; all.hi++)
            for (int n = 0; n < model->layers[all.hi]->tensor_count; n++)
                weights += model->tensors[model->layers[all.hi]->tensors[n]].count;
        sum->forward += units[unit].forward;
        sum->input += units[unit].input;
        sum->weights += units[unit].weights;
    }
    return all;
}

static double ratio(double a, double b)
{
    return b > 0 ? a / b : 1;
}

static void scale_units(tutti_pipeline_times *units, size_t count, const tutti_pipeline_times *measured,
                        const tutti_pipeline_times *sum)
{
    const double forward = ratio(measured->forward, sum->forward), input = ratio(measured->input, sum->input),
                 weights = ratio(measured->weights, sum->weights);
    for (size_t i = 0; i < count; i++) {
        units[i].forward *= forward;
        units[i].input *= input;
        units[i].weights *= weights;
    }
}

static double more_of(double all, double one, int grains)
{
    return ratio(all - one, one * (grains - 1)) - 1;
}

/* Units that run one after the other find less of their data in the caches than one that is measured alone; even less
 * if they run over many grains, whose gradients are added up besides. */
static tutti_status measure_together(const struct tutti_trainer *t, tutti_pipeline_times *units, size_t room,
                                     tutti_pipeline_times *further)
{
    enum { GRAINS = 16 };
    const size_t count = (size_t)tti_units(t->model) < room ? (size_t)tti_units(t->model) : room;
    const int grains = t->cells < GRAINS ? (int)t->cells : GRAINS;
    tutti_pipeline_times sum, one, all;
    const struct tti_layers layers = first_units(t->model, units, count, &sum);
    *further = (tutti_pipeline_times){0};
    if (layers.hi == 0) return TUTTI_OK;
    TTI_TRY(tti_layers_measure(t, layers, 1, &one));
    scale_units(units, count, &one, &sum);
    if (grains < 2) return TUTTI_OK;
    TTI_TRY(tti_layers_measure(t, layers, grains, &all));
    *further = (tutti_pipeline_times){more_of(all.forward, one.forward, grains), more_of(all.input, one.input, grains),
                                      more_of(all.weights, one.weights, grains)};
    return TUTTI_OK;
}

static tutti_status measure(struct tutti_trainer *t, tutti_pipeline_times *units, size_t room, tutti_train_costs *costs,
                            tutti_error *error)
{
    tutti_status status = measure_units(t, units, room);
    if (status == TUTTI_OK) status = measure_together(t, units, room, &costs->further);
    if (status != TUTTI_OK)
        return tti_error_set(error, status, 0, "the model's layers could not be measured: %s",
                             tutti_status_text(status));
    float *memory = tti_calloc_aligned(3 * ELEMENTS * sizeof *memory);
    if (memory == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to measure an update in");
    status = measure_elements(&t->options, memory, &costs->update, &costs->add, error);
    tti_free(memory);
    return status;
}

size_t tutti_train_measure(const tutti_train_options *options, int tensor, tutti_pipeline_times *units, size_t room,
                           tutti_train_costs *costs, tutti_error *error)
{
    tutti_error unused;
    struct tutti_trainer *t = NULL;
    char mesh[TUTTI_TRAIN_MESH_BYTES];
    if (error == NULL) error = &unused;
    *error = (tutti_error){.peer = -1, .operation = "train_measure"};
    if (options == NULL || tensor < 1 || costs == NULL || (units == NULL && room > 0)) {
        (void)tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "measuring needs options, places to go and 1 rank or more");
        return 0;
    }
    tutti_train_options alone = *options;
    tutti_train_layout_set(&(tutti_train_layout){1, 1, 1, tensor, 0, NULL, 0, 1, false, false}, mesh, &alone);
    tutti_status status = tutti_blas_load(error);
    if (status == TUTTI_OK) status = tti_trainer_plan(&alone, tensor, 0, NULL, &t, error);
    if (status == TUTTI_OK) status = measure(t, units, room, costs, error);
    const size_t count = status == TUTTI_OK ? (size_t)tti_units(t->model) : 0;
    tutti_trainer_free(t);
    return count;
}
