/* SPDX-License-Identifier: Apache-2.0
 *
 * What layers, an update and a sum take on this machine.
 */
#define TUTTI_NO_CALL_SITES
#include "base/alloc.h"
#include "base/clock.h"
#include "base/status.h"
#include "train/trainer.h"
#include <float.h>
#include <string.h>

/* ---- Elements -------------------------------------------------------------------------------------------------- */

enum { ELEMENTS = 1 << 20, TIMES = 5 };

static void keep_least(double *least, int64_t began_ns)
{
    const double spent = (double)(tti_now_ns() - began_ns) * 1e-9 / ELEMENTS;
    if (spent < *least) *least = spent;
}

/* Memory that is larger than most caches: values, gradients, and what is added to them. */
static tutti_status measure_elements(const tutti_train_options *options, float *memory, double *update, double *add,
                                     tutti_error *error)
{
    tutti_parameter all = {.name = "all", .value = memory, .gradient = memory + ELEMENTS, .count = ELEMENTS};
    tutti_optimizer_settings settings;
    tutti_optimizer *optimizer = NULL;
    TTI_TRY(tutti_optimizer_defaults(options->optimizer, &settings, error));
    TTI_TRY(tutti_optimizer_create(&settings, &all, 1, &optimizer, error));
    *update = *add = DBL_MAX;
    for (int i = 0; i < TIMES; i++) {
        double norm;
        int64_t began = tti_now_ns();
        (void)tutti_gradient_norm(NULL, &all, 1, &norm);
        tutti_optimizer_step(optimizer, 1e-3, 1);
        keep_least(update, began);
        began = tti_now_ns();
        for (size_t k = 0; k < ELEMENTS; k++) all.gradient[k] += memory[2 * ELEMENTS + k];
        keep_least(add, began);
    }
    tutti_optimizer_free(optimizer);
    return TUTTI_OK;
}

/* ---- Units ----------------------------------------------------------------------------------------------------- */

static tutti_status measure_units(const struct tutti_trainer *t, tutti_pipeline_times *units, size_t room)
{
    const tutti_model *model = t->model;
    size_t unit = 0;
    for (int i = 0, like; i < model->layer_count && unit < room; i = tti_unit_at(model, i).hi, unit++) {
        if (tti_unit_is_new(model, i, &like))
            TTI_TRY(tti_unit_measure(t, tti_unit_at(model, i), &units[unit]));
        else
            units[unit] = units[like];
    }
    return TUTTI_OK;
}

static tutti_status measure(struct tutti_trainer *t, tutti_pipeline_times *units, size_t room, double *update,
                            double *add, tutti_error *error)
{
    tutti_status status = measure_units(t, units, room);
    if (status != TUTTI_OK)
        return tti_error_set(error, status, 0, "the model's layers could not be measured: %s",
                             tutti_status_text(status));
    float *memory = tti_calloc_aligned(3 * ELEMENTS * sizeof *memory);
    if (memory == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory to measure an update in");
    status = measure_elements(&t->options, memory, update, add, error);
    tti_free(memory);
    return status;
}

size_t tutti_train_measure(const tutti_train_options *options, int tensor, tutti_pipeline_times *units, size_t room,
                           double *update, double *add, tutti_error *error)
{
    tutti_error unused;
    struct tutti_trainer *t = NULL;
    char mesh[TUTTI_TRAIN_MESH_BYTES];
    if (error == NULL) error = &unused;
    *error = (tutti_error){.peer = -1, .operation = "train_measure"};
    if (options == NULL || tensor < 1 || update == NULL || add == NULL || (units == NULL && room > 0)) {
        (void)tti_error_set(error, TUTTI_ERR_ARGUMENT, 0, "measuring needs options, places to go and 1 rank or more");
        return 0;
    }
    tutti_train_options alone = *options;
    tutti_train_layout_set(&(tutti_train_layout){1, 1, 1, tensor, 0, NULL, 0, 1, false, false}, mesh, &alone);
    tutti_status status = tutti_blas_load(error);
    if (status == TUTTI_OK) status = tti_trainer_plan(&alone, tensor, 0, NULL, &t, error);
    if (status == TUTTI_OK) status = measure(t, units, room, update, add, error);
    const size_t count = status == TUTTI_OK ? (size_t)tti_units(t->model) : 0;
    tutti_trainer_free(t);
    return count;
}
