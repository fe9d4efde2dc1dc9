/* SPDX-License-Identifier: Apache-2.0
 *
 * An optimizer is one row of the table in optimizer.c and one file that defines it: its state per weight, the numbers
 * of one step, and one loop that reads weights, gradients and state once and writes weights and state once.
 */
#ifndef TTI_TRAIN_OPTIMIZER_H
#define TTI_TRAIN_OPTIMIZER_H

#include "train/variants.h"

#include <tutti/train.h>

enum { TTI_OPTIMIZER_STATES = 2 };

/* The numbers of one step, computed in double and rounded once. Each optimizer uses some of them. */
struct tti_update {
    float scale; /* factor of the gradient: one over the count, and clipping */
    float rate, decay, keep, epsilon;
    float beta1, beta2, rest1, rest2; /* rest: 1 - beta */
    float correction;
    bool nesterov;
};

/* Updates elements of one tensor; states that the optimizer does not have are NULL. */
typedef void tti_update_kernel(const struct tti_update *update, float *value, const float *gradient, float *first,
                               float *second, size_t count);

struct tti_optimizer_row {
    const char *name;
    int state_count;
    const char *state_names[TTI_OPTIMIZER_STATES]; /* in checkpoints; PyTorch's names */
    tutti_optimizer_settings defaults;
    /* Computes the numbers of a step. `step` counts from 1; `decay` is 0 for tensors that do not decay. */
    void (*prepare)(const tutti_optimizer_settings *settings, uint64_t step, double rate, double scale, double decay,
                    struct tti_update *update);
    tti_update_kernel *const *kernels; /* [TTI_SETS] */
};

/* Computes what tutti_optimizer_bytes would return for an optimizer with so many elements. */
tutti_status tti_optimizer_plan(const char *name, size_t elements, size_t *bytes, tutti_error *error);

/* Returns the name of one of its states in checkpoints; NULL: it has no more. */
const char *tti_optimizer_state_name(const char *optimizer, int number);

extern const struct tti_optimizer_row tti_optimizer_sgd, tti_optimizer_adam, tti_optimizer_adamw, tti_optimizer_lion;

#endif
