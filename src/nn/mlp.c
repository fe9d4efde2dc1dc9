/* SPDX-License-Identifier: Apache-2.0 */
#include "nn/model.h"

static void add_linear(tutti_model *model, int number, const tutti_linear *linear)
{
    char name[32];
    snprintf(name, sizeof name, "layers.%d", number);
    tutti_add_linear(model, name, linear);
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
    for (int i = 0; i < mlp->hidden_layers; i++)
        add_linear(model, i, &(tutti_linear){.outputs = mlp->hidden, .activation = mlp->activation});
    add_linear(model, mlp->hidden_layers, &(tutti_linear){.outputs = mlp->outputs});
    if (mlp->classify)
        tutti_add_cross_entropy(model, mlp->class_weights);
    else
        tutti_add_mse(model);
    return tutti_model_seal(model);
}
