/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/model.h"

static const char *name_of(const char *kind, int number, char name[32])
{
    snprintf(name, 32, "%s.%d", kind, number);
    return name;
}

static void add_hidden(tutti_model *model, int number, const tutti_mlp *mlp)
{
    char name[32];
    tutti_linear linear = {.outputs = mlp->hidden, .activation = mlp->activation};
    if (mlp->batch_norm) linear = (tutti_linear){.outputs = mlp->hidden, .no_bias = true};
    tutti_add_linear(model, name_of("layers", number, name), &linear);
    if (!mlp->batch_norm) return;
    tutti_add_batch_norm(model, name_of("norms", number, name), NULL);
    if (mlp->activation == TUTTI_GELU) tutti_add_gelu(model, name_of("activations", number, name));
    if (mlp->activation == TUTTI_RELU) tutti_add_relu(model, name_of("activations", number, name));
}

tutti_status tutti_mlp_create(const tutti_mlp *mlp, tutti_model **out)
{
    if (mlp == NULL) return tutti_model_create(NULL, out);
    tutti_status status = tutti_model_create(&(tutti_model_shape){.rows = 1, .inputs = mlp->inputs}, out);
    if (status != TUTTI_OK) return status;
    tutti_model *model = *out;
    if (mlp->inputs < 1 || mlp->outputs < 1 || mlp->hidden_layers < 0)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "an MLP needs inputs and outputs, and no negative number of hidden layers");
    char last[32];
    for (int i = 0; i < mlp->hidden_layers; i++) add_hidden(model, i, mlp);
    tutti_add_linear(model, name_of("layers", mlp->hidden_layers, last), &(tutti_linear){.outputs = mlp->outputs});
    if (mlp->classify)
        tutti_add_cross_entropy(model, mlp->class_weights);
    else
        tutti_add_mse(model);
    return tutti_model_seal(model);
}
