/* SPDX-License-Identifier: Apache-2.0
 *
 * Cross-entropy whose classes are cut into width grains. Each grain has the maximum of its logits, the sum of their
 * exponentials below it, and the target's logit, or −0.0 where the target is another grain's; ranks gather them and merge
 * them in the tree over all grains.
 */
#include "nn/loss.h"
#include "nn/width.h"
#include <math.h>

float *tti_loss_part(const tutti_call *call, int64_t row, int grain)
{
    const int here = tutti_call_grains(call),
              first = call->layer->cut == TUTTI_CUT_WHOLE ? 0 : call->model->width.first;
    const int rank = (first + grain) / here, of_rank = (first + grain) % here;
    return call->gathered + rank * call->gathered_stride + row * call->layer->gathers + of_rank * TTI_LOSS_GATHERED;
}

void tti_loss_begin(tutti_call *call, int grain)
{
    for (int64_t r = 0; r < call->rows; r++) {
        float *part = tti_loss_part(call, r, grain);
        part[TTI_LOSS_HIGHEST] = -INFINITY;
        part[TTI_LOSS_SUM] = 0;
        part[TTI_LOSS_LOGIT] = -0.0f;
    }
}

/* The sum of exponentials relative to the highest logit. A grain without classes has none. */
struct softmax {
    double highest, sum;
};

static struct softmax merge(struct softmax a, struct softmax b)
{
    if (a.sum == 0) return b;
    if (b.sum == 0) return a;
    const double highest = a.highest > b.highest ? a.highest : b.highest;
    return (struct softmax){highest, a.sum * exp(a.highest - highest) + b.sum * exp(b.highest - highest)};
}

/* Returns a row's part of grain number `grain` of all. */
static const float *part_of(const tutti_call *call, int64_t row, int grain)
{
    const int here = tutti_call_grains(call);
    return call->gathered + grain / here * call->gathered_stride + row * call->layer->gathers +
           grain % here * TTI_LOSS_GATHERED;
}

/* Merges a row's grains from `from` to `to`, of all ranks. */
static struct softmax merge_tree(const tutti_call *call, int64_t row, int from, int to)
{
    if (to - from == 1) {
        const float *one = part_of(call, row, from);
        return (struct softmax){(double)one[TTI_LOSS_HIGHEST], (double)one[TTI_LOSS_SUM]};
    }
    int half = 1;
    while (2 * half < to - from) half *= 2;
    return merge(merge_tree(call, row, from, from + half), merge_tree(call, row, from + half, to));
}

void tti_loss_merge(tutti_call *call, const float *class_weights, float *kept, int64_t stride)
{
    const int grains = call->layer->cut == TUTTI_CUT_WHOLE ? 1 : call->model->width.grains;
    for (int64_t r = 0; r < call->rows; r++) {
        const struct softmax all = merge_tree(call, r, 0, grains);
        double logit = -0.0;
        for (int g = 0; g < grains; g++) logit += (double)part_of(call, r, g)[TTI_LOSS_LOGIT];
        tti_row_loss(call, r, logit, all.highest + log(all.sum), class_weights, kept + r * stride);
    }
}
