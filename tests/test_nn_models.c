/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=120 labels=asan,tsan
 *
 * Whole models: the first loss is that of knowing nothing, one batch can be learnt by heart, a step against the gradient
 * lowers the loss by what the gradient says, and the same bits come out for any threads and any grouping of grains.
 */
#include "check_nn.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const tutti_gpt small = {.layers = 2, .heads = 2, .width = 32, .context = 16, .vocabulary = 50};

static double mean(tutti_loss loss)
{
    return loss.sum / loss.count;
}

static void first_loss(void)
{
    tutti_model *model = nn_gpt(&small, 1);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 8});
    tutti_batch batch = nn_tokens(8, small.context, (int32_t)small.vocabulary, 2);
    tutti_loss loss = nn_step(pass, &batch, NULL);
    CHECK(loss.count == 8 * 16);
    CHECK(fabs(mean(loss) - log(50)) < 0.05);
    nn_batch_free(&batch);
    tutti_pass_free(pass);
    tutti_model_free(model);
}

static void descend(tutti_model *model, double rate)
{
    float *values = tutti_model_values(model);
    const float *gradients = tutti_model_gradients(model);
    for (size_t i = 0; i < tutti_model_elements(model); i++) values[i] -= (float)rate * gradients[i];
}

static double squares(const float *values, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += (double)values[i] * (double)values[i];
    return sum;
}

/* Along the gradient the loss changes by its squared length: a check of all gradients at once. */
static void slope(tutti_model *model, const tutti_batch *batch)
{
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = batch->samples});
    nn_step(pass, batch, &(tutti_backward){0});
    double length2 = squares(tutti_model_gradients(model), tutti_model_elements(model));
    double step = 2e-3 / sqrt(length2);
    descend(model, step);
    double below = nn_step(pass, batch, NULL).sum;
    descend(model, -2 * step);
    double above = nn_step(pass, batch, NULL).sum;
    descend(model, step);
    double seen = (above - below) / (2 * step);
    if (!CHECK(fabs(seen - length2) < 2e-3 * length2)) printf("slope %g, squared length %g\n", seen, length2);
    tutti_pass_free(pass);
}

static void slopes(void)
{
    tutti_model *gpt = nn_gpt(&small, 3);
    tutti_batch tokens = nn_tokens(4, small.context, (int32_t)small.vocabulary, 4);
    slope(gpt, &tokens);
    tutti_model_free(gpt);
    nn_batch_free(&tokens);
    tutti_batch values = nn_values(12, 5, 3, 6);
    for (int classify = 0; classify < 2; classify++) {
        tutti_model *mlp = nn_mlp(&(tutti_mlp){.inputs = 5,
                                               .outputs = 3,
                                               .hidden_layers = 2,
                                               .hidden = 24,
                                               .activation = TUTTI_GELU,
                                               .classify = classify},
                                  5);
        slope(mlp, &values);
        tutti_model_free(mlp);
    }
    nn_batch_free(&values);
}

static void overfit(void)
{
    tutti_model *model = nn_gpt(&small, 7);
    tutti_pass *pass = nn_pass(model, &(tutti_pass_options){.samples = 2, .threads = 2});
    tutti_batch batch = nn_tokens(2, small.context, (int32_t)small.vocabulary, 8);
    size_t n = tutti_model_elements(model);
    float *m = calloc(n, sizeof *m), *v = calloc(n, sizeof *v), *w = tutti_model_values(model);
    double loss = 0;
    for (int step = 1; step <= 150; step++) { /* Adam */
        loss = mean(nn_step(pass, &batch, &(tutti_backward){0}));
        const float *g = tutti_model_gradients(model);
        for (size_t i = 0; i < n; i++) {
            m[i] = 0.9f * m[i] + 0.1f * g[i];
            v[i] = 0.95f * v[i] + 0.05f * g[i] * g[i];
            double first = m[i] / (1 - pow(0.9, step)), second = v[i] / (1 - pow(0.95, step));
            w[i] -= (float)(0.005 * first / (sqrt(second) + 1e-8));
        }
    }
    if (!CHECK(loss < 0.02)) printf("loss after overfitting %g\n", loss);
    free(m);
    free(v);
    nn_batch_free(&batch);
    tutti_pass_free(pass);
    tutti_model_free(model);
}

/* ---- Same bits ------------------------------------------------------------------------------------------------- */

enum { GRAINS = 6, SAMPLES = 8 };

static const int64_t bounds[GRAINS + 1] = {0, 2, 3, 4, 6, 6, 8}; /* uneven, and one empty */

static void add_into(float *to, const float *from, size_t count)
{
    for (size_t i = 0; i < count; i++) to[i] += from[i];
}

/* One rank's grains, into as many gradients as it has subtrees. */
static int rank_step(tutti_model *model, const tutti_batch *whole, int first, int count, int threads, float **gradients,
                     tutti_loss *losses)
{
    int trees[TUTTI_SUBTREES_MAX + 1];
    int subtrees = tutti_grain_subtrees(GRAINS, first, count, trees);
    int64_t own[GRAINS + 1];
    for (int g = 0; g <= count; g++) own[g] = bounds[first + g] - bounds[first];
    tutti_batch batch = *whole;
    int64_t rows = bounds[first] * tutti_model_rows(model);
    batch.samples = own[count];
    batch.tokens += rows;
    batch.targets += rows;
    batch.first_sample = bounds[first];
    batch.grain_bounds = own;
    batch.grains = count;
    tutti_pass *pass = nn_pass(model,
                               &(tutti_pass_options){.samples = batch.samples, .grains = count, .threads = threads});
    CHECK(tutti_pass_forward(pass, &batch, losses + first) == TUTTI_OK);
    tutti_backward how = {
        .struct_size = sizeof how, .subtrees = subtrees, .subtree_bounds = trees, .gradients = gradients};
    CHECK(tutti_pass_backward(pass, &how) == TUTTI_OK);
    tutti_pass_free(pass);
    return subtrees;
}

/* Sums subtrees as the tree over all grains does. `gradients` and `sizes` in order; the sum is left in the first. */
static void join_trees(float **gradients, const int *sizes, int grains, size_t count)
{
    if (sizes[0] == grains) return;
    int half = 1, k = 0, seen = 0;
    while (2 * half < grains) half *= 2;
    while (seen < half) seen += sizes[k++];
    join_trees(gradients, sizes, half, count);
    join_trees(gradients + k, sizes + k, grains - half, count);
    add_into(gradients[0], gradients[k], count);
}

static void layout(tutti_model *model, const tutti_batch *batch, const int *shares, int threads, const float *expected,
                   const tutti_loss *expected_losses)
{
    size_t count = tutti_model_elements(model);
    float *gradients[GRAINS];
    int sizes[GRAINS], made = 0;
    tutti_loss losses[GRAINS];
    for (int i = 0; i < GRAINS; i++) gradients[i] = calloc(count, sizeof(float));
    for (int rank = 0, first = 0; first < GRAINS; first += shares[rank++]) {
        int trees[TUTTI_SUBTREES_MAX + 1];
        int subtrees = tutti_grain_subtrees(GRAINS, first, shares[rank], trees);
        for (int k = 0; k < subtrees; k++) sizes[made + k] = trees[k + 1] - trees[k];
        made += rank_step(model, batch, first, shares[rank], threads, gradients + made, losses);
    }
    join_trees(gradients, sizes, GRAINS, count);
    CHECK(memcmp(gradients[0], expected, count * sizeof(float)) == 0);
    CHECK(memcmp(losses, expected_losses, sizeof losses) == 0);
    for (int i = 0; i < GRAINS; i++) free(gradients[i]);
}

static void same_bits(double dropout)
{
    tutti_gpt gpt = small;
    gpt.dropout = dropout;
    tutti_model *model = nn_gpt(&gpt, 9);
    tutti_batch batch = nn_tokens(SAMPLES, gpt.context, (int32_t)gpt.vocabulary, 10);
    size_t count = tutti_model_elements(model);
    float *expected = calloc(count, sizeof *expected);
    tutti_loss losses[GRAINS];
    rank_step(model, &batch, 0, GRAINS, 1, &expected, losses);
    CHECK(squares(expected, count) > 0);
    static const int shares[][GRAINS] = {{6}, {4, 2}, {3, 3}, {2, 2, 2}, {1, 5}, {1, 1, 1, 1, 1, 1}, {3, 2, 1}};
    for (size_t i = 0; i < sizeof shares / sizeof *shares; i++)
        for (int threads = 1; threads <= 3; threads++) layout(model, &batch, shares[i], threads, expected, losses);
    free(expected);
    nn_batch_free(&batch);
    tutti_model_free(model);
}

int main(void)
{
    nn_need_blas();
    first_loss();
    slopes();
    overfit();
    same_bits(0);
    same_bits(0.1);
    return check_end();
}
