/* SPDX-License-Identifier: Apache-2.0
 * ctest: timeout=60 labels=asan
 *
 * Kernels: every instruction set gives the same bits, exp is as exact as it says, random numbers are what they should be.
 */
#include "check_nn.h"
#include "nn/nn_kernels.h"
#include "nn/random_key.h"

#include <math.h>
#include <string.h>

enum { COUNT = 1000, WIDTH = 125, ROWS = 8 };

static const struct tti_nn_kernels *const sets[] = {
    &tti_nn_kernels_portable,
#if defined(__x86_64__)
    &tti_nn_kernels_avx2,
    &tti_nn_kernels_avx512,
#endif
};

struct result {
    float values[24][COUNT];
};

static void run(const struct tti_nn_kernels *k, const float *a, const float *b, struct result *result)
{
    const uint32_t key[2] = {12345, 678};
    float(*to)[COUNT] = result->values;
    float statistics[2 * ROWS];
    memset(result, 0, sizeof *result);
    k->add(to[0], a, b, COUNT);
    k->gelu(to[1], a, COUNT);
    memcpy(to[2], b, sizeof to[2]);
    k->gelu_backward(to[2], a, COUNT);
    k->relu(to[3], a, COUNT);
    k->dropout(to[4], a, b, COUNT - 3, key, 77, 5, 0.75f);
    k->normal(to[5], COUNT - 3, key, 3, 0.5f);
    k->uniform(to[6], COUNT - 3, key, 61, 0.5f);
    k->layer_norm(to[7], statistics, a, b, b, ROWS, WIDTH);
    k->layer_norm_input(to[8], a, b, a, statistics, b, ROWS, WIDTH);
    k->layer_norm_weights(to[9], to[10], b, a, statistics, ROWS, WIDTH, false);
    k->rms_norm(to[11], statistics, a, b, ROWS, WIDTH);
    k->rms_norm_input(to[12], a, b, a, statistics, b, ROWS, WIDTH);
    k->rms_norm_weights(to[13], b, a, statistics, ROWS, WIDTH, false);
    memcpy(to[14], a, sizeof to[14]);
    to[15][0] = k->softmax(to[14], 333, 500, 0.3f);
    memcpy(to[16], b, sizeof to[16]);
    k->softmax_backward(to[16], to[14], 333, 500, 0.3f);
    to[17][0] = -INFINITY;
    k->exp_sum(a, 777, &to[17][0], &to[17][1]);
    memcpy(to[18], a, sizeof to[18]);
    k->exp_shifted(to[18], COUNT - 5, 0.25f, 3);
    k->column_sums(to[19], a, ROWS, WIDTH, WIDTH, false);
    k->fill(to[20], b, a, ROWS, WIDTH);
    memcpy(to[21], a, sizeof to[21]);
    k->softmax_again(to[21], 100, 128, 0.3f, to[15][0]);
    memcpy(to[22], b, sizeof to[22]);
    k->relu_backward(to[22], a, COUNT - 1);
}

static void same_bits(void)
{
    static struct result expected, seen;
    float a[COUNT], b[COUNT];
    uint64_t state = 1;
    for (int i = 0; i < COUNT; i++) {
        a[i] = (float)(4 * nn_uniform(&state));
        b[i] = (float)nn_uniform(&state);
    }
    run(sets[0], a, b, &expected);
    for (size_t i = 1; i < sizeof sets / sizeof *sets; i++) {
        if (!sets[i]->usable()) continue;
        run(sets[i], a, b, &seen);
        for (int v = 0; v < 24; v++)
            if (!CHECK(memcmp(expected.values[v], seen.values[v], sizeof seen.values[v]) == 0))
                printf("%s differs in result %d\n", sets[i]->name, v);
    }
}

static void exact_exp(void)
{
    double worst = 0;
    for (double x = -87; x < 88; x += 0.00317) {
        float value = (float)x;
        tti_nn_kernels()->exp_shifted(&value, 1, 0, 1);
        worst = fmax(worst, fabs((double)value / exp((double)(float)x) - 1));
    }
    if (!CHECK(worst < 1.2e-7)) printf("exp is off by %g\n", worst);
    float odd[4] = {NAN, 1000, -1000, -INFINITY};
    tti_nn_kernels()->exp_shifted(odd, 4, 0, 1);
    CHECK(isnan(odd[0]) && odd[1] > 1e38f && odd[2] >= 0 && odd[2] < 2e-38f && odd[3] >= 0 && odd[3] < 2e-38f);
}

/* Mean, deviation, and the fourth moment, which is 3 for a normal distribution. Philox's own test vector is in none of
 * these streams; that pieces of a stream fit together is. */
static void random_numbers(void)
{
    enum { MANY = 200000 };
    static float values[MANY], again[100];
    uint32_t key[2], other[2];
    tti_random_key(1, "wte.weight", key);
    tti_random_key(1, "wpe.weight", other);
    CHECK(key[0] != other[0] && key[1] != other[1]);
    tti_nn_kernels()->normal(values, MANY, key, 0, 1);
    double sum = 0, second = 0, fourth = 0;
    for (int i = 0; i < MANY; i++) {
        double x = (double)values[i];
        sum += x;
        second += x * x;
        fourth += x * x * x * x;
    }
    CHECK(fabs(sum / MANY) < 0.01 && fabs(second / MANY - 1) < 0.015 && fabs(fourth / MANY - 3) < 0.1);
    tti_nn_kernels()->normal(again, 100, key, 777, 1);
    CHECK(memcmp(again, values + 777, sizeof again) == 0);
    tti_nn_kernels()->normal(again, 100, other, 777, 1);
    CHECK(memcmp(again, values + 777, sizeof again) != 0);
}

static void nonfinite(void)
{
    float values[COUNT] = {0};
    for (int i = 0; i < COUNT; i += 7) {
        memset(values, 0, sizeof values);
        values[i] = i % 2 ? NAN : -INFINITY;
        for (size_t s = 0; s < sizeof sets / sizeof *sets; s++)
            if (sets[s]->usable()) CHECK(sets[s]->find_nonfinite(values, COUNT) == i);
        CHECK(tti_nn_kernels()->find_nonfinite(values, (size_t)i) == -1);
    }
}

int main(void)
{
    same_bits();
    exact_exp();
    random_numbers();
    nonfinite();
    return check_end();
}
