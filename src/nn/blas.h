/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by OpenBLAS, which is loaded at run time. OpenBLAS uses one thread per call: the pool's threads call
 * it.
 */
#ifndef TTI_NN_BLAS_H
#define TTI_NN_BLAS_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/train.h>

/* Loads the library, once per process. */
tutti_status tti_blas_load(tutti_error *error);
/* Called after a pool was made, and before its threads multiply: ERR_LIMIT if the address space that this process may
 * use has no room for the memory that OpenBLAS maps for each thread. */
tutti_status tti_blas_reserve(tutti_error *error);

/* A matrix of rows, `stride` floats from one row to the next. */
struct tti_matrix {
    const float *data;
    int64_t stride;
    bool transposed; /* the transpose is used */
};

/* Computes out (m, n) = a (m, k) * b (k, n); with `add` the product is added to the contents of `out`. */
void tti_gemm(int64_t m, int64_t n, int64_t k, struct tti_matrix a, struct tti_matrix b, bool add, float *out,
              int64_t out_stride);

#endif
