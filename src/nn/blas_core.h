/* SPDX-License-Identifier: Apache-2.0
 *
 * The kernels with which OpenBLAS multiplies. It chooses them when it is loaded, by the CPU's model number: on a CPU
 * that is newer than itself it takes its oldest, which are up to ten times slower. Then it is loaded again, with
 * OPENBLAS_CORETYPE set to kernels that the CPU's features allow.
 */
#ifndef TTI_NN_BLAS_CORE_H
#define TTI_NN_BLAS_CORE_H

#include <tutti/train.h>

/* Loads the library; NULL: it cannot be loaded. */
typedef void *tti_core_open(void);

/* Checks the kernels of a library that was just loaded and of which nothing is used yet, and finds better ones if they
 * are old. Returns the library, perhaps under another handle, or NULL if it could not be loaded again. If no better
 * ones are found, a warning is logged. `reopen` NULL: the library cannot be unloaded. Called once per process. */
void *tti_core_fit(void *library, tti_core_open *reopen);

#endif
