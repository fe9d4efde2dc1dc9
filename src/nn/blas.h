/* SPDX-License-Identifier: Apache-2.0
 *
 * Matrix products by OpenBLAS, which is loaded at run time. One BLAS thread per call: our own threads are above it.
 */
#ifndef TTI_NN_BLAS_H
#define TTI_NN_BLAS_H

#include <stdbool.h>
#include <stdint.h>
#include <tutti/train.h>

/* Loads it once per process. */
tutti_status tti_blas_load(tutti_error *error);
/* To be called after a pool was made, and before its threads multiply: ERR_LIMIT where the address space that this
 * process may use has no room for what OpenBLAS maps for each thread. */
tutti_status tti_blas_reserve(tutti_error *error);

/* A matrix in rows, `stride` floats from one row to the next. */
struct tti_matrix {
    const float *data;
    int64_t stride;
    bool transposed; /* used as its transpose */
};

/* out (m, n) = a (m, k) * b (k, n), added to what `out` holds where `add`. */
void tti_gemm(int64_t m, int64_t n, int64_t k, struct tti_matrix a, struct tti_matrix b, bool add, float *out,
              int64_t out_stride);

#endif
