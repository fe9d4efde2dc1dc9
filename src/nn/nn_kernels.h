/* SPDX-License-Identifier: Apache-2.0
 *
 * All computations of layers that are no matrix products. nn_kernels.inc is compiled once per instruction set. It works
 * in vectors of 16 floats on every machine, lowered to the machine's own, adds lanes up in one fixed tree and fuses no
 * multiplications with additions: every set computes the same bits.
 *
 * exp has a relative error below 1.2e-7 (one unit in the last place or so) between -87 and 88 and saturates outside;
 * NaN stays NaN everywhere.
 */
#ifndef TTI_NN_NN_KERNELS_H
#define TTI_NN_NN_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct tti_nn_kernels {
    const char *name;
    bool (*usable)(void); /* returns true if this CPU can run them */

    /* Functions of n elements. `out` may be any of the inputs. */
    void (*add)(float *out, const float *a, const float *b, size_t n);
    void (*gelu)(float *out, const float *in, size_t n);
    void (*gelu_backward)(float *gradient, const float *in, size_t n); /* gradient *= gelu'(in) */
    void (*relu)(float *out, const float *in, size_t n);
    void (*relu_backward)(float *gradient, const float *in, size_t n);
    /* out = in * mask / keep; the mask is made of random numbers `first`, `first` + 1, ... of the key; add may be
     * NULL. */
    void (*dropout)(float *out, const float *in, const float *add, size_t n, const uint32_t key[2], uint64_t first,
                    uint32_t step, float keep);
    /* out[i] = scale * normal(key, first + i); uniform: in [-scale, scale). */
    void (*normal)(float *out, size_t n, const uint32_t key[2], uint64_t first, float scale);
    void (*uniform)(float *out, size_t n, const uint32_t key[2], uint64_t first, float scale);
    ptrdiff_t (*find_nonfinite)(const float *in, size_t n); /* returns the index, or -1 */

    /* Functions of `rows` rows with `width` elements each. */
    void (*fill)(float *out, const float *bias, const float *add, size_t rows, size_t width); /* both may be NULL */
    void (*column_sums)(float *out, const float *in, size_t rows, size_t width, size_t stride, bool accumulate);
    /* statistics: the mean and 1 / deviation of each row */
    void (*layer_norm)(float *out, float *statistics, const float *in, const float *weight, const float *bias,
                       size_t rows, size_t width);
    void (*layer_norm_input)(float *in_gradient, const float *add, const float *out_gradient, const float *in,
                             const float *statistics, const float *weight, size_t rows, size_t width);
    void (*layer_norm_weights)(float *weight_gradient, float *bias_gradient, const float *out_gradient, const float *in,
                               const float *statistics, size_t rows, size_t width, bool accumulate);
    void (*rms_norm)(float *out, float *statistics, const float *in, const float *weight, size_t rows, size_t width);
    void (*rms_norm_input)(float *in_gradient, const float *add, const float *out_gradient, const float *in,
                           const float *statistics, const float *weight, size_t rows, size_t width);
    void (*rms_norm_weights)(float *weight_gradient, const float *out_gradient, const float *in,
                             const float *statistics, size_t rows, size_t width, bool accumulate);

    /* Computes one row of attention scores: the first `valid` of n are scaled, exponentiated and normalised, the others
     * are 0. Returns the shift of the exponents: the logarithm of their sum. */
    float (*softmax)(float *row, size_t valid, size_t n, float scale);
    /* Computes the same again from the known shift. */
    void (*softmax_again)(float *row, size_t valid, size_t n, float scale, float shift);
    /* row = scale * p * (row - sum(row * p)), for the first `valid`; the others 0 */
    void (*softmax_backward)(float *row, const float *p, size_t valid, size_t n, float scale);
    /* Updates the maximum and the sum of exp(x - maximum) of a row that comes in pieces. */
    void (*exp_sum)(const float *row, size_t n, float *maximum, float *sum);
    void (*exp_shifted)(float *row, size_t n, float shift, float factor); /* row = factor * exp(row - shift) */
    double (*squared_difference)(float *gradient, const float *a, const float *b, size_t n); /* gradient = a - b */
};

extern const struct tti_nn_kernels tti_nn_kernels_portable;
#if defined(__x86_64__)
extern const struct tti_nn_kernels tti_nn_kernels_avx2;
extern const struct tti_nn_kernels tti_nn_kernels_avx512;
#endif

/* Returns the best set that this CPU can run. */
const struct tti_nn_kernels *tti_nn_kernels(void);

#endif
