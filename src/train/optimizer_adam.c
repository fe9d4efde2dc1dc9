/* SPDX-License-Identifier: Apache-2.0
 *
 * Adam: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g², w -= rate m' / (sqrt(v') + epsilon), where m' and v' are
 * corrected for beginning at 0. Decay is part of the gradient.
 */
#include "train/optimizer.h"

#include <math.h>

static void prepare(const tutti_optimizer_settings *settings, uint64_t step, double rate, double scale, double decay,
                    struct tti_update *update)
{
    double correction1 = 1 - pow(settings->beta1, (double)step), correction2 = 1 - pow(settings->beta2, (double)step);
    *update = (struct tti_update){.scale = (float)scale,
                                  .rate = (float)(rate / correction1),
                                  .decay = (float)decay,
                                  .epsilon = (float)settings->epsilon,
                                  .beta1 = (float)settings->beta1,
                                  .beta2 = (float)settings->beta2,
                                  .rest1 = (float)(1 - settings->beta1),
                                  .rest2 = (float)(1 - settings->beta2),
                                  .correction = (float)(1 / sqrt(correction2))};
}

TTI_BODY adam_body(const struct tti_update *update, float *restrict value, const float *restrict gradient,
                   float *restrict first, float *restrict second, size_t count)
{
    const struct tti_update u = *update;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * u.scale + u.decay * value[i];
        float m = u.beta1 * first[i] + u.rest1 * g;
        float v = u.beta2 * second[i] + u.rest2 * (g * g);
        first[i] = m;
        second[i] = v;
        value[i] -= u.rate * m / (sqrtf(v) * u.correction + u.epsilon);
    }
}
TTI_VARIANTS(adam,
             (const struct tti_update *update, float *value, const float *gradient, float *first, float *second,
              size_t count),
             (update, value, gradient, first, second, count));

const struct tti_optimizer_row tti_optimizer_adam = {
    .name = "adam",
    .state_count = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .defaults = {.struct_size = sizeof(tutti_optimizer_settings),
                 .name = "adam",
                 .beta1 = 0.9,
                 .beta2 = 0.999,
                 .epsilon = 1e-8},
    .prepare = prepare,
    .kernels = adam_variants,
};
