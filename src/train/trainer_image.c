/* SPDX-License-Identifier: Apache-2.0 */
#include "train/trainer_image.h"

#include "base/alloc.h"
#include "train/ddp.h"
#include "train/optimizer.h"
#include "train/trainer.h"
#include <assert.h>
#include <string.h>

/* The head before the numbers, which begin on a cache line of their own. */
struct head {
    uint64_t step;
    tutti_train_step taken;
};

enum { HEAD_BYTES = 256 };

_Static_assert(sizeof(struct head) <= HEAD_BYTES, "the head has its place");

/* ---- Classes --------------------------------------------------------------------------------------------------- */

/* Returns how many ranks own everything together. */
static int owners(const struct tutti_trainer *t)
{
    return t->options.zero > 0 ? t->size / t->ddp->zero.replicas : 1;
}

int tti_image_classes(const struct tutti_trainer *t)
{
    return t->mesh.sizes[TTI_MESH_PIPE] * t->mesh.sizes[TTI_MESH_TENSOR] * owners(t);
}

int tti_image_class(const struct tutti_trainer *t, int rank)
{
    const int pipe = tti_trainer_mesh_at(&t->mesh, rank, TTI_MESH_PIPE);
    const int tensor = tti_trainer_mesh_at(&t->mesh, rank, TTI_MESH_TENSOR);
    const int place = tti_trainer_mesh_batch_rank(&t->mesh, rank) % owners(t);
    return (pipe * t->mesh.sizes[TTI_MESH_TENSOR] + tensor) * owners(t) + place;
}

/* ---- Memory ---------------------------------------------------------------------------------------------------- */

/* Counts by name, since a trainer that is only planned has no optimizer. */
static int states(const struct tutti_trainer *t)
{
    int count = 0;
    while (tti_optimizer_state_name(t->options.optimizer, count) != NULL) count++;
    return count;
}

static size_t owned_elements(const struct tutti_trainer *t)
{
    const tutti_parameter *owned;
    size_t elements = 0;
    for (size_t count = tutti_ddp_owned(t->ddp, &owned), i = 0; i < count; i++) elements += owned[i].count;
    return elements;
}

static size_t layer_bytes(const struct tutti_trainer *t)
{
    return t->model->state_elements * sizeof(float);
}

/* A planned trainer knows how many elements it owns, and has no list of them. */
size_t tti_image_bytes(const struct tutti_trainer *t)
{
    const size_t elements = t->options.zero > 0 ? t->ddp->zero.elements : t->elements;
    assert(tti_trainer_is_planned(t) || elements == owned_elements(t));
    return HEAD_BYTES + layer_bytes(t) + elements * sizeof(float) * (size_t)(1 + states(t));
}

bool tti_image_make(struct tti_image *image, int rank, size_t bytes)
{
    *image = (struct tti_image){rank, TTI_NO_STEP, bytes, tti_malloc_aligned(bytes)};
    return image->data != NULL;
}

void tti_image_free(struct tti_image *image)
{
    tti_free(image->data);
    *image = (struct tti_image){.step = TTI_NO_STEP};
}

/* ---- Taking and applying --------------------------------------------------------------------------------------- */

/* Copies between the trainer's numbers and those of the image. */
static void copy_numbers(const struct tutti_trainer *t, char *at, bool takes)
{
    const tutti_parameter *owned;
    const size_t count = tutti_ddp_owned(t->ddp, &owned), elements = owned_elements(t);
    for (size_t i = 0; i < count; i++) {
        const size_t bytes = owned[i].count * sizeof(float);
        memcpy(takes ? (void *)at : owned[i].value, takes ? owned[i].value : (void *)at, bytes);
        at += bytes;
    }
    float *values;
    for (int s = 0; tutti_optimizer_state(t->optimizer, s, &values) != NULL; s++) {
        const size_t bytes = elements * sizeof(float);
        memcpy(takes ? (void *)at : values, takes ? values : (void *)at, bytes);
        at += bytes;
    }
}

void tti_image_begin(const struct tutti_trainer *t, struct tti_image *image)
{
    const struct head head = {.step = t->step, .taken = t->taken};
    image->step = TTI_NO_STEP;
    memcpy(image->data, &head, sizeof head);
    if (layer_bytes(t) > 0) memcpy(image->data + HEAD_BYTES, t->model->state, layer_bytes(t));
}

void tti_image_take(const struct tutti_trainer *t, struct tti_image *image)
{
    copy_numbers(t, image->data + HEAD_BYTES + layer_bytes(t), true);
    image->step = tti_image_step(image);
}

uint64_t tti_image_step(const struct tti_image *image)
{
    struct head head;
    memcpy(&head, image->data, sizeof head);
    return head.step;
}

void tti_image_apply(struct tutti_trainer *t, const struct tti_image *image)
{
    struct head head;
    memcpy(&head, image->data, sizeof head);
    if (layer_bytes(t) > 0) memcpy(t->model->state, image->data + HEAD_BYTES, layer_bytes(t));
    copy_numbers(t, image->data + HEAD_BYTES + layer_bytes(t), false);
    t->step = head.step;
    t->taken = head.taken;
    tutti_optimizer_set_steps(t->optimizer, head.step);
}
