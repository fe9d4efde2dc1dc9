/* SPDX-License-Identifier: Apache-2.0
 *
 * The state of a backward that goes through the layers.
 */
#ifndef TTI_NN_PASS_BACKWARD_H
#define TTI_NN_PASS_BACKWARD_H

#include "nn/pass.h"

struct tti_backward {
    struct tutti_pass *pass;
    const tutti_backward *how;
    const tutti_layer *layer;
    int grains, parts; /* width grains of the layer, and the parts of each */
    int subtrees;
    const int *bounds;
    float *const *gradients;
    float *bases[TUTTI_SUBTREES_MAX]; /* where the layer's gradients go, by subtree */
};

/* Sets where the call finds the gradient of its output, and leaves that of its input. */
void tti_pass_set_gradients(const struct tutti_pass *pass, const struct tti_item *item, tutti_call *call);

/* Makes the gradients of backward->layer's tensors, all parts, at backward->bases. */
void tti_weights_make(struct tti_backward *backward);
/* For a layer that works on slices: makes the gradients for each item's slice, with those of its input. They are
 * gathered with the next gradient that is, so that ranks meet no more often. */
void tti_weights_of_slices(struct tti_backward *backward, const tutti_layer *layer);

#endif
