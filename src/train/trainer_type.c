/* SPDX-License-Identifier: Apache-2.0
 *
 * The type of a model's weights. With bf16 the ddp has them, rounded, and f32 masters of those that this rank owns,
 * which the optimizer updates; activations and gradients are f32. Results are the same on every mesh, since each master
 * is rounded by itself.
 */
#define TUTTI_NO_CALL_SITES
#include "base/options.h"
#include "base/status.h"
#include "train/trainer.h"
#include <string.h>

bool tti_trainer_is_bf16(const struct tutti_trainer *t)
{
    return strcmp(t->options.type, "bf16") == 0;
}

tutti_status tti_trainer_check_type(const struct tutti_trainer *t, tutti_error *error)
{
    static const char *const types[] = {"f32", "bf16"};
    return tti_option_word("type", t->options.type, types, 2, error);
}

tutti_status tti_trainer_round(struct tutti_trainer *t, tutti_error *error)
{
    if (!tti_trainer_is_bf16(t)) return TUTTI_OK;
    tutti_status status = tutti_ddp_spread(tutti_ddp_at(t->ddp, t->here.file, t->here.line));
    if (status == TUTTI_OK) status = tti_tie_spread(&t->tie, t->ddp);
    if (status != TUTTI_OK) tti_trainer_mesh_error(t->comm, &t->mesh, error);
    return status;
}
