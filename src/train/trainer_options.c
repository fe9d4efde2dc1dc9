/* SPDX-License-Identifier: Apache-2.0
 *
 * What a trainer is asked for: options that are wrong by themselves, or together, or with this number of ranks. What
 * would have no effect is refused as well.
 */
#define TUTTI_NO_CALL_SITES
#include "base/options.h"
#include "base/status.h"
#include "train/train_options.h"
#include "train/trainer.h"
#include "train/trainer_pipeline.h"
#include "train/trainer_server.h"
#include <string.h>

static tutti_status check_texts(const tutti_train_options *o, tutti_error *error)
{
    char unused[TTI_TRAIN_TEXT];
    if (o->struct_size == 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "no options are given, or tutti_train_options_init was not called for them");
    for (size_t i = 0; i < tti_train_row_count; i++)
        if (tti_train_text(o, &tti_train_rows[i], unused) == NULL)
            return tti_error_set(error, TUTTI_ERR_OPTION, 0, "%s is NULL; \"\" leaves it out",
                                 tti_train_rows[i].row.name);
    return TUTTI_OK;
}

/* Checks which model it is; what a user's model can be is seen when it is made. */
static tutti_status check_model(const struct tutti_trainer *t, tutti_error *error)
{
    static const char *const models[] = {"gpt", "mlp"}, *const losses[] = {"cross_entropy", "mse"};
    const tutti_train_options *o = &t->options;
    const bool own = t->own.make != NULL;
    if (!own) TTI_TRY(tti_option_word("model", o->model, models, 2, error));
    if (own ? t->own.table : strcmp(o->model, "mlp") == 0) TTI_TRY(tti_option_word("loss", o->loss, losses, 2, error));
    if (!own && o->recompute && strcmp(o->model, "gpt") != 0)
        return tti_error_set(
            error, TUTTI_ERR_OPTION, 0,
            "recompute: an %s has no residual branches to compute again; --accumulate needs less memory "
            "for activations too",
            o->model);
    return tti_trainer_check_batch_norm(o, error);
}

static tutti_status check_options(const struct tutti_trainer *t, tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    TTI_TRY(check_texts(o, error));
    TTI_TRY(check_model(t, error));
    if (o->save_async && o->save[0] == '\0')
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "save_async needs save: the folder that checkpoints are written into; or leave it out");
    if (o->grains > o->batch && !o->fast)
        return tti_error_set(error, TUTTI_ERR_OPTION, 0,
                             "%lld grains are more than the %lld samples of a batch: a grain needs a sample; "
                             "--grains %lld or --batch %lld would do",
                             (long long)o->grains, (long long)o->batch, (long long)o->batch, (long long)o->grains);
    return TUTTI_OK;
}

/* Refuses options of a pipeline where no dimension of the mesh is one. */
static tutti_status check_stages(const struct tutti_trainer *t, tutti_error *error)
{
    const tutti_train_options *o = &t->options;
    char option[160] = "";
    if (o->pipeline[0] != '\0') TTI_TRY(tti_trainer_pipeline_known(o->pipeline, error));
    if (t->mesh.sizes[TTI_MESH_PIPE] > 1) return TUTTI_OK;
    if (o->pipeline[0] != '\0')
        (void)snprintf(option, sizeof option, "pipeline %.100s", o->pipeline);
    else if (o->micro > 0)
        (void)snprintf(option, sizeof option, "micro %lld", (long long)o->micro);
    else if (o->stages[0] != '\0')
        (void)snprintf(option, sizeof option, "stages %.100s", o->stages);
    if (option[0] == '\0') return TUTTI_OK;
    return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                         "%s needs stages: give a mesh with pipe=2 or more, such as --mesh pipe=2, or leave it out",
                         option);
}

tutti_status tti_trainer_read_options(struct tutti_trainer *t, tutti_error *error)
{
    TTI_TRY(check_options(t, error));
    TTI_TRY(tti_trainer_server_check(t, error));
    TTI_TRY(tti_trainer_mesh_read(t->options.mesh, t->world_size, &t->mesh, error));
    TTI_TRY(tti_trainer_check_type(t, error));
    if (t->mesh.sizes[TTI_MESH_SHARD] > 1 && t->options.zero == 0)
        return tti_error_set(error, TUTTI_ERR_ARGUMENT, 0,
                             "mesh %.64s: zero says what shard shares out: give zero 1, 2 or 3", t->options.mesh);
    TTI_TRY(check_stages(t, error));
    if (t->options.sequence && t->mesh.sizes[TTI_MESH_TENSOR] == 1)
        return tti_error_set(
            error, TUTTI_ERR_ARGUMENT, 0,
            "sequence: rows are shared out among ranks along tensor; give a mesh with tensor=2 or more, "
            "or leave it out");
    return TUTTI_OK;
}
