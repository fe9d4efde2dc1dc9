/* SPDX-License-Identifier: Apache-2.0
 *
 * AdamW: Adam whose decay shrinks the weights themselves, w -= rate decay w, and does not pass through the moments.
 */
#include "train/optimizer.h"

#include <math.h>

static void prepare(const tutti_optimizer_settings *settings, uint64_t step, double rate, double scale, double decay,
                    struct tti_update *update)
{
    tti_optimizer_adam.prepare(settings, step, rate, scale, 0, update);
    update->keep = (float)(1 - rate * decay);
}

TTI_BODY adamw_body(const struct tti_update *update, float *restrict value, const float *restrict gradient,
                    float *restrict first, float *restrict second, size_t count)
{
    const struct tti_update u = *update;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * u.scale;
        float m = u.beta1 * first[i] + u.rest1 * g;
        float v = u.beta2 * second[i] + u.rest2 * (g * g);
        first[i] = m;
        second[i] = v;
        value[i] = value[i] * u.keep - u.rate * m / (sqrtf(v) * u.correction + u.epsilon);
    }
}
TTI_VARIANTS(adamw,
             (const struct tti_update *update, float *value, const float *gradient, float *first, float *second,
              size_t count),
             (update, value, gradient, first, second, count));

const struct tti_optimizer_row tti_optimizer_adamw = {
    .name = "adamw",
    .state_count = 2,
    .state_names = {"exp_avg", "exp_avg_sq"},
    .defaults = {.struct_size = sizeof(tutti_optimizer_settings),
                 .name = "adamw",
                 .beta1 = 0.9,
                 .beta2 = 0.95,
                 .epsilon = 1e-8,
                 .decay = 0.1},
    .prepare = prepare,
    .kernels = adamw_variants,
};
