/* SPDX-License-Identifier: Apache-2.0
 *
 * GPT-2: names, shapes and initial values are those of its checkpoints and its paper. The output layer's weight is the
 * token embedding.
 */
#include "nn/model.h"
#include <math.h>

#define INIT_SCALE 0.02

static const char *name_of(char name[TUTTI_NAME_BYTES], int block, const char *rest)
{
    snprintf(name, TUTTI_NAME_BYTES, "h.%d.%s", block, rest);
    return name;
}

/* Adds the end of a residual branch: its projection, and dropout if there is any. */
static void end_branch(tutti_model *model, const tutti_gpt *gpt, int block, const char *projection, const char *drop)
{
    char name[TUTTI_NAME_BYTES];
    double scale = INIT_SCALE / sqrt(2.0 * gpt->layers);
    tutti_add_linear(model, name_of(name, block, projection),
                     &(tutti_linear){.outputs = gpt->width, .init_scale = scale});
    if (gpt->dropout > 0) tutti_add_dropout(model, name_of(name, block, drop), gpt->dropout);
    tutti_residual_end(model);
}

static void add_block(tutti_model *model, const tutti_gpt *gpt, int block)
{
    char name[TUTTI_NAME_BYTES];
    tutti_residual_begin(model);
    tutti_add_layer_norm(model, name_of(name, block, "ln_1"));
    tutti_add_linear(model, name_of(name, block, "attn.c_attn"),
                     &(tutti_linear){.outputs = 3 * gpt->width, .init_scale = INIT_SCALE});
    tutti_add_attention(model, name_of(name, block, "attn"),
                        &(tutti_attention){.heads = gpt->heads, .dropout = gpt->dropout});
    end_branch(model, gpt, block, "attn.c_proj", "attn.resid_dropout");

    tutti_residual_begin(model);
    tutti_add_layer_norm(model, name_of(name, block, "ln_2"));
    tutti_add_linear(model, name_of(name, block, "mlp.c_fc"),
                     &(tutti_linear){.outputs = 4 * gpt->width, .activation = TUTTI_GELU, .init_scale = INIT_SCALE});
    end_branch(model, gpt, block, "mlp.c_proj", "mlp.dropout");
}

static tutti_status refuse_heads(tutti_model *model, const tutti_gpt *gpt)
{
    int64_t below = gpt->heads, above = gpt->heads;
    char more[32] = "";
    while (below > 1 && (below >= gpt->width || gpt->width % below != 0)) below--;
    while (above < gpt->width && gpt->width % above != 0) above++;
    if (above <= gpt->width) (void)snprintf(more, sizeof more, " or %lld", (long long)above);
    return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                            "a GPT's heads divide its width: not %d heads of width %lld; %lld%s would do", gpt->heads,
                            (long long)gpt->width, (long long)below, more);
}

tutti_status tutti_gpt_create(const tutti_gpt *gpt, tutti_model **out)
{
    if (gpt == NULL) return tutti_model_create(NULL, out);
    tutti_status status = tutti_model_create(&(tutti_model_shape){.rows = gpt->context}, out);
    if (status != TUTTI_OK) return status;
    tutti_model *model = *out;
    if (gpt->heads > 0 && gpt->width > 0 && gpt->width % gpt->heads != 0) return refuse_heads(model, gpt);
    if (gpt->layers < 0 || gpt->heads < 1 || gpt->width < 1 || gpt->vocabulary < 1)
        return tti_model_refuse(model, NULL, TUTTI_ERR_ARGUMENT,
                                "a GPT needs a vocabulary, and heads that divide its width: not %d heads of width %lld",
                                gpt->heads, (long long)gpt->width);
    tutti_add_embedding(model, "wte", "wpe", gpt->vocabulary, gpt->width, INIT_SCALE);
    if (gpt->dropout > 0) tutti_add_dropout(model, "drop", gpt->dropout);
    for (int block = 0; block < gpt->layers; block++) add_block(model, gpt, block);
    tutti_add_layer_norm(model, "ln_f");
    tutti_add_tied_cross_entropy(model, "lm_head", "wte.weight");
    return tutti_model_seal(model);
}
