/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds where the gradients of micro-batches go, and adds them up (micro.h).
 */
#include "base/alloc.h"
#include "base/status.h"
#include "nn/nn_kernels.h"
#include "train/trainer.h"

tutti_status tti_trainer_make_scratch(struct tutti_trainer *t, tutti_error *error)
{
    size_t bytes = (t->elements + t->tie.elements) * sizeof(float);
    for (int depth = 0; depth < t->micros.depths; depth++) {
        t->scratch_bytes += bytes;
        if (tti_trainer_is_planned(t)) continue;
        t->scratch[depth] = tti_calloc_aligned(bytes);
        if (t->scratch[depth] == NULL)
            return tti_error_set(error, TUTTI_ERR_MEMORY, 0,
                                 "no memory to sum the gradients of %d micro-batch%s or pass%s", t->micros.count,
                                 t->micros.count == 1 ? "" : "es", t->micros.count == 1 ? "" : "es");
    }
    return TUTTI_OK;
}

/* Returns a buffer by its number; `tied`: of the gradients of the layer that shares a tensor. */
static float *buffer_of(const struct tutti_trainer *t, int number, bool tied)
{
    const int *bounds;
    float *const *gradients;
    if (number >= t->micros.partials) return t->scratch[number - t->micros.partials] + (tied ? t->elements : 0);
    (void)tutti_ddp_partials(tied ? t->tie.ddp : t->ddp, &bounds, &gradients);
    return gradients[number];
}

void tti_micro_targets(const struct tutti_trainer *t, int micro, bool shares, struct tti_targets *targets,
                       tutti_backward *how)
{
    const struct tti_micros *micros = &t->micros;
    size_t first = micros->grains[micro].lo;
    targets->bounds[0] = 0;
    how->subtrees = 0;
    for (int i = micros->first[micro]; i < micros->first[micro + 1] && micros->work[i].from < 0; i++) {
        const struct tti_micro_work *work = &micros->work[i];
        targets->gradients[how->subtrees] = buffer_of(t, work->to, false);
        if (shares) targets->tied[how->subtrees] = buffer_of(t, work->to, true);
        targets->bounds[++how->subtrees] = (int)(work->grains.hi - first);
    }
    how->subtree_bounds = targets->bounds;
    how->gradients = targets->gradients;
    how->tied = shares ? targets->tied : NULL;
}

static void add(float *to, const float *from, size_t count)
{
    tti_nn_kernels()->add(to, to, from, count);
}

void tti_micro_add(const struct tutti_trainer *t, int micro, struct tti_span elements, bool shares)
{
    const struct tti_micros *micros = &t->micros;
    for (int i = micros->first[micro]; i < micros->first[micro + 1]; i++) {
        const struct tti_micro_work *work = &micros->work[i];
        if (work->from < 0) continue;
        if (elements.hi > elements.lo) /* a stage without parameters has no buffers */
            add(buffer_of(t, work->to, false) + elements.lo, buffer_of(t, work->from, false) + elements.lo,
                elements.hi - elements.lo);
        if (shares) add(buffer_of(t, work->to, true), buffer_of(t, work->from, true), t->tie.elements);
    }
}
