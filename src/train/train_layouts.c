/* SPDX-License-Identifier: Apache-2.0
 *
 * Lists all layouts of a number of ranks. Of equal layouts only one is listed: if all ranks that share the batch share
 * out the optimizer, too, that counts as data and not shard; zero shares out nothing if no ranks share the batch.
 */
#include "train/trainer.h"

#include <string.h>

struct list {
    tutti_train_layout *layouts;
    size_t room, count;
    int64_t grains;  /* grains of the batch */
    bool recomputes; /* the model has branches that can be computed again, and rows that can be shared out */
};

static void add(struct list *list, const tutti_train_layout *layout)
{
    const int again = list->recomputes ? 2 : 1, sequence = list->recomputes && layout->tensor > 1 ? 2 : 1;
    for (int i = 0; i < again * sequence; i++) {
        tutti_train_layout *next = list->count < list->room ? &list->layouts[list->count] : NULL;
        if (next != NULL) *next = *layout;
        if (next != NULL) next->recompute = i % again == 1;
        if (next != NULL) next->sequence = i / again == 1;
        list->count++;
    }
}

/* Returns the most grains of a rank that shares the batch. */
static int grains_of_rank(const struct list *list, const tutti_train_layout *layout)
{
    const int64_t ranks = (int64_t)layout->data * layout->shard;
    return (int)((list->grains + ranks - 1) / ranks);
}

/* Adds one, two and four times as many micro-batches as the pipe has ranks, and the largest possible number; for
 * interleaved, multiples only. */
static void add_micros(struct list *list, tutti_train_layout layout)
{
    const bool whole = strcmp(layout.pipeline, "interleaved") == 0;
    const int most = grains_of_rank(list, &layout), pipe = layout.pipe;
    int last = 0;
    for (int times = 1; times <= 4; times *= 2) {
        layout.micro = times * pipe;
        if (layout.micro > most) continue;
        add(list, &layout);
        last = layout.micro;
    }
    layout.micro = whole ? most - most % pipe : most;
    if (layout.micro > last) add(list, &layout);
}

static void add_tables(struct list *list, tutti_train_layout layout)
{
    layout.accumulate = 1;
    for (size_t i = 0; (layout.pipeline = tutti_pipeline_names(i)) != NULL; i++) add_micros(list, layout);
}

/* Adds the numbers of passes into which a rank's grains are cut: 1, 2, 4 … */
static void add_passes(struct list *list, tutti_train_layout layout)
{
    const int most = grains_of_rank(list, &layout);
    for (layout.accumulate = 1; layout.accumulate <= most || layout.accumulate == 1; layout.accumulate *= 2)
        add(list, &layout);
}

static void add_zeros(struct list *list, tutti_train_layout layout)
{
    const int least = layout.shard > 1 ? 1 : 0, most = layout.data * layout.shard > 1 ? 3 : 0;
    for (layout.zero = least; layout.zero <= most; layout.zero++) {
        if (layout.pipe > 1)
            add_tables(list, layout);
        else
            add_passes(list, layout);
    }
}

size_t tutti_train_layouts(const tutti_train_options *options, int ranks, tutti_train_layout *layouts, size_t room)
{
    if (options == NULL || ranks < 1) return 0;
    struct list list = {layouts, layouts == NULL ? 0 : room, 0, (int64_t)tti_train_grains(options),
                        strcmp(options->model, "gpt") == 0};
    tutti_train_layout layout = {0};
    for (layout.tensor = 1; layout.tensor <= ranks; layout.tensor++) {
        if (ranks % layout.tensor != 0) continue;
        const int rest = ranks / layout.tensor;
        for (layout.pipe = 1; layout.pipe <= rest; layout.pipe++) {
            if (rest % layout.pipe != 0) continue;
            const int sharing = rest / layout.pipe;
            for (layout.shard = 1; layout.shard <= sharing; layout.shard++) {
                layout.data = sharing / layout.shard;
                const bool same = layout.shard > 1 && layout.data == 1; /* the same as data alone */
                if (sharing % layout.shard == 0 && !same) add_zeros(&list, layout);
            }
        }
    }
    return list.count;
}

/* Returns the width grains that the options give, or else those that the model chooses; the number of ranks if that
 * many ranks cannot share these. The trainer refuses a model that cannot be made, or not be cut at all. */
static int64_t width_grains(const tutti_train_options *options, int ranks)
{
    tutti_model *model = NULL;
    tutti_error ignored;
    const size_t vocabulary = options->vocabulary > 0 ? (size_t)options->vocabulary
                                                      : 1; /* it does not affect the choice */
    int64_t grains = options->width_grains;
    if (ranks == 1) return grains;
    if (grains == 0 && tti_model_make(options, vocabulary, 1, &model, &ignored) == TUTTI_OK)
        grains = tti_model_usual_grains(model);
    tutti_model_free(model);
    return tti_width_fits((int)grains, ranks) ? options->width_grains : ranks;
}

void tutti_train_layout_set(const tutti_train_layout *layout, char mesh[TUTTI_TRAIN_MESH_BYTES],
                            tutti_train_options *options)
{
    const int sizes[] = {layout->data, layout->shard, layout->pipe, layout->tensor};
    static const char *const names[] = {"data", "shard", "pipe", "tensor"};
    size_t used = 0;
    mesh[0] = '\0';
    for (int i = 0; i < 4; i++)
        if (sizes[i] > 1)
            used += (size_t)snprintf(mesh + used, TUTTI_TRAIN_MESH_BYTES - used, "%s%s=%d", used > 0 ? "," : "",
                                     names[i], sizes[i]);
    options->mesh = mesh;
    options->zero = layout->zero;
    options->micro = layout->micro;
    options->accumulate = layout->accumulate;
    options->recompute = layout->recompute;
    options->sequence = layout->sequence;
    if (layout->pipeline != NULL) options->pipeline = layout->pipeline;
    options->width_grains = width_grains(options, layout->tensor);
}
