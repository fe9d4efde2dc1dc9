/* SPDX-License-Identifier: Apache-2.0
 *
 * The model that a trainer trains: a gpt or mlp by its options, or one that the user makes.
 */
#define TUTTI_NO_CALL_SITES
#include "base/status.h"
#include "train/trainer.h"
#include <string.h>

tutti_status tti_model_make(const tutti_train_options *o, size_t vocabulary, size_t features, tutti_model **model,
                            tutti_error *error)
{
    tutti_gpt gpt = {.layers = (int)o->layers,
                     .heads = (int)o->heads,
                     .width = o->width,
                     .context = o->context,
                     .vocabulary = (int64_t)vocabulary,
                     .dropout = o->dropout};
    bool classify = strcmp(o->loss, "mse") != 0;
    tutti_mlp mlp = {.inputs = (int64_t)features,
                     .outputs = classify ? (int64_t)vocabulary : 1,
                     .hidden_layers = (int)o->layers,
                     .hidden = o->width,
                     .activation = TUTTI_GELU,
                     .classify = classify,
                     .batch_norm = o->batch_norm};
    bool is_mlp = strcmp(o->model, "mlp") == 0;
    tutti_status status = is_mlp ? tutti_mlp_create(&mlp, model) : tutti_gpt_create(&gpt, model);
    if (status == TUTTI_OK) return TUTTI_OK;
    if (*model == NULL) return tti_error_set(error, TUTTI_ERR_MEMORY, 0, "no memory for a model");
    *error = *tutti_model_error(*model);
    return status;
}

/* Returns true if the model has residual branches. */
static bool has_branches(const tutti_model *model)
{
    for (int i = 0; i < model->layer_count; i++)
        if (model->layers[i]->add_from >= 0) return true;
    return false;
}

/* Refuses what a trainer cannot take as a model. */
static tutti_status check_own(const struct tutti_trainer *t, const tutti_model *model, tutti_error *error)
{
    if (model == NULL || !model->sealed || model->placed || model->values != NULL)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "model %.100s: the function that makes it must seal it, and neither place it nor give it "
                             "memory: the trainer does",
                             t->own.name);
    if (t->options.recompute && !has_branches(model))
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "recompute: model %.100s has no residual branches to compute again; --accumulate needs "
                             "less memory for activations too",
                             t->own.name);
    return TUTTI_OK;
}

static tutti_status make_own(const struct tutti_trainer *t, tutti_model **model, tutti_error *error)
{
    tutti_error said = {0};
    *model = NULL;
    tutti_status status = t->own.make(t->own.context, &t->about, model, &said);
    if (status == TUTTI_OK) return check_own(t, *model, error);
    const tutti_error *why = *model == NULL ? NULL : tutti_model_error(*model);
    const char *text = said.text[0] != '\0' ? said.text : why != NULL ? why->text : "it did not say why";
    return tti_error_set(error, status, 0, "model %.100s cannot be made: %.300s", t->own.name, text);
}

tutti_status tti_trainer_model(const struct tutti_trainer *t, tutti_model **model, tutti_error *error)
{
    if (t->own.make != NULL) return make_own(t, model, error);
    return tti_model_make(&t->options, t->about.vocabulary, t->about.features, model, error);
}
