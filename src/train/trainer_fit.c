/* SPDX-License-Identifier: Apache-2.0
 *
 * Whether a model fits into memory, and how large one may be that does.
 */
#include "base/memory.h"
#include "base/status.h"
#include "train/ledger.h"
#include "train/optimizer.h"
#include "train/trainer.h"

/* Of a rank that has no more than an even part of what is shared out. */
static uint64_t model_bytes(const struct tutti_trainer *t, uint64_t elements)
{
    const uint64_t replicas = t->mesh.sizes[TTI_MESH_SHARD] > 1 ? (uint64_t)t->mesh.sizes[TTI_MESH_DATA] : 1;
    struct tti_ledger_sizes sizes = {.elements = elements,
                                     .owned = elements / (uint64_t)t->size * replicas,
                                     .states = TTI_OPTIMIZER_STATES,
                                     .zero = (int)t->options.zero,
                                     .bf16 = tti_trainer_is_bf16(t)};
    struct tti_ledger ledger = tti_ledger_of(&sizes);
    return tti_ledger_sum(&ledger);
}

/* What a model of these sizes takes in one rank; 0: there is none. */
static uint64_t bytes_of(const struct tutti_trainer *t, const tutti_train_options *sizes)
{
    tutti_model *model = NULL;
    tutti_error ignored;
    uint64_t bytes = 0;
    if (tti_model_make(sizes, t->about.vocabulary, t->about.features, &model, &ignored) == TUTTI_OK &&
        tti_trainer_cut(t, model, &ignored) == TUTTI_OK)
        bytes = model_bytes(t, tutti_model_elements(model) / (uint64_t)t->mesh.sizes[TTI_MESH_PIPE]);
    tutti_model_free(model);
    return bytes;
}

/* The largest multiple of `unit` below what `size` (of `sizes`) is that fits; 0: none. */
static int64_t largest(const struct tutti_trainer *t, tutti_train_options *sizes, int64_t *size, int64_t unit,
                       uint64_t left)
{
    int64_t given = *size, fits = 0, too_large = given / unit;
    while (too_large - fits > 1) {
        int64_t middle = fits + (too_large - fits) / 2;
        *size = middle * unit;
        uint64_t bytes = bytes_of(t, sizes);
        if (bytes != 0 && bytes <= left)
            fits = middle;
        else
            too_large = middle;
    }
    *size = given;
    return fits * unit;
}

static void say_size(char text[64], const char *name, int64_t size)
{
    if (size > 0)
        snprintf(text, 64, "%s up to %lld fits", name, (long long)size);
    else
        snprintf(text, 64, "%s 1 does not", name);
}

tutti_status tti_trainer_fits(const struct tutti_trainer *t, tutti_error *error)
{
    tutti_train_options sizes = t->options;
    uint64_t needed = bytes_of(t, &sizes), left = (uint64_t)tti_memory_left() / (uint64_t)tutti_size(t->comm);
    if (needed <= left) return TUTTI_OK;
    char wanted[TTI_BYTES_TEXT], had[TTI_BYTES_TEXT], widths[64], layers[64];
    say_size(widths, "width", largest(t, &sizes, &sizes.width, t->table ? 1 : sizes.heads, left));
    say_size(layers, "layers", largest(t, &sizes, &sizes.layers, 1, left));
    return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                         "the model does not fit: %zu parameters with gradients and the optimizer's state take %s in "
                         "each rank, and the system has %s left for each of %d; with layers %lld, %s; with width %lld, "
                         "%s",
                         tutti_model_parameters(t->model), tti_bytes_text(needed, wanted), tti_bytes_text(left, had),
                         tutti_size(t->comm), (long long)sizes.layers, widths, (long long)sizes.width, layers);
}
