/* SPDX-License-Identifier: Apache-2.0
 *
 * Lion: steps of one size, in the direction of the sign of b1 m + (1 - b1) g; then m = b2 m + (1 - b2) g.
 */
#include "train/optimizer.h"

static void prepare(const tutti_optimizer_settings *settings, uint64_t step, double rate, double scale, double decay,
                    struct tti_update *update)
{
    (void)step;
    *update = (struct tti_update){.scale = (float)scale,
                                  .rate = (float)rate,
                                  .keep = (float)(1 - rate * decay),
                                  .beta1 = (float)settings->beta1,
                                  .beta2 = (float)settings->beta2,
                                  .rest1 = (float)(1 - settings->beta1),
                                  .rest2 = (float)(1 - settings->beta2)};
}

TTI_BODY lion_body(const struct tti_update *update, float *restrict value, const float *restrict gradient,
                   float *restrict first, float *restrict second, size_t count)
{
    const struct tti_update u = *update;
    (void)second;
    for (size_t i = 0; i < count; i++) {
        float g = gradient[i] * u.scale;
        float c = u.beta1 * first[i] + u.rest1 * g;
        float direction = (float)((c > 0) - (c < 0));
        value[i] = value[i] * u.keep - u.rate * direction;
        first[i] = u.beta2 * first[i] + u.rest2 * g;
    }
}
TTI_VARIANTS(lion,
             (const struct tti_update *update, float *value, const float *gradient, float *first, float *second,
              size_t count),
             (update, value, gradient, first, second, count));

const struct tti_optimizer_row tti_optimizer_lion = {
    .name = "lion",
    .state_count = 1,
    .state_names = {"exp_avg"},
    .defaults =
        {.struct_size = sizeof(tutti_optimizer_settings), .name = "lion", .beta1 = 0.9, .beta2 = 0.99, .decay = 0.1},
    .prepare = prepare,
    .kernels = lion_variants,
};
