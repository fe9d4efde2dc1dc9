/* SPDX-License-Identifier: Apache-2.0
 *
 * Models once more, in double, slowly and without a trick: what tests compare with.
 */
#ifndef TTI_TESTS_NN_REFERENCE_H
#define TTI_TESTS_NN_REFERENCE_H

#include <tutti/train.h>

/* The loss's sum for a batch with these parameters (of tutti_model_elements() doubles). `outputs` (may be NULL) gets the
 * outputs of the last layer before the loss. */
double nn_reference_loss(const tutti_model *model, const double *parameters, const tutti_batch *batch, double *outputs);

/* The derivative of that by parameter i, by central differences. */
double nn_reference_slope(const tutti_model *model, double *parameters, const tutti_batch *batch, size_t i);

/* A kind of layer that is not the library's own: out = f(in, its first tensor) for one row. */
typedef void nn_reference_user(const double *in, const double *tensor, double *out, int64_t width);
extern nn_reference_user *nn_reference_user_forward; /* for layers of kind "user" */

#endif
