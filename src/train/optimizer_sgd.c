/* SPDX-License-Identifier: Apache-2.0
 *
 * Gradient descent with momentum: b = momentum b + g, then w -= rate b, or rate (g + momentum b) after Nesterov.
 */
#include "train/optimizer.h"

static void prepare(const tutti_optimizer_settings *settings, uint64_t step, double rate, double scale, double decay,
                    struct tti_update *update)
{
    (void)step;
    *update = (struct tti_update){.scale = (float)scale,
                                  .rate = (float)rate,
                                  .decay = (float)decay,
                                  .beta1 = (float)settings->momentum,
                                  .nesterov = settings->nesterov != 0};
}

TTI_BODY sgd_body(const struct tti_update *update, float *restrict value, const float *restrict gradient,
                  float *restrict first, float *restrict second, size_t count)
{
    const struct tti_update u = *update;
    (void)second;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * u.scale + u.decay * value[i];
        float b = u.beta1 * first[i] + g;
        first[i] = b;
        value[i] -= u.rate * (u.nesterov ? g + u.beta1 * b : b);
    }
}
TTI_VARIANTS(sgd,
             (const struct tti_update *update, float *value, const float *gradient, float *first, float *second,
              size_t count),
             (update, value, gradient, first, second, count));

const struct tti_optimizer_row tti_optimizer_sgd = {
    .name = "sgd",
    .state_count = 1,
    .state_names = {"momentum_buffer"},
    .defaults = {.struct_size = sizeof(tutti_optimizer_settings), .name = "sgd", .momentum = 0.9},
    .prepare = prepare,
    .kernels = sgd_variants,
};
